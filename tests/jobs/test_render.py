import csv
import io
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from mqlog_jobs.output import amounts, render
from mqlog_jobs.output.render import FieldView
from mqlog_jobs.output.table_views import RETRY_VIEW

COLUMNS = (
    FieldView("group", "GROUP", once=True),
    FieldView("topic", "TOPIC", stretch=True),
    FieldView("lag", "LAG", "count"),
    FieldView("bytes", "BEHIND", "bytes", rank=1),
    FieldView("time", "OLDEST", "time", rank=2),
)
ROW = {
    "group": "G",
    "topic": "T",
    "lag": 12345,
    "bytes": 2048,
    "time": datetime(2026, 11, 21, 9, 0, 1, tzinfo=UTC),
}


def drawn(rows: list[dict[str, object]], width: int = 100, *, terminal: bool = True) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None)
    render.table(console, COLUMNS, rows)
    return stream.getvalue().splitlines()


def test_numbers_stand_on_the_right_under_their_heads() -> None:
    head, _, row, *_ = drawn([ROW])

    assert head.rstrip().endswith("OLDEST")
    assert head.index("LAG") + len("LAG") == row.index("12,345") + len("12,345")
    assert head.index("BEHIND") + len("BEHIND") == row.index("2.0 KiB") + len("2.0 KiB")


@pytest.mark.parametrize("width", [20, 30, 38, 50, 100])
def test_a_table_fits_its_terminal_and_says_what_it_leaves_out(width: int) -> None:
    lines = drawn([ROW, ROW | {"topic": "a-topic-with-a-name-that-is-long"}], width)

    assert all(len(line.rstrip()) <= width for line in lines)
    assert "LAG" in lines[0]
    left_out = [name for name in ("BEHIND", "OLDEST") if name not in lines[0]]
    assert all(name in " ".join(lines[1:]) for name in left_out)


@pytest.mark.parametrize(
    ("width", "said"),
    [(60, []), (50, ["not shown, the terminal is too narrow: BEHIND"])],
)
def test_a_bar_that_goes_is_not_missed(width: int, said: list[str]) -> None:
    columns = (
        FieldView("topic", "TOPIC"),
        FieldView("lag", "LAG", "count"),
        FieldView("share", "", "bar", rank=2),
        FieldView("bytes", "BEHIND", "bytes", rank=1),
    )
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    render.table(console, columns, [ROW | {"topic": "t" * 40, "share": 1}])

    assert [line for line in stream.getvalue().splitlines() if "not shown" in line] == said


def test_of_two_columns_that_may_be_cut_the_wider_one_is() -> None:
    columns = (
        FieldView("group", "GROUP", stretch=True),
        FieldView("topic", "TOPIC", stretch=True),
    )
    stream = io.StringIO()
    console = Console(file=stream, width=30, force_terminal=True, color_system=None)
    render.table(console, columns, [ROW | {"group": "CG_SHOP", "topic": "t" * 100_000}])

    assert stream.getvalue().splitlines()[2].rstrip() == f"CG_SHOP  {'t' * 20}…"


def test_a_column_that_wraps_is_never_cut() -> None:
    columns = (
        FieldView("lag", "LAG", "count"),
        FieldView("topic", "TOPIC", stretch=True, wrap=True),
    )
    stream = io.StringIO()
    console = Console(file=stream, width=30, force_terminal=True, color_system=None)
    render.table(console, columns, [ROW | {"topic": "a sentence that is longer than its line"}])

    words = " ".join(line[8:].strip() for line in stream.getvalue().splitlines()[2:])
    assert words.strip() == "a sentence that is longer than its line"


def test_nothing_is_left_out_in_a_pipe_and_no_line_ends_in_blanks() -> None:
    lines = drawn([ROW | {"topic": "x" * 150}], width=10_000, terminal=False)

    assert "x" * 150 in lines[2]
    assert lines == [line.rstrip() for line in lines]


def test_a_value_that_repeats_is_shown_once_a_section() -> None:
    lines = drawn([ROW, ROW, ROW | {"group": "H"}])

    assert [line.split()[0] for line in lines[2:] if line.strip()] == ["G", "T", "H"]


def test_values_that_do_not_stand_together_are_shown_in_every_row() -> None:
    lines = drawn([ROW, ROW | {"group": "H"}, ROW])

    assert [line.split()[:2] for line in lines[2:]] == [["G", "T"], ["H", "T"], ["G", "T"]]


def test_a_value_is_shown_again_where_the_one_before_it_changes() -> None:
    columns = (FieldView("broker", "BROKER", once=True), FieldView("topic", "TOPIC", once=True))
    stream = io.StringIO()
    rows = [{"broker": broker, "topic": "T"} for broker in "aabb"]
    render.table(Console(file=stream, width=80, color_system=None), columns, rows)

    shown = [line.split() for line in stream.getvalue().splitlines()[2:]]
    assert [line for line in shown if line] == [["a", "T"], ["b", "T"]]


