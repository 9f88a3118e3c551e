"""Prepare a write on the driver: refuse what cannot succeed before any task runs.

Nothing of the store is changed but for the job's staging directory.
"""

import os
import secrets
import socket
from dataclasses import asdict, replace
from ipaddress import ip_address
from typing import Final

import pyarrow as pa

from mqstore.codec.encode import Hosts
from mqstore.derive.log_end import last_store_host
from mqstore.errors import InvalidOptionError, StoreNotFoundError, shown
from mqstore.files.base import durable, new_file
from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.store_dir import StoreDir, check_writable, open_dir
from mqstore.files.base.store_writer import MMAP, PWRITE
from mqstore.files.config.broker_config import BrokerConfig, TopicConfig
from mqstore.files.lock.file_system import file_system, is_in_memory, keeps_reservations
from mqstore.files.queue.consume_queue import list_queues
from mqstore.files.store import Store
from mqstore.files.txn import ledger, staging
from mqstore.files.txn.ledger import Key
from mqstore.format import names
from mqstore.format.config import PERM_WRITE
from mqstore.format.message import RECORD_ROOM_BYTES
from mqstore.options.option import checked
from mqstore.write.create import check_sizes, sizes_of_new
from mqstore.write.locked import LockedStore
from mqstore.write.resume import resume
from mqstore.write.stage.effect import check_effect, key_of
from mqstore.write.stage.job import StoreTarget, TopicQueues, WriteJob
from mqstore.write.stage.rows import check_columns
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import limits_of
from mqstore.write.stage.validate import topic_problem

_BROKER_PORT: Final = 10911
_PORT_DIGITS: Final = 5
# Below .mqlog: folders of commits, in which no other files may lie.
_TAKEN: Final = {ledger.LEDGER_FOLDER.rpartition("/")[2], new_file.TEMP_FOLDER}
_PROBE_ADDRESS: Final = ("192.0.2.1", 9)  # TEST-NET-1: routed like any address, never reached


def prepare(settings: WriteSettings, columns: pa.Schema) -> WriteJob:
    """Return the job, with its staging directory made; its paths are absolute.

    Raises InvalidOptionError, InvalidSchemaError, StoreNotFoundError, NotAStoreError,
    UnsupportedStoreError, UncleanStoreError, StoreLockedError, CorruptStoreError.
    """
    settings = checked(settings)
    carries_read = check_columns(columns, topic_given=settings.topic is not None)
    place = StoreDir.at(settings.root)
    check_effect(settings, columns, carries_read=carries_read)
    _check_locations(settings, place)
    key = key_of(settings)
    makes_store = settings.create_store and is_empty(place)
    store = None if makes_store else open_for_write(settings, place)
    if store is None:
        sizes, configs, topics, store_host = sizes_of_new(settings), {}, {}, None
    else:
        sizes, configs = _sizes_of(store, settings), BrokerConfig(store).topics()
        topics = _topics(store, configs, settings.new_topic_queues)
        with Store(store) as opened:
            store_host = last_store_host(opened)
    check_sizes(sizes)
    job_id = secrets.token_hex(16)
    target = StoreTarget(
        place=place,
        staging=_staging(place, settings, job_id),
        nonce=secrets.token_hex(16),
        hosts=_hosts(settings, store_host),
        sizes=sizes,
        record_room=_record_room(store),
        makes_store=store is None,
    )
    job = WriteJob(
        settings=settings,
        job_id=job_id,
        target=target,
        topics=topics,
        carries_read=carries_read,
        key=key,
        is_repeated=store is not None and key is not None and is_committed(place, key),
        group_property=settings.producer_group,
        cluster_property=settings.broker_cluster_name,
        multi_tag_topics=frozenset(n for n, topic in configs.items() if topic.has_multi_tags),
    )
    _check_topic(job)
    with durable.synced(wanted=settings.fsync == "commit"):
        new_root = place.root if target.makes_store else None
        made = staging.make(target.staging, target.nonce, settings.side_path, new_root)
        return replace(job, target=replace(target, made=tuple(made)))


