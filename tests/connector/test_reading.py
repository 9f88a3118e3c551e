"""What a read's options select, without a Spark session: plan, then do the work of every task.

The plan is what a task gets, so it goes through pickle on the way.
"""

import json
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from mqstore.errors import (
    DataLossError,
    InvalidOptionError,
    StoreError,
    UnknownGroupError,
    UnknownTopicError,
)
from mqstore.request.plan import ReadPlan, plan_read, read_schema
from pyspark_mqlog.datasource import MqlogDataSource
from pyspark_mqlog.options import parse_read
from pyspark_mqlog.stream_reader import MqlogStreamReader
from support import goldens
from support.oracle import Message
from support.stores import Layout, MakeStore

EXPECTED = goldens.expected("5.5.0")
USER_TOPICS = {"GTopic", "GBatch", "GOrder", "GDelay", "GTx"}


def planned(path: Path | str, **options: str) -> tuple[ReadPlan, pa.Schema]:
    read = parse_read({"path": str(path), **options})
    schema = read_schema(read)
    plan: ReadPlan = pickle.loads(pickle.dumps(plan_read(read, schema.names)))
    return plan, schema


def rows(path: Path | str, **options: str) -> list[dict[str, Any]]:
    plan, schema = planned(path, **options)
    batches = [batch for work in plan.work() for batch in work.batches()]
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, schema=schema).to_pylist()
    return found


def places(path: Path | str, **options: str) -> list[tuple[str, int, int]]:
    found = rows(path, columns="topic,queueId,queueOffset", **options)
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in found)


def expected_places(*topics: str, **where: Any) -> list[tuple[str, int, int]]:
    return sorted(
        (m["topic"], m["queueId"], m["queueOffset"])
        for m in EXPECTED
        if m["topic"] in topics and all(m[key] in values for key, values in where.items())
    )


