"""Keywords of Python are the options of the Spark source, with Python's values."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mqlog
from mqlog import errors
from mqlog.keywords import DECLARED, keyword, text_of, texts
from mqstore.errors import StoreError
from mqstore.options import grammar

STORE = "/data/broker-a/store"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("startingTimestamp", "starting_timestamp"),
        ("maxBytesPerPartition", "max_bytes_per_partition"),
        ("msgIds", "msg_ids"),
        ("verifyCrc", "verify_crc"),
        ("tags", "tags"),
        ("fs.*", "fs"),
    ],
)
def test_a_keyword_is_the_option_in_snake_case(name: str, word: str) -> None:
    assert keyword(name) == word


def test_every_option_has_a_keyword_of_its_own() -> None:
    names = {option.name for option in DECLARED}

    assert len({keyword(name) for name in names}) == len(names)
    assert all(keyword(name).isidentifier() for name in names)


@pytest.mark.parametrize(
    ("word", "value", "text"),
    [
        ("fail_on_data_loss", False, "false"),
        ("batch_rows", 1_000, "1000"),
        ("starting_timestamp", datetime(2026, 11, 21, 9, tzinfo=UTC), "2026-11-21T09:00:00+00:00"),
        ("starting_timestamp", timedelta(minutes=-10), "-600000ms"),
        ("request_timeout", timedelta(seconds=5), "5000ms"),
        ("subscribe", ["A", "B,C"], '["A", "B,C"]'),
        ("subscribe", {"B", "A"}, '["A", "B"]'),
        ("columns", ["keys", "body"], "keys,body"),
        ("tags", ["paid", "sent"], "paid || sent"),
        ("groups", ("CG_A", "CG_B"), "CG_A,CG_B"),
        ("store_path_commit_log", Path("/data/log2"), "/data/log2"),
        ("starting_offsets", {"A": {0: 23}}, '{"A": {"0": 23}}'),
        ("starting_offsets", {"A": {np.int64(0): np.int64(23)}}, '{"A": {"0": 23}}'),
        ("batch_rows", np.int64(1_000), "1000"),
        ("fail_on_data_loss", np.bool_(False), "false"),
        ("assign", {"A": (0, 1)}, '{"A": [0, 1]}'),
    ],
)
def test_a_value_of_python_becomes_the_text_of_the_option(
    word: str, value: object, text: str
) -> None:
    assert list(texts({word: value}).values()) == [text]


@given(st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC)))
def test_a_datetime_is_the_same_moment_as_its_text(moment: datetime) -> None:
    ms = grammar.timestamp("t", text_of("t", moment), now_ms=0)

    assert (
        timedelta(0)
        <= datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms) - moment
        < timedelta(milliseconds=1)
    )


def test_none_is_an_option_that_is_not_set() -> None:
    assert texts({"tags": None}) == {}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"starting_timestmp": "-1h"}, "unknown option; did you mean starting_timestamp?"),
        ({"startingTimestamp": "-1h"}, "the keyword is starting_timestamp"),
        ({"starting_timestamp": datetime(2026, 1, 1)}, "has no time zone"),
        ({"starting_timestamp": 3.5}, "starting_timestamp='a float': must be text"),
        (
            {"starting_timestamp": date(2026, 1, 1)},
            "a date has no hour and no zone; a day begins at",
        ),
        ({"starting_timestamp": np.datetime64("2026-01-01")}, "a datetime64': must be text"),
        ({"zzz_qqq": 1}, r"unknown option; the nearest of [0-9]+ are [^,]+(, [^,]+){5}$"),
        ({"starting_timestamp": "-1h", "starting_offsets": "earliest"}, "excl.*starting_timestamp"),
        ({"starting_offsets": "latest"}, r"\(follow can\)"),
        ({"max_bytes_per_trigger": "1m"}, "is for follow"),
        ({"create_store": True}, "is for write"),
        ({"topic": "A"}, "first argument"),
        ({"table": "queues"}, "is read with table"),
        ({"fs": "eu"}, "must be a dict"),
    ],
)
def test_a_keyword_that_is_not_taken_is_refused_in_pythons_words(
    asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(mqlog.MqlogError, match=words) as found:
        mqlog.open(STORE).scan(**asked)

    assert "startingOffsets" not in str(found.value)


def test_a_secret_shows_in_no_repr_and_no_error() -> None:
    options = {"access_key": "me", "secret_key": "hush"}
    place = mqlog.open("rocketmq://127.0.0.1:9876", **options)

    assert "hush" not in repr(place) + repr(place.scan("T"))
    with pytest.raises(mqlog.MqlogError) as found:
        mqlog.open(STORE, **options)
    assert "hush" not in str(found.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"tags": "A"}, "give it to scan"), ({"brokers_name": "a"}, "did you mean broker_name")],
)
def test_a_place_takes_the_options_of_places_only(options: dict[str, Any], words: str) -> None:
    with pytest.raises(mqlog.MqlogError, match=words):
        mqlog.open(STORE, **options)


@pytest.mark.parametrize("path", [3, None, [], [3], {"/data": 1}, b"/data", iter(["/data"])])
def test_a_path_that_is_none_is_refused_by_name(path: Any) -> None:
    with pytest.raises(errors.InvalidOptionError, match="a path is the directory of a store"):
        mqlog.open(path)


def test_a_path_with_a_table_says_how_the_table_is_read() -> None:
    with pytest.raises(mqlog.MqlogError, match=r"open\('/data/s'\).table\('backlog'\)"):
        mqlog.open("/data/s#backlog")


def test_the_error_tree_is_that_of_the_core() -> None:
    public = [getattr(errors, name) for name in errors.__all__]

    assert mqlog.MqlogError is StoreError
    assert all(issubclass(one, mqlog.MqlogError) for one in public)
