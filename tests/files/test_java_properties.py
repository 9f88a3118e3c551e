"""broker.conf is a Java properties file, and read as java.util.Properties reads it."""

import logging
from pathlib import Path

import pytest

from mqstore.errors import InvalidOptionError
from mqstore.files.config.java_properties import parse_int, parse_properties
from mqstore.read.retention import HOUR_MS, RetentionPolicy, policy_of_file

TABLE: dict[bytes, dict[str, str]] = {
    b"a=1": {"a": "1"},
    b"a: 1\nb 2\nc\t=\t3\nd\f:4": {"a": "1", "b": "2", "c": "3", "d": "4"},
    b"a=\\\n  24\nb=1": {"a": "24", "b": "1"},
    b"a=x\\\r\n\ty\\\rz": {"a": "xyz"},
    b"a=1\\\n#2\n#b=3\n!c=4\n  # d=5": {"a": "1#2"},
    b"a=C:\\store\\\nb=24": {"a": "C:storeb=24"},
    b"a=C\\\\store\\\\\nb=24": {"a": "C\\store\\", "b": "24"},
    b"a=24   \nb=1\t": {"a": "24   ", "b": "1\t"},
    b"\\u0061\\ b=\\u0032\\t\\q\\=": {"a b": "2\tq="},
    b"a\\:b:c:d\ne==f\ng = = h": {"a:b": "c:d", "e": "=f", "g": "= h"},
    b"a\nb=\n=c\n": {"a": "", "b": "", "": "c"},
    b"a=1\na=2": {"a": "2"},
    b"\n  \n\t\f\na=1": {"a": "1"},
    b"a=1\\": {"a": "1"},
    b"a=1\\\n": {"a": "1"},
    b"a=1\\\n\nb=2": {"a": "1", "b": "2"},
    b"\\\n\n#x\n\\\n#y=1": {},
    b"# a\xe2\x80\xa8b=1\nc=\xe9": {"c": "é"},
    b"\xef\xbb\xbfa=1": {"ï»¿a": "1"},
    b"a=1\x0bb\x85c": {"a": "1\x0bb\x85c"},
    b"": {},
}
"""What java.util.Properties#load gives of some bytes; a test of brokers compares it with Java."""

NUMBERS = {
    "24": 24,
    "+24": 24,
    "-1": -1,
    "024": 24,
    "\u0662\u0664": 24,
    "2147483648": None,
    "24 ": None,
    " 24": None,
    "2_4": None,
    "24h": None,
    "": None,
    "+": None,
}


@pytest.mark.parametrize("data", TABLE)
def test_a_properties_file_is_read_as_java_reads_it(data: bytes) -> None:
    assert parse_properties(data) == TABLE[data]


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_what_java_takes_for_one(text: str) -> None:
    assert parse_int(text) == NUMBERS[text]


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("fileReservedTime=24", 24),
        ("fileReservedTime: 24", 24),
        ("fileReservedTime 24", 24),
        ("fileReservedTime=\\\n  24", 24),
        ("fileReservedTime=\\u0032\\u0034", 24),
        ("fileReservedTime=+24", 24),
        ("storePathRootDir=C:\\store\\\nfileReservedTime=24", 72),
        ("fileReservedTime=24   ", 72),
        ("filereservedtime=24", 72),
    ],
)
def test_a_broker_keeps_messages_for_the_hours_that_java_reads(
    tmp_path: Path, text: str, hours: int
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(text + "\n", encoding="latin-1")
    assert policy_of_file("brokerConf", str(conf)).kept_ms == hours * HOUR_MS


@pytest.mark.parametrize(
    ("text", "hours"),
    [("04;16", {4, 16}), ("4; 16", {4}), ("x;16", {4}), ("99;5", {5}), (" 5 ", {5})],
)
def test_a_broker_deletes_at_the_hours_in_front_of_one_that_is_no_number(
    text: str, hours: set[int]
) -> None:
    assert RetentionPolicy.of({"deleteWhen": text}).hours == hours


def test_what_a_broker_does_not_take_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = tmp_path / "broker.conf"
    for text, said in (
        ("brokerName=a", "has none of fileReservedTime, deleteWhen"),
        ("fileReservedTime=24 ", "default for fileReservedTime='24 '"),
    ):
        caplog.clear()
        conf.write_text(text)
        with caplog.at_level(logging.WARNING):
            policy_of_file("brokerConf", str(conf))
        assert said in caplog.text
    conf.write_text("a=\\u12")
    with pytest.raises(InvalidOptionError, match="no broker starts with it"):
        policy_of_file("brokerConf", str(conf))
