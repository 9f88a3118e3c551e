from datetime import UTC, datetime

import pytest

from mqlog_jobs.output import line_format
from mqstore.errors import InvalidOptionError, InvalidSchemaError

ROW = {
    "topic": "T",
    "queueId": 3,
    "keys": None,
    "body": b"a {topic} \xff",
    "storeTimestamp": datetime(2026, 11, 21, 9, 0, 0, 5000, tzinfo=UTC),
    "properties": [("a", "1"), ("b", "2")],
}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{topic}/{queueId}", "T/3"),
        (r"{topic}\t{keys}\t{body}", "T\t\ta {topic} \ufffd"),
        (r"\{topic} \\ {QUEUEID}", r"{topic} \ 3"),
        ("{storeTimestamp} {properties}", "2026-11-21T09:00:00.005Z a=1 b=2"),
        ("{} 100% {queueId}", "{} 100% 3"),
    ],
)
def test_columns_in_braces_are_replaced_and_nothing_in_a_message_is(text: str, filled: str) -> None:
    assert line_format.parse(text).fill(ROW) == filled + "\n"


def test_each_column_is_read_once() -> None:
    assert line_format.parse("{body}{topic}{body}").columns == ("body", "topic")


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidSchemaError, match="did you mean body"):
        line_format.parse("{bodyy}")


@pytest.mark.parametrize("text", ["%t %o", r"\{topic}", ""])
def test_a_format_without_a_column_is_refused_with_one_that_has_some(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"names no column: .* '\{keys\} \{body\}'"):
        line_format.parse(text)


def test_a_brace_that_is_not_closed_behind_a_column_is_named() -> None:
    for text in ("{keys", "{topic} {keys {body}", '{"k": {keys"}'):
        with pytest.raises(
            InvalidOptionError, match=r"no closing brace behind \{keys: write \{keys"
        ):
            line_format.parse(text)
    assert line_format.parse(r'{"k": "{keys}", "n": {queueId}} \{body {word').columns == (
        "keys",
        "queueId",
    )


def test_on_a_terminal_a_message_is_one_line_and_gives_no_commands() -> None:
    row = ROW | {
        "keys": "\x1b]0;owned\x07",
        "body": "one\ntwo\u2028\u202e\x9b2J \u00fc ✓".encode(),
        "properties": [("a\r", "\x1b[2J")],
    }
    shape = line_format.parse(r"{keys}\t{body} {properties}")

    assert shape.fill(row, escaped=True) == (
        "\\x1b]0;owned\\x07\tone\\ntwo\\u2028\\u202e\\x9b2J ü ✓ a\\r=\\x1b[2J\n"
    )
    assert shape.fill(row) == ("\x1b]0;owned\x07\tone\ntwo\u2028\u202e\x9b2J ü ✓ a\r=\x1b[2J\n")
