"""The paths and options of reads that name a cluster: accepted, or refused by name."""

import re
from pathlib import Path
from typing import Any

import pytest

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.live.options import LIVE_OPTIONS, WhoAndWhere
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.remoting.tls import Tls
from mqstore.options.option import options_of
from pyspark_mqlog.options import parse_read, parse_stream, parse_stream_write, parse_write

SECRET = "hush-hush-7"
ADDRESS = "rocketmq://ns1:9876,ns2/TopicA,TopicB"


def test_an_address_names_servers_topics_and_tls() -> None:
    places = parse_read({"path": f"{ADDRESS}#messages"}).places
    (cluster,) = places.clusters
    assert cluster.name_servers == ("ns1:9876", "ns2:9876")
    assert (places.paths, places.topics) == ((), ("TopicA", "TopicB"))
    assert cluster.tls is None
    (cluster,) = parse_stream({"path": "rocketmqs://ns1/%RETRY%G"}).read.places.clusters
    assert cluster.tls is not None


def test_name_servers_stand_for_a_path() -> None:
    (cluster,) = parse_read({"nameservers": "a:1;[::1]:2", "subscribe": "T"}).places.clusters
    assert cluster.name_servers == ("a:1", "[::1]:2")


def test_clusters_and_stores_stand_together_and_each_option_is_for_its_own() -> None:
    given = {"readMode": "mmap", "pullsInFlight": "3", "brokerName": "x"}
    both = {"paths": '["/data/store","rocketmq://a:1","rocketmq://b:2"]', "subscribe": "T"}
    options = parse_read(both | given)
    assert options.places.paths == ("/data/store",)
    assert [c.pulls_in_flight for c in options.places.clusters] == [3, 3]
    assert options.read_mode == "mmap"


@pytest.mark.parametrize("parse", [parse_read, parse_stream], ids=["read", "stream"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"path": "/store", "pullsInFlight": "8"}, "option pullsInFlight='8': is for clusters"),
        ({"path": "/store", "secretKey": SECRET}, "option secretKey=.*is for clusters"),
        ({"path": "/store", "nameServers": "a:1"}, "option nameServers.*one more path"),
        ({"path": ADDRESS, "nameServers": "a:1"}, "option nameServers"),
        ({"path": ADDRESS, "storePathCommitLog": "/a"}, "storePathCommitLog.*directories"),
        ({"path": ADDRESS, "readMode": "mmap"}, "readMode.*directories"),
        ({"path": ADDRESS, "brokerName": "a"}, "brokerName.*directories"),
        ({"path": ADDRESS, "subscribe": "C"}, "subscribe='C': the path names topics"),
        ({"path": ADDRESS, "subscribePattern": "C.*"}, "the path names topics"),
        ({"path": ADDRESS, "accessKey": "me"}, "needs secretKey"),
        ({"path": ADDRESS, "tlsCaFile": "/ca"}, "is for TLS"),
        ({"path": ADDRESS, "pullBatchSize": "0"}, "option pullBatchSize='0'"),
        ({"paths": '["rocketmq://a:1/T","rocketmq://b:1/U"]'}, "name different topics"),
        ({"paths": '["rocketmq://a:1/T","/store"]'}, "name different topics"),
        ({"path": "rocketmq:/a"}, "rocketmq://HOST:9876"),
        ({"path": ADDRESS, "namesrvAddr": "h:9876"}, "the path rocketmq://HOST"),
        ({"path": ADDRESS, "secretKeyy": SECRET}, "did you mean secretKey"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_without_a_secret(
    parse: Any, more: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidOptionError, match=words) as caught:
        parse(more)
    assert SECRET not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("table", ["commits", "files", "index", "verify"])
def test_a_table_of_a_cluster_is_refused_by_name(table: str) -> None:
    for options in ({"path": f"rocketmq://a:1#{table}"}, {"nameServers": "a:1", "table": table}):
        with pytest.raises(InvalidOptionError, match="for this table give the path of a store"):
            parse_read(options)


def test_the_refusal_of_a_clusters_index_says_how_to_find_messages_by_key() -> None:
    with pytest.raises(InvalidOptionError, match="read the table messages with the option keys"):
        parse_read({"path": "rocketmq://a:1#index"})


@pytest.mark.parametrize("parse", [parse_write, parse_stream_write], ids=["write", "stream"])
@pytest.mark.parametrize(
    "more",
    [
        {"path": ADDRESS},
        {"path": "/store", "secretKey": SECRET},
        {"path": "/store", "nameServers": "a:1"},
    ],
)
def test_a_write_to_a_cluster_is_refused_by_name(parse: Any, more: dict[str, str]) -> None:
    with pytest.raises(StoreError, match="MQLOG_INVALID_OPTION") as caught:
        parse({"topic": "T"} | more)
    assert SECRET not in str(caught.value) + repr(caught.value)


def test_no_secret_is_in_what_options_become(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQLOG_SECURITY_TOKEN", SECRET)
    keys = {"accessKey": SECRET, "secretKey": SECRET, "securityToken": SECRET}
    options = parse_read({"path": ADDRESS} | keys)
    assert SECRET not in repr(options)
    (cluster,) = options.places.clusters
    assert cluster.credentials is not None
    assert cluster.credentials.secret_key.reveal() == SECRET


def test_the_guide_has_every_option_with_its_default() -> None:
    guide = (Path(__file__).parents[2] / "connector/LIVE.md").read_text()
    section = guide.split("## Live options\n", 1)[1].split("\n#", 1)[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`|–) \|", section, re.MULTILINE))
    declared = (WhoAndWhere(), Tls(), ClusterSettings(name_servers=()), Limits())
    default = {o.name: getattr(kind, f) for kind in declared for f, o in options_of(kind).items()}
    parse = {option.name: option.value for option in LIVE_OPTIONS.values()}
    assert {name: parse[name](text) if text else None for name, text in shown.items()} == default
