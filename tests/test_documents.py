"""The examples of README and documentation, and the Colabs, do what they say."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import jax
import pytest

import optax_varynorm as vn
from tools import run_readme

ROOT = run_readme.README.parent
COLABS = sorted((ROOT / "colabs").glob("*.ipynb"))
PAGES = {
    f"{page.stem}-{number}": source
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, source in enumerate(run_readme.examples(page))
}


@pytest.fixture(autouse=True)
def _as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("number", range(1, len(run_readme.examples())))
def test_readme_examples_run(number):
    """All but the first, whose table is compared below."""
    source = run_readme.examples()[number]
    exec(compile(source, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("name", PAGES)
def test_the_documentations_examples_run(name):
    exec(compile(PAGES[name], name, "exec"), {"__name__": "__main__"})


def test_the_first_example_prints_the_readmes_table():
    """Word for word; another machine may round the third digit differently."""
    printed = subprocess.run(
        [sys.executable, run_readme.__file__], capture_output=True, text=True, check=True
    ).stdout.split()
    documents = run_readme.README.read_text().split("\nIt prints\n")[1].split("```")[1].split()
    assert len(printed) == len(documents)
    for ours, written in zip(printed, documents, strict=True):
        if re.fullmatch(r"\d+\.\d+", written):
            assert float(ours) == pytest.approx(float(written), rel=0.02)
        else:
            assert ours == written


@pytest.mark.parametrize("path", COLABS, ids=lambda path: path.stem)
def test_colabs_run_and_store_no_output(path: pathlib.Path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(cells) <= 20
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    namespace: dict = {"__name__": "__main__"}
    for cell in code:
        exec(compile("".join(cell["source"]), path.name, "exec"), namespace)
    assert "assert" in "".join(code[-1]["source"]), "the last cell asserts the claim"


@pytest.mark.parametrize("path", COLABS, ids=lambda path: path.stem)
def test_colabs_open_in_colab_and_install_what_is_missing(path: pathlib.Path):
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    repository = urls["Repository"].removeprefix("https://github.com/")
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    colab = f"https://colab.research.google.com/github/{repository}/blob/main/colabs/{path.name}"
    assert cells[0].endswith(f"]({colab})")
    assert cells[1].startswith("# ")
    assert 'find_spec("optax_varynorm") is None:' in cells[2]


def test_the_citation_is_of_this_version():
    assert f"\nversion: {vn.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_there_are_colabs_and_pages_with_examples():
    assert COLABS
    assert PAGES
