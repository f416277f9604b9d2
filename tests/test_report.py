"""The page needs nothing but itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import optax_varynorm as vn
from optax_varynorm import report
from tests.looking_at_pages import DESK, PHONE, Page, look


def drawing(slope):
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, slope], label="a line")
    axes.legend()
    return figure


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "folder" / "page.html"
    table = report.Table("the <table>", ["who", "how much"], [["<b>", "1,000.5"], ["x", "inf"]])
    sections = [
        report.Section("First & last", "one\n\ntwo", [table, report.Figure("up", drawing(1))]),
        report.Section("Second", "", [report.Figure('"down"', drawing(-1))]),
    ]
    made = report.how_it_was_made("a command", seconds=12.3)
    report.write_report(path, "A <title>", sections, made, "what it is")
    return path


def test_the_page_refers_to_nothing_outside(page):
    text = page.read_text()
    parsed = Page(text)
    assert parsed.addresses == []
    assert parsed.tags["script"] == parsed.tags["iframe"] == parsed.tags["img"] == 0
    assert len(parsed.ids) == len(set(parsed.ids)), "two drawings must not share an id"
    assert Page('<img src="https://a.b/c.png"><p style="x: url(d.png)">').addresses != []


def test_the_page_says_what_it_was_given(page):
    text = page.read_text()
    parsed = Page(text)
    assert parsed.tags["svg"] == 2
    assert parsed.tags["path"] > 20
    assert parsed.tags["h2"] == 2
    for words in (
        "<p>one</p><p>two</p>",
        "A &lt;title&gt;",
        "First &amp; last",
        "the &lt;table&gt;",
        "&lt;b&gt;",
    ):
        assert words in text
    assert text.count('<td class="number">') == 2
    assert 'aria-label="&quot;down&quot;"' in text
    assert "command: a command" in text
    assert "time: 12 seconds" in text
    assert "jax" in text


def test_drawings_are_in_the_pages_colours(page):
    text = page.read_text()
    assert "#ffffff" not in text.split("</style>")[1]
    assert "#000000" not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(page, width, scheme):
    seen = look(page, width, scheme)
    assert seen.requests == [page.as_uri()]
    assert seen.messages == []
    assert seen.width == width, "nothing to scroll sideways"
    assert (seen.background == "rgb(255, 255, 255)") == (scheme == "light")
    assert len(seen.drawings) == 2
    for drawn_width, height, shapes in seen.drawings:
        assert 300 < drawn_width <= width
        assert height > 200
        assert shapes > 20


def game(losses, regret=None, bound=None):
    ends = np.array([2, 4])
    history = vn.History(np.asarray(losses), regret, None, None, bound, ends)
    return vn.Game(None, None, history, 1.0, 1.0)


def test_plots_show_the_history():
    axes = Figure().add_subplot()
    vn.plot_race(
        {"one": game([4.0, 2.0, 0.0, 2.0]), "two": game(np.arange(8.0).reshape(2, 4))}, axes
    )
    one, two = axes.get_lines()
    np.testing.assert_allclose(one.get_ydata(), [4, 3, 2, 2])
    np.testing.assert_allclose(two.get_ydata(), [2, 2.5, 3, 3.5])  # the median of two runs
    np.testing.assert_array_equal(one.get_xdata(), [1, 2, 3, 4])
    assert len(axes.collections) == 1, "a band for the one of several runs"

    axes = Figure().add_subplot()
    regret, bound = np.array([1.0, 2.0, 1.5, 1.0]), np.array([3.0, 4.0])
    vn.plot_regret({"one": game(np.ones(4), regret, bound)}, axes)
    played, proven = axes.get_lines()
    np.testing.assert_array_equal(played.get_ydata(), regret)
    np.testing.assert_array_equal(proven.get_xdata(), [2, 4])
    np.testing.assert_array_equal(proven.get_ydata(), bound)
    with pytest.raises(ValueError, match="has no regret"):
        vn.plot_regret({"one": game(np.ones(4))}, axes)


def test_a_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"optax-varynorm\[plot\]"):
        vn.plot_race({"one": game(jnp.ones(4))})
