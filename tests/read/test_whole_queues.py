"""Queues that lost files or units: an error that names the remedy, never silently fewer rows."""

import logging
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import mqlog
from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.copy.take_point import take_point
from mqstore.derive import whole_queues
from mqstore.errors import CorruptStoreError, StoreError, UncleanStoreError
from mqstore.files.points.backing import LocalBacking
from mqstore.files.queue import queue_files
from mqstore.read.directory import take
from mqstore.write.recover import RecoverSettings, recover
from support import soak
from support.oracle import Message
from support.stores import UNIT_BYTES, Laid, Layout, lay_out

CUTS = soak.size("whole_queue_cuts", check=10, test=60, whole=2_000)
UNITS, COUNT = 16, 60
LAYOUT = Layout(queue_units=UNITS, group_offsets={("T", "G"): {0: 5}})


def keyed(count: int = COUNT, topics: str = "T") -> list[Message]:
    named = "KEYS\x01k%d\x02UNIQ_KEY\x01%032X\x02"
    return [
        Message(topic=topics[n % len(topics)], properties=(named % (n, n)).encode())
        for n in range(count)
    ]


def files_of(root: Path) -> list[Path]:
    return sorted((root / "consumequeue" / "T" / "0").iterdir())


def only(root: Path, size: int, data: bytes | None = None) -> None:
    """Leave one file, of that size."""
    first, *others = files_of(root)
    for path in others:
        path.unlink()
    first.write_bytes(first.read_bytes()[:size] if data is None else data)


def zero_from(root: Path, queue_offset: int) -> None:
    """Make units zero from a queue offset on, in files that stay."""
    for number, path in enumerate(files_of(root)):
        at = min(max(queue_offset - number * UNITS, 0), UNITS) * UNIT_BYTES
        path.write_bytes(path.read_bytes()[:at].ljust(UNITS * UNIT_BYTES, b"\0"))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the first file is empty": lambda root: os.truncate(files_of(root)[0], 0),
    "a middle file is empty": lambda root: os.truncate(files_of(root)[1], 0),
    "the last file is empty": lambda root: os.truncate(files_of(root)[-1], 0),
    "the only file is empty": lambda root: only(root, 0),
    "the only file is cut within a unit": lambda root: only(root, 213),
    "the only file is cut behind a unit": lambda root: only(root, 200),
    "the only file is zeros that are no units": lambda root: only(root, 213, bytes(213)),
    "the only file is zeros": lambda root: only(root, 320, bytes(320)),
    "the first file is gone": lambda root: files_of(root)[0].unlink(),
    "a middle file is gone": lambda root: files_of(root)[1].unlink(),
    "the last file is gone": lambda root: files_of(root)[-1].unlink(),
    "no file is left": lambda root: [path.unlink() for path in files_of(root)],
    "the units end early": lambda root: zero_from(root, 41),
    "no unit is left": lambda root: zero_from(root, 0),
    "a file is too long": lambda root: os.truncate(files_of(root)[-1], 640),
}


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Laid:
    laid = lay_out(tmp_path / "store", keyed(), LAYOUT)
    DAMAGES[request.param](laid.root)
    return laid


def rows(root: Path, **options: object) -> int:
    opened = {"queues": options.pop("queues")} if "queues" in options else {}
    return mqlog.open(str(root), **opened).scan(**options).to_table().num_rows


def test_every_door_names_the_damage_and_the_log_gives_all(damaged: Laid, tmp_path: Path) -> None:
    root = damaged.root
    place = mqlog.open(str(root))
    asked: dict[str, Callable[[], object]] = {
        "read": lambda: rows(root),
        "backlog": lambda: place.table("backlog").to_table(),
        "queues": lambda: place.table("queues").to_table(),
        "find": lambda: rows(root, keys="k3"),
        "copy": lambda: copy_store(root, tmp_path / "copy"),
        "point": lambda: take_point(root, LocalBacking(str(tmp_path / "repository"))),
    }
    for door, ask in asked.items():
        with pytest.raises(CorruptStoreError, match=r"consumequeue/T/0.*queues=log"):
            raise AssertionError(f"{door}: {ask()}")
    assert not (tmp_path / "copy").exists()
    assert [f for f in check(root) if f.severity == "error"], "verify agrees"
    assert rows(root, queues="log") == COUNT


def test_the_queues_are_written_anew_as_the_error_advises(damaged: Laid) -> None:
    with pytest.raises(CorruptStoreError) as error:
        rows(damaged.root)
    if "recover --rebuild" not in str(error.value):
        return  # What a file has that is too long must not be cut off.
    recover(damaged.root, RecoverSettings(rebuild=True))
    assert rows(damaged.root) == COUNT
    assert [f for f in check(damaged.root) if f.severity == "error"] == []


