"""What is refused of object stores, in which words, and what shows of keys: nothing."""

import base64
import pickle
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from mqlog_jobs.cli import main
from mqstore.errors import (
    CorruptStoreError,
    InvalidOptionError,
    NotAStoreError,
    StoreNotFoundError,
    StoreUnavailableError,
    UncleanStoreError,
    UnsafePathError,
)
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.pop_files import kv_pops
from mqstore.files.objects import connection, folder
from mqstore.files.objects.address import parse_object_store
from mqstore.files.objects.folder import ObjectFiles, open_objects
from mqstore.format.pop import KvPops
from mqstore.request.places import OBJECTS
from pyspark_mqlog.options import parse_read, parse_stream, parse_write
from support import planned, rocksdb
from support.oracle import Message
from support.s3_server import KEYS, S3Server
from support.stores import Layout, lay_out

PAGE = Path(__file__).parents[3] / "connector" / "OBJECTS.md"


def test_the_page_has_the_options_of_the_code() -> None:
    rows = re.findall(
        r"^\| `([\w.*]+)` \| (\S+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    shown = {name: default.strip("`") for name, default in rows}
    assert list(shown) == [option.name for option in OBJECTS.values()]
    found = parse_object_store("s3://b/s", {})
    for field, option in OBJECTS.items():
        if shown[option.name] != "–":
            assert option.value(shown[option.name]) == getattr(found, field)
    assert found.file_system == ()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("s3://key:hush@bucket/store", "has a password in it"),
        ("s3://key:with/hush@bucket/store", "has a password in it"),
        ("s3://bucket/store?secret_key=hush", "options stand beside the path"),
        ("s3://bucket/*/store", "globs are for directories"),
        ("s3://bucket/a/../store", "has an empty name, . or .. in it"),
        ("s3://bucket/a//store", "has an empty name, . or .. in it"),
        ("s3:///", "names no bucket"),
        ("s3://bucket/st\nore", "has a control character in it"),
    ],
)
def test_an_address_is_refused_without_its_secrets(path: str, told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_read({"path": path})
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_slashes_at_the_end_of_an_address_do_not_matter(slashes: str) -> None:
    found = parse_object_store(f"s3a://bucket/a/store{slashes}", {})
    assert found.address == "s3://bucket/a/store"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"fs.region": "x"}, "option fs.region='***': is for stores in object stores"),
        ({"allowUnclean": "true"}, "option allowUnclean='***': is for stores in object stores"),
        ({"requestsInFlight": "2"}, "is for stores in object stores"),
        ({"path": "s3://b/s", "requestsInFlight": "65"}, "from 1 to 64"),
        ({"path": "s3://b/s", "allowUnclean": "yes"}, "must be true or false"),
        ({"path": "s3://b/s", "fs.region": " "}, "is empty"),
        ({"path": "s3://b/s", "fs.": "x"}, "unknown option"),
        ({"path": "s3://b/s", "storePathCommitLog": "/a"}, "is for directories"),
    ],
)
def test_an_option_is_refused_in_words_that_help(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_read({"path": "/data/store", **options})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"fs.regio": "x", "fs.region": "eu"},
            "option fs.regio='***': pyarrow.fs.S3FileSystem has no such argument",
        ),
        ({"fs.access_key": "hush"}, "option fs.access_key='***'"),
        ({"fs.scheme": "ftp"}, "Invalid S3 connection scheme"),
        ({"fs.connect_timeout": "soon"}, "option fs.connect_timeout='soon': must be a number"),
        *(
            ({"fs.request_timeout": text}, f"'{text}': must be a number of seconds, from 0 to")
            for text in ("inf", "nan", "-1", "1e300")
        ),
        ({"fs.role_arn": "a", "fs.access_key": "hush", "fs.secret_key": "hush"}, "option fs."),
    ],
)
def test_an_argument_that_the_file_system_refuses_is_named(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        planned.rows("s3://bucket/store", **options)
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("limit", ["inf", "nan", "1e300"])
def test_a_time_limit_of_google_that_no_clock_reaches_is_refused(limit: str) -> None:
    with pytest.raises(
        InvalidOptionError, match=r"fs\.retry_time_limit='.*': must be a number of seconds, from 0"
    ):
        planned.rows("gs://bucket/store", **{"fs.retry_time_limit": limit})


@pytest.mark.parametrize("port", ["a", "99999999999"])
def test_a_port_of_a_name_node_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(InvalidOptionError):
        planned.rows(f"hdfs://namenode:{port}/store", **{"fs.user": "x"})
    with pytest.raises(InvalidOptionError):
        planned.rows("hdfs://namenode/store", **{"fs.port": port})


@pytest.mark.parametrize("path", ["oss://bucket/store", "s4://bucket/store"])
def test_a_scheme_that_pyarrow_does_not_know_is_refused(path: str) -> None:
    with pytest.raises(InvalidOptionError, match="Unrecognized filesystem type"):
        planned.rows(path)
    with pytest.raises(InvalidOptionError, match=r"option fs\.region=.*is for s3://"):
        planned.rows(path, **{"fs.region": "x"})


@pytest.mark.parametrize(
    ("address", "options", "path"),
    [
        ("gs://bucket/a/store", {"fs.anonymous": "true"}, "bucket/a/store"),
        ("gs://bucket/a/store", {"fs.anonymous": "true", "fs.retry_time_limit": "5"}, None),
        ("abfs://box@acc.dfs.core.windows.net/a", {"fs.account_key": "aGk="}, "box/a"),
        ("s3://bucket", {"fs.anonymous": "true", "fs.region": "us-east-1"}, "bucket"),
    ],
)
def test_a_connection_is_made_of_the_address_and_the_options(
    address: str, options: dict[str, str], path: str | None
) -> None:
    found = connection.connect(parse_object_store(address, options))
    assert path is None or found[1] == path


def test_keys_show_in_nothing_that_is_printed_or_pickled(server: S3Server) -> None:
    found = parse_read({"path": "s3://stores/store", **server.options})
    root = found.places.roots()[0]
    for value in (found, found.given, found.places, root, vars(root), open_objects):
        assert not any(secret in repr(value) for secret in KEYS.values())
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps((found, root), protocol)
        for secret in map(str.encode, KEYS.values()):
            assert secret not in data
            assert base64.b64encode(secret) not in data
        assert pickle.loads(data)[1] == root


def test_a_store_with_abort_is_refused_unless_asked_for(server: S3Server, tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(), Message()], Layout(abort=True))
    address = server.upload(laid.root, "unclean/store")
    for options in ({}, {"table": "verify"}, {"queues": "log", "cacheDir": str(tmp_path / "c")}):
        with pytest.raises(UncleanStoreError, match="allowUnclean=true"):
            planned.rows(address, **server.options, **options)
    assert len(planned.rows(address, **server.options, allowUnclean="true")) == 2


def test_streams_and_writes_are_refused_by_name() -> None:
    with pytest.raises(InvalidOptionError, match="this is read at rest"):
        parse_stream({"path": "s3://b/store"})
    with pytest.raises(InvalidOptionError, match="are only read"):
        parse_write({"path": "s3://b/store"})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["recover", "s3://b/store"], "STORE='s3://b/store': must be a directory of this machine"),
        (["copy", "/data/store", "s3://b/x"], "DEST='s3://b/x': must be a directory"),
        (["salvage", "/data/store", "s3://b/x"], "DEST='s3://b/x': must be a directory"),
        (["copy", "s3://b/store", "/nowhere/x"], "must be a directory of this machine"),
        (["doctor", "s3://b/store"], "mqlog verify"),
        (["topics", "s3://b/store", "-o", "fs.secret_key=hush"], "AWS_SECRET_ACCESS_KEY"),
        (["topics", "/data/store", "-o", "fs.region=x"], "is for stores in object stores"),
    ],
)
def test_a_command_refuses_in_one_line(
    line: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["mqlog", *line])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert told in said
    assert "hush" not in said


def test_a_command_takes_keys_and_endpoint_from_the_environment(
    server: S3Server,
    uploaded: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secret_key"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    said = []
    for place in (str(uploaded[0]), uploaded[1]):
        monkeypatch.setattr("sys.argv", ["mqlog", "queues", place, "--json"])
        with pytest.raises(SystemExit, match="0"):
            main()
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].count("\n") > 5
    monkeypatch.setattr("sys.argv", ["mqlog", "verify", uploaded[1]])
    with pytest.raises(SystemExit, match="0"):
        main()


def test_topics_in_rocksdb_are_shown_by_the_log_without_their_permissions(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(9)])
    rocksdb.move_queues(laid.root)
    rocksdb.move_config(laid.root)
    options = server.options | {"queues": "log"}
    (found,) = planned.rows(server.upload(laid.root, "rocks/store"), **options, table="topics")
    assert (found["topic"], found["messageCount"], found["perm"]) == ("T", 9, None)


def test_what_is_not_there_is_named(server: S3Server) -> None:
    server.put("other/readme", b"x")
    with pytest.raises(StoreNotFoundError, match="s3://stores/none: nothing is there"):
        planned.rows("s3://stores/none", **server.options)
    with pytest.raises(NotAStoreError, match="no folder commitlog in it"):
        planned.rows("s3://stores/other", **server.options)
    with pytest.raises(StoreUnavailableError, match="NO_SUCH_BUCKET"):
        planned.rows("s3://no-bucket/store", **server.options)


def test_a_bucket_with_more_objects_than_wanted_is_named_with_the_option(
    server: S3Server, tmp_path: Path
) -> None:
    laid = lay_out(tmp_path / "store", [Message(topic=f"T{n}", body=b"x") for n in range(5)])
    address = server.upload(laid.root, "five/store")
    count = sum(1 for _ in (laid.root / "consumequeue").rglob("*"))
    most = {**server.options, "maxObjects": str(count)}
    assert len(planned.rows(address, **most)) == 5
    with pytest.raises(NotAStoreError, match=rf"store/consumequeue: has {count} objects below it"):
        planned.rows(address, **most | {"maxObjects": str(count - 1)})
    with pytest.raises(NotAStoreError, match=r"s3://stores/five/store: has . objects below it"):
        planned.rows(address, **most | {"maxObjects": "1"})


def test_a_server_that_is_away_is_named_with_the_address() -> None:
    with socket.socket() as taken:  # Bound, and never listened on.
        taken.bind(("127.0.0.1", 0))
        options = {f"fs.{name}": text for name, text in KEYS.items()}
        options["fs.endpoint_override"] = f"http://127.0.0.1:{taken.getsockname()[1]}"
        options["fs.region"] = "us-east-1"
        with pytest.raises(StoreUnavailableError, match=r"s3://away/store: .*Could not connect"):
            planned.rows("s3://away/store", **options)


def test_a_region_that_cannot_be_found_is_no_wrong_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_address: str) -> None:
        raise OSError("When resolving region for bucket 'away': no connection")

    monkeypatch.setattr(connection.fs, "FileSystem", SimpleNamespace(from_uri=refuse))
    with pytest.raises(StoreUnavailableError, match="s3://away/region: When resolving region"):
        connection.connect(parse_object_store("s3://away/region", {}))


class Listing:
    """Stands for a file system that answers anything."""

    def __init__(self, infos: dict[str, list[fs.FileInfo]], data: bytes = b"") -> None:
        self._infos = infos
        self._data = data

    def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        return self._infos[selector.base_dir]

    def open_input_file(self, _path: str) -> pa.NativeFile:
        return pa.BufferReader(self._data)


def answering(monkeypatch: pytest.MonkeyPatch, listing: Listing) -> ObjectFiles:
    def connect(_: object) -> tuple[Any, str]:
        return listing, "b/s"

    monkeypatch.setattr(folder, "connect", connect)
    return ObjectFiles(parse_object_store("s3://b/s", {}))


def info(path: str, size: int = 1) -> fs.FileInfo:
    return fs.FileInfo(f"b/s/{path}", fs.FileType.File, size=size)


@pytest.mark.parametrize(
    "names",
    [["commitlog/../../x"], ["commitlog//x"], ["commitlog/."], ["commitlog/a", "commitlog/a/b"]],
)
def test_a_listing_with_names_that_lead_elsewhere_is_refused(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = [fs.FileInfo("b/s/commitlog", fs.FileType.Directory)]
    found = {"b/s": root, "b/s/commitlog": [info(name) for name in names]}
    files = answering(monkeypatch, Listing(found))
    for _ in range(2):
        with pytest.raises(UnsafePathError):
            files.folder("commitlog")


def test_a_log_file_that_was_cut_short_is_a_named_error(tmp_path: Path, server: S3Server) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"x" * 600) for _ in range(4)])
    first = min((laid.root / "commitlog").iterdir())
    first.write_bytes(first.read_bytes()[:700])
    address = server.upload(laid.root, "short/store")
    with pytest.raises(CorruptStoreError, match=f"{address}/commitlog/{first.name} at byte 700"):
        planned.rows(address, **server.options)


def test_an_object_that_lies_about_its_size_gives_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = [fs.FileInfo("b/s/commitlog", fs.FileType.Directory)]
    found = {"b/s": root, "b/s/commitlog": [info("commitlog/0", size=1 << 40)]}
    files = answering(monkeypatch, Listing(found, b"0123456789"))
    one = files.file("commitlog/0")
    assert one.size == 10
    assert one.read(100, 4) == b"456789"
    assert one.read(100, 40) == b""
    room = memoryview(bytearray(8))
    assert one.read_into(room, 6) == 4
    assert bytes(room) == b"6789\0\0\0\0"


def test_what_groups_popped_with_the_kv_service_is_not_known_in_an_object_store(
    server: S3Server, tmp_path: Path
) -> None:
    """RocksDB reads files of a disk; what else a store has is read."""
    laid = lay_out(tmp_path / "store", [Message()])
    with_entries = lay_out(tmp_path / "other", [Message()])
    rocksdb.write_database(with_entries.root / "kvStore", {"popState": {b"key": b"value"}})
    for name, root, expected in (
        ("none", laid.root, KvPops()),
        ("some", with_entries.root, None),
    ):
        server.upload(root, f"kv-{name}/store")
        found = parse_object_store(f"s3://stores/kv-{name}/store", server.options)
        assert kv_pops(StoreDir.at(open_objects(found))) == expected