@pytest.fixture(scope="module")
def two_brokers(golden_550: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    brokers = tmp_path_factory.mktemp("brokers")
    for name in ("one", "two"):
        shutil.copytree(golden_550, brokers / name / "store")
    return brokers


def test_all_user_topics_are_read_and_no_system_topic(golden_550: Path) -> None:
    assert places(golden_550) == expected_places(*USER_TOPICS)


def test_system_topics_are_read_when_asked_for(golden_550: Path) -> None:
    every = {topic for topic, _, _ in places(golden_550, includeSystemTopics="true")}
    assert every > USER_TOPICS | {"%RETRY%CG_G", "SCHEDULE_TOPIC_XXXX"}
    assert len(places(golden_550, subscribe="%RETRY%CG_G")) == 16


def test_topics_are_chosen_as_in_kafka(golden_550: Path) -> None:
    assert places(golden_550, subscribe="GTopic, GOrder") == expected_places("GTopic", "GOrder")
    assert places(golden_550, subscribePattern="G(Tx|Delay)") == expected_places("GTx", "GDelay")
    assert places(golden_550, subscribePattern="Topic") == []
    found = places(golden_550, assign='{"GTopic":[1,3],"GOrder":[0]}')
    wanted = expected_places("GTopic", queueId={1, 3}) + expected_places("GOrder", queueId={0})
    assert found == sorted(wanted)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "GTopik"}, "option subscribe: no topic GTopik; did you mean GTopic"),
        ({"subscribe": "zzz"}, "no topic zzz; the topics are GBatch, GDelay,"),
        ({"assign": '{"GTopic":[9]}'}, "assign: topic GTopic has no queue 9; its queues are 0, 1"),
        ({"assign": '{"GTopi":[0]}'}, "option assign: no topic GTopi; did you mean GTopic"),
        ({"startingOffsets": '{"GTopi":{"0":1}}'}, "no topic GTopi; did you mean GTopic"),
        ({"startingOffsets": '{"GTopic":{"9":1}}'}, "topic GTopic has no queue 9"),
        (
            {"subscribe": "GTx", "endingOffsetsByTimestamp": '{"GTopic":{"0":1}}'},
            "option endingOffsetsByTimestamp: no topic GTopic",
        ),
        ({"startingGroup": "CG"}, "option startingGroup: no group CG; did you mean CG_G"),
        ({"table": "backlog", "groups": "CG_"}, "no group CG_; did you mean CG_G"),
    ],
)
def test_an_unknown_name_lists_those_near_it(
    golden_550: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises((UnknownTopicError, UnknownGroupError)) as caught:
        planned(golden_550, **options)
    assert told in str(caught.value)


def test_a_position_is_for_its_queue_and_the_rest_take_the_default(golden_550: Path) -> None:
    options = {
        "subscribe": "GTopic",
        "startingOffsets": '{"GTopic":{"0":100,"1":"earliest"}}',
        "endingOffsets": '{"GTopic":{"0":110,"2":50,"3":"latest"}}',
    }
    found = Counter(queue_id for _, queue_id, _ in places(golden_550, **options))
    whole = Counter(queue_id for _, queue_id, _ in expected_places("GTopic"))
    assert found == {0: 10, 1: whole[1], 2: 50, 3: whole[3]}


def test_the_last_n_of_each_queue(golden_550: Path) -> None:
    found = places(golden_550, subscribe="GTopic", startingOffsets="-5")
    whole = expected_places("GTopic")
    for queue_id in range(4):
        of_queue = [place for place in whole if place[1] == queue_id]
        assert [place for place in found if place[1] == queue_id] == of_queue[-5:]


def test_a_timestamp_selects_exactly_what_was_stored_since_and_before(golden_550: Path) -> None:
    times = sorted(m["store"] for m in EXPECTED if m["topic"] in USER_TOPICS)
    first, last = times[len(times) // 3], times[2 * len(times) // 3]
    since = expected_places(*USER_TOPICS, store=range(first, 10**15))
    between = expected_places(*USER_TOPICS, store=range(first, last))
    assert places(golden_550, startingTimestamp=str(first)) == since
    options = {"startingTimestamp": str(first), "endingTimestamp": str(last)}
    assert places(golden_550, **options) == between
    by_queue = json.dumps({"GTopic": {"0": first}})
    found = places(golden_550, subscribe="GTopic", startingOffsetsByTimestamp=by_queue)
    wanted = expected_places("GTopic", queueId={0}, store=range(first, 10**15))
    assert found == sorted(wanted + expected_places("GTopic", queueId={1, 2, 3}))


def test_a_queue_without_later_messages_is_empty_or_an_error_by_strategy(golden_550: Path) -> None:
    late = str(max(m["store"] for m in EXPECTED) + 10**9)
    assert places(golden_550, startingTimestamp=late) == []
    by_queue = {
        "subscribe": "GTopic",
        "startingOffsetsByTimestamp": json.dumps({"GTopic": {"0": int(late)}}),
    }
    with pytest.raises(InvalidOptionError, match="Strategy=latest"):
        planned(golden_550, **by_queue)
    relaxed = places(golden_550, **by_queue, startingOffsetsByTimestampStrategy="latest")
    assert relaxed == expected_places("GTopic", queueId={1, 2, 3})
    with pytest.raises(InvalidOptionError, match=r"option startingTimestamp=.*Strategy=latest"):
        planned(golden_550, startingTimestamp=late, startingOffsetsByTimestampStrategy="error")


def test_a_group_starts_where_it_committed_and_reads_its_backlog(golden_550: Path) -> None:
    found = places(golden_550, startingGroup="CG_G")
    # consumerOffset.json: {0: 97, 1: 100, 2: 98, 3: 100}
    committed = [97, 100, 98, 100]
    assert found == [
        place for place in expected_places("GTopic") if place[2] >= committed[place[1]]
    ]
    backlog = rows(golden_550, table="backlog", groups="CG_G", subscribe="GTopic")
    assert sum(row["lag"] for row in backlog) == len(found)


def test_an_offset_that_is_not_held_is_data_loss_or_a_warning(
    golden_550: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"subscribe": "GTopic", "endingOffsets": '{"GTopic":{"0":100000}}'}
    with pytest.raises(DataLossError, match=r"GTopic/0: queue offsets \[0, 100000\) were req"):
        planned(golden_550, **options)
    assert places(golden_550, **options, failOnDataLoss="false") == expected_places("GTopic")
    assert "queue offsets [0, 100000) were requested" in caplog.text


@pytest.mark.parametrize("name", ["tags", "subExpression"])
def test_tags_are_those_of_the_expression(golden_550: Path, name: str) -> None:
    found = rows(golden_550, subscribe="GTopic", **{name: "GA || x-y_z"})
    wanted = [
        m
        for m in EXPECTED
        if m["topic"] == "GTopic" and m["properties"].get("TAGS") in {"GA", "x-y_z"}
    ]
    assert len(found) == len(wanted) > 0
    assert {row["tags"] for row in found} == {"GA", "x-y_z"}


def test_sql_chooses_by_properties(golden_550: Path) -> None:
    sql = "TAGS IN ('GA', 'x-y_z') AND KEYS IS NOT NULL AND UNIQ_KEY > ''"
    with pytest.raises(InvalidOptionError, match=r"option sql=.*compare properties and numbers"):
        planned(golden_550, sql=sql)
    found = places(golden_550, sql="TAGS IN ('GA', 'x-y_z') AND KEYS STARTSWITH 'late'")
    wanted = [
        (m["topic"], m["queueId"], m["queueOffset"])
        for m in EXPECTED
        if m["topic"] in USER_TOPICS
        and m["properties"].get("TAGS") in {"GA", "x-y_z"}
        and m["properties"].get("KEYS", "").startswith("late")
    ]
    assert found == sorted(wanted)
    assert wanted


def test_a_tag_expression_without_a_tag_is_refused_before_any_task(golden_550: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"option subExpression='\|\|'"):
        planned(golden_550, subExpression="||")


def test_keys_and_ids_find_their_messages_through_the_index(golden_550: Path) -> None:
    message = next(m for m in EXPECTED if m["topic"] == "GTopic" and "KEYS" in m["properties"])
    key = message["properties"]["KEYS"].split(" ")[0]
    wanted = [
        (m["topic"], m["queueId"], m["queueOffset"])
        for m in EXPECTED
        if m["topic"] in USER_TOPICS and key in m["properties"].get("KEYS", "").split(" ")
    ]
    assert places(golden_550, keys=key) == sorted(wanted)
    place = (message["topic"], message["queueId"], message["queueOffset"])
    assert places(golden_550, msgIds=message["msgId"]) == [place]
    assert places(golden_550, keys="no such key") == []


def test_partitions_are_split_by_records_and_by_wish(golden_550: Path) -> None:
    whole = expected_places(*USER_TOPICS)
    assert len(planned(golden_550)[0].work()) == 1
    for options in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "100"}):
        plan, _ = planned(golden_550, **options)
        assert len(plan.work()) >= 7
        assert places(golden_550, **options) == whole


