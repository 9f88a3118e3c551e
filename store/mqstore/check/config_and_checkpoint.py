"""Check what is beside the log and the queues: file names, config/, checkpoint, abort."""

from contextlib import suppress

import numpy as np

from mqstore.check.causes import Causes
from mqstore.check.finding import WARNING, FindingPlace, Findings
from mqstore.errors import CorruptConfigError, StoreError, UnsafePathError, shown
from mqstore.files.base.folder import Entry
from mqstore.files.config import stream_groups
from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.store import Store
from mqstore.files.txn import intent
from mqstore.format import names
from mqstore.format.arrays import Span, TopicQueue
from mqstore.format.config import CONSUMER_OFFSET, DELAY_OFFSET, TOPICS
from mqstore.format.names import INDEX, is_index_file_name

_REPORTED = (CorruptConfigError, UnsafePathError)  # by check_config_files
_PENDING = f"{names.OURS}/txn/pending.json"


def check_names(store: Store, findings: Findings, *, is_under_way: bool = False) -> None:
    """Check that directories of mapped files hold mapped files, all of one size."""
    files = store.log.files.files
    sizes = [file.size for file in files]
    usual = max(sizes, key=sizes.count, default=0)
    for file in files:
        if file.size != usual:
            problem = f"the file is {file.size} bytes long, the others {usual}"
            path = file.name.removeprefix(f"{store.root}/")
            findings.error(FindingPlace(path, file.size), problem)
    for queue in store.queues:
        folder = store.queue(*queue).path
        with suppress(FileNotFoundError):  # Of a queue in RocksDB there is none.
            entries = store.place.folder.entries(folder)
            _check_entries([(f"{folder}/{e.name}", e) for e in entries], findings)
    _check_entries(
        [
            (f"{folder}/{entry.name}".removeprefix(f"{store.root}/"), entry)
            for folder in store.place.commit_log
            for entry in folder.entries()
        ],
        findings,
        is_under_way=is_under_way,
    )


def check_index_names(store: Store, findings: Findings) -> None:
    """Check that index/ holds IndexFiles of one size; brokers pass over other names."""
    found = [entry for entry in store.place.folder.survey(INDEX) if is_index_file_name(entry[0])]
    sizes = [size for _, kind, size in found if kind == "file" and size]
    usual = max(sizes, key=sizes.count, default=0)
    for name, kind, size in found:
        place = FindingPlace(f"{INDEX}/{name}", size if kind == "file" else None)
        if kind != "file":
            findings.error(place, f"a {kind} named like an IndexFile: brokers of 5.x do not start")
        elif not size:
            findings.warning(place, "an empty file: a broker was killed while it made it")
        elif size != usual:
            problem = f"the file is {size} bytes long, the others {usual}: brokers misread it"
            findings.error(place, problem)


def known_topics(store: Store) -> dict[str, TopicConfig]:
    """Return the topics of topics.json; none where it is not there or cannot be read."""
    try:
        return store.config.topics()
    except StoreError:
        return {}


def check_topics(store: Store, findings: Findings) -> None:
    """Check that consumers can reach every queue that has messages."""
    place = FindingPlace(f"{names.CONFIG}/{TOPICS}")
    try:
        known = store.config.topics()
    except _REPORTED:
        return
    except StoreError as error:
        findings.error(place, error.message())
        return
    needed: dict[str, int] = {}
    for topic, queue_id in store.queues:
        needed[topic] = max(needed.get(topic, 0), queue_id + 1)
    for topic, count in sorted(needed.items()):
        # A broker makes its own topics' entries when it needs them; light queues have none.
        if names.is_system_topic(topic):
            continue
        if topic not in known:
            problem = "the topic has queues and no entry: no consumer can pull it"
            findings.warning(FindingPlace(place.file, None, topic), problem)
        elif known[topic].read_queue_nums < count:
            problem = f"readQueueNums is {known[topic].read_queue_nums}, there are {count} queues"
            findings.warning(FindingPlace(place.file, None, topic), problem)


def check_delays(store: Store, bounds: dict[TopicQueue, Span], findings: Findings) -> None:
    """Check that delivery of delayed messages goes on inside the queues they wait in."""
    path = f"{names.CONFIG}/{DELAY_OFFSET}"
    try:
        table = store.config.load(DELAY_OFFSET).get("offsetTable")
    except _REPORTED:
        return
    for level, number in (table if isinstance(table, dict) else {}).items():
        queue = (names.SCHEDULE_TOPIC, int(level) - 1 if str(level).isdecimal() else -1)
        if queue in bounds and isinstance(number, int) and not 0 <= number <= bounds[queue][1]:
            problem = f"level {level} goes on at {number}, the queue ends at {bounds[queue][1]}"
            findings.warning(FindingPlace(path, None, *queue, number), problem)


