"""The page of a report as a real browser shows it: light, dark, wide, narrow and printed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqlog_jobs.places import Named
from mqlog_jobs.report.gather import ReportRequest
from mqlog_jobs.report.lag_history import HistoryQuery
from mqlog_jobs.report.write import write_report
from support import browser, goldens, soak

pytestmark = [
    pytest.mark.skipif(browser.PATH is None, reason="needs a browser: apt install chromium"),
    soak.not_in_check,
]

WIDTHS = (1200, 400)
NARROW = 420
SCHEMES = ("light", "dark")
# Every visible text and what is behind it: pairs of colours, as [r, g, b] each.
COLOURS = """
(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a] = rgb(getComputedStyle(e).backgroundColor);
      if (a === undefined || a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    if (!node.data.trim() || !element.getClientRects().length) continue;
    const ink = element instanceof SVGElement ? style.fill : style.color;
    found.push([rgb(ink).slice(0, 3), behind(element), node.data.trim()]);
  }
  return found;
})()
"""
# Bars and columns and their card: what is drawn must be seen too.
FILLS = """
[...document.querySelectorAll('rect[class^="s"]')].map(rect => [
  getComputedStyle(rect).fill.match(/\\d+/g).map(Number),
  getComputedStyle(rect.closest('section')).backgroundColor.match(/\\d+/g).map(Number)])
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A page in a browser, and the file it is from."""

    page: browser.Page
    path: Path

    def open(self, scheme: str = "light", width: int = 1200) -> browser.Page:
        self.page.open(self.path, scheme=scheme, width=width)
        return self.page


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    root, traced = (goldens.unpack(name, folder) for name in ("5.5.0", "5.5.0-traces"))
    topics = traced / "config" / "topics.json"
    topics.write_text(topics.read_text().replace("broker-a", "broker-b"))
    named = Named.of([str(root), str(traced)])
    history = HistoryQuery(str(goldens.SAMPLES)).read(named)
    with named.opened(damaged=True) as stores:
        write_report(stores, ReportRequest(history=history), path, lambda _done, _total: None)
    with browser.browser(folder / "profile") as page:
        yield Shown(page, path)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window_and_a_picture_can_be_taken(
    shown: Shown, tmp_path: Path, scheme: str, width: int
) -> None:
    page = shown.open(scheme, width)

    assert page.value("document.documentElement.scrollWidth") == width
    assert page.value("document.documentElement.scrollHeight") > 1000
    picture = page.picture(tmp_path / f"{scheme}-{width}.png")
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20]) == width


def test_no_table_is_cut_on_a_narrow_page_and_each_cell_says_what_it_is(shown: Shown) -> None:
    page = shown.open(width=NARROW)
    page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert page.value(f"{cut}.map(e => e.getAttribute('aria-label'))") == []
    assert page.value("document.querySelectorAll('td').length") > 50
    assert page.value("document.querySelectorAll('td:not([data-head])').length") == 0
    beside = "getComputedStyle(document.querySelector('#files td'), '::before').content"
    assert page.value(beside) == '"Files"'


def test_a_path_is_broken_behind_its_slashes_only(shown: Shown) -> None:
    for width in WIDTHS:
        page = shown.open(width=width)
        parts = """(() => {
          const code = document.querySelector('.place code');
          return [...code.childNodes].filter(n => n.data).map(n => {
            const range = document.createRange(); range.selectNode(n);
            return [n.data, range.getClientRects().length];
          });
        })()"""
        found = page.value(parts)
        assert "/rocketmq-5.5.0/" in f"/{''.join(text for text, _ in found)}"
        assert {lines for _, lines in found} == {1}


def test_the_page_asks_for_nothing_and_complains_of_nothing(shown: Shown) -> None:
    for scheme in SCHEMES:
        shown.open(scheme)

    assert set(shown.page.requests) == {shown.path.as_uri()}
    assert shown.page.complaints == []
    assert shown.page.value("document.scripts.length") == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_text_stands_out_from_what_is_behind_it(shown: Shown, scheme: str) -> None:
    """WCAG 2.2: 4.5 to 1 for text, 3 to 1 for what is drawn."""
    page = shown.open(scheme)
    page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    texts, fills = page.value(COLOURS), page.value(FILLS)

    assert len(texts) > 200
    assert [text for ink, back, text in texts if contrast(ink, back) < 4.5] == []
    assert len(fills) > 20
    assert [fill for fill, back in fills if contrast(fill, back) < 3] == []


def test_light_is_light_and_dark_is_dark(shown: Shown) -> None:
    light, dark = (
        luminance(
            [int(n) for n in shown.open(scheme).value(
                "getComputedStyle(document.body).backgroundColor.match(/\\d+/g)"
            )]
        )
        for scheme in SCHEMES
    )  # fmt: skip

    assert light > 0.8
    assert dark < 0.1


def test_a_screen_reader_is_told_of_tables_headings_and_charts(shown: Shown) -> None:
    told = shown.open().names()
    names = {role: [name for kind, name in told if kind == role] for role, _ in told}

    assert "Backlog by group and topic" in names["table"]
    assert {"Backlog", "Latency", "Messages stored over time", "Topics", "Tags", "Files"} <= {
        *names["heading"]
    }
    assert {"Topic", "Waiting", "Oldest waits for", "Stage", "99 % within"} <= {
        *names["columnheader"]
    }
    assert "GTopic" in names["rowheader"]
    images = names["image"]
    assert all(images)
    assert any(name.startswith("Columns of messages a minute by topic") for name in images)
    assert names["main"]
    assert names["navigation"] == ["Sections"]


def test_it_prints_on_a_few_pages(shown: Shown, tmp_path: Path) -> None:
    paper = shown.open("dark").printed(tmp_path / "report.pdf")

    assert paper.startswith(b"%PDF")
    assert 1 <= paper.count(b"/Type /Page\n") <= 6


def luminance(colour: list[float]) -> float:
    """WCAG's relative luminance."""
    parts = (c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(one: list[float], other: list[float]) -> float:
    dark, light = sorted((luminance(one[:3]), luminance(other[:3])))
    return (light + 0.05) / (dark + 0.05)
