"""Paths that a person types, and the directories that they mean."""

from pathlib import Path

import pytest

from mqstore.errors import InvalidOptionError, StoreNotFoundError
from mqstore.options.store_paths import absolute, cluster_meant, expand, split_table
from pyspark_mqlog.options import parse_stream_write, parse_write


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/store", ("/data/store", None)),
        ("/data/store#backlog", ("/data/store", "backlog")),
        ("/data/a#b/store", ("/data/a#b/store", None)),
        ("/data/store#1", ("/data/store#1", None)),
    ],
)
def test_the_table_is_the_word_after_the_last_hash(
    path: str, expected: tuple[str, str | None]
) -> None:
    assert split_table(path) == expected


@pytest.mark.parametrize(
    "path", ["/a b/store", "file:/a%20b/store", "file:///a b/store", "file://localhost/a%20b/store"]
)
def test_a_file_uri_is_its_path(path: str) -> None:
    assert expand([path]) == ("/a b/store",)


@pytest.mark.parametrize(
    "path", ["/a b/x", "file:/a%20b/x", "file:///a b/x", "file://localhost/a%20b/x", "/a b/y/../x/"]
)
def test_the_directory_of_an_option_is_named_as_a_store_is(path: str) -> None:
    assert absolute("stagingDir", path) == "/a b/x"
    options = {"path": "/s", "stagingdir": path, "oninvalid": f"side: {path}"}
    found = parse_write(options)
    assert (found.staging_dir, found.side_path) == ("/a b/x", "/a b/x")
    assert parse_stream_write(options).staging_dir == "/a b/x"


def test_the_directory_of_an_option_may_be_relative_and_no_glob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("stagingDir", "bad/[0]*") == f"{tmp_path}/bad/[0]*"


@pytest.mark.parametrize("path", ["hdfs://n/x", "s3a://b/x", "file://h/x", "file:", " ", "", "\0"])
@pytest.mark.parametrize("option", ["stagingDir", "onInvalid"])
def test_what_names_no_local_directory_is_refused(option: str, path: str) -> None:
    text = f"side:{path}" if option == "onInvalid" else path
    with pytest.raises(InvalidOptionError, match=f"option {option}="):
        parse_write({"path": "/s", option.lower(): text})


@pytest.mark.parametrize("path", ["/a\0", "file:/a%00", "/\ud800"])
def test_a_name_that_no_file_system_takes_is_refused(path: str) -> None:
    with pytest.raises(InvalidOptionError, match="no directory can have such a name"):
        expand([path])
    with pytest.raises(InvalidOptionError, match=r"option stagingDir=.*no directory can have"):
        absolute("stagingDir", path)


@pytest.mark.parametrize("path", ["", " ", "file:"])
def test_no_path_is_not_the_working_directory(path: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"option path=.*must be the path of a directory"):
        expand([path])


@pytest.mark.parametrize("path", ["hdfs://n/store", "s3a://b/store", "dbfs:/store", "file://h/s"])
def test_any_other_uri_is_refused(path: str) -> None:
    with pytest.raises(InvalidOptionError, match="option path="):
        expand([path])


@pytest.mark.parametrize("path", ["localhost:9876", "10.0.0.1:9876/ORDERS", "ns1:9876,ns2:9876"])
def test_servers_without_a_scheme_are_told_the_address_of_a_cluster(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOptionError, match=f"a cluster is rocketmq://{path}$"):
        expand([path])


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("[::1]:9876", "rocketmq://[::1]:9876"),
        ("http://ns1:9876", "rocketmq://ns1:9876"),
        ("https://ns1:9876/ORDERS", "rocketmqs://ns1:9876/ORDERS"),
        ("tcp://10.0.0.1", "rocketmq://10.0.0.1"),
        ("/data/store", None),
        ("s3://bucket/store", None),
        ("file:/data", None),
    ],
)
def test_an_address_of_another_form_is_told_as_that_of_a_cluster(
    path: str, address: str | None
) -> None:
    assert cluster_meant(path) == address


@pytest.mark.parametrize("path", ["~/store", "file:~/store"])
def test_a_tilde_is_the_home_directory(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home-of-a")
    assert expand([path]) == ("/home-of-a/store",)
    assert absolute("stagingDir", path) == "/home-of-a/store"


def test_a_directory_named_like_a_server_is_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("10.0.0.1:9876").mkdir()
    assert expand(["10.0.0.1:9876"]) == (str(tmp_path / "10.0.0.1:9876"),)


def test_a_glob_is_its_directories_sorted(tmp_path: Path) -> None:
    for name in ("b/store", "a/store", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "c" / "store").write_bytes(b"no directory")
    assert expand([f"{tmp_path}/*/store"]) == (f"{tmp_path}/a/store", f"{tmp_path}/b/store")


def test_a_directory_named_like_a_glob_is_itself(tmp_path: Path) -> None:
    (tmp_path / "[a]").mkdir()
    (tmp_path / "a").mkdir()
    assert expand([f"{tmp_path}/[a]"]) == (f"{tmp_path}/[a]",)


@pytest.mark.parametrize("name", ["br[1]", "q?x", "a*"])
def test_a_new_store_below_a_directory_named_like_a_glob_is_itself(
    tmp_path: Path, name: str
) -> None:
    for folder in (name, "br1", "qzx", "ab"):
        (tmp_path / folder).mkdir()
    assert expand([f"{tmp_path}/{name}/store"]) == (f"{tmp_path}/{name}/store",)
    assert expand([f"{tmp_path}/{name}/new/store/"]) == (f"{tmp_path}/{name}/new/store",)
    for store in ("x", "y"):
        (tmp_path / name / store).mkdir()
    assert expand([f"{tmp_path}/{name}/[!z]"]) == tuple(f"{tmp_path}/{name}/{s}" for s in "xy")


def test_a_relative_glob_is_looked_for_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert expand(["*"]) == expand(["?/"]) == (f"{tmp_path}/b",)


def test_a_glob_without_a_match_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"MQLOG_STORE_NOT_FOUND.*matches no directory"):
        expand([f"{tmp_path}/*/store"])


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert expand(["store"]) == (f"{tmp_path}/store",)
