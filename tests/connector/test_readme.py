"""The guide says what the code does: its tables are compared, its examples run."""

import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from live.taking import TakingCluster
from mqstore.audit.query import AuditOptions
from mqstore.changes.change import CHANGE_COLUMNS, change_schema
from mqstore.codec.schema import COLUMNS, KAFKA_COLUMNS
from mqstore.copy.take_point import take_point
from mqstore.deliver.settings import SEND_OPTIONS, SendSettings
from mqstore.files.points.backing import LocalBacking
from mqstore.options.option import options_of
from mqstore.request.read_options import READ_OPTIONS, ReadOptions, StreamOptions, takers
from mqstore.tables.catalog import CATALOG
from mqstore.write.stage.rows import WRITE_COLUMNS
from mqstore.write.stage.settings import WRITE_OPTIONS, MessageSettings, WriteSettings
from support import goldens

README = Path(__file__).parents[2] / "connector" / "README.md"
GUIDE, WRITE, LIVE, TABLES, STORES, BODIES, CHANGES = (
    README.with_name(page).read_text(encoding="utf-8")
    for page in (
        *("README.md", "WRITE.md", "LIVE.md", "TABLES.md", "STORES.md", "BODIES.md"),
        "CHANGES.md",
    )
)
TEXT = "\n".join((GUIDE, WRITE, TABLES, BODIES, CHANGES))
FRONT = README.parents[1].joinpath("README.md").read_text(encoding="utf-8")


OPTION_CELLS = 3
OF_BROKER = {"SHOP_ORDERS": "GTopic", "SHOP_PAYMENTS": "GOrder", "CG_WAREHOUSE": "CG_G"}


def _of_broker(example: str) -> str:
    """Return an example that reads a store: the golden one stands for the shop of the demo."""
    if "/data/" not in example:
        return example
    return re.sub(f"(?<!/)({'|'.join(OF_BROKER)})", lambda name: OF_BROKER[name[1]], example)


OWN_DEFAULTS = {"create_topic", "batch_max_messages", "producer_group"}


def table(heading: str) -> list[tuple[str, ...]]:
    section = re.split(r"^#+ ", TEXT.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)
    lines = [line for line in section[0].splitlines() if line.startswith("| `")]
    cells = (re.split(r"(?<!\\)\|", line.strip("|")) for line in lines)
    return [tuple(cell.strip().strip("`") for cell in row) for row in cells]


@pytest.mark.parametrize(
    ("headings", "kinds"),
    [
        (
            (
                *("Read options", "Expert read options", "Options of tables"),
                *("Options of bodies", "Options of changes"),
            ),
            (ReadOptions, AuditOptions),
        ),
        (("Write options", "Expert write options"), (WriteSettings,)),
        (("Stream options",), (StreamOptions,)),
    ],
)
def test_the_options_and_their_defaults_are_those_of_the_code(
    headings: tuple[str, ...], kinds: tuple[type, ...]
) -> None:
    listed = [row for heading in headings for row in table(heading) if len(row) == OPTION_CELLS]
    shown = {name: default for name, default, _ in listed if name != "path"}
    options = {field: option for kind in kinds for field, option in options_of(kind).items()}
    assert sorted(shown) == sorted(option.name for option in options.values())
    assert len(listed) == len({name for name, *_ in listed})
    for field in (field for kind in kinds for field in fields(kind)):
        if field.name in options:
            option = options[field.name]
            text = shown[option.name]
            if text == "–":
                assert field.default in (None, ()), option.name
            else:
                assert option.value(text) == field.default, option.name


def test_a_write_to_a_cluster_has_the_shared_options_and_those_of_its_own_table() -> None:
    shown = {name: default for name, default, _ in table("Cluster write options")}
    shared, defaults = (
        options_of(MessageSettings),
        {f.name: f.default for f in fields(SendSettings)},
    )
    own = {f: o for f, o in SEND_OPTIONS.items() if o != shared.get(f) or f in OWN_DEFAULTS}
    assert list(shown) == [option.name for option in own.values()]
    said = {f: None if shown[o.name] == "–" else o.value(shown[o.name]) for f, o in own.items()}
    assert said == {f: defaults[f] for f in own}
    assert [o.name for o in shared.values()] == [o.name for o in WRITE_OPTIONS.values()][
        : len(shared)
    ]
    assert list(shared)[-3] == "allow_system_topics"


def test_the_columns_of_a_write_are_those_of_the_code() -> None:
    assert tuple(name for name, _, _ in table("Columns of a write")) == WRITE_COLUMNS