def test_batches_are_bounded_and_the_first_is_small(golden_550: Path) -> None:
    plan, _ = planned(golden_550, batchRows="300")
    sizes = [batch.num_rows for work in plan.work() for batch in work.batches()]
    assert max(sizes) <= 300
    assert sum(sizes) == len(expected_places(*USER_TOPICS))


def test_several_stores_need_names_that_differ(two_brokers: Path) -> None:
    glob = f"{two_brokers}/*/store"
    with pytest.raises(InvalidOptionError, match=r"two stores have this name: .*/one/store and"):
        planned(glob)
    names = '["a","b"]'
    found = rows(glob, subscribe="GTx", brokerName=names)
    assert Counter(row["brokerName"] for row in found) == {"a": 14, "b": 14}
    with pytest.raises(InvalidOptionError, match="must have one name for each store; there are 2"):
        planned(glob, brokerName="a")
    with pytest.raises(InvalidOptionError, match="is for one store, and path names 2"):
        planned(glob, brokerName=names, storePathCommitLog="/a,/b")


def test_a_store_that_is_named_twice_is_refused(two_brokers: Path, tmp_path: Path) -> None:
    one = two_brokers / "one" / "store"
    (tmp_path / "link").symlink_to(one)
    for again in (f"{two_brokers}/o*/store", str(tmp_path / "link")):
        paths = json.dumps([str(one), again])
        with pytest.raises(InvalidOptionError, match="its messages would come twice"):
            plan_read(parse_read({"paths": paths, "brokerName": '["a","b"]'}), ["topic"])


