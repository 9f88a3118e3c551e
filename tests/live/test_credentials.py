"""Signatures as brokers compute them, and secrets that show nowhere."""

import base64
import hashlib
import hmac
import logging
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import InvalidOptionError
from mqstore.live.options import cluster_settings
from mqstore.live.remoting.address import parse_address
from mqstore.live.remoting.credentials import Credentials, choose, read_file
from mqstore.options.secret import Secret

HUSH = "hush-hush-7531"
KEYS = Credentials(Secret("reader"), Secret(HUSH))


def test_a_signature_is_of_all_values_in_the_order_of_names_and_the_body() -> None:
    signed = KEYS.sign({"topic": "T", "b": "2", "Zed": "z"}, b"\xff\x00")
    content = b"reader" + b"z" + b"2" + b"T" + b"\xff\x00"
    mac = hmac.new(HUSH.encode(), content, hashlib.sha1).digest()
    assert signed == {
        "topic": "T",
        "b": "2",
        "Zed": "z",
        "AccessKey": "reader",
        "Signature": base64.b64encode(mac).decode(),
    }


def test_a_security_token_is_signed_too() -> None:
    with_token = Credentials(Secret("reader"), Secret(HUSH), Secret("tok"))
    signed = with_token.sign({}, b"")
    mac = hmac.new(HUSH.encode(), b"readertok", hashlib.sha1).digest()
    assert signed["SecurityToken"] == "tok"
    assert signed["Signature"] == base64.b64encode(mac).decode()


def test_a_secret_shows_in_nothing_that_is_printed_or_pickled() -> None:
    options = {"accessKey": "reader-4321", "secretKey": HUSH, "securityToken": "tk9"}
    settings = cluster_settings(options, parse_address("rocketmq://a:1"), {})
    for value in (settings, settings.credentials, {"k": settings}):
        for text in (repr(value), str(value), f"{value}"):
            assert not any(secret in text for secret in (HUSH, "reader-4321", "tk9"))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(value, protocol)
            assert HUSH.encode() not in data
            assert HUSH.encode().hex().encode() not in data
            assert base64.b64encode(HUSH.encode()) not in data
            assert pickle.loads(data) == value


@given(text=st.text(st.characters(blacklist_categories=("Cs",))))
def test_a_secret_crosses_a_process(text: str) -> None:
    assert pickle.loads(pickle.dumps(Secret(text))).reveal() == text


def test_a_secret_is_not_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("mqstore").warning("%s %r", KEYS, KEYS)
    assert HUSH not in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        f"accessKey: reader\nsecretKey: {HUSH}\n",
        f"accessKey=reader\r\n# secretKey=old\nsecretKey = {HUSH}",
        f"other: x\n  accessKey: 'reader'\n  secretKey: \"{HUSH}\"\n",
    ],
)
def test_keys_come_from_a_file_of_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    assert choose({}, ("credentialsFile", str(path)), {}) == KEYS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"secretKey: {HUSH}\n", "accessKey"),
        ("accessKey: reader\n", "secretKey"),
        ("accessKey: reader\nsecretKey:\n", "secretKey"),
        ("", "accessKey"),
        ("\0\xff", "accessKey"),
    ],
)
def test_a_file_without_keys_is_refused_without_showing_one(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidOptionError, match=words) as caught:
        read_file("credentialsFile", str(path))
    assert HUSH not in str(caught.value)


@pytest.mark.parametrize("name", ["missing", ".", "\0"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidOptionError, match="cannot be read"):
        read_file("credentialsFile", f"{tmp_path}/{name}")


def test_the_environment_counts_only_where_nothing_else_is_given(tmp_path: Path) -> None:
    environment = {"MQLOG_ACCESS_KEY": "reader", "MQLOG_SECRET_KEY": HUSH, "PATH": "x"}
    assert choose({}, None, environment) == KEYS
    other = {"accessKey": Secret("o"), "secretKey": Secret("p")}
    assert choose(other, None, environment) == Credentials(Secret("o"), Secret("p"))
    assert choose({}, None, {}) is None


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        ({"accessKey": Secret("reader")}, {}, "secretKey"),
        ({"secretKey": Secret(HUSH)}, {}, "accessKey"),
        ({"securityToken": Secret(HUSH)}, {}, "accessKey"),
        ({}, {"MQLOG_SECRET_KEY": HUSH}, "MQLOG_ACCESS_KEY"),
    ],
)
def test_half_of_the_keys_is_refused_without_showing_it(
    options: dict[str, Secret], environment: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidOptionError, match=words) as caught:
        choose(options, None, environment)
    assert HUSH not in str(caught.value)


def test_options_and_a_file_are_too_much(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="cannot stand with accessKey"):
        choose({"accessKey": Secret(HUSH)}, ("credentialsFile", str(tmp_path)), {})