def test_nothing_is_written_behind_units_that_are_lost(damaged: Laid) -> None:
    table = mqlog.open(str(damaged.root), queues="log").scan(columns="topic,body").to_table()
    with pytest.raises((CorruptStoreError, UncleanStoreError)):
        mqlog.write(table, str(damaged.root))


def test_what_is_read_in_spite_of_damage_is_warned_of(
    damaged: Laid, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert rows(damaged.root, on_corrupt="skip") <= COUNT
    assert "consumequeue/T/0" in caplog.text


@pytest.mark.parametrize("seed", range(CUTS))
def test_a_queue_with_any_damage_is_never_silently_short(tmp_path: Path, seed: int) -> None:
    """Against the log: what is read is all of it, or an error names the queue."""
    draw = random.Random(seed)
    layout = Layout(
        queue_units=draw.choice([8, UNITS, 100]),
        commit_log_bytes=draw.choice([4096, 16384]),
        expired_files=draw.choice([0, 0, 1]),
    )
    laid = lay_out(tmp_path / "store", keyed(draw.randrange(60, 200), "TUT"), layout)
    folder = laid.root / "consumequeue" / draw.choice("TU") / "0"
    for _ in range(draw.choice([1, 1, 2])):
        files = sorted(folder.iterdir())
        path = draw.choice(files or [folder])
        data = path.read_bytes() if path.is_file() else b""
        cut = draw.randrange(len(data) + 1)
        whole = cut // UNIT_BYTES * UNIT_BYTES
        match draw.randrange(5) if data else 0:
            case 0:
                shutil.rmtree(folder) if path is folder else path.unlink()
                folder.mkdir(exist_ok=True)
            case 1:
                path.write_bytes(data[:cut])
            case 2:
                path.write_bytes(data[:whole].ljust(len(data), b"\0"))
            case 3:
                path.write_bytes(data + bytes(draw.choice([20, 7, len(data)])))
            case _:
                path.write_bytes(b"")
    expected = sum(map(len, laid.queues.values()))
    read: list[int] = []
    with suppress(StoreError):
        read.append(rows(laid.root))
    assert read in ([], [expected])
    assert rows(laid.root, queues="log") == expected


# --- what is no damage ----------------------------------------------------------------------


def test_the_last_messages_of_a_killed_broker_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_queues, "_LAST_ENTERED_S", 0.0)
    laid = lay_out(tmp_path / "store", keyed(), Layout(queue_units=UNITS, abort=True))
    zero_from(laid.root, 57)
    with caplog.at_level(logging.WARNING):
        assert rows(laid.root) == 57
    assert "in no ConsumeQueue yet, the first of them T/0@57" in caplog.text


def test_units_lost_before_others_that_are_entered_are_an_error_where_a_broker_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker enters records in the order of the log: behind T's last, U's are entered."""
    monkeypatch.setattr(whole_queues, "_ENTERED_S", 0.0)
    layout = Layout(queue_units=UNITS, abort=True)
    laid = lay_out(tmp_path / "store", keyed(80, "TU"), layout)
    zero_from(laid.root, 30)
    with pytest.raises(CorruptStoreError, match="no unit of queue offset 30"):
        mqlog.open(str(laid.root)).scan("T").to_table()
    assert mqlog.open(str(laid.root)).scan("U").to_table().num_rows == 40


def test_the_only_file_of_a_queue_that_a_broker_makes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = lay_out(tmp_path / "store", keyed(3), Layout(queue_units=UNITS, abort=True))
    (path,) = files_of(laid.root)
    whole = path.read_bytes()
    os.truncate(path, 0)
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            path.write_bytes(whole)

    monkeypatch.setattr(queue_files.time, "sleep", sleep)
    assert take(laid.root).queues[0].high <= 3
    assert len(looks) == 3


def test_the_directory_that_a_deleted_topic_left_is_no_damage(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", keyed(60, "TU"), LAYOUT)
    for path in files_of(laid.root):
        path.unlink()
    config = laid.root / "config" / "topics.json"
    config.write_text('{"topicConfigTable":{"U":{"topicName":"U"}}}')
    assert rows(laid.root) == 30


def test_a_look_walks_a_bounded_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a quiet queue: its next record may be anywhere."""
    body = bytes(60_000)
    layout = Layout(commit_log_bytes=1 << 20)
    later = [Message(topic="U", body=body) for _ in range(60)]
    laid = lay_out(tmp_path / "store", [Message(topic="T"), *later], layout)
    monkeypatch.setattr(whole_queues, "LOOKED_AT_BYTES", 1 << 18)
    walked = []
    chunks = whole_queues.log_chunks

    def counted(*arguments: object) -> object:
        for chunk in chunks(*arguments):  # type: ignore[arg-type]
            walked.append(int(chunk.records.headers.sizes.sum()))
            yield chunk

    monkeypatch.setattr(whole_queues, "log_chunks", counted)
    assert {q.topic for q in take(laid.root, topics=lambda t: t == "T").queues} == {"T"}
    assert 0 < sum(walked) <= 2 << 18
