"""The checker: silent about whole stores, and about each kind of damage it names the place."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.check import Finding, check
from mqstore.errors import NotAStoreError, StoreNotFoundError
from mqstore.txn import intent
from mqstore.write.recover import RecoverSettings, recover
from support import goldens, killed_commit, oracle, strategies
from support.oracle import Message
from support.stores import Laid, Layout, lay_out
from support.writing import SMALL, append, rows


def errors(root: Path) -> list[Finding]:
    return [finding for finding in check(root) if finding.severity == "error"]


def test_a_golden_store_is_whole(golden: tuple[str, Path]) -> None:
    assert errors(golden[1]) == []


@given(
    batch=strategies.batches(max_size=40, topics=strategies.TOPICS),
    layout=strategies.layouts(),
    expired=st.integers(0, 2),
)
def test_any_store_a_broker_leaves_is_whole(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], layout: Layout, expired: int
) -> None:
    plain = [replace(m, store_timestamp_ms=m.store_timestamp_ms + 1, sys_flag=m.sys_flag & ~0x80)
             for m in batch]  # fmt: skip
    full = bytes(layout.commit_log_bytes - 200)  # one file each
    filling = [Message(topic="Fill", body=full) for _ in range(expired + 1)]
    root = tmp_path_factory.mktemp("store") / "store"
    lay_out(root, [*plain, *filling], replace(layout, expired_files=expired))
    assert errors(root) == []


def test_checking_changes_nothing(tmp_path: Path) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    before = goldens.digest(root)
    check(root)
    assert goldens.digest(root) == before


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    data = path.read_bytes()
    write(path, position, bytes([data[position] ^ 0x55]))


def number(field: str) -> int:
    """Where that field of a record of IPv4 hosts starts."""
    return {"crc": 8, "queue_id": 12, "queue_offset": 20, "physical_offset": 28, "store": 56,
            "body_length": 84, "body": 88}[field]  # fmt: skip


Damage = Callable[[Laid], tuple[Path, int | None]]


def in_record(field: str, at: int) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        path, position = laid.file_of(laid.messages[at])
        flip(path, position + number(field) + (7 if "offset" in field or field == "store" else 3))
        return path, position

    return damage


def in_unit(queue_offset: int, unit: tuple[int, int, int]) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        path, position = laid.unit_of(("T", 0), queue_offset)
        write(path, position, struct.pack(">qiq", *unit))
        return path, position

    return damage


def cut(file: str, size: int) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        os.truncate(laid.root / file, size)
        return laid.root / file, None

    return damage


def gone(file: str) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        (laid.root / file).unlink()
        return (laid.root / file).parent, None

    return damage


def stray(file: str, data: bytes) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        (laid.root / file).write_bytes(data)
        return laid.root / file, None

    return damage


def no_blank(laid: Laid) -> tuple[Path, int | None]:
    (last,) = [m for m in laid.messages if m.physical_offset < 4096][-1:]
    path, position = laid.file_of(last)
    write(path, position + last.size, bytes(8))
    return path, position + last.size


def topic_unlisted(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "config/topics.json"
    path.write_text(json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": {}}))
    return path, None


def too_few_queues(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "config/topics.json"
    table = {"T": {"topicName": "T", "readQueueNums": 0, "writeQueueNums": 1, "perm": 6}}
    path.write_text(json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": table}))
    return path, None


def in_index(position: int, data: bytes, file: int = 0) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        path = sorted((laid.root / "index").iterdir())[file]
        write(path, position, data)
        return path, None

    return damage


def filler_in_front(laid: Laid) -> tuple[Path, int | None]:
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 0, struct.pack(">qiq", *oracle.FILLER))
    return path, 0


def misnamed(laid: Laid) -> tuple[Path, int | None]:
    path, _ = laid.unit_of(("T", 0), 39)
    path.rename(path.with_name(f"{int(path.name) + 20:020d}"))
    return path.with_name(f"{int(path.name) + 20:020d}"), None


def short_index(laid: Laid) -> tuple[Path, int | None]:
    path = sorted((laid.root / "index").iterdir())[-1]
    os.truncate(path, 100)
    return path, None


def index_directory(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "index" / "20261121030000999"
    path.mkdir()
    return path, None


def checkpoint_ahead(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "checkpoint"
    write(path, 40, struct.pack(">q", laid.high))
    return path, None


FIRST = "0" * 20
DAMAGES: dict[str, Damage] = {
    "a body that is not its CRC's": in_record("body", 5),
    "a CRC that is not its body's": in_record("crc", 5),
    "a body length that does not add up": in_record("body_length", 5),
    "a queue offset out of order": in_record("queue_offset", 5),
    "a record that says it lies elsewhere": in_record("physical_offset", 5),
    "a record of another queue": in_record("queue_id", 5),
    "no blank record at a file's end": no_blank,
    "a unit that points elsewhere": in_unit(5, (1, 200, 0)),
    "a unit with another size": in_unit(5, (0, 1, 0)),
    "a unit with another tags code": in_unit(0, (0, 0, 77)),
    "a unit in the middle that is empty": in_unit(5, (0, 0, 0)),
    "a unit after the last": in_unit(40, (0, 200, 0)),
    "a short CommitLog file": cut(f"commitlog/{4096:020d}", 4000),
    "a short ConsumeQueue file": cut(f"consumequeue/T/0/{FIRST}", 300),
    "a missing CommitLog file": gone(f"commitlog/{4096:020d}"),
    "a missing ConsumeQueue file": gone(f"consumequeue/T/0/{320:020d}"),
    "a file of zeros behind a queue": stray(f"consumequeue/T/0/{960:020d}", bytes(320)),
    "a stray file in commitlog": stray("commitlog/notes.txt", b"hello"),
    "a stray file in a queue": stray("consumequeue/T/0/.tmp", b"hello"),
    "an index begin time that is another": in_index(0, struct.pack(">q", 1_600_000_000_000)),
    "an index end time that is another": in_index(8, struct.pack(">q", 1_600_000_000_000)),
    "an index end place that is another": in_index(24, struct.pack(">q", 1)),
    "a slot that points to an old unit": in_index(40, bytes(28)),
    "index units out of order": in_index(40 + 28 + 20 * 9 + 4, struct.pack(">q", 1)),
    "a short IndexFile": short_index,
    "a directory named like an IndexFile": index_directory,
    "filler where a log begins at 0": filler_in_front,
    "a ConsumeQueue file with another's name": misnamed,
    "a checkpoint behind the log's end": checkpoint_ahead,
    "an interlock nobody needs": stray(f"commitlog/{'9' * 20}.mqlog-commit-in-progress", b"!"),
    "a topics.json that cannot be parsed": stray("config/topics.json", b"{"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_is_found_where_it_is(tmp_path: Path, what: str) -> None:
    messages = [
        Message(body=f"body {i}".encode() * 40, properties=b"TAGS\x01A\x02KEYS\x01k")
        for i in range(40)
    ]
    laid = lay_out(tmp_path / "store", messages)
    if what == "a topics.json that cannot be parsed":
        (laid.root / "config/topics.json.bak").unlink()
    path, position = DAMAGES[what](laid)
    found = errors(laid.root)
    files = [finding.file for finding in found]
    near = str(path.relative_to(laid.root))
    assert any(file.startswith(near) or near.startswith(file) for file in files if file), found
    if position is not None and what != "a record of another queue":
        assert any(finding.position in (position, None) or finding.file != near
                   for finding in found)  # fmt: skip


@pytest.mark.parametrize("damage", [topic_unlisted, too_few_queues])
def test_a_queue_that_no_consumer_can_reach_is_a_finding(tmp_path: Path, damage: Damage) -> None:
    """No error: a deleted topic's queues look the same, and are the broker's to clean up."""
    laid = lay_out(tmp_path / "store", [Message()])
    damage(laid)
    assert any(finding.file == "config/topics.json" for finding in check(laid.root))


def test_records_without_units_are_found(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(40)])
    laid.unit_of(("T", 0), 39)[0].unlink()
    assert {finding.queue_offset for finding in errors(laid.root)} >= set(range(32, 40))


def test_an_open_store_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()], Layout(abort=True))
    assert any("abort" in finding.file for finding in check(laid.root))


def test_a_clock_that_goes_back_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(
        tmp_path / "store", [Message(store_timestamp_ms=10_000_000 + i) for i in range(9)]
    )
    path, position = laid.file_of(laid.messages[6])
    write(path, position + number("store"), struct.pack(">q", 5))
    assert any("timestamp" in finding.problem.lower() for finding in check(laid.root))


@given(data=st.data())
def test_any_changed_byte_is_survived(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("hostile") / "store", [Message(body=b"x" * 50)] * 30)
    paths = sorted(p for p in laid.root.rglob("*") if p.is_file())
    for _ in range(data.draw(st.integers(1, 8))):
        path = data.draw(st.sampled_from(paths))
        write(
            path,
            data.draw(st.integers(0, path.stat().st_size - 1)),
            bytes([data.draw(st.integers(0, 255))]),
        )
    check(laid.root)


def test_what_is_no_store_is_not_checked(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        check(tmp_path)
    with pytest.raises(StoreNotFoundError):
        check(tmp_path / "nowhere")


def test_the_findings_of_a_ruined_store_are_bounded(tmp_path: Path) -> None:
    messages = [Message(body=b"x") for _ in range(1500)]
    laid = lay_out(tmp_path / "store", messages, Layout(index=False))
    for message in laid.messages:
        path, position = laid.file_of(message)
        flip(path, position + number("body"))
    found = check(laid.root)
    assert len(found) == 1001
    assert found[-1].problem == "and 500 more of this severity"


def units_gone(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 7 * 20, bytes(25 * 20))


def tags_changed(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    for unit in range(7, 32):
        write(path, unit * 20 + 12, struct.pack(">q", 77))


def files_gone(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    for file in sorted(path.parent.iterdir())[1:]:
        file.unlink()


def units_repeated(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 7 * 20, oracle.unit(laid.messages[6]) * 25)


@pytest.mark.parametrize(
    ("damage", "rule", "first", "more", "last"),
    [
        (units_gone, "an empty unit before the queue's end", 7, 15, 31),
        (units_gone, "the unit does not point to the queue's record", 7, 15, 31),
        (tags_changed, "tagsCode is not the record's", 7, 15, 31),
        (units_repeated, "physical offsets do not ascend", 7, 15, 31),
        (files_gone, "the record has no unit", 32, 158, 199),
    ],
)
def test_what_is_wrong_with_a_queue_is_shown_ten_times_and_then_counted(
    tmp_path: Path, damage: Callable[[Laid], None], rule: str, first: int, more: int, last: int
) -> None:
    """Over all of the log: it has many files here, and is read file by file."""
    messages = [Message(body=bytes(400), properties=b"TAGS\x01A\x02") for _ in range(200)]
    laid = lay_out(tmp_path / "store", messages, Layout(queue_units=32, index=False))
    damage(laid)
    found = errors(laid.root)
    told = f"and {more} more from queue offset {first + 10} to {last}: {rule}"
    (at,) = [at for at, f in enumerate(found) if f.problem == told]
    assert (found[at].file, found[at].topic, found[at].queue_id) == ("consumequeue/T/0", "T", 0)
    assert found[at].queue_offset == first + 10
    start = "tagsCode is 77" if damage is tags_changed else rule
    shown = [f.queue_offset for f in found if f.problem.startswith(start)]
    assert shown == list(range(first, first + 10))


def test_a_queue_without_files_is_told_ten_times_and_then_counted(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(topic=t) for _ in range(30) for t in "TU"])
    shutil.rmtree(laid.root / "consumequeue/T")
    found = [f for f in errors(laid.root) if "the queue has no ConsumeQueue" in f.problem]
    assert len(found) == 11
    assert found[-1].problem.startswith("and 20 more from queue offset 10 to 29: ")


def test_units_of_a_log_that_is_gone_are_counted(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(400)) for _ in range(40)])
    last = sorted((laid.root / "commitlog").iterdir())[-2:]
    lost = sum(path.read_bytes().count(b"\xda\xa3\x20\xa7") for path in last)
    for path in last:
        path.write_bytes(bytes(4096))
    found = errors(laid.root)
    assert [f.queue_offset for f in found if f.problem == "the unit's record is not there"] == (
        list(range(40 - lost, 50 - lost))
    )
    (more,) = [f for f in found if f.problem.startswith("and ")]
    span = f"from queue offset {50 - lost} to 39"
    assert more.problem == f"and {lost - 10} more {span}: no record has this unit"
    assert more.queue_offset == 50 - lost


@pytest.mark.parametrize("state", ["decided", "published"])
def test_a_commit_that_is_not_finished_is_a_warning(tmp_path: Path, state: str) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    killed_commit.leave(root, state)
    found = check(root)
    assert {finding.severity for finding in found} == {"warning"}
    told = {finding.file: finding.problem for finding in found}
    assert told[".mqlog/txn/pending.json"].startswith(
        f"commit killed version 7 is {state}, and not finished"
    )
    if state == "published":
        assert told["abort"].startswith("a commit of mqlog")
    recover(root, RecoverSettings())
    assert check(root) == []


def test_a_note_of_a_commit_that_nobody_can_read_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    killed_commit.leave(root, "decided")
    path = root / ".mqlog" / "txn" / "pending.json"
    path.write_bytes(path.read_bytes()[:-2])
    (error,) = errors(root)
    assert error.file == ".mqlog/txn/pending.json"
    assert "not what mqlog writes there" in error.problem


@pytest.mark.parametrize("interlock", [False, True])
def test_hidden_bytes_of_a_commit_are_no_damage(tmp_path: Path, interlock: bool) -> None:
    """From where it begins to write anything may lie, until it is finished."""
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    killed_commit.leave(root, "decided")
    pending = intent.load(str(root))
    assert pending is not None
    (path,) = (root / "commitlog").iterdir()
    write(path, pending.tail, b"\0\0\0\xc8\0\xa3\x20\xa7" + bytes(range(192)))
    if interlock:
        (root / "commitlog" / f"{'9' * 20}.mqlog-commit-in-progress").write_bytes(b"!")
    assert {finding.severity for finding in check(root)} == {"warning"}
    write(path, 4, b"?")  # What lies before it is damage all the same.
    assert errors(root)


LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}


def test_light_queues_are_matched_with_the_records_that_name_them(tmp_path: Path) -> None:
    properties = oracle.join_properties(LIGHT)
    laid = lay_out(tmp_path / "store", [Message(), Message(properties=properties)])
    folder = laid.root / "consumequeue"
    unit = oracle.unit(laid.messages[1])
    for name in ("a", "b"):
        (folder / f"%LMQ%{name}" / "0").mkdir(parents=True)
        (folder / f"%LMQ%{name}" / "0" / FIRST).write_bytes(unit.ljust(320, b"\0"))
    assert check(laid.root) == []
    path = folder / "%LMQ%a" / "0" / FIRST
    write(path, 0, oracle.unit(laid.messages[0]))
    assert {f.topic for f in check(laid.root)} == {"%LMQ%a"}
    write(path, 0, unit * 2)
    assert {f.topic for f in check(laid.root)} == {"%LMQ%a"}
    write(path, 0, unit + bytes(20))
    path.rename(laid.root / "elsewhere")
    assert {f.topic for f in check(laid.root)} == {"%LMQ%a"}
    assert errors(laid.root) == []


def test_a_group_behind_the_end_of_its_queue_is_a_finding(tmp_path: Path) -> None:
    offsets = {("T", "fine"): {0: 2}, ("T", "far"): {0: 3}, ("Gone", "g"): {7: 9}}
    laid = lay_out(tmp_path / "store", [Message(), Message()], Layout(group_offsets=offsets))
    (found,) = check(laid.root)
    assert (found.severity, found.file) == ("warning", "config/consumerOffset.json")
    assert "group far goes on at 3, the queue ends at 2" in found.problem


def three_files(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", [Message(body=bytes(400)) for _ in range(20)])


def test_findings_name_files_relative_to_the_root(tmp_path: Path) -> None:
    """Also where the queues are gone, and with them what else tells the root."""
    laid = three_files(tmp_path)
    shutil.rmtree(laid.root / "consumequeue")
    for number in (0, 4096):
        os.truncate(laid.root / "commitlog" / f"{number:020d}", 0)
    found = check(laid.root)
    assert "the queue has no ConsumeQueue" in {f.problem for f in found}
    assert {f.file for f in found if "commitlog" in f.file} == {
        f"commitlog/{number:020d}" for number in (0, 4096, 8192)
    }


def test_findings_in_another_folder_of_the_log_name_it(tmp_path: Path) -> None:
    laid, other = three_files(tmp_path), tmp_path / "other"
    other.mkdir()
    (laid.root / "commitlog" / f"{4096:020d}").rename(other / f"{4096:020d}")
    (other / "notes.txt").write_text("hello")
    (laid.root / "consumequeue/T/0" / FIRST).unlink()
    found = check(laid.root, (str(laid.root / "commitlog"), str(other)))
    assert str(other / "notes.txt") in {f.file for f in found}
    told = {f.file for f in found if f.problem == "the record has no unit"}
    assert told == {f"commitlog/{FIRST}", str(other / f"{4096:020d}")}


def test_an_empty_file_that_is_not_the_last_keeps_every_broker_from_starting(
    tmp_path: Path,
) -> None:
    """MappedFileQueue#doLoad passes over the last one only, and over none before 5.1.3."""
    laid = three_files(tmp_path)
    files = [f"commitlog/{number:020d}" for number in (4096, 12288)]
    files += [f"consumequeue/T/0/{number:020d}" for number in (0, 640)]
    for file in files:
        (laid.root / file).write_bytes(b"")
    told = {f.file: f.problem for f in errors(laid.root) if f.problem.startswith("an empty")}
    middle = "an empty file, and not the last one: brokers do not start"
    last = "an empty file, the last one: brokers before 5.1.3 do not start"
    assert told == dict(zip(files, (middle, last, middle, last), strict=True))