def is_empty(place: StoreDir) -> bool:
    """Tell whether the root is missing, or holds nothing but what a write of ours left."""
    if not place.folder.exists():
        return True
    is_there = os.path.isdir(place.root)  # noqa: PTH112
    return is_there and set(place.folder.names()) <= {names.OURS, names.LOCK}


def is_committed(place: StoreDir, key: Key | None) -> bool:
    """Tell whether a commit of that key, or of a later version, is known.

    Raises CorruptConfigError for a ledger that cannot be added to, without a key as well.
    """
    known = ledger.last_version(place, key.app_id if key else None)
    return key is not None and known is not None and key.version <= known


def open_for_write(settings: WriteSettings, place: StoreDir) -> StoreDir:
    """Return the store if it may be written to now; finish first what an earlier commit left."""
    if not settings.create_store and is_empty(place):
        there = "an empty directory" if place.folder.exists() else "no such directory"
        raise StoreNotFoundError(place.root, f"{there}: set createStore=true to make a store there")
    store = open_dir(place.root)
    check_writable(store)
    with LockedStore(place, settings) as locked:
        resume(locked)
    return store


def _check_topic(job: WriteJob) -> None:
    topic = job.settings.topic
    problem = None if topic is None else topic_problem(topic, limits_of(job))
    if problem:
        raise InvalidOptionError("topic", topic, problem)
    known, wanted = job.topics.get(topic or ""), job.settings.queue_nums
    if known is not None and wanted is not None and wanted != known.write:
        expected = (
            f"is for new topics, and {shown(topic)} has {known.write} write queues: leave it "
            "out, or let a broker change them (mqadmin updateTopic)"
        )
        raise InvalidOptionError("queueNums", wanted, expected)


def _sizes_of(store: StoreDir, settings: WriteSettings) -> FileSizes:
    found, new = Store(store).sizes, sizes_of_new(settings)
    for option, given, known in (
        (
            "mappedFileSizeCommitLog",
            settings.mapped_file_size_commit_log,
            found.commit_log,
        ),
        (
            "mappedFileSizeConsumeQueue",
            settings.mapped_file_size_consume_queue,
            found.consume_queue,
        ),
        ("maxHashSlotNum", settings.max_hash_slot_num, found.max_hash_slot_num),
        ("maxIndexNum", settings.max_index_num, found.max_index_num),
    ):
        if given is not None and known is not None and given != known:
            expected = f"the store's own is {known}; leave the option out"
            raise InvalidOptionError(option, given, expected)
    own = {name: value for name, value in asdict(found).items() if value is not None}
    return replace(new, **own)


def _topics(
    store: StoreDir, configs: dict[str, TopicConfig], queue_nums: int
) -> dict[str, TopicQueues]:
    """Return the queues a producer may send to, by topic; 0 if it may send to none."""
    listed = {
        topic: TopicQueues(
            entry.write_queue_nums, max(entry.read_queue_nums, entry.write_queue_nums)
        )
        if entry.perm & PERM_WRITE and entry.write_queue_nums
        else TopicQueues(0, 0)
        for topic, entry in configs.items()
    }
    # A topic may have queues and no entry: then the commit makes one that reaches them all.
    unlisted: dict[str, int] = {}
    for topic, queue_id in list_queues(store):
        if topic not in listed:
            unlisted[topic] = max(unlisted.get(topic, queue_nums), queue_id + 1)
    return {**{topic: TopicQueues(n, n) for topic, n in unlisted.items()}, **listed}


def _record_room(store: StoreDir | None) -> int:
    """Return by how much a record may exceed maxMessageSize: brokers of 4.9 bound the whole record.

    Reference: CommitLog.MessageExtBatchEncoder and MessageExtEncoder of 4.9.3 and 5.x.
    """
    is_older = store is not None and BrokerConfig(store).is_before_5()
    return 0 if is_older else RECORD_ROOM_BYTES


