"""What a broker keeps of POP in config/, and files made to harm."""

import logging
from pathlib import Path

import pytest

from mqstore.files.base.store_dir import open_dir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.config.pop_files import PopFacts, order_infos
from mqstore.format.pop import KvPops, OrderInfo

# As a broker of 5.5.0 wrote it, shorter.
ORDER_INFO = """{"orderInfoCount":2,"orderedConsumptionLevel":"QUEUE","table":{"POPO@G3":{
0:{"a":"att-1","cm":43,"i":60000,"l":1795412648719,"o":[10,1,2,3,4,5,6,7],
"ot":{16:1795412708719},"popTime":1795412638000},
1:{"a":"att-1","cm":15,"i":60000,"o":[0,1,2,3],"popTime":1795412638001}}}}"""
MODES = """{"messageRequestModeMap":{"POPT":{"G1":{"mode":"POP","popShareQueueNum":0},
"G2":{"mode":"PULL","popShareQueueNum":0}}}}"""


def facts(root: Path, **files: str) -> PopFacts:
    (root / "commitlog").mkdir(exist_ok=True)
    (root / "config").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "config" / f"{name}.json").write_text(text)
    return BrokerConfig(open_dir(root)).pop_facts()


def test_a_store_without_pop_keeps_nothing(tmp_path: Path) -> None:
    assert facts(tmp_path) == PopFacts({}, frozenset(), KvPops())


def test_a_batch_has_offsets_bits_and_times(tmp_path: Path) -> None:
    found = facts(tmp_path, consumerOrderInfo=ORDER_INFO).order_info
    assert found is not None
    first, second = found["POPO", "G3"][0], found["POPO", "G3"][1]
    done = tuple(number in {0, 1, 3, 5} for number in range(8))
    times = tuple(1795412708719 if number == 6 else 1795412698000 for number in range(8))
    assert first == OrderInfo(tuple(range(10, 18)), done, times, 1795412638000)
    assert second.acknowledged == (True,) * 4


def test_the_pairs_that_an_administrator_switched_to_pop_are_known(tmp_path: Path) -> None:
    assert facts(tmp_path, messageRequestMode=MODES).modes == {("POPT", "G1")}


def test_files_that_cannot_be_parsed_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = facts(tmp_path, consumerOrderInfo="{" * 50, messageRequestMode='{"a"')
    assert found == PopFacts({}, frozenset(), KvPops())
    assert caplog.text.count("POP groups are counted without it") == 2


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        {"o": [], "popTime": 1},
        {"o": [0, 1]},
        {"o": [0, "1"], "popTime": 1},
        {"o": [0, 0], "popTime": 1},
        {"o": [5, -3], "popTime": 1},
        {"o": [-5, 3], "popTime": 1},
        {"o": [2**63], "popTime": 1},
        {"o": [0, 2**63], "popTime": 1},
        {"o": list(range(100_000)), "popTime": 1},
        {"o": [0, 1], "popTime": -1},
        {"o": [0, 1], "popTime": 2**70},
        {"o": [0, 1], "popTime": 1, "i": 2**63},
        {"o": [0, 1], "popTime": 1, "ot": {"1": -9}},
        {"o": [0, 1], "popTime": 1, "cm": "3"},
        {"o": {"0": 1}, "popTime": 1},
    ],
)
def test_a_batch_that_no_broker_writes_is_left_out(entry: object) -> None:
    good = {"o": [3], "popTime": 1}
    found = order_infos({"table": {"T@G": {"0": entry, "1": good, "x": good, "-1": good}}})
    assert set(found["T", "G"]) == {1}


@pytest.mark.parametrize("key", ["T", "T@", "@G", "../x@G"])
def test_a_key_that_names_no_topic_and_group_is_left_out(key: str) -> None:
    assert order_infos({"table": {key: {"0": {"o": [3], "popTime": 1}}, "T2": 5}}) == {}
