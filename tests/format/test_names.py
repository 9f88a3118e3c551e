"""Names: which are files, queues and topics, and which can never reach a path."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.format import names
from support import strategies


@given(start=st.integers(0, 2**63 - 1))
def test_a_mapped_file_name_tells_its_start(start: int) -> None:
    name = names.mapped_file_name(start)
    assert len(name) == 20
    assert names.parse_mapped_file_name(name) == start


@pytest.mark.parametrize(
    "name",
    ["", "0", "0" * 19, "0" * 21, "-" + "0" * 19, "9" * 20, "0" * 19 + "x", "0" * 19 + "٣",
     "+" * 20, "0" * 20 + "\n", ".tmp"],
)  # fmt: skip
def test_what_no_broker_writes_is_no_mapped_file(name: str) -> None:
    assert names.parse_mapped_file_name(name) is None


@pytest.mark.parametrize(("name", "queue_id"), [("0", 0), ("17", 17), ("65535", 65535)])
def test_a_directory_of_digits_is_a_queue(name: str, queue_id: int) -> None:
    assert names.parse_queue_id(name) == queue_id


@pytest.mark.parametrize("name", ["", "-1", "01", "65536", "1e3", "٣", "0 ", "9" * 5000, "0\n"])
def test_what_is_no_queue_id_is_none(name: str) -> None:
    assert names.parse_queue_id(name) is None


@pytest.mark.parametrize("topic", [*strategies.TOPICS, strategies.LONG_RETRY_TOPIC])
def test_every_topic_a_broker_can_hold_is_a_topic(topic: str) -> None:
    assert names.is_topic(topic)


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "a/b", "../x", "a\0b", "\udcb6\udca9", "x" * 256, "字" * 86],
)
def test_what_could_leave_the_store_or_is_no_text_is_no_topic(topic: str) -> None:
    assert not names.is_topic(topic)
    assert not names.is_writable_topic(topic)


@pytest.mark.parametrize("topic", [*strategies.ODD_NAMES, "x" * 128, "%" + "r" * 254, "字" * 85])
def test_what_a_folder_can_be_called_is_a_topic_and_no_message_is_written_to_it(topic: str) -> None:
    assert names.is_topic(topic)
    assert not names.is_writable_topic(topic)


@given(text=st.text(max_size=40))
def test_a_topic_is_always_one_harmless_path_component(text: str) -> None:
    if names.is_topic(text):
        assert not set(text) & set("/\0")
        assert text not in {".", ".."}


LIGHT = [
    "%LMQ%a.b:c",
    "%LMQ%$p$child",
    "%LMQ%q@x#1",
    "%LMQ%中文",
    "%LMQ%sp ace",
    "%LMQ%" + "n" * 250,
]


@pytest.mark.parametrize("topic", LIGHT)
def test_a_light_queue_may_have_any_name_that_a_directory_may_have(topic: str) -> None:
    """As 5.1.4 made them of INNER_MULTI_DISPATCH."""
    assert names.is_topic(topic)


@given(text=st.text(st.characters(), max_size=300))
@example("%LMQ%a/../b").via("a path")
@example("%LMQ%\0").via("the end of a C string")
@example("%LMQ%\ud800").via("no UTF-8")
@example("%LMQ%" + "字" * 84).via("a name of 257 bytes")
def test_a_light_queue_is_one_component_that_a_file_system_takes(text: str) -> None:
    name = text if text.startswith("%LMQ%") else f"%LMQ%{text}"
    if names.is_topic(name):
        assert not set(name) & set("/\0")
        assert len(name.encode()) <= 255


@pytest.mark.parametrize(
    "topic",
    ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
     "rmq_sys_wheel_timer", "%RETRY%g", "%DLQ%g", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC",
     "OFFSET_MOVED_EVENT", "BenchmarkTest", "CHECKPOINT_TOPIC", "%LMQ%x"],
)  # fmt: skip
def test_the_brokers_own_topics_are_system_topics(topic: str) -> None:
    assert names.is_system_topic(topic)


@pytest.mark.parametrize("topic", ["T", "orders", "RMQ", "retry", "DLQ_of_mine"])
def test_a_users_topic_is_none_of_the_brokers(topic: str) -> None:
    assert not names.is_system_topic(topic)


@pytest.mark.parametrize(
    ("name", "is_index"), [("20261121030730218", True), ("2026112103073021", False), ("x", False)]
)
def test_an_index_file_is_named_by_its_time(name: str, is_index: bool) -> None:
    assert names.is_index_file_name(name) is is_index
