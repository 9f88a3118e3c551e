"""Remake golden stores: a real broker of each version does the recipe, and is stopped cleanly.

    make golden                  # every version, into tests/golden
    make golden ARGS='5.5.0'     # one of them
    make golden ARGS='4.9.7-dledger'            # two stores of a DLedger group
    make golden ARGS='4.9.7-traces'             # a store with a trace topic
    make golden ARGS='5.5.0-samples'            # samples of groups that are behind for a while
    make golden ARGS='--into /some/where'

Each VERSION folder gets store.tar.gz, expected.jsonl.gz, progress.txt, topicstatus.txt, broker.conf
and made.json: which versions of what made it. A DLedger group leaves killed.tar.gz, of the leader
that was killed, and store.tar.gz, of the leader after it. A VERSION-traces folder gets
store.tar.gz, measured.jsonl.gz, decoded.jsonl.gz, queried.json and made.json, 5.5.0-samples what
``mqlog record`` writes in four minutes. Timestamps, ids and
the order in which queues are chosen differ from run to run, so tests that name a message by them
follow a remake.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from broker import recipe
from broker.group_left import leave_group
from broker.harness import FAST_DELAYS, Broker, Cluster, Row
from broker.toolchain import VERSIONS, Toolchain

FOLDER = Path(__file__).parents[1]
LETTERS = {"4.9.7": "H", "5.5.0": "G"}
COMPRESSIONS = {"4.9.7": ("ZipZLIB",), "5.5.0": recipe.ZIPPED}
SETTINGS = {
    "transactionCheckInterval": "10000",
    "transactionCheckMax": "15",
    # As a broker marks what was resolved by itself: in batches.
    "transactionOpBatchInterval": "3000",
    "transactionOpMsgMaxSize": "4096",
}
DLEDGER = "-dledger"
TRACES = "-traces"
SAMPLES = "-samples"
# Messages a second, from each second of the load on; and what groups do with them.
LOAD = ((0, 30), (50, 150), (90, 30))
LOAD_SECONDS = 240
SAMPLED = ("record", "--every", "2s", "--count", str(LOAD_SECONDS // 2))
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
# RocksDB files and the timer wheel are megabytes that hold nothing of ours.
LEFT_OUT = {"rocksdbstore", "timerwheel", "timerlog"}


def main() -> int:
    """Make what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)}")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder of the VERSION folders")
    arguments = parser.parse_args()
    every = (*VERSIONS, f"{VERSIONS[0]}{DLEDGER}", *(f"{one}{TRACES}" for one in VERSIONS))
    every = (*every, f"{VERSIONS[-1]}{SAMPLES}")
    unknown = set(arguments.versions) - set(every)
    if unknown:
        parser.error(f"no pom for {', '.join(sorted(unknown))}; there is {', '.join(every)}")
    toolchain = Toolchain.find()
    if toolchain is None:
        parser.error("needs Maven (mvn) and a JDK (java, javac) on PATH")
    for version in arguments.versions or every:
        folder = arguments.into / version
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="golden-") as work:
            of_broker, dash, kind = version.partition("-")
            makers = {"": make, DLEDGER: make_group, TRACES: make_traces, SAMPLES: make_samples}
            makers[f"{dash}{kind}"](toolchain, of_broker, Path(work), folder)
        sys.stdout.write(f"{folder}\n")
    return 0


def make(toolchain: Toolchain, version: str, work: Path, folder: Path) -> None:
    """Have a broker of that version do the recipe; write what it left into ``folder``."""
    names = recipe.Names(LETTERS[version])
    root = work / "store"
    root.mkdir()
    with Cluster(toolchain, version, work) as cluster, cluster.broker(root, SETTINGS) as broker:
        recipe.produce(broker, names, COMPRESSIONS[version])
        recipe.consume(broker, names)
        recipe.go_on(broker, names)
        write_reports(broker, names, folder)
        dump = broker.dump()
        settings = broker.settings
        broker.stop()
    if dump.problems:
        raise RuntimeError(f"{version}: the client could not pull everything: {dump.problems[:3]}")
    write_rows(folder / "expected.jsonl.gz", dump.rows)
    conf = "".join(f"{key}={value}\n" for key, value in settings.items() if "Path" not in key)
    (folder / "broker.conf").write_text(conf)
    pack(root, folder / "store.tar.gz")
    made = provenance(toolchain, version) | {"messages": len(dump.rows)}
    (folder / "made.json").write_text(json.dumps(made, indent=2) + "\n")


