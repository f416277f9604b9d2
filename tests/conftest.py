"""Strict settings for every test: no implicit dtype or rank promotion, no hidden float64.

Compiling takes most of the time of these tests, so that the workers share what they compiled (on
disk, keyed by the program), and drop it before Linux runs out of memory maps for it. The tests that
are not slow compile with XLA's older emitters, in less than two thirds of the time; the slow ones,
which have the long comparisons with the references, as users do.
"""

import os
import pathlib

import jax
import jaxlib
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

jax.config.update(
    "jax_compilation_cache_dir",
    str(pathlib.Path(__file__).parent.parent / ".pytest_cache" / "compiled"),
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

# A process may have 65,530 maps (vm.max_map_count); a compiled round of a full matrix takes 300.
MANY_MAPS = 30_000

OLDER_EMITTERS = "--xla_cpu_use_fusion_emitters=false"


def pytest_configure(config):
    # XLA refuses flags that it does not know, so only versions that were tried have it.
    if config.getoption("markexpr") == "not slow" and jaxlib.__version__.startswith("0.10."):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {OLDER_EMITTERS}".strip()


settings.register_profile(
    "varynorm",
    deadline=None,
    max_examples=100,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("varynorm")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def room_for_compiled_programs():
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
