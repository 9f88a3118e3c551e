"""Repositories in an object store: the same points, one writer at a time, and named errors."""

import json
import os
import pickle
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pyarrow import fs

from mqstore.check import check
from mqstore.copy.check_points import check_points
from mqstore.copy.keep_rules import KeepRule
from mqstore.copy.point_target import PointTarget
from mqstore.copy.prune_points import prune_points
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.errors import (
    CorruptStoreError,
    NotARepositoryError,
    StoreLockedError,
    StoreUnavailableError,
)
from mqstore.files.objects.repository import ObjectBacking, ObjectLock
from mqstore.files.points.repository import Repository
from mqstore.request.repositories import open_repository, repository_at
from snapshot_copy.copied import SMALL, messages, rows
from snapshot_copy.pointed import at, rows_of
from support import planned, soak
from support.growing import grow
from support.s3_server import BUCKET, S3Server
from support.stores import lay_out


def repository(server: S3Server, tmp_path: Path) -> Repository:
    name = f"{tmp_path.parent.name}-{tmp_path.name}"
    return open_repository(f"s3://{BUCKET}/{name}", server.options)


def keys(server: S3Server, found: Repository) -> set[str]:
    base = found.address.removeprefix("s3://")
    listed = server.system().get_file_info(fs.FileSelector(base, recursive=True))
    return {i.path.removeprefix(f"{base}/") for i in listed if i.type == fs.FileType.File}


def test_points_in_an_object_store_read_and_restore_as_the_store(
    server: S3Server, tmp_path: Path
) -> None:
    server.put("made", b"")
    found = repository(server, tmp_path)
    laid = lay_out(tmp_path / "store", messages(20), SMALL)
    then = [rows(laid.root)]
    heads = [take_point(laid.root, found.backing)]
    grow(laid, messages(60), SMALL)
    then.append(rows(laid.root))
    heads += [take_point(laid.root, found.backing) for _ in range(2)]

    assert heads[2].written_bytes == 0
    for number, expected in ((1, then[0]), (2, then[1]), (3, then[1])):
        point = pickle.loads(pickle.dumps(at(found.backing, number)))
        assert rows_of(point) == expected
        restore_point(point, tmp_path / f"restored-{number}")
        assert rows(tmp_path / f"restored-{number}") == expected
        assert check(tmp_path / f"restored-{number}") == []
    assert check_points(found) == []
    read = planned.rows(f"{found.address}@latest", subscribe="A", **server.options)
    assert len(read) == sum(len(its) for (topic, _), its in then[1].items() if topic == "A")
    pruned = prune_points(found.backing, [KeepRule(1, 0)])
    assert [head.number for head in pruned.gone] == [1, 2]
    objects = {f"objects/{name}" for name in found.manifest(3).objects()}
    assert keys(server, found) == objects | {"points/00000003", "mqlog-repository"}
    assert repository_at(found.address, server.options) is not None
    assert repository_at(f"{found.address}-not", server.options) is None


def test_one_process_at_a_time_and_none_that_is_gone(server: S3Server, tmp_path: Path) -> None:
    server.put("made", b"")
    found = repository(server, tmp_path)
    laid = lay_out(tmp_path / "store", messages(5), SMALL)
    take_point(laid.root, found.backing)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "boot": boot}
    key = f"{found.address.removeprefix(f's3://{BUCKET}/')}/lock/other"

    for other in (mine, {**mine, "host": "elsewhere"}, {}):
        server.put(key, json.dumps(other).encode())
        with pytest.raises(StoreLockedError, match=r"works on this repository now \(lock/other\)"):
            take_point(laid.root, found.backing)
    server.put(key, json.dumps({**mine, "pid": 2**22 + 1}).encode())
    assert take_point(laid.root, repository(server, tmp_path).backing).number == 2
    assert not [name for name in keys(server, found) if name.startswith("lock")]


def test_a_lock_that_another_process_took_away_does_not_come_back(
    server: S3Server, tmp_path: Path
) -> None:
    server.put("made", b"")
    found = repository(server, tmp_path)
    lock = found.backing.locked()
    assert isinstance(lock, ObjectLock)
    with lock as check_held:
        lock.renew()
        check_held()
        (name,) = keys(server, found)
        server.system().delete_file(f"{found.address.removeprefix('s3://')}/{name}")

        with pytest.raises(StoreLockedError, match="took the repository over"):
            lock.renew()
        with pytest.raises(StoreLockedError, match="took the repository over"):
            check_held()