def make_group(toolchain: Toolchain, version: str, work: Path, folder: Path) -> None:
    """Have a DLedger group leave its stores; write those of both leaders into ``folder``."""
    with Cluster(toolchain, version, work) as cluster:
        left = leave_group(cluster, work / "group")
    if left.dump.problems:
        raise RuntimeError(f"{version}: not everything could be pulled: {left.dump.problems[:3]}")
    write_rows(folder / "expected.jsonl.gz", left.dump.rows)
    (folder / "progress.txt").write_text("".join(left.reports))
    for archive, peer in (("killed", left.killed), ("store", left.leader)):
        # DLedger's index file has 160 MB, all but some KiB of it a hole.
        command = ["tar", "--sparse", "--owner=0", "--group=0", "-czf"]
        target = str(folder / f"{archive}.tar.gz")
        subprocess.run([*command, target, "store"], cwd=left.roots[peer].parent, check=True)
    made = provenance(toolchain, version) | {"messages": len(left.dump.rows)}
    (folder / "made.json").write_text(json.dumps(made, indent=2) + "\n")


def make_traces(toolchain: Toolchain, version: str, work: Path, folder: Path) -> None:
    """Have clients with tracing on work with a broker; write what all of them said."""
    root = work / "store"
    root.mkdir()
    settings = FAST_DELAYS | {"traceTopicEnable": "true"}
    with Cluster(toolchain, version, work) as cluster, cluster.broker(root, settings) as broker:
        measured = broker.traced("Traced", "CG_T")
        decoded = broker.decoded_traces(TRACE_TOPIC)
        ids = sorted({row["msgId"] for row in measured if row["event"] == "consumed"})
        ask = "queryMsgTraceById", "-n", cluster.name_server, "-i"
        queried = {msg_id: broker.mqadmin(*ask, msg_id) for msg_id in ids}
        broker.stop()
    for name, rows in (("measured", measured), ("decoded", decoded)):
        lines = (json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        packed = gzip.compress("".join(lines).encode(), mtime=0)
        (folder / f"{name}.jsonl.gz").write_bytes(packed)
    (folder / "queried.json").write_text(json.dumps(queried, indent=1) + "\n")
    pack(root, folder / "store.tar.gz")
    made = provenance(toolchain, version) | {"messages": len(decoded)}
    (folder / "made.json").write_text(json.dumps(made, indent=2) + "\n")


def make_samples(toolchain: Toolchain, version: str, work: Path, folder: Path) -> None:
    """Record samples of three groups: one keeps up, one is slow, one comes late."""
    root, topic = work / "store", "ORDERS"
    root.mkdir()
    with Cluster(toolchain, version, work) as cluster, cluster.broker(root) as broker:
        place = f"rocketmq://{cluster.name_server}"
        send = [sys.executable, "-m", "mqlog", "send", place, topic, "-o", "createTopic=true"]
        subprocess.run(send, input="an order\n" * 8, text=True, check=True)
        broker.commit(topic, "CG_AUDIT", 0)
        broker.join("CG_WAREHOUSE", topic)
        broker.join("CG_MAIL", topic, how="dawdles", number=250)
        name, *options = SAMPLED
        words = [sys.executable, "-m", "mqlog", name, place, str(folder / "samples.parquet")]
        with subprocess.Popen([*words, *options]) as recorder:
            with subprocess.Popen(send, stdin=subprocess.PIPE, text=True) as sender:
                assert sender.stdin is not None
                pause = threading.Event()
                for second in range(LOAD_SECONDS):
                    if second == LOAD_SECONDS // 2:
                        broker.join("CG_AUDIT", topic, how="dawdles", number=100)
                    rate = [rate for since, rate in LOAD if since <= second][-1]
                    sender.stdin.write("an order\n" * rate)
                    sender.stdin.flush()
                    pause.wait(1)
            recorder.wait()
        broker.leave()
        broker.stop()
    made = provenance(toolchain, version) | {"samples": LOAD_SECONDS // 2}
    (folder / "made.json").write_text(json.dumps(made, indent=2) + "\n")


def write_reports(broker: Broker, names: recipe.Names, folder: Path) -> None:
    """Write what mqadmin says of the groups and the topics."""
    groups = (names.push_group, names.pull_group)
    progress = [report(broker, "consumerProgress", "-g", group) for group in groups]
    (folder / "progress.txt").write_text("".join(progress))
    status = [report(broker, "topicStatus", "-t", topic) for topic in names.topics]
    (folder / "topicstatus.txt").write_text("".join(status))


def report(broker: Broker, *arguments: str) -> str:
    """Return a command's name and what it prints."""
    return f"## {' '.join(arguments)}\n{broker.mqadmin(*arguments)}"


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write JSON lines in the order of topic, queue and offset, always to the same bytes."""
    ordered = sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
    lines = (json.dumps(row, separators=(",", ":")) + "\n" for row in ordered)
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def pack(root: Path, archive: Path) -> None:
    """Pack the store directory as ``store/``."""

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if LEFT_OUT & set(Path(member.name).parts) else member

    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, "store", filter=keep)


def provenance(toolchain: Toolchain, version: str) -> dict[str, Any]:
    """Return which versions of what made a store, and when."""
    java = subprocess.run([toolchain.java, "-version"], capture_output=True, text=True, check=True)
    return {
        "rocketmq": version,
        "client": version,
        "java": java.stderr.splitlines()[0],
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "maker": "tests/golden/make/make_golden.py",
    }


if __name__ == "__main__":
    sys.exit(main())