def test_a_topic_that_is_only_configured_has_positions(store: MakeStore) -> None:
    laid = store([Message()])
    topics = {"topicConfigTable": {"Z": {"readQueueNums": 2, "writeQueueNums": 2}}}
    (laid.root / "config" / "topics.json").write_text(json.dumps(topics))
    assert places(laid.root, startingOffsets='{"Z":{"1":0}}') == [("T", 0, 0)]
    with pytest.raises(UnknownTopicError, match="no topic Z"):
        planned(laid.root, subscribe="T", startingOffsets='{"Z":{"1":0}}')


def test_positions_have_a_broker_level(two_brokers: Path) -> None:
    options = {
        "brokerName": '["a","b"]',
        "subscribe": "GTx",
        "startingOffsets": '{"GTx":{"b":{"0":1},"0":2}}',
    }
    found = rows(f"{two_brokers}/*/store", **options)
    starts = {
        name: min(r["queueOffset"] for r in found if (r["brokerName"], r["queueId"]) == (name, 0))
        for name in ("a", "b")
    }
    assert starts == {"a": 2, "b": 1}
    wrong = {**options, "startingOffsets": '{"GTx":{"c":{"0":1}}}'}
    with pytest.raises(InvalidOptionError, match="the stores are of broker a, b"):
        planned(f"{two_brokers}/*/store", **wrong)


def test_the_tables_have_a_row_for_each_thing_and_take_the_topic_options(golden_550: Path) -> None:
    queues = rows(golden_550, table="queues")
    assert sum(row["messageCount"] for row in queues if row["topic"] == "GTopic") == 481
    chosen = rows(golden_550, table="queues", assign='{"GTopic":[1]}')
    assert [(row["topic"], row["queueId"]) for row in chosen] == [("GTopic", 1)]
    topics = rows(golden_550, table="topics")
    assert {row["topic"] for row in topics} >= USER_TOPICS
    assert len(topics) < len(rows(golden_550, table="topics", includeSystemTopics="true"))
    held = rows(golden_550, table="offsets", subscribe="GBatch", columns="group,consumerOffset")
    assert held == [{"group": "LP_G", "consumerOffset": o} for o in (20, 40, 40, 40)]


def test_the_backlog_of_a_topic_is_that_of_its_groups(golden_550: Path) -> None:
    options = {"subscriptions": '{"CG_G":{"GTopic":"GA"}}', "columns": "group,topic,lagMatching"}
    found = rows(golden_550, table="backlog", subscribe="GTopic", **options)
    assert {(row["group"], row["topic"]) for row in found} == {("CG_G", "GTopic")}
    reading = places(golden_550, startingGroup="CG_G", tags="GA")
    assert sum(row["lagMatching"] for row in found) == len(reading)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("", "[MQLOG_INVALID_OPTION] option path="),
        ("{tmp}/nowhere", "[MQLOG_STORE_NOT_FOUND]"),
        ("{tmp}", "[MQLOG_NOT_A_STORE]"),
        ("{tmp}/*", "[MQLOG_STORE_NOT_FOUND]"),
        ("hdfs://name/store", "[MQLOG_STORE_UNAVAILABLE] hdfs://name/store: "),
    ],
)
def test_a_path_that_is_no_store_is_told_at_planning(tmp_path: Path, path: str, told: str) -> None:
    with pytest.raises(StoreError) as caught:
        planned(path.format(tmp=tmp_path)) if path else plan_read(parse_read({}), ("body",))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("onCorrupt", "rescue", "on_corrupt", "rescue"),
        ("failOnDataLoss", "false", "fail_on_data_loss", False),
        ("verifyCrc", "false", "verify_crc", False),
        ("decompress", "false", "decompress", False),
        ("maxDecompressedBytes", "1k", "max_decompressed_bytes", 1024),
        ("readMode", "mmap", "read_mode", "mmap"),
        ("batchRows", "7", "batch_rows", 7),
        ("batchBytes", "64k", "batch_bytes", 65536),
        ("tags", "A || B", "tags", "A || B"),
        ("columns", "tags,body", "columns", ("tags", "body")),
    ],
)
def test_an_option_of_the_scan_reaches_every_task(
    golden_550: Path, name: str, text: str, field: str, value: object
) -> None:
    plan, _ = planned(golden_550, minPartitions="3", **{name: text})
    assert {getattr(work.settings, field) for work in plan.work()} == {value}


