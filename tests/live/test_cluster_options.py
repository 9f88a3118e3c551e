"""Addresses and options of a live read, as a person types them."""

import pickle
from dataclasses import fields

import pytest

from mqstore.errors import InvalidOptionError
from mqstore.live.options import DECLARED_IN, LIVE_OPTIONS, cluster_settings
from mqstore.live.remoting.address import Address, is_address, parse_address
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.remoting.tls import Tls
from mqstore.options.option import options_of

A = parse_address("rocketmq://a:1")


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("rocketmq://ns1:9876", Address(("ns1:9876",), (), None, False)),
        ("rocketmq://ns1", Address(("ns1:9876",), (), None, False)),
        ("rocketmq://ns1:9876/", Address(("ns1:9876",), (), None, False)),
        ("ROCKETMQ://a:1,b:2;c", Address(("a:1", "b:2", "c:9876"), (), None, False)),
        ("rocketmqs://a:1/T,U#backlog", Address(("a:1",), ("T", "U"), "backlog", True)),
        ("rocketmq://[::1]:1/%RETRY%g", Address(("[::1]:1",), ("%RETRY%g",), None, False)),
        ("rocketmq://a:1,a:1/T,T", Address(("a:1",), ("T",), None, False)),
        ("rocketmq://a:1#topics", Address(("a:1",), (), "topics", False)),
    ],
)
def test_an_address_names_servers_topics_and_a_table(path: str, address: Address) -> None:
    assert is_address(path)
    assert parse_address(path) == address


@pytest.mark.parametrize(
    "path",
    [
        "rocketmq:/a", "rocketmq://", "rocketmq:///T", "rocketmq://,/T", "rocketmq://a:0/T",
        "rocketmq://a:99999", "rocketmq://a b:1", "rocketmq://a:1/..", "rocketmq://a:1/../x",
        "rocketmq://a:1/T#", "rocketmq://u@a:1", "rocketmq://::1:1", "rocketmq://a:1/T/U",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_the_form(path: str) -> None:
    assert is_address(path)
    with pytest.raises(InvalidOptionError, match="path="):
        parse_address(path)


@pytest.mark.parametrize("path", ["/data/store", "file:/data", "rocketmq", "data/rocketmq:x"])
def test_a_directory_is_no_address(path: str) -> None:
    assert not is_address(path)


def test_defaults_are_those_of_the_settings() -> None:
    found = cluster_settings({}, A, {})
    assert found == ClusterSettings(name_servers=("a:1",))
    assert found.limits == Limits()


def test_every_option_reaches_the_settings() -> None:
    given = {
        "CONSUMERGROUP": "G",
        "accessKey": "k",
        "secretKey": "s",
        "securityToken": "t",
        "tls": "true",
        "tlsCaFile": "ca",
        "tlsCertFile": "cert",
        "tlsKeyFile": "key",
        "tlsVerifyHostname": "false",
        "connectTimeout": "1s",
        "requestTimeout": "2s",
        "retryTimeout": "0",
        "pullsInFlight": "4",
        "pullBatchSize": "1024",
        "maxTasksPerBroker": "3",
        "maxFrameBytes": "1m",
        "readFrom": "ANY",
        "endpoint": "nameserver",
        "brokerAddresses": '{"broker-a":"h:1"}',
        "proxies": "p1,p2:7",
        "nameServers": "n1;n2:5",
    }
    found = cluster_settings(given, None, {})
    default = ClusterSettings(name_servers=())
    for field in fields(ClusterSettings):
        assert getattr(found, field.name) != getattr(default, field.name), field.name
    assert found.name_servers == ("n1:9876", "n2:5")
    assert found.tls == Tls("ca", "cert", "key", verify_host_name=False)
    assert found.limits == Limits(1_000, 2_000, 1 << 20)
    assert found.broker_addresses == {"broker-a": "h:1"}
    assert found.proxies == ("p1:8080", "p2:7")
    assert len(given) + 1 == len(LIVE_OPTIONS)  # credentialsFile cannot stand with keys
    assert pickle.loads(pickle.dumps(found)) == found


def test_every_field_is_an_option_of_another_name() -> None:
    names = [option.name for option in LIVE_OPTIONS.values()]
    assert len(set(names)) == len(names)
    assert len(LIVE_OPTIONS) == sum(len(options_of(kind)) for kind in DECLARED_IN)


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("nameServers", ",", "no name server"),
        ("nameServers", "a:b", "host:port"),
        ("consumerGroup", "a b", "group's name"),
        ("consumerGroup", "", "group's name"),
        ("accessKey", " ", "empty"),
        ("tls", "yes", "true or false"),
        ("connectTimeout", "0", "from 1 ms"),
        ("requestTimeout", "25h", "24h"),
        ("retryTimeout", "soon", "duration"),
        ("pullsInFlight", "0", "whole number"),
        ("pullsInFlight", "1000", "256"),
        ("pullBatchSize", "1025", "1024"),
        ("maxTasksPerBroker", "0", "whole number"),
        ("maxFrameBytes", "1k", "size"),
        ("readFrom", "slav", "did you mean slave"),
        ("brokerAddresses", "[]", "JSON such as"),
        ("brokerAddresses", '{"b":1}', "JSON such as"),
        ("brokerAddresses", '{"b":"h"}', "host:port"),
        ("brokerAddresses", "{" * 9_000, "not JSON"),
        ("nameServer", "a:1", "or by nameServers"),
        ("pullBatch", "a:1", "did you mean pullBatchSize"),
    ],
)
def test_a_value_that_is_not_accepted_is_refused(option: str, text: str, words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        cluster_settings({option: text}, A, {})


@pytest.mark.parametrize(
    ("options", "path", "words"),
    [
        ({}, None, "nameServers"),
        ({"nameServers": "a:1"}, "rocketmq://a:1", "cannot stand"),
        ({"tls": "false"}, "rocketmqs://a:1", "rocketmqs"),
        ({"tlsCaFile": "x"}, "rocketmq://a:1", "is for TLS"),
        ({"tlsVerifyHostname": "false"}, "rocketmq://a:1", "is for TLS"),
        ({"tlsKeyFile": "x"}, "rocketmqs://a:1", "tlsCertFile"),
    ],
)
def test_options_that_contradict_are_refused(
    options: dict[str, str], path: str | None, words: str
) -> None:
    address = None if path is None else parse_address(path)
    with pytest.raises(InvalidOptionError, match=words):
        cluster_settings(options, address, {})


@pytest.mark.parametrize(
    ("tls", "words"),
    [(Tls(ca_file="/no/such"), "tlsCaFile"), (Tls(cert_file="/no/such"), "tlsCertFile")],
)
def test_unusable_files_of_tls_are_named(tls: Tls, words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        tls.context()