JSON_FILES = ["topics.json", "consumerOffset.json", "subscriptionGroup.json",
              "consumerFilter.json", "delayOffset.json"]  # fmt: skip


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_file_of_which_only_the_backup_is_good_is_a_warning(tmp_path: Path, name: str) -> None:
    """ConfigManager#load reads it; once that is broken too, the broker does not start."""
    root = goldens.unpack("5.5.0", tmp_path)
    path, backup = root / "config" / name, root / "config" / f"{name}.bak"
    text = path.read_text() if path.exists() else "{}"
    backup.write_text(text)
    for broken, told in (
        (text[:-9] + "\x01", "not JSON: "),
        ("\0" * 99, "zero byte"),
        ("", "empty"),
    ):
        path.write_text(broken)
        (found,) = [f for f in check(root) if f.file == f"config/{name}"]
        assert found.severity == "warning"
        assert told in found.problem
        assert f"brokers read {name}.bak, the state before" in found.problem
    path.unlink()
    (found,) = [f for f in check(root) if f.file == f"config/{name}"]
    assert found.problem.startswith("not there: brokers read")


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_file_that_is_lost_with_its_backup_is_an_error(tmp_path: Path, name: str) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    path, backup = root / "config" / name, root / "config" / f"{name}.bak"
    path.write_text("{")
    backup.write_text('{\n"a": 1,\n"b\n')
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert (
        f"brokers do not start, as {name}.bak cannot be read either (not JSON: Inv" in found.problem
    )
    assert found.problem.endswith("character at line 3 column 3)")
    backup.unlink()
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert found.problem.endswith(f"start as if it had never been, as {name}.bak is not there")
    path.write_text('{"a":' * 99)
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert "mqlog does not read it" in found.problem
    path.unlink()
    backup.write_text("{")
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert found.problem.startswith("not there: brokers do not start")


def test_an_index_time_ahead_of_the_log_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    write(laid.root / "checkpoint", 16, struct.pack(">q", 2**60))
    (found,) = check(laid.root)
    assert (found.severity, found.file) == ("warning", "checkpoint")


def test_an_index_file_without_a_byte_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(properties=b"KEYS\x01k")])
    (laid.root / "index" / "20261121030000999").write_bytes(b"")
    (found,) = check(laid.root)
    assert (found.severity, found.file) == ("warning", "index/20261121030000999")


def test_a_name_cannot_colour_the_reader_s_screen(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    (laid.root / "commitlog" / "\x1b[31mred\n").write_bytes(b"!")
    (found,) = errors(laid.root)
    assert found.file == "commitlog/\\x1b[31mred\\n"
