"""The wheel and the source distribution: what is in them, and that the wheel works on its own."""

import pathlib
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

import optax_varynorm as vn

ROOT = pathlib.Path(__file__).parent.parent
TEN_LINES = """
import jax.numpy as jnp, optax, optax_varynorm as vn
optimizer = vn.varynorm()
params = jnp.zeros(2)
state = optimizer.init(params)
for _ in range(3):
    updates, state = optimizer.update(jnp.array([0.6, -0.8]), state, params)
    params = optax.apply_updates(params, updates)
assert params[0] < 0 < params[1]
print(vn.__file__)
"""


def test_importing_starts_no_backend():
    """So that a user's own configuration of JAX, such as the number of devices, may come after."""
    configure = "import optax_varynorm, jax; jax.config.update('jax_num_cpu_devices', 2); "
    command = [sys.executable, "-c", configure + "print(len(jax.devices('cpu')))"]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "2\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> pathlib.Path:
    pytest.importorskip("hatchling", reason="pip install 'optax-varynorm[test]'")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", folder], cwd=ROOT, check=True
    )
    return folder


def the_only(folder: pathlib.Path, pattern: str) -> pathlib.Path:
    (path,) = folder.glob(pattern)
    return path


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(built):
    with zipfile.ZipFile(the_only(built, "*.whl")) as wheel:
        names = wheel.namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders == {"optax_varynorm", f"optax_varynorm-{vn.__version__}.dist-info"}
    package = pathlib.Path(vn.__file__).parent
    modules = {f"optax_varynorm/{path.relative_to(package)}" for path in package.rglob("*.py")}
    assert modules <= set(names)
    assert "optax_varynorm/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_source_distribution_has_what_its_commands_need(built):
    with tarfile.open(the_only(built, "*.tar.gz")) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    for path in (
        "optax_varynorm/__init__.py",
        "tests/conftest.py",
        "tools/run_readme.py",
        "benchmarks/race.py",
        "colabs/no_learning_rate.ipynb",
        "docs/conf.py",
        "docs/layers.svg",
        "BUILD_NOTES.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "pyproject.toml",
    ):
        assert path in names, path
    # What a build leaves behind is no source.
    assert not [name for name in names if name.startswith(("docs/colabs/", "out/", ".venv"))]


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(built, tmp_path):
    """Fresh but for the dependencies, which are those of the environment that runs the tests."""
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    (site_packages,) = (tmp_path / "fresh").rglob("site-packages")
    # A path in a .pth file is searched after the environment itself; its own .pth files, such as
    # that of an editable install, are not read.
    present = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "dependencies.pth").write_text("\n".join(present) + "\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python),
            *("install", "--quiet", "--no-deps", "--no-index", the_only(built, "*.whl")),
        ],
        check=True,
    )
    ran = subprocess.run(
        [python, "-c", TEN_LINES], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    assert pathlib.Path(ran.stdout.strip()).is_relative_to(site_packages)
    assert (python.parent / "varynorm").exists()
