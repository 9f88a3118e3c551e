"""Every table and every command through a real RocketMQ 5 proxy, beside the name server.

What the proxy gives is what brokers give, or null with a line that says so, or it is refused by
name. The tables and the commands are those that are declared: a new one is asked too.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from broker import proxies, recipe
from broker.harness import BROKER_NAME, Broker, Cluster
from broker.toolchain import Toolchain
from jobs.command import Done, Run, commands
from jobs.conftest import doctor_of_stores, run
from jobs.test_sending import typed
from live.real import NAMES, QUIET
from live.test_through_proxy import popped
from mqstore.backlog import unseen
from mqstore.request import tables
from mqstore.tables.catalog import CATALOG
from mqstore.tables.samples import SAMPLE_SCHEMA
from support import planned
from support.processes import until

__all__ = ["doctor_of_stores", "run", "typed"]

pytestmark = pytest.mark.broker

POPPING, WORKING, TRACED = "Popping", "Working", "Traced"
GROUPS = ",".join((NAMES.push_group, POPPING, WORKING))
TOPICS = {"halfmessages": NAMES.transaction, "latency": TRACED}
"""The topic that a table or a command is asked about, where it is not the first one."""
OF_NOW = {
    *("asOf", "lagMs", "etaZero", "etaZeroEarliest", "etaZeroLatest", "ratesMs"),
    *("evidence", "numbers", "next"),
    *("storedRate", "storedRateLow", "storedRateHigh"),
    *("consumedRate", "consumedRateLow", "consumedRateHigh"),
}
"""Columns that depend on the moment, or name the place."""
EMPTY = {"audit", "scheduled"}
"""Tables that have no rows here: what is compared is the same, what is delayed was delivered."""
SORTED_BY = (
    *("brokerName", "group", "topic", "queueId", "tag", "tags", "queueOffset", "msgId", "verdict"),
    *("event", "stage", "intervalStart", "timestamp"),
)
UNSEEN_VALUES = {("consumers", None, 0), ("status", "OK", "NO_CONSUMERS")}
NAMED = ("[MQLOG_NOT_SERVED_BY_PROXY]", "[MQLOG_INVALID_OPTION]")
HIDDEN = "whether there are groups"
UNSEEN = "whether groups have consumers is not known of"


@pytest.fixture(autouse=True)
def _warned_of_nothing() -> None:
    unseen._warn.cache_clear()
    tables._warn_of_untold.cache_clear()


@dataclass(frozen=True, slots=True)
class Ground:
    """A broker with a proxy before it, a group that works through the proxy, and others."""

    cluster: Cluster
    broker: Broker
    proxy: proxies.Proxy
    samples: Path

    @property
    def through_proxy(self) -> str:
        return f"rocketmq://{self.proxy.address}"

    @property
    def at_brokers(self) -> tuple[str, ...]:
        """The name server, with the proxies of the cluster."""
        return f"rocketmq://{self.cluster.name_server}", "-o", f"proxies={self.proxy.address}"


@pytest.fixture(scope="module")
def ground(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    home = tmp_path_factory.mktemp("doors-")
    root = home / "broker" / "store"
    root.mkdir(parents=True)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(toolchain, proxies.PROXY_VERSION, home))
        broker = stack.enter_context(cluster.broker(root, {**QUIET, "timerWheelEnable": "true"}))
        proxy = stack.enter_context(proxies.running(toolchain, cluster.name_server, home))
        recipe.produce_few(broker, NAMES)
        failed = broker.push(NAMES.topic, NAMES.push_group, " || ".join(NAMES.tags), 20, 5)
        broker.wait_for(f"%RETRY%{NAMES.push_group}", failed)
        recipe.await_delays(broker, NAMES)
        broker.produce(NAMES.topic, "Single", 40, seed=2, tags=NAMES.tags)
        for group in (POPPING, WORKING):
            broker.mqadmin("updateSubGroup", "-b", broker.address, "-g", group)
        popped(cluster, POPPING, NAMES.topic, 0)
        broker.traced(TRACED, "TracedGroup")
        client = stack.enter_context(cluster.other_clients())
        cluster.ask_of(client, "connect", proxy.address, BROKER_NAME, proxy.address)
        cluster.ask_of(client, "join", WORKING, NAMES.topic, "*", "takes", 0)
        until(lambda: _has_consumed(cluster))
        yield Ground(cluster, broker, proxy, _samples(broker, home / "samples"))


def _has_consumed(cluster: Cluster) -> bool:
    """Tell whether the group that works has consumed all."""
    address = f"rocketmq://{cluster.name_server}"
    rows = planned.rows(address, table="offsets", subscribe=NAMES.topic, groups=WORKING)
    queues = planned.rows(address, table="queues", subscribe=NAMES.topic)
    ends = {row["queueId"]: row["maxOffset"] for row in queues}
    return {row["queueId"]: row["consumerOffset"] for row in rows} == ends


def _samples(broker: Broker, folder: Path) -> Path:
    """Samples of some minutes ago, in which the group that left stands where it stands now."""
    folder.mkdir()
    rows = [
        row for row in broker.consumer_progress(NAMES.push_group) if row["topic"] == NAMES.topic
    ]
    for minutes in (30, 20, 10):
        at = datetime.now(UTC) - timedelta(minutes=minutes)
        sampled = [
            {
                "asOf": at,
                "brokerName": BROKER_NAME,
                "group": NAMES.push_group,
                "topic": NAMES.topic,
                "queueId": row["queueId"],
                "minOffset": 0,
                "brokerOffset": row["brokerOffset"],
                "consumerOffset": row["consumerOffset"],
                "lag": row["brokerOffset"] - row["consumerOffset"],
            }
            for row in rows
        ]
        ms = int(at.timestamp() * 1000)
        name = f"samples-{ms:013}-{ms:013}.parquet"
        pq.write_table(pa.Table.from_pylist(sampled, SAMPLE_SCHEMA), folder / name)
    return folder


def words_of(name: str, ground: Ground, place: Sequence[str]) -> list[str]:
    """The words that ask for a table with the topic and the groups that it takes."""
    table = CATALOG[name]
    words = ["table", name, *place, "--json"]
    if table.takes("subscribe"):
        words += ["--topic", TOPICS.get(name, NAMES.topic)]
    if table.takes("groups") and name != "latency":
        words += ["--group", GROUPS]
    if name == "verdicts":
        words += ["-o", f"samples={ground.samples}"]
    if table.needs:
        words += ["-o", f"{table.needs}={place[0]}"]
    return words


def check(ours: Done, theirs: Done, told: str, untold: Sequence[str] = ()) -> None:
    """Check that rows are equal, but for columns that are null with a line that says so.

    ``told`` are the lines about what the proxy gave.
    """
    assert (ours.code, theirs.code) == (0, 0), (ours.err, theirs.err)
    nulls = set()
    said_of_brokers = list(theirs.rows)
    if HIDDEN in told or UNSEEN in told:
        there = {row.get("group") for row in ours.rows}
        said_of_brokers = [
            row
            for row in said_of_brokers
            if row.get("verdict") != "NO_MEMBERS"
            and not (HIDDEN in told and row["group"] not in there)
        ]
    assert len(ours.rows) == len(said_of_brokers), (ours.rows, theirs.rows)
    pairs = zip(sorted(ours.rows, key=_key), sorted(said_of_brokers, key=_key), strict=True)
    for our_row, their_row in pairs:
        assert our_row.keys() == their_row.keys()
        for column in their_row:
            our_value, their_value = our_row[column], their_row[column]
            if column in OF_NOW:
                our_value, their_value = our_value is None, their_value is None
            if column.endswith("Estimate"):
                our_value, their_value = bool(our_value), bool(their_value)
            if our_value == their_value:
                continue
            if (column, our_value, their_value) in UNSEEN_VALUES:
                assert UNSEEN in told
            else:
                assert our_value is None, (column, our_row, their_row)
                nulls.add(column)
    assert nulls <= set(untold)
    for column in nulls:
        assert f"a RocketMQ proxy does not tell {', '.join(untold)}" in told, column


def _key(row: dict[str, Any]) -> str:
    return str([row.get(column) for column in SORTED_BY])


@pytest.mark.parametrize("name", CATALOG)
def test_each_table_is_what_brokers_give_or_is_refused_by_name(
    ground: Ground, run: Run, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    table = CATALOG[name]
    ours = run(*words_of(name, ground, (ground.through_proxy,)))
    told = caplog.text
    theirs = run(*words_of(name, ground, ground.at_brokers))
    in_sql = run(
        *("sql", ground.through_proxy, f"FROM {name} WHERE '{TOPICS.get(name, NAMES.topic)}' > ''"),
        *("--json", "-o", f"groups={GROUPS}"),
    )
    if table.of_files:
        assert [done.code for done in (ours, theirs, in_sql)] == [2, 2, 2]
        assert f"a cluster has no table {name}" in ours.err
        return
    if table.not_served:
        for refused in (ours, in_sql):
            assert refused.code == 2
            assert "[MQLOG_NOT_SERVED_BY_PROXY]" in refused.err
            assert f"do not serve {table.not_served}." in refused.err
        assert theirs.code == 0
        return
    check(ours, theirs, told, table.untold)
    assert bool(ours.rows) == (name not in EMPTY)
    if not table.needs and name not in {"latency", "verdicts"}:  # These are asked for more.
        assert in_sql.code == 0, in_sql.err
        assert len(in_sql.rows) == len(ours.rows)


@pytest.mark.parametrize("name", [name for name in CATALOG if not CATALOG[name].of_files])
def test_a_table_without_names_says_what_to_name_or_that_no_proxy_serves_it(
    ground: Ground, run: Run, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    table = CATALOG[name]
    done = run("table", name, ground.through_proxy, "--json")
    if table.takes("subscribe") or table.takes("groups") or table.not_served:
        assert done.code == 2
        assert done.out == ""
        expected = "option --group=''", "option --topic=''", "[MQLOG_NOT_SERVED_BY_PROXY]"
        assert any(text in done.err for text in expected), done.err
    else:
        told = caplog.text
        check(done, run("table", name, *ground.at_brokers, "--json"), told)


def test_sql_names_what_the_query_or_an_option_has_to_name(ground: Ground, run: Run) -> None:
    for query, advice in (
        ("SELECT 1", "name them in the query (topic = 'SHOP_ORDERS')"),
        ("FROM queues", "name them in the query (topic = 'SHOP_ORDERS')"),
        ("FROM backlog", "name them by -o groups=NAMES"),
    ):
        done = run("sql", ground.through_proxy, query)
        assert done.code == 2
        assert "option QUERY=" in done.err
        assert advice in done.err


BY_TOPIC = ("--topic", NAMES.topic)
BY_BOTH = (*BY_TOPIC, "--group", GROUPS)
ASKED: dict[str, tuple[str, ...]] = {
    "topics": BY_TOPIC,
    "queues": BY_TOPIC,
    "tags": BY_TOPIC,
    "halfmessages": ("--topic", NAMES.transaction),
    "backlog": BY_BOTH,
    "offsets": BY_BOTH,
    "forecast": BY_BOTH,
    "subscriptions": BY_BOTH,
    "retries": BY_BOTH,
    "groups": ("--group", GROUPS),
    "why": (*BY_BOTH, "--samples", "SAMPLES"),
    "latency": ("--topic", TRACED),
    "cat": (NAMES.topic, "-n", "5"),
    "schema": (NAMES.topic,),
    "find": ("--key", "key1", *BY_TOPIC),
    "top": (*BY_BOTH, "--interval", "0.2"),
    "sql": (f"SELECT tags, count(*) AS messages FROM {NAMES.topic} GROUP BY tags",),
    "record": ("FILE", *BY_BOTH, "--count", "1"),
    "audit": ("PLACE", *BY_TOPIC),
    "replay": ("PLACE", *BY_TOPIC, "--to", NAMES.batch, "--dry-run"),
}
"""The words behind the place, by command."""
NOT_SERVED = {
    "lagcompare": BY_BOTH,
    "scheduled": BY_TOPIC,
    "brokers": (),
    "report": ("-o", "-"),
}
"""Commands for which no proxy serves what they need."""
OF_FILES = {
    **dict.fromkeys(("commits", "verify", "recover", "history", "demo"), ()),
    **dict.fromkeys(("copy", "snapshot", "salvage", "restore"), ("FILE",)),
    "prune": ("--keep", "1d"),
}
"""Commands that are about directories, and say so."""
ALONE = {"table", "send", "doctor", "changes"}
"""Commands that have tests of their own."""


def test_every_command_is_asked_through_a_proxy() -> None:
    asked = [*ASKED, *NOT_SERVED, *OF_FILES, *ALONE]
    assert sorted(asked) == sorted(commands().commands)


@pytest.mark.parametrize("command", ASKED)
def test_each_command_prints_what_brokers_give(
    ground: Ground, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    found, told = [], ""
    for number, place in enumerate(([ground.through_proxy], list(ground.at_brokers))):
        fitting = {"PLACE": place[0], "FILE": str(tmp_path / f"{number}.parquet")}
        fitting["SAMPLES"] = str(ground.samples)
        words = [fitting.get(word, word) for word in ASKED[command]]
        more = [] if command == "replay" else place[1:]
        found.append(run(command, place[0], *words, *more, "--json"))
        if not number:
            told = caplog.text + found[0].err
    codes = {done.code for done in found}
    if command == "why":  # It found reasons.
        assert codes == {1}
        found = [done._replace(code=0) for done in found]
    untold = CATALOG[command].untold if command in CATALOG else ()
    ours, theirs = found
    check(ours, theirs, told, untold)
    assert bool(found[0].rows) == (command != "audit")


@pytest.mark.parametrize("command", [*NOT_SERVED, *OF_FILES])
def test_a_command_that_no_proxy_can_serve_says_so(
    ground: Ground, run: Run, tmp_path: Path, command: str
) -> None:
    words = (NOT_SERVED | OF_FILES)[command]
    target = str(tmp_path / "target")
    typed_words = [target if word == "FILE" else word for word in words]
    done = run(command, ground.through_proxy, *typed_words)
    assert done.code == 2
    assert NAMED[command in OF_FILES] in done.err
    assert not Path(target).exists()


@pytest.mark.usefixtures("doctor_of_stores")
def test_lines_are_sent_and_the_doctor_is_content(ground: Ground, run: Run, typed: Any) -> None:
    ground.broker.mqadmin("updateTopic", "-b", ground.broker.address, "-t", "Typed")
    typed(b"one\ntwo")
    (sent,) = run("send", ground.through_proxy, "Typed", "--json").rows
    assert sent["messages"] == 2
    done = run("doctor", ground.through_proxy, "--json")
    assert done.code == 0
    assert {row["severity"] for row in done.rows} <= {"OK", "note"}


def test_changes_through_a_proxy_make_the_tables_of_brokers(
    ground: Ground, run: Run, typed: Any, tmp_path: Path
) -> None:
    ground.broker.mqadmin("updateTopic", "-b", ground.broker.address, "-t", "Changed")
    lines = [
        json.dumps(
            {
                "type": "INSERT", "isDdl": False, "database": "shop", "table": "orders",
                "pkNames": ["id"], "mysqlType": {"id": "bigint", "article": "varchar(20)"},
                "data": [{"id": str(number), "article": f"article {number}"}], "old": None,
                "es": 1_700_000_000_000, "ts": 1_700_000_000_100,
            }
        )
        for number in range(8)
    ]  # fmt: skip
    typed("\n".join(lines).encode())
    assert run("send", ground.through_proxy, "Changed", "--json").rows[0]["messages"] == len(lines)
    tables = []
    for place in ([ground.through_proxy], list(ground.at_brokers)):
        lake = tmp_path / str(len(tables))
        done = run("changes", place[0], "Changed", "--to", f"delta:{lake}", "--json", *place[1:])
        assert done.code == 0, done.err
        table = DeltaTable(str(lake / "shop.orders")).to_pyarrow_table()
        tables.append(table.select(["id", "article", "_mqlogDeleted"]).sort_by("id").to_pylist())
    ours, theirs = tables
    assert ours == theirs
    assert [row["article"] for row in ours] == [f"article {number}" for number in range(8)]


def test_samples_through_a_proxy_are_those_of_brokers(
    ground: Ground, run: Run, tmp_path: Path
) -> None:
    sampled = []
    order = [("group", "ascending"), ("queueId", "ascending")]
    for number, place in enumerate(([ground.through_proxy], list(ground.at_brokers))):
        folder = tmp_path / f"{number}.parquet"
        run("record", place[0], str(folder), *place[1:], *BY_BOTH, "--count", "1")
        sampled.append(pq.read_table(folder).sort_by(order))
    ours, theirs = sampled
    for column in SAMPLE_SCHEMA.names:
        if column in {"asOf", "consumers", "logEnd", "diskUsed"}:
            continue
        assert ours[column].equals(theirs[column]), column
    assert pc.all(pc.is_null(ours["logEnd"])).as_py()
    assert ours.num_rows
