"""Strict settings for every test: no implicit dtype or rank promotion, no hidden float64."""

import jax
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

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
