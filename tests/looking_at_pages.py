"""What the tests of the report share: an HTML parser, and a real browser where there is one."""

import collections
import html.parser
import pathlib
import re
import shutil
from typing import NamedTuple

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PHONE, DESK = 390, 1200


class Page(html.parser.HTMLParser):
    """Tags by name, ids, and every address that a browser would follow by itself."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: collections.Counter = collections.Counter()
        self.ids: list[str] = []
        self.addresses = re.findall(r"url\((?!#)([^)]*)\)|@import\s+(\S+)", text)
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            is_address = name in ("src", "srcset", "href", "xlink:href", "action", "data")
            if is_address and not value.startswith(("#", "data:,")):
                self.addresses.append(value)
            assert not name.startswith("on"), f"a script in {name}"


class Seen(NamedTuple):
    """``drawings``: width and height of each, and how many shapes it has."""

    requests: list[str]
    messages: list[str]
    width: int
    background: str
    drawings: list[list[float]]


def look(path: pathlib.Path, width: int, color_scheme: str) -> Seen:
    """The page in a headless Chromium; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=color_scheme)
        requests: list[str] = []
        messages: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(path.as_uri())
        seen = Seen(
            requests,
            messages,
            page.evaluate("document.documentElement.scrollWidth"),
            page.evaluate("getComputedStyle(document.body).backgroundColor"),
            page.evaluate(
                "[...document.querySelectorAll('svg')].map(svg => {"
                "const box = svg.getBoundingClientRect();"
                "const shapes = [...svg.querySelectorAll('path, use')];"
                "const drawn = shapes.filter(shape => shape.getBoundingClientRect().width > 0);"
                "return [box.width, box.height, drawn.length]})"
            ),
        )
        browser.close()
    return seen
