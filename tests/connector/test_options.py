"""Every option: what is accepted, what is refused, and in which words. No Spark session."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from mqstore.deliver.settings import SendSettings
from mqstore.errors import InvalidOptionError, StoreNotFoundError
from mqstore.options.grammar import EARLIEST, LATEST
from mqstore.request.read_options import READ_OPTIONS, QueueRange
from mqstore.write.stage.settings import WRITE_OPTIONS, WriteSettings
from pyspark_mqlog.options import (
    parse_read,
    parse_stream,
    parse_stream_write,
    parse_write,
    stream_name,
)

PATH = {"path": "/data/broker-a/store"}


def test_a_read_without_options_takes_every_default() -> None:
    options = parse_read(PATH)
    assert options.places.paths == ("/data/broker-a/store",)
    assert options.given == {}
    assert (options.table, options.columns, options.tags) == ("messages", "standard", "*")
    assert options.starting_offsets == QueueRange(EARLIEST)
    assert options.ending_offsets == QueueRange(LATEST)
    assert options.max_bytes_per_partition == 256 * 2**20
    assert options.fail_on_data_loss


def test_a_write_without_options_takes_the_defaults_of_the_write_room() -> None:
    assert parse_write(PATH) == WriteSettings(root="/data/broker-a/store")


def test_every_write_setting_is_an_option() -> None:
    assert list(WRITE_OPTIONS) == [f.name for f in fields(WriteSettings) if f.name != "root"]


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("subscribe", "A,B", "subscribe", ("A", "B")),
        ("SUBSCRIBE", '["A"]', "subscribe", ("A",)),
        ("subscribePattern", "order.*", "subscribe_pattern", "order.*"),
        ("assign", '{"T":[0,1]}', "assign", {"T": (0, 1)}),
        ("subExpression", "A || B", "tags", "A || B"),
        ("tags", "A", "tags", "A"),
        ("brokerName", "broker-a", "broker_names", ("broker-a",)),
        ("brokerName", '["a","b"]', "broker_names", ("a", "b")),
        ("startingOffsets", "Earliest", "starting_offsets", QueueRange(EARLIEST)),
        ("startingOffsets", "-10", "starting_offsets", QueueRange(EARLIEST, last_count=10)),
        (
            "startingOffsets",
            '{"T":{"0":5}}',
            "starting_offsets",
            QueueRange(EARLIEST, each={("T", None, 0): 5}),
        ),
        (
            "endingOffsets",
            '{"T":{"b":{"0":-1}}}',
            "ending_offsets",
            QueueRange(LATEST, each={("T", "b", 0): LATEST}),
        ),
        ("startingTimestamp", "1970-01-01T00:00:01Z", "starting_timestamp", 1000),
        ("keys", "k1,k2", "keys", ("k1", "k2")),
        ("sql", "a > 5", "sql", "a > 5"),
        ("storePathCommitLog", "/a,file:/b%20c", "commit_log", ("/a", "/b c")),
        ("failOnDataLoss", "false", "fail_on_data_loss", False),
        ("batchBytes", "1m", "batch_bytes", 2**20),
        ("minPartitions", "8", "min_partitions", 8),
        ("table", "QUEUES", "table", "queues"),
    ],
)
def test_a_read_option_is_parsed(name: str, text: str, field: str, value: object) -> None:
    assert getattr(parse_read({**PATH, name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("subscibe", "A", "unknown option; did you mean subscribe?"),
        (
            "maxOfsetsPerTriger",
            "5",
            "did you mean maxOffsetsPerTrigger? maxOffsetsPerTrigger is for",
        ),
        ("maxRecordsPerTrigger", "5", "did you mean maxOffsetsPerTrigger? maxOffsetsPerTrigger is"),
        (
            "queueNum",
            "5",
            "unknown option; did you mean queueNums? queueNums is an option of writes",
        ),
        ("zzz", "A", "unknown option; the nearest of "),
        ("nameServer", "localhost:9876", "a cluster is named by the path"),
        ("kafka.bootstrap.servers", "b:9092", "a cluster is named by the path"),
        ("service.url", "pulsar://b", "a cluster is named by the path"),
        ("topic", "A", "option topic='A': is an option of writes; in a read use subscribe"),
        ("txnAppId", "a", "option txnAppId='a': is an option of writes"),
        ("maxOffsetsPerTrigger", "5", "option maxOffsetsPerTrigger='5': is for streaming reads"),
        ("checkpointLocation", "/c", "is for writeStream: a read has none"),
        ("queryName", "q", "is for writeStream: a read has none"),
        ("commitGroup", "g", "is for streaming reads: remove it, or use spark.readStream"),
        ("table", "queue", "did you mean queues?"),
        ("startingOffsets", "latest", "a batch read cannot start at latest"),
        ("startingOffsets", '{"T":{"0":-1}}', "a batch read cannot start at latest"),
        ("endingOffsets", "earliest", "a read cannot end at earliest"),
        ("endingOffsets", '{"T":{"0":"earliest"}}', "a read cannot end at earliest"),
        ("startingOffsets", "23", "must be earliest, latest, -N for the last N of each queue"),
        ("startingOffsets", '{"T":', "is not JSON"),
        ("storePathCommitLog", "/data/a,/data/\0", "no directory can have such a name"),
        ("sql", "a > 5 AMD b", "at character 7 ('AMD b'): expected AND, OR"),
        ("keys", "k\ud800", "is no text: it has half of a surrogate pair"),
        ("startingTimestamp", "2026-01-01T00:00:00", "has no time zone"),
        ("subscribePattern", "(", "is no regular expression"),
        ("subscribePattern", "a{99999999999999}", "is no regular expression"),
        ("onCorrupt", "ignore", "must be one of fail, skip, rescue"),
        ("verifyCrc", "yes", "must be true or false"),
        ("batchBytes", "10g", "must be a size such as"),
        ("batchBytes", "257m", "from 1 to 268435456 bytes"),
        ("maxDecompressedBytes", "1025m", "from 1 to 1073741824 bytes"),
        ("minPartitions", "0", "must be a whole number from 1"),
        (
            "groups",
            "g",
            (
                "is for table=backlog|forecast|groups|lagcompare|latency|offsets|retries|"
                "subscriptions|unacknowledged|verdicts, not messages"
            ),
        ),
    ],
)
def test_a_read_option_is_refused_in_words_that_help(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_read({**PATH, name: text})
    assert str(caught.value).startswith("[MQLOG_INVALID_OPTION] option ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"subscribe": "A", "assign": '{"A":[0]}'},
            "subscribe='A': excludes assign",
        ),
        ({"subscribe": "A", "subscribePattern": "A"}, "excludes subscribePattern"),
        ({"tags": "A", "subExpression": "B"}, "tags and subExpression are the same"),
        (
            {"startingGroup": "g", "startingOffsets": "-1"},
            "excludes startingOffsets",
        ),
        ({"table": "topics", "path": "/s#queues"}, "the path has #queues"),
        (
            {"table": "queues", "startingOffsets": "-1"},
            "is for table=latency|messages|tags, not queues",
        ),
        ({"table": "index", "subscribe": "A"}, "subscribe='A': needs keys too"),
        ({"table": "index", "subscribePattern": "A"}, "subscribePattern='A': needs keys too"),
        ({"table": "index", "includeSystemTopics": "true"}, "needs keys too: an entry has the h"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_read({**PATH, **options})
    assert told in str(caught.value)


def test_a_write_goes_to_one_store_and_names_those_that_a_glob_matches(tmp_path: Path) -> None:
    first, second = tmp_path / "br-a" / "store", tmp_path / "br-b" / "store"
    first.mkdir(parents=True)
    glob = {"path": f"{tmp_path}/br-*/store"}
    for parse in (parse_write, parse_stream_write):
        assert parse(glob).root == str(first)
    second.mkdir(parents=True)
    for parse in (parse_write, parse_stream_write):
        with pytest.raises(InvalidOptionError) as caught:
            parse(glob)
        assert f"goes to one store, and this matches 2: {first}, {second}" in str(caught.value)


def test_the_keys_that_spark_adds_are_allowed() -> None:
    added = {"checkpointLocation": "/c", "queryName": "q"}
    assert parse_read({"paths": '["/a","/b c"]'}).places.paths == ("/a", "/b c")
    for parse in (parse_write, parse_stream_write):
        assert parse({**PATH, **added}).root == "/data/broker-a/store"


def test_what_create_table_adds_is_no_option_of_ours() -> None:
    added = {"provider": "mqlog", "owner": "me", "location": "file:/p", "comment": "a table"}
    assert parse_read(added).places.paths == ()
    options = parse_read({**added, "columns": "minimal", "option.columns": "minimal"})
    assert options.columns == "minimal"
    with pytest.raises(InvalidOptionError, match="did you mean columns"):
        parse_read({**added, "colums": "minimal", "option.colums": "minimal"})


def test_the_table_may_be_named_after_the_path() -> None:
    options = parse_read({"path": "/data/broker-a/store#backlog"})
    assert (options.places.paths, options.table) == (("/data/broker-a/store",), "backlog")


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("topic", "orders", "topic", "orders"),
        ("createStore", "true", "create_store", True),
        ("partitioner", "HASH", "partitioner", "hash"),
        ("batchMaxBytes", "64k", "batch_max_bytes", 65536),
        ("onInvalid", "side:/tmp/Bad", "on_invalid", "side:/tmp/Bad"),
        ("lockTimeout", "10s", "lock_timeout_ms", 10_000),
        ("batchBuilder", "keybased", "batch_builder", "keyBased"),
        ("allowNoLease", "TRUE", "allow_no_lease", True),
        ("recoverUnclean", "true", "recover_unclean", True),
        ("interlock", "true", "interlock", True),
    ],
)
def test_a_write_option_is_parsed(name: str, text: str, field: str, value: object) -> None:
    assert getattr(parse_write({**PATH, name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("topik", "A", "did you mean topic?"),
        ("subscribe", "A", "option subscribe='A': is an option of reads; in a write use topic"),
        ("tags", "A", "is an option of reads"),
        ("maxOffsetsPerTrigger", "1", "is an option of streaming reads"),
        ("txnAppId", " ", "must be 1 to 1024 printable characters"),
        ("txnAppId", "s:a", "must not start with 's:', the prefix of streaming queries"),
        ("txnVersion", "-1", "must be a whole number of at least 0"),
        ("txnVersion", str(2**63), "must be a whole number of at least 0"),
        ("allowNoLease", "yes", "must be true or false"),
        ("interlock", "on", "must be true or false"),
        ("namesrvAddr", "h:9876", "a cluster is named by the path"),
        ("batchMaxBytes", "5m", "from 1 to 4194304 bytes"),
        ("onInvalid", "side:", "must be fail, skip or side:PATH"),
        ("path", "/a#queues", "no table can be written: give the store"),
        ("path", "s3://b/store", "stores at s3://… are only read"),
    ],
)
def test_a_write_option_is_refused_in_words_that_help(name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_write({**PATH, name: text})
    assert told in str(caught.value)


def test_a_write_is_known_by_a_name_and_a_number() -> None:
    found = parse_write({**PATH, "txnAppId": "load", "txnVersion": str(2**63 - 1)})
    assert (found.txn_app_id, found.txn_version) == ("load", 2**63 - 1)


def test_a_streaming_write_has_the_options_of_a_batch_but_what_it_is_known_by() -> None:
    found = parse_stream_write({**PATH, "topic": "T"})
    assert (found.topic, found.lock_timeout_ms) == ("T", 30_000)
    assert parse_stream_write({**PATH, "lockTimeout": "1s"}).lock_timeout_ms == 1000
    for name, text in (("txnAppId", "load"), ("txnVersion", "1")):
        with pytest.raises(InvalidOptionError, match="a stream is exactly once without it"):
            parse_stream_write({**PATH, name: text})


def test_a_stream_is_called_as_its_checkpoint_is() -> None:
    assert stream_name({**PATH, "checkpointLocation": "/c", "queryName": "q"}) == "/c"
    assert stream_name({**PATH, "queryname": "q"}) == "q"
    assert stream_name(PATH) is None


def test_a_write_needs_one_path() -> None:
    with pytest.raises(InvalidOptionError, match="a write needs the path of one store"):
        parse_write({"topic": "A"})


def test_a_glob_that_matches_nothing_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="the glob matches no directory"):
        parse_write({"path": f"{tmp_path}/*"})


def test_no_two_options_of_an_operation_share_a_name() -> None:
    for declared in (READ_OPTIONS, WRITE_OPTIONS):
        names = [name.lower() for o in declared.values() for name in (o.name, o.alias) if name]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("parse", [parse_read, parse_stream])
def test_a_start_is_given_by_offsets_or_by_a_time_and_never_by_both(
    parse: Callable[[dict[str, str]], object],
) -> None:
    both = {**PATH, "startingOffsets": "earliest", "startingTimestamp": "-10m"}
    with pytest.raises(InvalidOptionError, match="'earliest': excludes startingTimestamp"):
        parse(both)


CLUSTER = {"path": "rocketmq://ns1:9876,ns2:9877/T"}


def test_a_write_to_a_cluster_has_its_own_options() -> None:
    found = parse_write({**CLUSTER, "accessKey": "k", "secretKey": "s", "sendTimeout": "5s"})
    assert isinstance(found, SendSettings)
    assert (found.topic, found.send_timeout_ms, found.delivery) == ("T", 5_000, "atLeastOnce")
    assert found.cluster.name_servers == ("ns1:9876", "ns2:9877")
    assert "'s'" not in repr(found)
    named = parse_write({"nameServers": "ns1:9876", "topic": "T"})
    assert isinstance(named, SendSettings)
    assert (named.topic, named.cluster.name_servers) == ("T", ("ns1:9876",))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"lockTimeout": "1s"}, "option lockTimeout='1s': is for the directories of stores"),
        ({"pullsInFlight": "4"}, "option pullsInFlight='4': is an option of reads"),
        ({"consumerGroup": "g"}, "option consumerGroup='g': is for reads and delivery=exactlyOnce"),
        ({"topic": "U"}, "option topic='U': the path names the topic T"),
        ({"sendTimeOuts": "1s"}, "did you mean sendTimeout?"),
        ({"delivery": "once"}, "option delivery='once'"),
        ({"nameServers": "ns3:9876"}, "cannot stand with a path rocketmq://"),
        ({"path": "rocketmq://ns1:9876/T,U"}, "one topic of it at most"),
        ({"path": "rocketmq://ns1:9876/T#topics"}, "no table can be written"),
        ({"paths": '["rocketmq://ns1:9876","/data/store"]'}, "a write goes to one cluster"),
        ({"batchMaxMessages": "32768"}, "option batchMaxMessages='32768'"),
    ],
)
def test_an_option_that_a_cluster_does_not_take_is_refused(more: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_write({**CLUSTER, **more})
    assert told in str(caught.value)


@pytest.mark.parametrize("name", ["sendTimeout", "delivery", "accessKey", "tls", "brokerAddresses"])
def test_an_option_of_clusters_is_refused_in_a_write_to_a_store(name: str) -> None:
    with pytest.raises(InvalidOptionError, match="is for clusters: save to rocketmq://"):
        parse_write({**PATH, name: "1"})


def test_a_stream_to_a_cluster_is_exactly_once_unless_it_says_otherwise() -> None:
    found = parse_stream_write({**CLUSTER, "consumerGroup": "g"})
    assert isinstance(found, SendSettings)
    assert (found.delivery, found.cluster.consumer_group) == ("exactlyOnce", "g")
    found = parse_stream_write({**CLUSTER, "delivery": "atLeastOnce"})
    assert isinstance(found, SendSettings)
    assert found.delivery == "atLeastOnce"
    with pytest.raises(InvalidOptionError, match="a stream is exactly once without it"):
        parse_stream_write({**CLUSTER, "txnVersion": "1"})


@pytest.mark.parametrize("name", ["queues", "cacheDir"])
def test_only_batch_reads_of_stores_take_queues_from_the_log(name: str) -> None:
    text = {"queues": "log", "cacheDir": "/cache"}[name]
    with pytest.raises(InvalidOptionError, match=f"option {name}=.*a stream follows"):
        parse_stream(PATH | {name: text})
    for parse in (parse_write, parse_stream_write):
        with pytest.raises(InvalidOptionError, match=f"option {name}=.*is an option of reads"):
            parse(PATH | {name: text})
    with pytest.raises(InvalidOptionError, match="is for the directories of stores"):
        parse_read({"path": "rocketmq://127.0.0.1:9876", name: text})
    with pytest.raises(InvalidOptionError, match=f"option {name}=.*not verify"):
        parse_read(PATH | {"table": "verify", name: text})


def test_a_cache_is_for_queues_from_the_log() -> None:
    assert parse_read(PATH | {"queues": "log", "cacheDir": "/c"}).cache_dir == "/c"
    with pytest.raises(InvalidOptionError, match="cacheDir='/c': is for queues=log"):
        parse_read(PATH | {"cacheDir": "/c"})
