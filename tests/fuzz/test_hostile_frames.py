"""Staged files and rows that somebody made to harm: each refused by name, and nothing appended.

A staged file is believed only where all of it agrees: with what its task reported, with itself,
and record by record with what RocketMQ calls a record of that topic and queue.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.errors import (
    InvalidMessageError,
    InvalidOptionError,
    InvalidSchemaError,
    MessageTooLargeError,
    StoreError,
    UnsafePathError,
)
from mqstore.files.txn.errors import CorruptStagingError, StagingNotSharedError
from mqstore.files.txn.segment import Segment, SegmentFrame, SegmentWriter, read_frames
from mqstore.files.txn.staging import check_shared
from mqstore.write.commit import commit
from mqstore.write.stage.job import Manifest, WriteJob
from mqstore.write.stage.task import stage
from mqstore.write.staged_messages import StagedMessages
from support import goldens, oracle, writing
from support.oracle import Message
from support.stores import lay_out

SECRET = b"secret of another directory"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(SECRET)
    return lay_out(tmp_path / "store", [Message(queue_id=n % 2) for n in range(4)]).root


def job_of(root: Path, **settings: Any) -> tuple[WriteJob, Manifest]:
    """A job of four rows that was staged well."""
    batch = writing.rows(4, keys="k", queueId=[0, 1, 0, 1])
    job = writing.prepared(root, batch.schema, fsync="none", queue_nums=2, **settings)
    return job, stage(job, [batch], partition=0, attempt=1)


def refused(root: Path, job: WriteJob, manifest: Manifest) -> StoreError:
    """Commit; nothing of the store may change, nor what lies beside it."""
    before = [goldens.digest(root / name) for name in ("commitlog", "consumequeue", "config")]
    with pytest.raises(StoreError) as caught:
        commit(job, [manifest])
    after = [goldens.digest(root / name) for name in ("commitlog", "consumequeue", "config")]
    assert after == before
    assert (root.parent / "outside" / "secret").read_bytes() == SECRET
    assert SECRET.decode() not in str(caught.value)
    return caught.value


def staged_again(
    job: WriteJob, manifest: Manifest, change: Callable[[SegmentFrame], SegmentFrame]
) -> Manifest:
    """Stage the frames changed, with sums and digests that are right for what they are then."""
    assert manifest.segment
    frames = list(read_frames(job.target.staging, manifest.segment, with_records=True))
    writer = SegmentWriter(job.target.staging, job.job_id, partition=0, attempt=2)
    for frame in frames:
        writer.append(change(frame), job.target.hosts.variant)
    return replace(manifest, segment=writer.finish())


def column(name: str, row: int, value: int) -> Callable[[SegmentFrame], SegmentFrame]:
    def change(frame: SegmentFrame) -> SegmentFrame:
        table = frame.messages.copy()
        table[name][row] = value
        return replace(frame, messages=table)

    return change


def queue(*queues: tuple[str, int]) -> Callable[[SegmentFrame], SegmentFrame]:
    return lambda frame: replace(frame, queues=(*queues, *frame.queues[len(queues) :]))


def record(position: int, data: bytes) -> Callable[[SegmentFrame], SegmentFrame]:
    def change(frame: SegmentFrame) -> SegmentFrame:
        records = frame.records.copy()
        records[position : position + len(data)] = np.frombuffer(data, np.uint8)
        return replace(frame, records=records)

    return change


def both(
    *changes: Callable[[SegmentFrame], SegmentFrame],
) -> Callable[[SegmentFrame], SegmentFrame]:
    def change(frame: SegmentFrame) -> SegmentFrame:
        for each in changes:
            frame = each(frame)
        return frame

    return change


def u4(number: int) -> bytes:
    return struct.pack(">i", number)


HEAD = 84  # bytes of a record before BODYLENGTH, with IPv4 hosts
CONTRADICTIONS: dict[str, Callable[[SegmentFrame], SegmentFrame]] = {
    "no message": lambda f: replace(f, messages=f.messages[:0], keys=f.keys[:0]),
    "a queue that is none": column("queue", 0, 7),
    "a queue below zero": column("queue", 0, -1),
    "a queue far away": column("queue", 1, 2**31 - 1),
    "a size of zero": column("size", 0, 0),
    "a size below zero": column("size", 0, -100),
    "a huge size": column("size", 0, 2**31 - 1),
    "a size of another": column("size", 0, 91),
    "sizes that make up for each other": both(column("size", 0, -1000), column("size", 1, 1500)),
    "no batch starts": column("starts_batch", 0, 0),
    "more keys than there are": column("key_count", 0, 60_000),
    "fewer keys than there are": column("key_count", 0, 0),
    "fewer hashes": lambda f: replace(f, keys=f.keys[:-1]),
    "more hashes": lambda f: replace(f, keys=np.append(f.keys, f.keys[:1])),
    "no records": lambda f: replace(f, records=f.records[:0]),
    "a byte too few": lambda f: replace(f, records=f.records[:-1]),
    "a byte too many": lambda f: replace(f, records=np.append(f.records, f.records[:1])),
    "a topic that leads up": queue(("../../outside", 0)),
    "a topic that is a path": queue(("a/b", 0)),
    "a topic of nothing": queue(("", 0)),
    "a topic of dots": queue(("..", 0)),
    "an absolute topic": queue(("/etc", 0)),
    "a topic with a zero": queue(("T\0x", 0)),
    "a long topic": queue(("x" * 300, 0)),
    "a queue id below zero": queue(("T", -1)),
    "a queue id too large": queue(("T", 65_536)),
    "another queue than the record's": queue(("T", 5)),
    "another topic than the record's": queue(("U", 0)),
    "a record of another size": record(0, u4(4000)),
    "a record of no size": record(0, u4(0)),
    "a record that is a blank": record(4, struct.pack(">i", oracle.BLANK)),
    "a record that is none": record(4, u4(0)),
    "a record of another queue": record(12, u4(9)),
    "a record of IPv6 hosts": record(36, u4(oracle.BORN_V6 | oracle.STORE_V6)),
    "a prepared record": record(36, u4(oracle.PREPARED)),
    "a rolled-back record": record(36, u4(oracle.ROLLBACK)),
    "a body longer than its record": record(HEAD, u4(1 << 20)),
    "a body shorter than none": record(HEAD, u4(-5)),
    "another topic in the record": record(HEAD + 4 + 6 + 1, b"U"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_tables_and_records_that_contradict_each_other_are_not_appended(
    root: Path, what: str
) -> None:
    job, manifest = job_of(root)
    changed = staged_again(job, manifest, CONTRADICTIONS[what])
    assert isinstance(refused(root, job, changed), CorruptStagingError)


BODIES: dict[str, Callable[[SegmentFrame], SegmentFrame]] = {
    "a record with another body": record(HEAD + 4, b"XXXX"),
    "a record of another checksum": record(8, u4(1)),
}


@pytest.mark.parametrize("what", BODIES)
def test_what_somebody_else_decided_is_looked_at_body_by_body(root: Path, what: str) -> None:
    """Our own tasks tell the digest of what they wrote; in a store anybody may have put both."""
    job, manifest = job_of(root)
    changed = staged_again(job, manifest, BODIES[what])
    assert changed.segment
    with pytest.raises(CorruptStagingError, match="checksum of a record"):
        list(StagedMessages.of(job, [changed.segment]).verified(bodies=True))


def test_the_same_staged_again_is_appended(root: Path) -> None:
    """Without this, none of the above says anything."""
    job, manifest = job_of(root)
    assert commit(job, [staged_again(job, manifest, lambda frame: frame)]).messages == 4


@pytest.mark.parametrize("at", range(0, 700, 23))
def test_a_byte_that_changed_since_is_found(root: Path, at: int) -> None:
    job, manifest = job_of(root)
    assert manifest.segment
    path = Path(job.target.staging) / manifest.segment.name
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0x10
    path.write_bytes(data)
    assert isinstance(refused(root, job, manifest), CorruptStagingError)


def changed(**fields: Any) -> Callable[[Segment], Segment]:
    return lambda segment: replace(segment, **fields)


REPORTS: dict[str, Callable[[Segment], Segment]] = {
    "a name that leads up": changed(name="../../outside/secret.mqb"),
    "an absolute name": changed(name="/etc/passwd.mqb"),
    "a name of two folders": changed(name="a/b.mqb"),
    "another kind of file": changed(name="NONCE"),
    "a file that is not there": changed(name="0-1-x.mqb"),
    "no name": changed(name=""),
    "a name with a zero": changed(name="a\0.mqb"),
    "a long name": changed(name="x" * 300 + ".mqb"),
    "another size": lambda s: replace(s, size=s.size + 1),
    "a size below zero": changed(size=-1),
    "more frames": changed(frame_count=2),
    "no frames": changed(frame_count=0),
    "more messages": changed(message_count=5),
    "fewer bytes": changed(records_bytes=1),
    "another digest": changed(digest="0" * 64),
    "another partition": changed(partition=3),
}


@pytest.mark.parametrize("what", REPORTS)
def test_a_report_that_the_file_contradicts_is_not_believed(root: Path, what: str) -> None:
    job, manifest = job_of(root)
    assert manifest.segment
    lie = replace(manifest, segment=REPORTS[what](manifest.segment))
    assert isinstance(refused(root, job, lie), CorruptStagingError | UnsafePathError)


def linked(path: Path, outside: Path) -> None:
    path.rename(outside / "segment")
    path.symlink_to(outside / "segment")


def hard_linked(path: Path, outside: Path) -> None:
    (outside / "segment").hardlink_to(path)


def fifo(path: Path, _outside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path, _outside: Path) -> None:
    path.unlink()
    path.mkdir()


def device(path: Path, _outside: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def another_jobs(path: Path, _outside: Path) -> None:
    data = bytearray(path.read_bytes())
    data[16:48] = b"f" * 32
    path.write_bytes(data)


def longer(path: Path, _outside: Path) -> None:
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    "harm", [linked, hard_linked, fifo, directory, device, another_jobs, longer]
)
def test_a_staged_file_that_was_put_in_place_of_the_task_s_is_refused(
    root: Path, harm: Callable[[Path, Path], None]
) -> None:
    job, manifest = job_of(root)
    assert manifest.segment
    harm(Path(job.target.staging) / manifest.segment.name, root.parent / "outside")
    assert isinstance(refused(root, job, manifest), CorruptStagingError | UnsafePathError)


@pytest.mark.parametrize("content", [b"", b"x", b"0" * 64, b"\0" * 1000])
def test_a_task_that_sees_another_nonce_does_not_stage(root: Path, content: bytes) -> None:
    job, _ = job_of(root)
    (Path(job.target.staging) / "NONCE").write_bytes(content)
    with pytest.raises(StagingNotSharedError):
        check_shared(job.target.staging, job.target.nonce)


def test_a_nonce_that_is_a_link_is_none(root: Path) -> None:
    job, _ = job_of(root)
    nonce = Path(job.target.staging) / "NONCE"
    nonce.rename(root.parent / "outside" / "NONCE")
    nonce.symlink_to(root.parent / "outside" / "NONCE")
    with pytest.raises((StagingNotSharedError, UnsafePathError)):
        check_shared(job.target.staging, job.target.nonce)


# --- rows ---------------------------------------------------------------------------------------

ROWS: dict[str, dict[str, Any]] = {
    "a topic that leads up": {"topic": "../x"},
    "a topic that is a path": {"topic": "a/b"},
    "an absolute topic": {"topic": "/etc/passwd"},
    "a topic of dots": {"topic": ".."},
    "no topic": {"topic": ""},
    "a topic with a zero": {"topic": "a\0b"},
    "a topic with a line's end": {"topic": "a\nb"},
    "a topic with a separator": {"topic": "a\x01b"},
    "a topic with a colour": {"topic": "\x1b[31m"},
    "a long topic": {"topic": "x" * 128},
    "the topic of delays": {"topic": oracle.SCHEDULE_TOPIC},
    "the topic of half messages": {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
    "the topic of their ends": {"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC"},
    "the topic of timers": {"topic": "rmq_sys_wheel_timer"},
    "a retry topic": {"topic": "%RETRY%group"},
    "a dead-letter topic": {"topic": "%DLQ%group"},
    "a light queue": {"topic": "%LMQ%a"},
    "the default topic": {"topic": "TBW102"},
    "a queue below zero": {"queueId": -1},
    "a queue too far": {"queueId": 65_536},
    "keys with a separator": {"keys": "a\x01b"},
    "keys with another": {"keys": "a\x02UNIQ_KEY\x01forged"},
    "tags with a separator": {"tags": "a\x02b"},
    "tags with another": {"tags": "\x01"},
    "a sharding key with one": {"shardingKey": "a\x02b"},
    "a delay that is none": {"delayTimeLevel": 19},
    "a delay below zero": {"delayTimeLevel": -1},
    "a body too large": {"body": bytes(5 << 20)},
    "keys too long": {"keys": "k" * 40_000},
}


@pytest.mark.parametrize("what", ROWS)
def test_a_row_that_would_harm_is_refused(root: Path, what: str) -> None:
    before = goldens.digest(root / "commitlog")
    with pytest.raises((InvalidMessageError, InvalidOptionError)) as caught:
        writing.append(root, writing.rows(1, **ROWS[what]), fsync="none")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2_000
    assert goldens.digest(root / "commitlog") == before


RESERVED = (
    "UNIQ_KEY", "TRAN_MSG", "DELAY", "PGROUP", "__CRC32#", "INNER_NUM", "INNER_BASE", "RETRY_TOPIC",
    "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "INNER_MULTI_DISPATCH", "WAIT",
)  # fmt: skip


@pytest.mark.parametrize("name", [*RESERVED, "a\x01b", "a\x02b", ""])
def test_a_property_that_would_drive_a_broker_is_refused(root: Path, name: str) -> None:
    rows = writing.rows(1, properties=writing.pa.array(
        [[(name, "1")]], writing.pa.map_(writing.pa.string(), writing.pa.string()))
    )  # fmt: skip
    with pytest.raises((InvalidMessageError, InvalidSchemaError)):
        writing.append(root, rows, fsync="none")


def test_errors_of_size_have_their_own_name(root: Path) -> None:
    with pytest.raises(MessageTooLargeError):
        writing.append(root, writing.rows(1, body=bytes(5 << 20)), fsync="none")
