"""A broker of a new record version is one row of a table: here a pretended version 3 is added.

The row is written into a copy of the package, the kernels are compiled from the copy, and a program
of its own reads, walks, verifies, rebuilds and salvages a store with records of all versions there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.format.record_versions import RECORD_VERSIONS
from support import oracle, soak

ROOT = Path(__file__).parents[2]
SECONDS = 300
PROGRAM = """
import sys, shutil
from pathlib import Path
import mqstore
assert Path(mqstore.__file__).is_relative_to(Path(sys.argv[1]) / "store")
from mqstore.native import compiling
if compiler := compiling.local_compiler():
    compiling.compile_library(compiler, compiling.FOLDER / compiling.LIBRARY_NAME)
from support import kernels, oracle
from support.oracle import BORN_V6, STORE_V6, Host, Message
from support.stores import Layout, lay_out
from support.expectations import row, rows
from mqstore.check import check
from mqstore.codec.schema import PROFILES
from mqstore.copy.salvage import salvage
from mqstore.native.registry import kernels_in_use
from mqstore.read.directory import take
from mqstore.read.log_directory import open_by_log
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.write.recover import RecoverSettings, recover

V3 = -626843473
oracle.LENGTHS[V3] = sys.argv[2]
V6 = Host(ip=bytes(range(16)), port=9)
odd = [{}, {"sys_flag": BORN_V6 | STORE_V6, "born_host": V6, "store_host": V6}]
batch = [
    Message(
        topic="T" * (1 + n % 90), queue_id=0, body=b"x" * (n % 7 * 700), magic=magic,
        properties=b"UNIQ_KEY\\x01%032d\\x02TAGS\\x01A\\x02KEYS\\x01k%d\\x02" % (n, n),
        store_timestamp_ms=1_700_000_000_000 + n, born_timestamp_ms=1_700_000_000_000,
        **odd[n % 2],
    )
    for n, magic in enumerate([oracle.V1, oracle.V2, V3, V3] * 25)
]
root = Path(sys.argv[3])
laid = lay_out(root, batch, Layout(commit_log_bytes=1 << 16))

def read(snapshot):
    batches = scan(slices_of(snapshot), ScanSettings(PROFILES["full"]))
    return sorted((r for b in batches for r in rows(b)), key=lambda r: r["physicalOffset"])

expected = sorted((row(m, "b") for m in laid.held), key=lambda r: r["physicalOffset"])
for kind in sys.argv[4].split(","):
    with kernels.using(kind):
        assert kernels_in_use().kind == kind
        assert read(take(root, broker_name="b")) == expected, "read"
        origin = open_by_log(root, (), sys.argv[3] + f"-cache-{kind}")
        source = origin.bounds("b")
        assert read(source.snapshot()) == expected, "queues=log"
        source.close()
        assert not check(root), "verify"
        salvaged = Path(sys.argv[3] + f"-salvaged-{kind}")
        assert salvage(root, salvaged).is_complete, "salvage"
        assert [r["body"] for r in read(take(salvaged))] == [r["body"] for r in expected]
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        recover(root, RecoverSettings(rebuild=True))
        assert not check(root), "verify behind a rebuild"
        assert read(take(root, broker_name="b")) == expected, "read behind a rebuild"
print("whole")
"""


@soak.not_in_check
@pytest.mark.parametrize(
    ("widths", "names"), [("4, 2", "ih"), ("2, 4", "hi")], ids=["topic length", "properties length"]
)
def test_one_row_adds_a_version_with_one_field_wider(
    widths: str, names: str, tmp_path: Path
) -> None:
    copied = tmp_path / "store"
    shutil.copytree(
        ROOT / "store", copied, ignore=shutil.ignore_patterns("__pycache__", "*.native")
    )
    table = copied / "mqstore" / "format" / "record_versions.py"
    text = table.read_text()
    assert text.count(")\nWRITTEN_VERSION") == 1
    row = f"    RecordVersion(3, -626843473, {widths}),\n)\nWRITTEN_VERSION"
    table.write_text(text.replace(")\nWRITTEN_VERSION", row))
    kinds = "c,numpy" if shutil.which("cc") or shutil.which("gcc") else "numpy"
    arguments = [str(tmp_path), names, str(tmp_path / "broker"), kinds]
    path = os.pathsep.join([str(copied), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "whole\n"


def test_the_rows_are_those_of_the_oracle() -> None:
    codes = {1: "b", 2: "h", 4: "i"}
    rows = {
        row.magic: codes[row.topic_length_bytes] + codes[row.properties_length_bytes]
        for row in RECORD_VERSIONS
    }
    assert rows == oracle.LENGTHS
    assert [row.number for row in RECORD_VERSIONS] == [1, 2]
