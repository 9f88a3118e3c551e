"""The JSON of config/: what brokers write is read, what nobody should write is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.in_time import in_time  # noqa: F401 - a fixture
from mqstore.errors import CorruptConfigError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig, CommittedOffsets, TopicConfig
from mqstore.files.config.config_text import parse_object
from support.stores import fastjson, topics_json, write_json

OFFSETS = {"offsetTable": {"T@G": {0: 5, 1: 7}, "%RETRY%G@G": {0: 0}}}


def folder(root: Path) -> Path:
    (root / "config").mkdir(exist_ok=True)
    return root / "config"


def test_offsets_as_a_broker_writes_them(tmp_path: Path) -> None:
    write_json(folder(tmp_path) / "consumerOffset.json", OFFSETS)
    assert BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets() == {
        ("T", "G"): {0: 5, 1: 7},
        ("%RETRY%G", "G"): {0: 0},
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{"T@G":{0:5,1:7}}}',
        '{"offsetTable":{"T@G":{"0":5,"1":7}}}',
        '{ "offsetTable" : { "T@G" : { 0 : 5 , 1 : 7 } } }',
        '{\n\t"offsetTable":{\n\t\t"T@G":{0:5,1:7\n\t\t}\n\t}\n}',
        '{"offsetTable":{"T@G":{0:5,1:7}, "nogroup":{0:1}, "@G":{0:1}, "T@":{0:1}}}',
        '{"offsetTable":{"T@G":{0:5,1:7,-1:3,70000:3,"x":3,2:"9",3:null,4:1.5,5:true}}}',
        '{"dataVersion":{"counter":1},"new field":[1,{2:3}],"offsetTable":{"T@G":{0:5,1:7}}}',
    ],
)
def test_every_spelling_a_broker_reads_is_read(tmp_path: Path, text: str) -> None:
    (folder(tmp_path) / "consumerOffset.json").write_text(text)
    assert BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets() == {("T", "G"): {0: 5, 1: 7}}


def test_digits_and_colons_inside_a_name_are_left_alone(tmp_path: Path) -> None:
    write_json(folder(tmp_path) / "subscriptionGroup.json", {"subscriptionGroupTable": {
        "g{0:5": {}, 'quote"{1:2': {}, "back\\": {}, ",7:": {},
    }})  # fmt: skip
    assert BrokerConfig(StoreDir.at(tmp_path)).groups() == {"g{0:5", 'quote"{1:2', "back\\", ",7:"}


@given(
    table=st.recursive(
        st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(), st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_strict_json_reads_as_what_it_is(
    tmp_path_factory: pytest.TempPathFactory, table: object
) -> None:
    root = tmp_path_factory.mktemp("json")
    text = json.dumps({"x": table}, ensure_ascii=False)
    (folder(root) / "any.json").write_bytes(text.encode(errors="surrogatepass"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text on disk
    assert BrokerConfig(StoreDir.at(root)).load("any.json") == {"x": table}


@given(
    table=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\b\f\r\t"), max_size=8).filter(
            lambda name: name.isprintable()
        ),
        st.dictionaries(st.integers(-9, 2**40), st.integers(0, 2**63 - 1), max_size=4),
        max_size=4,
    )
)
def test_integer_keys_of_any_table_are_read_without_quotes(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, dict[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("json")
    (folder(root) / "any.json").write_text(fastjson({"t": table}))
    assert BrokerConfig(StoreDir.at(root)).load("any.json") == {
        "t": {name: {str(k): v for k, v in inner.items()} for name, inner in table.items()}
    }


def test_topics_take_the_brokers_defaults(tmp_path: Path) -> None:
    document = topics_json({"Four": 4})
    document["topicConfigTable"] |= {"Bare": {"topicName": "Bare"}, "../evil": {}, "Odd": 3}
    write_json(folder(tmp_path) / "topics.json", document)
    assert BrokerConfig(StoreDir.at(tmp_path)).topics() == {
        "Four": TopicConfig(4, 4, 6, False),
        "Bare": TopicConfig(16, 16, 6, False),
    }


def test_nothing_there_is_nothing_known(tmp_path: Path) -> None:
    assert BrokerConfig(StoreDir.at(tmp_path)).topics() == {}
    assert BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets() == {}
    assert BrokerConfig(StoreDir.at(tmp_path)).groups() == set()


@pytest.mark.parametrize("main", [None, "", "  \n", "{", "[1]", "nul", "\xff"])
def test_a_bad_main_file_gives_way_to_its_backup(tmp_path: Path, main: str | None) -> None:
    write_json(folder(tmp_path) / "consumerOffset.json", OFFSETS)
    if main is None:
        (tmp_path / "config/consumerOffset.json").unlink()
    else:
        (tmp_path / "config/consumerOffset.json").write_text(main)
    assert BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets()["T", "G"] == {0: 5, 1: 7}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '"x"',
        "{1:2,}",
        '{"a":1}{"b":2}',
        "{" * 10,
        '{"a":' * 100_000,
        "[" * 1_000_000,
        '{"a":' + "9" * 5000 + "}",
        '{"offsetTable":{"T@G":{0:' + "1" * 5000 + "}}}",
        '{"a":"' + "\\" * 100_001,
        '"' * 100_001,
        "{0:" * 100_000,
        "{" + " " * 200_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_json_is_one_named_error_and_quick(tmp_path: Path, text: str) -> None:
    (folder(tmp_path) / "consumerOffset.json").write_text(text)
    with pytest.raises(CorruptConfigError, match=r"\[MQLOG_CORRUPT_CONFIG\] .*consumerOffset"):
        BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": "x\ny"}', "at byte 8: not JSON: Invalid control character at line 1 column 9"),
        ('{"a": "x', "at byte 6: not JSON: Unterminated string starting at line 1 column 7"),
        ('{\n\t"é": "\\q"}', "at byte 10: not JSON: Invalid \\escape at line 2 column 8"),
        ('{"t":{0:1,\n1:2,\n2:3,4:5 6}}', "at line 3 column 9"),
        ('{"t":{0:1,1:2,', "at line 1 column 15"),
        ('{"t":{0:1} 1:2}', "at line 1 column 12"),
    ],
)
def test_where_a_text_is_no_json_is_told(tmp_path: Path, text: str, told: str) -> None:
    """Of the file as it is, also where integer keys have no quotes."""
    (folder(tmp_path) / "consumerOffset.json").write_text(text)
    with pytest.raises(CorruptConfigError) as raised:
        BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets()
    assert raised.value.message().endswith(told)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("piece", ['\\"', "\\\n", "1:", ",1", ",1 "])
@pytest.mark.parametrize("begin", ['{"a":"', "{", '{1:"'])
def test_a_text_without_an_end_is_looked_through_once(begin: str, piece: str) -> None:
    with pytest.raises(CorruptConfigError):
        parse_object(begin + 300_000 * piece, "topics.json")


def test_rocksdb_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (folder(tmp_path) / "consumerOffsets").mkdir()
    (tmp_path / "config/consumerOffsets/CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(CorruptConfigError, match="config/consumerOffsets at byte 0: RocksDB can"):
        BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets()


def test_the_golden_stores_know_their_groups_and_topics(golden_550: Path, golden_497: Path) -> None:
    assert BrokerConfig(StoreDir.at(golden_550)).consumer_offsets()["GTopic", "CG_G"] == {
        0: 97,
        1: 100,
        2: 98,
        3: 100,
    }
    assert BrokerConfig(StoreDir.at(golden_497)).consumer_offsets()["HBatch", "LP_H"] == {
        0: 40,
        1: 20,
        2: 40,
        3: 40,
    }
    assert BrokerConfig(StoreDir.at(golden_550)).topics()["GTopic"].read_queue_nums == 4
    assert {"CG_G", "LP_G"} <= BrokerConfig(StoreDir.at(golden_550)).groups()


def test_offsets_tell_the_file_they_are_from(tmp_path: Path) -> None:
    write_json(folder(tmp_path) / "consumerOffset.json", OFFSETS)
    assert {found.source for found in BrokerConfig(StoreDir.at(tmp_path)).committed().values()} == {
        "consumerOffset.json"
    }
    (folder(tmp_path) / "consumerOffset.json").write_text('{"offsetTable":{"T@G"')
    found = BrokerConfig(StoreDir.at(tmp_path)).committed()
    assert found["T", "G"] == CommittedOffsets({0: 5, 1: 7}, "consumerOffset.json.bak")


def test_light_queues_have_offsets_of_their_own_file(tmp_path: Path) -> None:
    write_json(folder(tmp_path) / "consumerOffset.json", OFFSETS)
    light = {
        "offsetTable": {"T@G": {0: 9}, "U@G": {2: 1}},
        "lmqOffsetTable": {"%LMQ%x@%LMQ%g": 5, "%LMQ%y@%LMQ%g": "5", "odd": 1},
    }
    write_json(folder(tmp_path) / "lmqConsumerOffset.json", light)
    source = "lmqConsumerOffset.json"
    assert BrokerConfig(StoreDir.at(tmp_path)).committed() == {
        ("T", "G"): CommittedOffsets({0: 9}, source),
        ("U", "G"): CommittedOffsets({2: 1}, source),
        ("%LMQ%x", "%LMQ%g"): CommittedOffsets({0: 5}, source),
        ("%LMQ%y", "%LMQ%g"): CommittedOffsets({}, source),
        ("%RETRY%G", "G"): CommittedOffsets({0: 0}, "consumerOffset.json"),
    }
    assert BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets()["%LMQ%x", "%LMQ%g"] == {0: 5}


def test_the_golden_stores_tell_what_was_pulled_and_delivered(
    golden_550: Path, golden_497: Path
) -> None:
    pulled = BrokerConfig(StoreDir.at(golden_550)).pull_offsets()
    assert pulled["GTopic", "CG_G"] == {0: 100, 1: 101, 2: 100, 3: 100}
    assert BrokerConfig(StoreDir.at(golden_497)).pull_offsets() == {}
    assert BrokerConfig(StoreDir.at(golden_550)).delay_offsets() == {1: 14, 2: 13, 3: 16, 18: 0}
    assert BrokerConfig(StoreDir.at(golden_550)).filter_expressions() == {}


def test_half_a_surrogate_pair_in_a_name_is_what_java_writes_for_it(tmp_path: Path) -> None:
    path = tmp_path / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text(r'{"offsetTable":{"T@\ud800g":{0:3},"T@\ud83d\ude00":{0:4},"T@\\ud800":{0:5}}}')
    assert BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets() == {
        ("T", "?g"): {0: 3},
        ("T", "\N{GRINNING FACE}"): {0: 4},
        ("T", r"\ud800"): {0: 5},
    }


@pytest.mark.parametrize(
    ("main", "why"), [(None, "is missing"), ("", "is empty"), ("{", "cannot be parsed")]
)
def test_one_warning_names_the_backup_that_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, main: str | None, why: str
) -> None:
    path = folder(tmp_path) / "consumerOffset.json"
    write_json(path, OFFSETS)
    BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets()
    assert caplog.messages == []
    path.unlink()
    if main is not None:
        path.write_text(main)
    for _ in range(3):
        BrokerConfig(StoreDir.at(tmp_path)).consumer_offsets()
    (warned,) = caplog.messages
    assert warned == (f"{path}.bak was read instead, and may be older: consumerOffset.json {why}")
