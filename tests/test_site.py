"""The documentation site builds without warnings, has every public name, and needs no network."""

import html.parser
import pathlib
import re
import subprocess
import sys
import zlib

import pytest

import optax_varynorm as vn
from optax_varynorm import estimators

ROOT = pathlib.Path(__file__).parent.parent
# Elements that a browser fetches something for. A link to be followed is none of them.
FETCHED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "image": "href",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "use": "href",
    "video": "src",
}
ON_THE_NETWORK = re.compile(r"\s*(\w+:)?//")
IN_A_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?\s*(?:\w+:)?//""")


class References(html.parser.HTMLParser):
    """Collects what a page fetches from the network."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        targets = [given.get(FETCHED.get(tag)), *(given.get("srcset") or "").split(",")]
        self.found += [target for target in targets if target and ON_THE_NETWORK.match(target)]
        self.found += IN_A_STYLE.findall(given.get("style") or "")

    def handle_data(self, data):
        if self.get_starttag_text() and self.get_starttag_text().startswith("<style"):
            self.found += IN_A_STYLE.findall(data)


def fetched_from_the_network(page: str) -> list[str]:
    references = References()
    references.feed(page)
    return references.found


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example.org/mathjax.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        '<img src="http://example.org/badge.svg">',
        '<img srcset="a.png, https://example.org/b.png 2x">',
        '<p style="background: url(https://example.org/a.png)">',
        "<style>@import '//example.org/a.css';</style>",
    ],
)
def test_what_is_on_the_network_is_found(page):
    assert fetched_from_the_network(page)


def test_links_and_own_files_are_no_complaint():
    page = (
        '<a href="https://example.org">x</a><img src="_static/a.svg"><script src="a.js"></script>'
    )
    assert not fetched_from_the_network(page)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    for package in ("sphinx", "furo", "myst_parser", "latex2mathml"):
        pytest.importorskip(package, reason="pip install 'optax-varynorm[docs]'")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_no_page_needs_the_network(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    found = {page.name: fetched_from_the_network(page.read_text()) for page in pages}
    assert not {name: references for name, references in found.items() if references}
    for style in site.rglob("*.css"):
        assert not IN_A_STYLE.findall(style.read_text()), style


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    documented = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    public = {f"optax_varynorm.{name}" for name in vn.__all__ if name != "certificates"}
    public |= {f"optax_varynorm.estimators.{name}" for name in estimators.__all__}
    # Those that `vn` exports too are under its name.
    public |= {
        f"optax_varynorm.certificates.{name}"
        for name in vn.certificates.__all__
        if name not in vn.__all__
    }
    assert public <= documented, public - documented


@pytest.mark.slow
def test_formulas_are_mathml_and_colabs_have_pages(site):
    assert "<math" in (site / "how_it_works.html").read_text()
    for colab in (ROOT / "colabs").glob("*.ipynb"):
        page = (site / "colabs" / f"{colab.stem}.html").read_text()
        assert f"colabs/{colab.name}" in page