def test_what_is_read_does_not_depend_on_how(golden_550: Path) -> None:
    whole = rows(golden_550, subscribe="GTopic")
    for options in ({"readMode": "mmap"}, {"batchBytes": "1"}, {"batchRows": "3"}):
        assert rows(golden_550, subscribe="GTopic", **options) == whole


def test_a_commit_log_in_several_folders_is_one(golden_550: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(golden_550, tmp_path / "store"))
    other = tmp_path / "other"
    other.mkdir()
    moved = sorted((root / "commitlog").iterdir())[1]
    moved.rename(other / moved.name)
    with pytest.raises(StoreError, match=r"\[MQLOG_CORRUPT_STORE\]"):
        planned(root)
    folders = f"{root}/commitlog,{other}"
    assert places(root, storePathCommitLog=folders) == expected_places(*USER_TOPICS)


def test_an_empty_store_has_no_rows_and_no_work(store: MakeStore) -> None:
    root = store([]).root
    for table in ("messages", "queues", "offsets", "backlog"):
        assert rows(root, table=table) == []
    assert planned(root)[0].work() == []


def test_a_start_that_has_expired_stops_a_batch_and_not_a_stream_that_is_past_it(
    store: MakeStore,
) -> None:
    """Spark asks for the schema of a restarted stream too, whose checkpoint may be far ahead."""
    laid = store([Message() for _ in range(80)], Layout(expired_files=1))
    source = MqlogDataSource({"path": str(laid.root), "startingOffsets": '{"T":{"0":3}}'})
    schema = source.schema()
    with pytest.raises(DataLossError, match=r"T/0: queue offsets \[3, 80\) were requested"):
        source.reader(schema)
    ahead = MqlogDataSource({"path": str(laid.root), "startingOffsets": '{"T":{"0":81}}'})
    with pytest.raises(DataLossError, match=r"T/0: queue offsets \[81, 80\)"):
        ahead.schema()


@pytest.mark.parametrize(
    "start",
    [
        {"startingGroup": "gone"},
        {"startingOffsets": '{"Gone":{"0":3}}'},
        {"startingOffsetsByTimestamp": '{"T":{"0":"-10s"}}'},
        {"startingTimestamp": "-10s", "startingOffsetsByTimestampStrategy": "error"},
    ],
)
def test_a_start_that_holds_no_longer_stops_a_batch_and_not_a_stream_that_has_a_checkpoint(
    store: MakeStore, start: dict[str, str]
) -> None:
    path = {"path": str(store([Message() for _ in range(9)]).root)}
    source = MqlogDataSource(path | start)
    schema = source.schema()
    with pytest.raises((InvalidOptionError, UnknownGroupError, UnknownTopicError)) as told:
        source.reader(schema)
    assert next(iter(start)) in str(told.value)
    with pytest.raises(UnknownTopicError, match="subscribe: no topic Gone"):
        MqlogDataSource(path | start | {"subscribe": "Gone"}).schema()
    stream = source.streamReader(schema)
    assert isinstance(stream, MqlogStreamReader)
    assert stream.latestOffset({"T": {"0": 4}}, ReadAllAvailable()) == {"T": {"0": 9}}
    stream.stop()


def test_a_position_in_a_queue_that_is_not_there_is_data_loss_or_a_warning(
    store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    laid = store([Message() for _ in range(9)])
    topics = {"topicConfigTable": {"T": {"readQueueNums": 8, "writeQueueNums": 8}}}
    (laid.root / "config" / "topics.json").write_text(json.dumps(topics))
    for option in ("startingOffsets", "endingOffsets"):
        options = {option: '{"T":{"7":5}}'}
        with pytest.raises(DataLossError, match=r"T/7: queue offsets \[5, 5\) were requested"):
            planned(laid.root, **options)
        assert len(places(laid.root, **options, failOnDataLoss="false")) == 9
        assert "T/7: queue offsets [5, 5) were requested" in caplog.text
        caplog.clear()
    assert len(places(laid.root, startingOffsets='{"T":{"7":0}}')) == 9
