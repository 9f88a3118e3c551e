"""The page of a report: whatever a store holds is text in it, and nothing comes from outside."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.output.amounts import short
from mqlog_jobs.report import charts
from mqlog_jobs.report.facts import Looked, TagHeld, Tags
from mqlog_jobs.report.markup import element, stylesheet
from mqlog_jobs.report.tag_bars import TagColours, tag_bar
from mqstore.format.names import TRACE_TOPIC
from support.oracle import Message
from support.stores import lay_out

HOSTILE = (
    "</td></style><script>alert(1)</script><img src=x onerror=alert(2)>\"' &amp; \u202e\x00\x1b[2J"
)
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\x00", "\\x00").replace("\x1b", "\\x1b")
ATTRIBUTES = {"href", "src", "srcset", "style", "xlink:href", "action", "data", "background"}


class Read(HTMLParser):
    """What a browser takes the page for; a tag that closes another one is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.texts: list[str] = []
        self.names: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ATTRIBUTES:
                self.links.append(f"{tag} {name} {value}")
            if name == "id":
                self.names.append(str(value))
        if tag not in {"meta", "wbr"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def report(run: Run, tmp_path: Path) -> Callable[[Path], str]:
    def written(root: Path) -> str:
        target = tmp_path / "report.html"
        assert run("report", root, "-o", target)[::2] == (0, "")
        return target.read_text(encoding="utf-8")

    return written


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A store whose tags, groups, topics and files have names made to break out of a page."""
    body = f"TAGS\x01{HOSTILE.replace(chr(0), '')}\x02".encode()
    messages = [Message(topic="T", properties=body, queue_id=n % 2) for n in range(9)]
    messages.append(Message(topic="T", properties=b"UNIQ_KEY\x01traced\x02"))
    event = "\x01".join(("SubBefore", "1", "R", HOSTILE, "call", "traced", "0", "k"))
    messages.append(Message(topic=TRACE_TOPIC, body=f"{event}\x02".encode()))
    laid = lay_out(tmp_path / "<b>broker" / "store", messages)
    offsets = {f"T@{HOSTILE}": {"0": 1, "1": 900}, "%RETRY%<i>@G<b>": {"0": 3}}
    config = laid.root / "config"
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (config / "<u>.json").write_text(f"{{{HOSTILE}")
    (laid.root / "commitlog" / "<script>alert(4)<!--").write_text("x")
    (laid.root / "consumequeue" / "%LMQ%<svg onload=alert(5)>" / "0").mkdir(parents=True)
    return laid.root


def test_names_of_a_hostile_store_are_text(hostile: Path, report: Callable[[Path], str]) -> None:
    text = report(hostile)
    read = Read(text)

    assert "script" not in read.tags
    assert "img" not in read.tags
    assert {link.partition(" href #")[0] for link in read.links} == {"a"}
    told = "\n".join(read.texts)
    assert SHOWN.replace("\\x00", "") in told  # The tag.
    assert "".join(read.texts).count(SHOWN) >= 2  # The group, in its table and in the list.
    assert f"T → {SHOWN}" in "".join(read.texts)  # A group of the traces.
    assert "<script>alert(4)<!--" in told
    assert all(c.isprintable() or c == "\n" for c in text)


def test_a_page_is_whole_and_has_nothing_from_outside(
    golden_550: Path, report: Callable[[Path], str]
) -> None:
    text = report(golden_550)
    read = Read(text)

    assert not read.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert len(read.names) == len(set(read.names))
    assert {link.partition(" href #")[2] for link in read.links} <= set(read.names)
    assert not re.search(r"https?:|url\(|@import", text)
    assert "default-src &#x27;none&#x27;" in text


def test_text_and_attributes_are_escaped_and_a_stylesheet_cannot_end_itself() -> None:
    found = "".join(
        element("b", "<&\n\"'", element("wbr"), None, 1, title="\"<'", hidden=True).parts()
    )

    assert found == '<b title="&quot;&lt;&#x27;" hidden="">&lt;&amp;\n"\'<wbr>1</b>'
    with pytest.raises(ValueError, match="must not have"):
        stylesheet("a{}</style>")


@pytest.mark.parametrize(
    ("most", "top", "ticks"),
    [
        (0, 1, [0]),
        (1, 1, [0, 0.25, 0.5, 0.75, 1]),
        (4, 4, [0, 1, 2, 3, 4]),
        (9.283, 10, [0, 2.5, 5, 7.5, 10]),
        (512, 600, [0, 200, 400, 600]),
        (1e6, 1e6, [0, 25e4, 5e5, 75e4, 1e6]),
    ],
)
def test_an_axis_ends_at_a_round_number_above_all_values(
    most: float, top: float, ticks: list[float]
) -> None:
    assert charts.scale(most) == (top, ticks)
    assert top >= most


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (1500, "1,500"), (15_000, "15k"), (2_500_000, "2.5M"), (4e9, "4G")],
)
def test_a_number_on_an_axis_is_short(value: float, text: str) -> None:
    assert short(value) == text


def test_columns_stand_on_each_other_and_tell_their_sum() -> None:
    time = charts.Timeline(1_700_000_000_000, 3_600_000, 2)
    text = "".join(charts.columns({"a": [1, 0], "b": [3, 0]}, time, "what <it> shows").parts())

    assert 'role="img" aria-label="what &lt;it&gt; shows"' in text
    assert "<title>2023-11-14 22:13:20: 4</title>" in text
    bars = re.findall(
        r'class="(s\d)" x="([\d.]+)%" width="([\d.]+)%" y="([\d.]+)" height="([\d.]+)"', text
    )
    assert [(bar[0], float(bar[1])) for bar in bars] == [("s0", 0), ("s1", 0)]
    (_, _, width, y0, tall0), (_, _, _, y1, tall1) = bars
    assert float(width) < 50
    assert float(tall1) == pytest.approx(3 * float(tall0))
    assert float(y1) + float(tall1) == pytest.approx(float(y0))


def test_a_tag_has_one_colour_in_all_of_a_page_and_no_two_of_a_row_share_one() -> None:
    rows = [["a", "b", None], ["c", "a"], ["d", "e", "f", "g", "h", "i"], ["g", "a", "b", "i"]]
    tags = [
        Tags(tuple(TagHeld(tag, 9 - n, 1) for n, tag in enumerate(row)), 0, Looked(9, 9))
        for row in rows
    ]
    colours = TagColours([None, *tags])
    bars = ["".join(tag_bar(its, colours)[0].parts()) for its in tags]
    shown = [re.findall(r'<rect class="(\w+)"', drawn)[1:] for drawn in bars]

    assert shown == [[colours.of(tag) for tag in row] for row in rows]
    assert all(len(set(row)) == len(row) for row in shown)
    assert "rest" not in {name for row in shown for name in row}


def test_more_tags_than_colours_in_the_same_rows_are_shown_as_the_rest() -> None:
    one, other = (
        Tags(tuple(TagHeld(f"t{n}", 99 - n, 1) for n in some), 0, Looked(9, 9))
        for some in (range(6), (0, 1, 2, 3, 4, 6))
    )
    alike = TagColours([one, other])
    assert alike.of("t5") == alike.of("t6")
    third = Tags((TagHeld("t5", 2, 1), TagHeld("t6", 1, 1)), 0, Looked(9, 9))
    apart = TagColours([one, other, third])
    assert [apart.of(f"t{n}") for n in range(7)] == ["s0", "s1", "s2", "s3", "s4", "s5", "rest"]


def test_a_sample_is_marked_as_one_beside_each_share() -> None:
    held = tuple(TagHeld(f"t{n}", 30 - n, 1) for n in range(8))
    sampled, whole = (
        "".join(tag_bar(Tags(held, 2, Looked(looked, 1000)), TagColours())[1].parts())
        for looked in (10, 1000)
    )

    assert "<b>≈ 3%</b>" in sampled
    assert "≈" not in whole
    assert "4 others" in whole