def test_a_process_whose_lock_was_over_harms_no_point_of_the_next(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped for long, in the middle of a point; another host made one with its number."""
    server.put("made", b"")
    found = repository(server, tmp_path)
    laid = lay_out(tmp_path / "store", messages(20), SMALL)
    take_point(laid.root, found.backing)
    grow(laid, messages(60), SMALL)
    finish, seen = PointTarget.finish, list[set[str]]()

    def is_stopped(self: PointTarget) -> None:
        monkeypatch.setattr(PointTarget, "finish", finish)
        (lock,) = (name for name in keys(server, found) if name.startswith("lock"))
        server.system().delete_file(f"{found.address.removeprefix('s3://')}/{lock}")
        other = repository(server, tmp_path).backing
        assert take_point(laid.root, other).number == 2
        third = f"{found.address.removeprefix('s3://')}/objects/00000003/pack-00000000"
        server.put(third.removeprefix(f"{BUCKET}/"), b"a point that is being made")
        seen.append(keys(server, found))
        finish(self)

    monkeypatch.setattr(PointTarget, "finish", is_stopped)
    with pytest.raises(StoreLockedError, match="took the repository over"):
        take_point(laid.root, found.backing)
    assert seen[0] <= keys(server, found)
    assert rows_of(at(repository(server, tmp_path).backing, 2)) == rows(laid.root)
    assert check_points(found) == []


def test_a_missing_object_is_named(server: S3Server, tmp_path: Path) -> None:
    server.put("made", b"")
    found = repository(server, tmp_path)
    laid = lay_out(tmp_path / "store", messages(20), SMALL)
    take_point(laid.root, found.backing)
    (pack,) = (name for name in keys(server, found) if "/pack-" in name)
    server.system().delete_file(f"{found.address.removeprefix('s3://')}/{pack}")

    point = at(repository(server, tmp_path).backing, 1)
    with pytest.raises(CorruptStoreError, match=f"{pack} .* is missing"):
        restore_point(point, tmp_path / "restored")
    assert not list(tmp_path.glob("restored*"))
    fresh = repository(server, tmp_path)
    assert take_point(laid.root, fresh.backing).written_bytes > 0
    assert rows_of(at(fresh.backing, 2)) == rows(laid.root)
    with pytest.raises(NotARepositoryError):
        open_repository(f"{found.address}-not", server.options).numbers()


@pytest.fixture
def busy() -> Iterator[int]:
    """An S3 server that answers 503 to everything."""

    class Busy(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_bucket_that_answers_503_is_named(busy: int, server: S3Server, tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(5), SMALL)
    options = {**server.options, "fs.endpoint_override": f"http://127.0.0.1:{busy}"}
    found = open_repository("s3://bucket/kept", options)
    for act in (
        lambda: take_point(laid.root, found.backing),
        lambda: restore_point(at(found.backing, 1), tmp_path / "restored"),
        lambda: prune_points(found.backing, [KeepRule(1, 0)]),
        lambda: check_points(found),
    ):
        with pytest.raises(StoreUnavailableError, match=r"s3://bucket/kept.*503"):
            act()
    assert not list(tmp_path.glob("restored*"))


class Gate:
    """A server in front of another: after ``left`` requests for objects it answers 503."""

    def __init__(self, port: int) -> None:
        gate, self.left, self.passed = self, 1 << 30, 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if not gate.passes("/objects/" in self.path):
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                behind = HTTPConnection("127.0.0.1", port, timeout=60)
                behind.request(self.command, self.path, headers=dict(self.headers))
                answer = behind.getresponse()
                self.send_response(answer.status)
                for name, text in answer.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection", "date", "server"}:
                        self.send_header(name, text)
                self.end_headers()
                self.wfile.write(answer.read())
                behind.close()

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def passes(self, is_object: bool) -> bool:
        """Count a request; tell whether it is answered."""
        self.passed += is_object
        return not is_object or self.passed <= self.left


@pytest.fixture
def gate(server: S3Server) -> Iterator[Gate]:
    found = Gate(server.port)
    with found.server as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield found
        listening.shutdown()


@soak.not_in_check
def test_nothing_counts_as_restored_from_a_bucket_that_answers_503_midway(
    gate: Gate, server: S3Server, tmp_path: Path
) -> None:
    server.put("made", b"")
    whole = repository(server, tmp_path)
    laid = lay_out(tmp_path / "store", messages(20), SMALL)
    take_point(laid.root, whole.backing)
    address = f"http://127.0.0.1:{gate.server.server_port}"
    options = {**server.options, "fs.endpoint_override": address}

    def fresh() -> Repository:
        return open_repository(whole.address, options)  # What was read is not kept.

    restore_point(at(fresh().backing, 1), tmp_path / "good")
    needed = gate.passed
    acts = (
        lambda: restore_point(at(fresh().backing, 1), tmp_path / "restored"),
        lambda: check_points(fresh()),
        lambda: rows_of(at(fresh().backing, 1)),
    )
    for left, act in ((0, acts[1]), (0, acts[2]), (1, acts[0]), (needed - 1, acts[0])):
        gate.left, gate.passed = left, 0
        with pytest.raises(StoreUnavailableError, match=r"objects/.*503"):
            act()
        assert not list(tmp_path.glob("restored*"))
    gate.left = needed + gate.passed
    acts[0]()
    assert rows(tmp_path / "restored") == rows(laid.root)


def test_a_bucket_that_fails_midway_keeps_its_points(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("made", b"")
    found = repository(server, tmp_path)
    laid = lay_out(tmp_path / "store", messages(20), SMALL)
    take_point(laid.root, found.backing)
    then = rows(laid.root)
    grow(laid, messages(60), SMALL)

    def fail(_: ObjectBacking, path: str, data: bytes) -> None:
        raise StoreUnavailableError(path, "503")

    with monkeypatch.context() as patch:
        real = ObjectBacking.put
        patch.setattr(
            ObjectBacking,
            "put",
            lambda b, path, data: (fail if path.startswith("points/") else real)(b, path, data),
        )
        with pytest.raises(StoreUnavailableError):
            take_point(laid.root, found.backing)
    assert found.numbers() == [1]
    assert rows_of(at(found.backing, 1)) == then
    assert check_points(found) == []
    assert {name.split("/")[0] for name in keys(server, found)} == {
        "mqlog-repository",
        "objects",
        "points",
    }
    assert all("00000002" not in name for name in keys(server, found))
    assert take_point(laid.root, found.backing).number == 2