def _check_locations(settings: WriteSettings, place: StoreDir) -> None:
    """Raise InvalidOptionError for a directory where brokers or our own commits have files."""
    store = os.path.realpath(place.root)
    for option, directory in (
        ("stagingDir", settings.staging_dir),
        ("onInvalid", settings.side_path),
    ):
        inside = f"{os.path.realpath(directory or '/')}/".removeprefix(f"{store}/")
        if inside.startswith("/"):
            continue  # It is not in the store.
        ours, _, folder = inside.removesuffix("/").partition("/")
        if ours != names.OURS or folder.partition("/")[0] in {"", *_TAKEN}:
            expected = (
                f"lies in the store, where brokers would find files they do not know: name a "
                f"directory outside {place.root}, or one below its {names.OURS}"
            )
            raise InvalidOptionError(option, directory, expected)
    _check_staging_lasts(settings, place)
    _check_write_mode(settings, place)


def _check_staging_lasts(settings: WriteSettings, place: StoreDir) -> None:
    """Raise InvalidOptionError for rows staged in memory, of a commit that is to be durable.

    Once a commit is decided, a power cut may leave the staged rows as its only copy.
    """
    folder = settings.staging_dir
    if folder is None or settings.fsync != "commit" or is_in_memory(_existing(place.root)):
        return
    if is_in_memory(_existing(folder)):
        expected = (
            "lies in memory, and a commit that a power cut interrupts is finished from the rows "
            "there: name a directory on a disk, or set fsync=none"
        )
        raise InvalidOptionError("stagingDir", folder, expected)


def _check_write_mode(settings: WriteSettings, place: StoreDir) -> None:
    """Raise InvalidOptionError where a mapped write could find no block for what was reserved."""
    for folder in (place.folder, *place.commit_log) if settings.write_mode == MMAP else ():
        kind = file_system(_existing(folder.name))
        if not keeps_reservations(kind):
            expected = (
                "needs a file system whose reserved blocks are sure to be there (ext4, tmpfs), and "
                f"{shown(folder.name)} is on {kind or 'an unknown one'}: use {PWRITE}"
            )
            raise InvalidOptionError("writeMode", MMAP, expected)


def _existing(path: str) -> str:
    """Return the path, or the nearest directory above it that is there."""
    while not os.path.exists(path):  # noqa: PTH110 - paths are strings at the seam
        path = os.path.dirname(path)  # noqa: PTH120
    return path


def _staging(place: StoreDir, settings: WriteSettings, job_id: str) -> str:
    folder = settings.staging_dir or f"{place.root}/{names.OURS}/{names.STAGING}"
    return f"{folder}/{job_id}"


def _hosts(settings: WriteSettings, last: tuple[bytes, int] | None) -> Hosts:
    born = _parse_host("bornHost", settings.born_host, 0) if settings.born_host else None
    store = (
        _parse_host("storeHost", settings.store_host, _BROKER_PORT) if settings.store_host else last
    )
    local = _local_ip() if born is None or store is None else b""
    born_ip, born_port = born or (local, 0)
    store_ip, store_port = store or (local, _BROKER_PORT)
    return Hosts(born_ip, born_port, store_ip, store_port)


def _parse_host(option: str, text: str, default_port: int) -> tuple[bytes, int]:
    """Return address and port of ``ip``, ``ip:port``, ``ipv6`` or ``[ipv6]:port``."""
    expected = "must be an IP address, with a port if wanted: 10.0.0.1:10911 or [::1]:10911"
    host, port = text.strip(), str(default_port)
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":") if rest else port
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    try:
        address = ip_address(host).packed
    except ValueError:
        raise InvalidOptionError(option, text, expected) from None
    if not (port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS) or int(port) > 65_535:
        raise InvalidOptionError(option, text, expected)
    return address, int(port)


def _local_ip() -> bytes:
    """Return the address this machine is reached by, as its routes tell; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_PROBE_ADDRESS)
            return ip_address(probe.getsockname()[0]).packed
        except OSError:  # No route: a machine without a network.
            return ip_address("127.0.0.1").packed
