"""Every view takes several stores, and globs of them."""

import shutil
from pathlib import Path

import pytest

from jobs.command import Run
from support import goldens


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two brokers' stores, equal but for the names broker-a and broker-b."""
    folder = tmp_path_factory.mktemp("brokers")
    goldens.unpack("5.5.0", folder / "a")
    topics = goldens.unpack("5.5.0", folder / "b") / "config" / "topics.json"
    topics.write_text(topics.read_text().replace("broker-a", "broker-b"))
    return folder


def stores(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("*/*/store")))


@pytest.mark.parametrize("view", [("topics",), ("queues",), ("tags",), ("backlog",)])
def test_a_view_of_several_stores_has_the_rows_of_each(
    run: Run, brokers: Path, view: tuple[str, ...]
) -> None:
    def rows(*places: str) -> list[str]:
        return sorted(
            str({name: value for name, value in row.items() if name not in {"asOf", "lagMs"}})
            for row in run(*view, *places, "--json").rows
        )

    apart = [row for one in stores(brokers) for row in rows(one)]
    assert rows(*stores(brokers)) == rows(f"{brokers}/*/*/store") == sorted(apart)
    assert "BROKER NAME" in run(*view, *stores(brokers)).out or view == ("tags",)


def test_messages_of_several_stores_come_by_their_times(run: Run, brokers: Path) -> None:
    rows = run("cat", *stores(brokers), "GTopic", "-n", "0", "--json").rows
    times = [str(row["storeTimestamp"]) for row in rows]

    assert times == sorted(times)
    assert {row["brokerName"] for row in rows} == {"broker-a", "broker-b"}
    found = run("find", f"{brokers}/*/*/store", "--key", "late78", "--json").rows
    assert {row["brokerName"] for row in found} == {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topics", "{0}", "{0}"), "its messages would come twice"),
        (("topics", "{0}/*/nowhere"), "the glob matches no directory"),
        (("topics", "{0}", "{1}", "--commit-log", "x"), "--commit-log"),
    ],
)
def test_what_cannot_be_shown_together_is_one_line(
    run: Run, brokers: Path, words: tuple[str, ...], told: str
) -> None:
    done = run(*(word.format(*stores(brokers)) for word in words))

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert told in done.err


def test_two_stores_of_one_broker_are_told_apart_by_nothing(
    run: Run, golden_550: Path, golden_497: Path
) -> None:
    done = run("topics", golden_550, golden_497)

    assert done.code == 2
    assert "two stores have this name" in done.err
    assert done.err.endswith("show them one by one\n")


def test_several_stores_are_verified_and_one_that_is_broken_counts(
    run: Run, brokers: Path, tmp_path: Path
) -> None:
    assert run("verify", *stores(brokers)).out.count("whole, every rule holds") == 2
    broken = goldens.unpack("4.9.7", tmp_path)
    shutil.rmtree(broken / "consumequeue" / "HTopic")
    done = run("verify", stores(brokers)[0], broken, "--json")
    assert done.code == 1
    assert {row["store"] for row in done.rows} == {str(broken)}
    shown = run("verify", stores(brokers)[0], broken)
    assert (shown.code, f"{broken}\n" in shown.out) == (1, True)
    told = run("verify", "rocketmq://127.0.0.1:1")
    assert (told.code, "cannot be seen from here" in told.err) == (2, True)


def test_a_copy_and_a_diagnosis_are_json_too(run: Run, golden_550: Path, tmp_path: Path) -> None:
    (copied,) = run("copy", golden_550, tmp_path / "copy", "--json").rows
    assert (copied["brokerName"], copied["messageCount"], copied["queues"]) == (
        "broker-a",
        1365,
        27,
    )
    subjects = [row["subject"] for row in run("doctor", golden_550, "--json").rows]
    assert {"Python", "Kernels", "Store"} <= set(subjects)