def check_groups(store: Store, bounds: dict[TopicQueue, Span], findings: Findings) -> None:
    """Check that consumption goes on inside the queues: behind their end messages are skipped."""
    place = FindingPlace(f"{names.CONFIG}/{CONSUMER_OFFSET}")
    try:
        committed = store.config.consumer_offsets()
    except StoreError as error:
        # What our streams publish there is no broker's to read, and is written again.
        if f"/{names.OURS}/" in str(error.args[0]):
            findings.warning(FindingPlace(stream_groups.GROUPS_FOLDER), error.message())
        elif not isinstance(error, _REPORTED):
            findings.error(place, error.message())
        return
    for (topic, group), queues in sorted(committed.items()):
        for queue_id, number in sorted(queues.items()):
            high = bounds.get((topic, queue_id), (0, number))[1]
            if number > high:
                problem = f"group {group} goes on at {number}, the queue ends at {high}"
                findings.warning(FindingPlace(place.file, None, topic, queue_id, number), problem)


def check_checkpoint(
    store: Store, last_record: tuple[int, int], findings: Findings, causes: Causes
) -> None:
    """Check that the checkpoint does not claim what the log does not hold.

    ``last_record`` of the log: its store timestamp and its physical offset. If damage lies behind
    it, what the checkpoint claims is a consequence.
    """
    last_ms, last = last_record
    found = store.checkpoint()
    if found is None:
        return
    for name in ("physic_msg_timestamp", "logics_msg_timestamp"):
        if int(found[name]) > last_ms > 0 and not causes.explain_end(last):
            problem = (
                f"{name} is {int(found[name])}, the last record's store timestamp {last_ms}: "
                "after a crash a broker would skip messages"
            )
            findings.error(FindingPlace(names.CHECKPOINT), problem)
    dispatched = int(found["logics_physical_offset"])
    if dispatched > last >= 0 and not causes.explain(np.array([dispatched])):
        problem = (
            f"logicsPhysicalOffset is {dispatched}, the last record is at {last}: after a crash "
            "a broker would skip messages"
        )
        findings.error(FindingPlace(names.CHECKPOINT), problem)
    is_ahead = int(found["index_msg_timestamp"]) > last_ms > 0
    if is_ahead and not causes.explain_end(last, WARNING):
        problem = (
            f"index_msg_timestamp is {int(found['index_msg_timestamp'])}, the last record's store "
            f"timestamp {last_ms}: after a crash a broker would keep a broken IndexFile"
        )
        findings.warning(FindingPlace(names.CHECKPOINT), problem)


def check_abort(store: Store, findings: Findings) -> None:
    """Report that a broker is running or was killed, or that a commit of mqlog is or was."""
    if store.is_unclean:
        broker = "a broker is running on this store, or it was killed"
        ours = "a commit of mqlog is under way, or was killed: the next write finishes it"
        problem = ours if intent.abort_is_ours(store.place) else broker
        findings.warning(FindingPlace(names.ABORT), problem)


def unfinished(store: Store, findings: Findings) -> int | None:
    """Report a commit that is not finished; return the physical offset where it begins."""
    try:
        pending = intent.load(store.place)
    except CorruptConfigError as error:
        findings.error(FindingPlace(_PENDING), error.message())
        return None
    except UnsafePathError as error:
        findings.warning(FindingPlace(names.OURS), error.message())
        return None
    if pending is None:
        return None
    problem = (
        f"commit {shown(str(pending))} is {pending.state}, and not finished: the next write "
        "finishes it, or mqlog recover"
    )
    findings.warning(FindingPlace(_PENDING), problem)
    return pending.tail


def _check_entries(
    found: list[tuple[str, Entry]], findings: Findings, *, is_under_way: bool = False
) -> None:
    """Check the entries, by path, of the directories of one sequence of mapped files."""
    last = max((e.name for _, e in found if e.name != names.INTERLOCK), default="")
    for path, entry in found:
        if entry.is_directory:
            problem = "a directory among mapped files: brokers before 5.1 do not start"
            findings.error(FindingPlace(path), problem)
        elif entry.name == names.INTERLOCK:
            problem = "a commit of mqlog keeps brokers from starting until mqlog recover"
            (findings.warning if is_under_way else findings.error)(FindingPlace(path), problem)
        elif names.parse_mapped_file_name(entry.name) is None:
            findings.error(FindingPlace(path), "not a mapped file's name: brokers do not start")
        elif not entry.size and entry.name == last:
            # MappedFileQueue#doLoad deletes it, since 5.1.3.
            problem = "an empty file, the last one: brokers before 5.1.3 do not start"
            findings.error(FindingPlace(path, 0), problem)
        elif not entry.size:
            problem = "an empty file, and not the last one: brokers do not start"
            findings.error(FindingPlace(path, 0), problem)
