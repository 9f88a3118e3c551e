"""SQL92 expressions choose the messages that RocketMQ's filter module and its brokers choose."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.harness import Cluster
from broker.our_messages import SMALL_SIZES, on_port, write
from broker.ports import free_ports
from broker.toolchain import VERSIONS, Toolchain
from broker.verdicts import verdicts
from mqstore.backlog import BacklogRequest, measure, plan
from mqstore.errors import InvalidOptionError
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.read.sql.filter import parse_sql
from read.sql.expressions import expressions, messages
from read.sql.judged import column, ours, theirs
from support import soak

pytestmark = pytest.mark.broker

NEW_IN_5 = ("CONTAINS", "STARTSWITH", "ENDSWITH")
TOPIC = "SqlTopic"
GROUP = "CG_SQL"
PUSHED = "a BETWEEN 5 AND 7 OR b IS NOT NULL AND NOT (b = 'x')"


def is_known(text: str, version: str) -> bool:
    """Tell whether that version has all the words of an expression."""
    return version.startswith("5.") or not any(word in text.upper() for word in NEW_IN_5)


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_messages_pass_as_in_rocketmq(toolchain: Toolchain, version: str) -> None:
    count = soak.size("sql_expressions", check=1_000, test=1_000, whole=20_000)
    found = messages(seed=5, count=200)
    texts = list(expressions(seed=5, count=count))
    texts = [text for text in texts if is_known(text, version)]
    told = verdicts(toolchain, version, found, texts)
    properties = column(found)
    wrong = {
        text: (got, want)
        for text, verdict in zip(texts, told, strict=True)
        if (got := ours(text, properties)) != (want := theirs(verdict))
    }
    assert wrong == {}
    assert "T" in "".join(map(theirs, told))


@pytest.mark.soak
def test_a_broker_selects_the_same_messages_for_its_consumers(
    cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    port = free_ports(-2, 0, 1)
    rows = [row(number, its) for number, its in enumerate(messages(seed=6, count=200))]
    write(root, rows, **on_port(port, **SMALL_SIZES))
    count = soak.size("sql_selections", check=40, test=40, whole=1_000)
    texts = [
        text
        for text in expressions(seed=6, count=count)
        if is_valid(text) and is_known(text, cluster.version)
    ]
    expected = {text: selected(root, text) for text in texts if not is_cut_short(text)}
    with cluster.broker(root, {"enablePropertyFilter": "true"}, port) as broker:
        found = dict(zip(expected, broker.select(TOPIC, expected), strict=True))
        pushed = broker.push_selected(TOPIC, GROUP, PUSHED, len(selected(root, PUSHED)))
        broker.stop()
    assert found == expected
    assert 0 < sum(map(len, expected.values())) < len(expected) * len(rows)
    assert pushed == selected(root, PUSHED)
    check_backlog(root)


def row(number: int, properties: Mapping[str, str]) -> dict[str, Any]:
    # A property with an empty value is none once it is in a record.
    kept = {name: value for name, value in properties.items() if value}
    return {
        "body": b"%d" % number,
        "topic": TOPIC,
        "queueId": number % 4,
        "properties": kept,
        "flag": 0,
        "delayTimeLevel": 0,
    }


def is_valid(text: str) -> bool:
    try:
        return parse_sql(text, as_broker=True) is not None
    except InvalidOptionError:
        return False


def is_cut_short(text: str) -> bool:
    """Tell whether a broker takes an expression that the option refuses."""
    try:
        return parse_sql(text) is None
    except InvalidOptionError:
        return True


def selected(root: Path, sql: str) -> set[str]:
    """Return what our scan of the store selects, as QUEUE@OFFSET."""
    settings = ScanSettings(columns=("queueId", "queueOffset"), sql=sql)
    slices = [piece for piece in slices_of(take(root)) if piece.topic == TOPIC]
    return {
        f"{found['queueId']}@{found['queueOffset']}"
        for batch in scan(slices, settings)
        for found in batch.to_pylist()
    }


def check_backlog(root: Path) -> None:
    """Check that the broker's file has the group's expression, and that its backlog follows it."""
    snapshot, request = take(root), BacklogRequest(groups=GROUP)
    found = measure(plan(snapshot, request), request, as_of_ms=0).to_pylist()
    of_topic = [row for row in found if row["topic"] == TOPIC]
    assert {(row["subscription"], row["expressionType"]) for row in of_topic} == {(PUSHED, "SQL92")}
    left = sorted(selected(root, PUSHED))
    for row in of_topic:
        start = row["consumerOffset"] or 0
        places = [f"{row['queueId']}@{at}" for at in range(start, row["brokerOffset"])]
        assert row["lagMatching"] == len(set(places) & set(left))
