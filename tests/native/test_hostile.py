"""No frame makes a kernel read or write outside what it was given: told by the sanitizers."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mqstore.native import compiling
from support import goldens, oracle, soak, stores
from support.oracle import BORN_V6, STORE_V6, V2, Host, Message

pytestmark = pytest.mark.soak

FRAMES = soak.size("hostile_frames", check=10_000, test=10_000, whole=1_000_000)
SEED = soak.SEED
SECONDS = 500
SANITIZED = (
    "-std=gnu11",
    "-g",
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    f"-I{compiling.FOLDER}",
)
V6 = Host(ip=bytes(range(16)), port=-1)
ODD = [
    Message(),
    Message(body=b"x" * 200, properties=b"TAGS\x01A\x02KEYS\x01k\x02"),
    Message(sys_flag=BORN_V6, born_host=V6, properties=b"a\x01b"),
    Message(sys_flag=STORE_V6, store_host=V6, properties=b"\x02\x01\x02a\x01"),
    Message(sys_flag=BORN_V6 | STORE_V6, born_host=V6, store_host=V6, body=bytes(70)),
    Message(topic="x" * 127, magic=V2, properties=b"a\x01b\x02a\x01c\x02"),
    Message(properties=b"".join(b"%d\x01v\x02" % n for n in range(130))),
    oracle.with_property_crc(Message(body=b"y", properties=b"UNIQ_KEY\x01" + b"0" * 32)),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = compiling.local_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("sanitized") / "hostile"
    source = Path(__file__).with_name("hostile.c")
    compiling.write_made_header(made.parent)
    done = run(*compiler, *SANITIZED, f"-I{made.parent}", str(source), "-o", str(made))
    if done.returncode and "sanitize" in done.stderr:
        pytest.skip("the C compiler comes without sanitizers")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the odd kinds and of both golden stores, each behind its length."""
    folder = tmp_path_factory.mktemp("corpus")
    records = [oracle.encode(message) for message in ODD]
    for version in goldens.VERSIONS:
        root = goldens.unpack(version, folder)
        found = [
            oracle.encode(message)
            for _, data in stores.stored(root)
            for _, message in oracle.walk(data)
        ]
        records += found[::7]
    path = folder / "corpus"
    path.write_bytes(b"".join(len(r).to_bytes(4, "little") + r for r in records))
    return path


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace"
    )


@soak.not_in_check
def test_hostile_frames_are_read_within_their_bounds(program: Path, corpus: Path) -> None:
    done = run(str(program), str(corpus), str(FRAMES), str(SEED))
    assert done.returncode == 0, done.stderr[-4000:]
    counts = [int(word) for word in done.stdout.split()]
    assert len(counts) == 12
    soak.tell(f"{FRAMES} frames: {counts[:3]} decodes done, left to numpy, out of room")
    soak.tell(f"done and left to numpy: blocks, records {counts[3:7]}")
    soak.tell(f"walks done, left to numpy, out of room {counts[7:10]}")
    soak.tell(f"audits done, left to numpy {counts[10:]}")
    assert min(counts) > FRAMES // 200, "frames that all end alike are no test"


@soak.not_in_check
def test_a_write_that_is_out_of_bounds_would_end_the_program(tmp_path: Path) -> None:
    """As a kernel that takes one byte less room than a block's value needs would do."""
    compiler = compiling.local_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path / "kernels"
    shutil.copytree(compiling.FOLDER, folder)
    compiling.write_made_header(folder)
    header = folder / "encode.h"
    text = header.read_text()
    guard = "p->prefix_length + length + 1 > room - used"
    assert text.count(guard) == 1
    header.write_text(text.replace(guard, "p->prefix_length > room - used"))
    flags = [*SANITIZED[:-1], f"-I{folder}"]
    source, made = Path(__file__).with_name("hostile.c"), tmp_path / "hostile"
    done = run(*compiler, *flags, str(source), "-o", str(made))
    if done.returncode and "sanitize" in done.stderr:
        pytest.skip("the C compiler comes without sanitizers")
    assert done.returncode == 0, done.stderr
    record = oracle.encode(Message())
    corpus = tmp_path / "corpus"
    corpus.write_bytes(len(record).to_bytes(4, "little") + record)
    done = run(str(made), str(corpus), "2000", str(SEED))
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


@soak.not_in_check
def test_a_read_that_is_out_of_bounds_would_end_the_program(tmp_path: Path, program: Path) -> None:
    """The sanitizers are awake: a record that is said to be longer than its memory is seen."""
    source = tmp_path / "wrong.c"
    source.write_text(
        '#include <stdlib.h>\n#include "kernels.c"\n'
        "int main(void) { Record r; uint8_t *m = calloc(1, 91); store_i32(m, 4000);\n"
        "store_i32(m + 4, (uint32_t)RECORD_VERSIONS[0].magic); store_i32(m + 84, 300);\n"
        "return read_record(&r, m, 4000); }\n"
    )
    compiler = compiling.local_compiler()
    assert compiler
    compiling.write_made_header(tmp_path)
    made = run(
        *compiler, *SANITIZED, f"-I{tmp_path}", str(source), "-o", str(source.with_suffix(""))
    )
    assert made.returncode == 0, made.stderr
    done = run(str(source.with_suffix("")))
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
