"""Any locale: files are UTF-8 all the same, and what a terminal cannot show is replaced."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.oracle import Message
from support.stores import Layout, MakeStore

LOCALES = {
    "zh_CN.GBK": ("zh_CN", "GBK"),
    "zh_CN.GB18030": ("zh_CN", "GB18030"),
    "en_US.ISO-8859-1": ("en_US", "ISO-8859-1"),
}
COMMANDS = (
    ["cat", "STORE", "T"],
    ["cat", "STORE", "T", "--json"],
    ["cat", "STORE", "T", "-f", "{keys}|{body}"],
    ["find", "STORE", "--key", "k"],
    ["topics", "STORE"],
    ["backlog", "STORE"],
    ["backlog", "STORE", "--summary", "--csv"],
    ["sql", "STORE", "SELECT body FROM T"],
    ["sql", "STORE", "SELECT body FROM T", "--csv"],
    ["report", "STORE", "-o", "FILE"],
    ["top", "STORE", "--interval", "0.1"],
    ["verify", "STORE"],
    ["why", "STORE"],
    ["-h"],
)
PROGRAM = """
import codecs, json, sys
from mqlog_jobs.cli import main
from mqstore.native import registry
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as ended:
        assert ended.code in {None, 0, 1}, (words, ended.code)
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\\x01end\\n")
"""
TEXT = "caf\u00e9 \u8ba2\u5355 \U0001f600"


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locales")
    if shutil.which("localedef") is None:
        pytest.skip("no localedef")
    running = [
        subprocess.Popen(
            ["localedef", "-i", language, "-f", charmap, str(folder / name)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, (language, charmap) in LOCALES.items()
    ]
    if max(process.wait(300) for process in running) > 1:  # 1: it has warned.
        pytest.skip("localedef has not these locales")
    return folder


@pytest.fixture
def root(store: MakeStore) -> Path:
    body, properties = TEXT.encode(), "KEYS\x01k\x02TAGS\x01\u8ba2\x02".encode()
    messages = [Message(topic="T", body=body, properties=properties)]
    return store(messages, Layout(group_offsets={("T", "g"): {0: 0}})).root


def told(root: Path, tmp_path: Path, environment: Mapping[str, str]) -> list[bytes]:
    """Run the commands in one process of that environment; return what each printed."""
    words = {"STORE": str(root), "FILE": str(tmp_path / "x.html")}
    commands = [[words.get(word, word) for word in command] for command in COMMANDS]
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LA"))
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        env={**clean, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", **environment},
        capture_output=True,
        check=False,
        timeout=180,
    )
    errors = done.stderr.decode(errors="replace")
    assert done.returncode == 0, errors
    assert "kernels" not in errors
    return done.stdout.split(b"\x01end\n")[:-1]


def check(printed: list[bytes], encoding: str, tmp_path: Path) -> None:
    assert len(printed) == len(COMMANDS)
    assert json.loads(printed[1])["body"] == TEXT
    line = printed[2].decode(encoding)
    assert line == f"k|{TEXT}\n".encode(encoding, "backslashreplace").decode(encoding)
    assert (tmp_path / "x.html").read_bytes().decode().startswith("<!doctype html>")
    for text in printed:
        text.decode(encoding)


@pytest.mark.parametrize("name", LOCALES)
def test_every_command_works_in_the_locale(
    locales: Path, root: Path, tmp_path: Path, name: str
) -> None:
    printed = told(root, tmp_path, {"LOCPATH": str(locales), "LC_ALL": name})
    check(printed, LOCALES[name][1], tmp_path)


def test_every_command_works_where_output_is_ascii(root: Path, tmp_path: Path) -> None:
    printed = told(root, tmp_path, {"PYTHONIOENCODING": "ascii"})
    check(printed, "ascii", tmp_path)
    assert b"\\u2013" not in b"".join(printed)  # A dash of ours is a hyphen.


@pytest.mark.parametrize("name", LOCALES)
def test_names_in_a_store_are_utf_8_in_any_locale(
    locales: Path, root: Path, tmp_path: Path, name: str
) -> None:
    """The root is named in the locale's encoding, as a shell there does."""
    folder = "caf\u00e9".encode(LOCALES[name][1], "surrogateescape") if "ISO" in name else b"store"
    home = os.fsencode(tmp_path) + b"/" + folder
    shutil.copytree(os.fsencode(root), home)
    os.mkdir(home + b"/consumequeue/" + "\u8ba2\u5355".encode())  # noqa: PTH102
    program = """
import sys
from mqstore.files.base.directory import folder_of
folder = folder_of(sys.argv[1])
names = folder.at("consumequeue").names()
assert names == ["T", "\\u8ba2\\u5355"], ascii(names)
assert [e.name for e in folder.entries("consumequeue")] == names
assert [n for n, _, _ in folder.survey("consumequeue")] == names
assert folder.exists("consumequeue/\\u8ba2\\u5355")
assert folder.is_directory("consumequeue/\\u8ba2\\u5355")
"""
    environment = {**os.environ, "PYTHONUTF8": "0", "LOCPATH": str(locales), "LC_ALL": name}
    done = subprocess.run(
        [sys.executable, "-c", program, home],
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")


@pytest.mark.spark
def test_spark_reads_in_a_locale_of_its_own(locales: Path, root: Path) -> None:
    program = f"""
import pyspark_mqlog
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
(row,) = spark.read.format("mqlog").option("subscribe", "T").load({str(root)!r}).collect()
assert bytes(row["body"]).decode() == {TEXT!r}.encode("utf-16", "surrogatepass").decode("utf-16")
"""
    environment = {**os.environ, "PYTHONUTF8": "0", "LOCPATH": str(locales), "LC_ALL": "zh_CN.GBK"}
    done = subprocess.run(
        [sys.executable, "-c", program.encode("ascii", "backslashreplace").decode()],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