def test_the_columns_are_those_of_the_code() -> None:
    assert table("Columns") == [
        (
            column.name,
            from_arrow_type(column.type).simpleString() + "?" * column.nullable,
            column.profile,
            column.meaning,
        )
        for column in COLUMNS
    ]
    assert ", ".join(f"`{column.name}`" for column in KAFKA_COLUMNS) in TEXT


def test_the_columns_of_changes_are_those_of_the_code() -> None:
    page = table("Columns of changes")
    schema = change_schema()
    types = [(field.name, from_arrow_type(field.type).simpleString()) for field in schema]
    assert [(name, kind) for name, kind, _ in page] == types
    meanings = [column.meaning for column in CHANGE_COLUMNS]
    assert [meaning for _, _, meaning in page][: len(meanings)] == meanings


def test_the_tables_are_those_of_the_code() -> None:
    assert [name for name, _ in table("Tables")] == list(CATALOG)


def test_the_page_of_the_tables_says_of_each_option_which_of_them_take_it() -> None:
    page = dict.fromkeys((option.name for option in READ_OPTIONS.values()), frozenset[str]())
    for options, tables in (row for row in table("Options of tables") if len(row) != OPTION_CELLS):
        named = CATALOG.keys() & re.findall(r"\w+", tables) if tables != "all" else CATALOG
        for option in re.findall(r"\w+", options):
            assert not page[option], option
            page[option] = frozenset(named)
    assert page == {option: {*takers(option)} - {"messages"} for option in page}


@pytest.mark.spark
def test_every_example_runs(spark: SparkSession, golden_550: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for root in ("broker-a/store", "brokers/one/store"):
        shutil.copytree(golden_550, data / root)
    for archive in ("store", "tiered"):
        store = goldens.unpack("5.5.1-tiered", tmp_path, archive)
    shutil.move(store.parent, data / "broker-t")
    shutil.move(data / "broker-t" / "tiered", data / "tiered")
    kept = tmp_path / "backup"
    kept.mkdir()
    take_point(data / "broker-a" / "store", LocalBacking(str(kept / "broker-a")))
    pages = "\n".join((FRONT, GUIDE, WRITE, LIVE, TABLES, STORES))
    with TakingCluster().running() as fake:
        for topic in ("SHOP_ORDERS", "SHOP_RETURNS"):
            fake.fill(topic, 3)
        found = re.findall(r"^```python\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
        for example in found:
            here = re.sub(r"ns1:9876(,ns2:9876)?", fake.address, _of_broker(example))
            here = here.replace("/data/", f"{data}/").replace("/backup/", f"{kept}/")
            exec(here, {"spark": spark})


@pytest.mark.spark
def test_the_recipe_for_at_least_once_leaves_one_whole_message_of_each_row(
    spark: SparkSession,
) -> None:
    """Repeats have one id; a torn message has zeros from somewhere in its properties on."""
    example = next(
        part
        for part in re.findall(r"^```python\n(.*?)^```", WRITE, re.MULTILINE | re.DOTALL)
        if "has_whole_id" in part
    )
    with TakingCluster().running() as fake:
        assert isinstance(fake, TakingCluster)
        fake.topic("SHOP_ORDERS")
        sent = spark.range(4).selectExpr("CAST(id AS STRING) AS body", "'own' AS tags")
        sent.coalesce(1).write.format("mqlog").mode("append").save(
            f"rocketmq://{fake.address}/SHOP_ORDERS"
        )
        messages = fake.queues["broker-a", "SHOP_ORDERS", 0].messages
        whole = [message for message in messages if message is not None]
        for message, kept in zip(whole, (0, 10, 40, len(whole[3].properties) - 2), strict=True):
            zeros = bytes(len(message.properties) - kept)
            torn = replace(message, properties=message.properties[:kept] + zeros)
            for repeat in (torn, message):
                messages.append(replace(repeat, queue_offset=len(messages)))
        *before, last = example.replace("ns1:9876", fake.address).strip().splitlines()
        namespace: dict[str, object] = {"spark": spark}
        exec("\n".join(before), namespace)
        rows = eval(last, namespace).select("body", "queueOffset").collect()
        every = spark.read.format("mqlog").load(f"rocketmq://{fake.address}/SHOP_ORDERS")
        naive = every.dropDuplicates(["msgId"]).count()
    assert sorted(bytes(row["body"]) for row in rows) == [b"0", b"1", b"2", b"3"]
    assert naive > len(rows)