def test_nothing_in_a_store_reaches_the_terminal_as_a_command() -> None:
    text = "\n".join(drawn([ROW | {"topic": "\x1b]0;owned\x07[bold]"}]))

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (102_400, "100 KiB"),
        (1024**2 - 1, "1024 KiB"),
        (3 * 1024**3, "3.0 GiB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(value: int, shown: str) -> None:
    assert amounts.size(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (12_000, "12 s"),
        (200_000, "3 m 20 s"),
        (3_600_000, "1 h"),
        (446_400_000, "5 d 4 h"),
    ],
)
def test_spans_have_two_units(value: int, shown: str) -> None:
    assert amounts.span(value) == shown


def test_json_lines_are_one_object_a_line_whatever_is_in_them() -> None:
    stream = io.StringIO()
    rows = [
        {"time": ROW["time"], "body": "line\nend ✓".encode(), "n": None},
        {"time": ROW["time"], "body": b"\xff\x00", "n": 1},
    ]
    render.json_lines(rows, stream)
    first, second = stream.getvalue().splitlines()

    assert json.loads(first) == {"time": "2026-11-21T09:00:01Z", "body": "line\nend ✓", "n": None}
    assert json.loads(second)["body"] is None
    assert json.loads(second)["bodyBase64"] == "/wA="


def test_csv_quotes_what_needs_it_and_leaves_null_empty() -> None:
    stream = io.StringIO()
    render.comma_separated(["a", "b"], [{"a": 'say "x", y', "b": None}], stream)

    assert stream.getvalue() == 'a,b\n"say ""x"", y",\n'


HOSTILE = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) + "\u2028\u202e\u2066\U000e0001ü"


def test_json_has_no_control_characters_and_says_the_same() -> None:
    stream = io.StringIO()
    render.json_lines([{"keys": HOSTILE, "properties": [(HOSTILE, HOSTILE)]}], stream)
    line = stream.getvalue()

    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert json.loads(line) == {"keys": HOSTILE, "properties": {HOSTILE: HOSTILE}}
    assert "ü" in line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_csv_is_exact_for_a_program_and_harmless_on_a_terminal() -> None:
    shown, piped = Terminal(), io.StringIO()
    for stream in (shown, piped):
        render.comma_separated(["tag"], [{"tag": HOSTILE}], stream)

    assert shown.getvalue().replace("\n", "").isprintable()
    assert list(csv.reader(io.StringIO(piped.getvalue(), newline=""))) == [["tag"], [HOSTILE]]


def test_a_heading_gives_no_commands_either() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=400, force_terminal=True, color_system=None)
    render.heading(console, "group" + HOSTILE, "match " + HOSTILE)

    assert stream.getvalue().replace("\n", "").isprintable()


def test_a_pipe_gets_the_lines_that_a_wide_terminal_shows() -> None:
    """They are not drawn by rich there, which takes twenty times as long."""
    columns = [
        render.FieldView("group", "GROUP", once=True, style="bold"),
        render.FieldView("topic", "TOPIC", stretch=True),
        render.FieldView("lag", "LAG", "count"),
        render.FieldView("waiting", "", "bar"),
        render.FieldView("status", "STATUS", "status"),
    ]
    names = ("g", "g", "\u8ba2\u5355", "h\x1b[31m")
    rows = [
        {
            "group": name,
            "topic": "T" * n,
            "lag": n * 1000,
            "waiting": n,
            "status": "OK" if n else None,
        }
        for n, name in enumerate(names)
    ]
    wide, pipe = io.StringIO(), io.StringIO()
    drawn = Console(file=wide, force_terminal=True, color_system=None, width=10_000)
    render.table(drawn, columns, rows)
    render.table(render.terminal(pipe), columns, rows)

    shown = [line.rstrip() for line in wide.getvalue().splitlines()]
    assert pipe.getvalue().splitlines() == shown
    assert len(shown) > len(rows) + 2  # A gap stands between groups.


def test_a_retry_on_a_narrow_terminal_keeps_what_names_the_message() -> None:
    columns = [one for one in RETRY_VIEW if one.name != "state"]
    row = {one.name: None for one in columns} | {
        "kind": "RETRY", "originTopic": "SHOP_ORDERS", "originQueueId": 3,
        "originQueueOffset": 4711,
        "msgId": "F" * 32, "keys": "order-4711", "reconsumeTimes": 3, "tags": "paid",
        "consumed": "19 more", "storeTimestamp": None,
    }  # fmt: skip
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=80)
    render.table(console, columns, [row])

    head = out.getvalue().splitlines()[0].split()
    assert head == ["KIND", "TRIES", "TOPIC", "QUEUE", "OFFSET", "ID"]
