"""What a read asks an object store for: requests by files, bytes by what is read."""

import threading
from pathlib import Path

import pytest

from benchmarks.laid_out import Shape, lay_out
from mqstore.files.objects.address import parse_object_store
from mqstore.files.objects.folder import ObjectFiles, open_objects
from mqstore.format.consume_queue import UNIT
from mqstore.read.selection import Selection
from mqstore.request.places import open_all, places
from support import planned, soak
from support.oracle import Message
from support.s3_server import Request, S3Server
from support.stores import lay_out as lay_out_messages

SHAPE = Shape(messages=20_000, body_bytes=1024, queues=4, log_bytes=4 << 20)


@pytest.fixture(scope="module")
def large(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("large") / "store"
    lay_out(root, SHAPE)
    return root, server.upload(root, "large/store")


def used_bytes(root: Path) -> int:
    """The bytes of a store without the room that is reserved in ConsumeQueues."""
    log = sum(path.stat().st_size for path in (root / "commitlog").iterdir())
    return log + SHAPE.messages * UNIT.itemsize


def asked(server: S3Server, address: str, **options: str) -> tuple[int, list[Request]]:
    """Return how many rows a read has, and what it asked for."""
    before = len(server.requests())
    rows = planned.rows(address, **server.options, **options)
    return len(rows), server.requests()[before:]


def listings(requests: list[Request]) -> int:
    return sum("list-type" in request.path for request in requests)


@soak.not_in_check
def test_a_tag_of_one_percent_fetches_less_than_a_tenth_of_the_store(
    server: S3Server, large: tuple[Path, str]
) -> None:
    root, address = large
    count, requests = asked(server, address, tags="TagR")
    assert count == SHAPE.rare
    assert sum(request.bytes for request in requests) <= used_bytes(root) / 10


@soak.not_in_check
def test_all_messages_fetch_the_log_once(server: S3Server, large: tuple[Path, str]) -> None:
    root, address = large
    count, requests = asked(server, address)
    assert count == SHAPE.messages
    of_log = [request for request in requests if "/commitlog/" in request.path]
    log_bytes = sum(path.stat().st_size for path in (root / "commitlog").iterdir())
    assert sum(request.bytes for request in of_log) <= 1.05 * log_bytes
    assert len(of_log) < 2 * log_bytes / (1 << 20) + 40


@soak.not_in_check
def test_a_queue_of_four_that_lie_in_turn_is_read_in_large_ranges(
    server: S3Server, large: tuple[Path, str]
) -> None:
    root, address = large
    count, requests = asked(server, address, assign='{"T00000":[1]}')
    assert count == SHAPE.messages // SHAPE.queues
    of_log = [request for request in requests if "/commitlog/" in request.path]
    log_bytes = sum(path.stat().st_size for path in (root / "commitlog").iterdir())
    assert len(of_log) < 2 * log_bytes / (1 << 20) + 40


@soak.not_in_check
def test_a_plan_lists_a_store_in_a_few_requests_whatever_it_holds(
    server: S3Server, large: tuple[Path, str], tmp_path: Path
) -> None:
    many = [Message(topic=f"T{number % 40}", queue_id=number // 40) for number in range(160)]
    laid = lay_out_messages(tmp_path / "many", many)
    files = sum(path.is_file() for path in laid.root.rglob("*"))
    assert files > 160
    for address in (large[1], server.upload(laid.root, "many/store")):
        found = places([address], server.options)
        before = len(server.requests())
        stores = open_all(Selection(roots=found.roots()), ())
        queues = len(stores.snapshots[0].queues)
        stores.close()
        requests = server.requests()[before:]
        assert listings(requests) <= 6
        # Each queue is opened, and one page of it tells its ends.
        assert len(requests) <= listings(requests) + 3 * queues + 20


@soak.not_in_check
def test_a_listing_has_a_thousand_files_a_request(server: S3Server, tmp_path: Path) -> None:
    for number in range(1_050):
        folder = tmp_path / "consumequeue" / "T" / str(number)
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").touch()
    server.upload(tmp_path, "wide/store")
    before = len(server.requests())
    files = ObjectFiles(parse_object_store("s3://stores/wide/store", server.options))
    assert len(files.folder("consumequeue/T")) == 1_050
    assert len(files.folder("consumequeue/T/7")) == 1
    assert listings(server.requests()[before:]) == 1 + 2


def test_a_read_asks_for_so_many_at_a_time_as_its_option_says(server: S3Server) -> None:
    one = open_objects(parse_object_store("s3://stores/x", {"requestsInFlight": "1"}))
    assert one.each(lambda number: number + 1, [1, 2, 3]) == [2, 3, 4]
    texts = {"requestsInFlight": "2"}
    two = open_objects(parse_object_store("s3://stores/x", texts))
    names = two.each(lambda _: threading.current_thread().name, range(50))
    assert len(set(names)) <= 2
    assert threading.current_thread().name not in names
