"""The doctor on a cluster: a line for each step, what to do for what failed, and an exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.command import Done, Run
from jobs.conftest import run
from live.loopback import FakeCluster, json_answer, listening
from live.test_cluster import dead_address
from live.test_tls import CA, STRANGER, serving
from mqlog_jobs.machine import installation
from mqlog_jobs.machine.java import JavaNotFoundError

__all__ = ["run"]


@pytest.fixture
def look(run: Run, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Examine the fake cluster, or another address; return the lines by subject, and the code."""
    monkeypatch.delenv("MQLOG_ACCESS_KEY", raising=False)
    # Of this machine, which takes seconds.
    monkeypatch.setattr(installation, "examine", lambda **_: iter(()))

    def looked(*arguments: str, address: str | None = None) -> tuple[list[dict[str, str]], int]:
        place = address or f"rocketmq://{fake.address}"
        done: Done = run("doctor", place, "--json", "-o", "connectTimeout=500ms", *arguments)
        rows = [{name: str(value) for name, value in row.items()} for row in done.rows]
        assert rows[0]["subject"] == "Name server"
        assert rows[-1]["subject"] == "Kernels"
        return rows[:-1], done.code

    return looked


def lines(found: list[dict[str, str]], subject: str) -> list[tuple[str, str, str]]:
    return [(r["severity"], r["found"], r["advice"]) for r in found if r["subject"] == subject]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_name_server_that_lacks_a_broker_of_another_one_is_named(
    look: Any, well: FakeCluster, *, is_whole: bool
) -> None:
    """As one that was started a moment ago, and one that the broker's namesrvAddr lacks."""
    well.fill("T", 3, broker="broker-b")
    with FakeCluster().running() as other:
        other.addresses = {"broker-a": {0: well.address}}
        if is_whole:
            other.addresses["broker-b"] = {0: well.address}
        found, code = look(address=f"rocketmq://{well.address},{other.address}")
        ((severity, what, advice),) = lines(found, "Registrations")
        assert code == 0
    if is_whole:
        assert (severity, what) == ("OK", "each name server has the same 2")
        return
    assert (severity, what) == ("warning", f"{other.address} lacks broker-b")
    assert "misses the broker's messages" in advice
    assert len(lines(found, "Broker broker-b")) == 1


def no_java() -> None:
    raise JavaNotFoundError


def severities(done: Done, severity: str) -> set[object]:
    """The subjects of that severity."""
    return {row["subject"] for row in done.rows if row["severity"] == severity}


@pytest.fixture
def well(fake: FakeCluster) -> FakeCluster:
    """Two topics, a group, and settings of a fast broker."""
    fake.fill("T", 30)
    fake.fill("U", 0)
    fake.committed["T", "g", 0] = 5
    fake.settings |= {"maxTransferCountOnMessageInMemory": "1000"}
    fake.settings |= {"maxTransferCountOnMessageInDisk": "256"}
    return fake


def test_a_cluster_that_is_well(well: FakeCluster, look: Any) -> None:
    found, code = look()
    assert ({row["severity"] for row in found}, code) == ({"OK"}, 0)
    assert [row["subject"] for row in found] == [
        *("Name server", "TLS", "Broker broker-a", "Credentials", "Routes"),
        *["Request"] * 8,
        "Settings broker-a",
    ]
    assert lines(found, "Broker broker-a") == [("OK", f"{well.address}, RocketMQ 5.5.0", "")]
    assert lines(found, "Routes") == [("OK", "2 of 2 users' topics can be read, 2 queues", "")]
    changing = {15, 200, 10, 310, 320, 34, 17, 25}
    assert not changing & {request["code"] for request in well.requests}
    assert [pull for pull in well.pulls() if pull[1] != 1] == []


def test_what_only_spark_lacks_does_not_make_a_cluster_ill(
    well: FakeCluster, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up of a Python without the source, and a machine without Java."""
    monkeypatch.setattr(installation.java, "find", no_java)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(tmp_path / "no-python"))
    place = f"rocketmq://{well.address}"
    alone, asked = run("doctor", place, "--json"), run("doctor", place, "--spark", "--json")
    of_spark = {"Java", "PYSPARK_DRIVER_PYTHON"}

    assert (alone.code, asked.code) == (0, 1)
    assert severities(alone, "note") == of_spark == severities(asked, "error")
    assert severities(alone, "error") == set()
    assert run("doctor").code == 1


def test_dead_name_servers(well: FakeCluster, look: Any) -> None:
    dead = dead_address()
    found, code = look(address=f"rocketmq://{dead}")
    ((severity, what, advice),) = lines(found, "Name server")
    assert (severity, len(found), code) == ("error", 1, 1)
    assert dead in what
    assert "start it, or correct the host and the port" in advice
    found, _ = look(address=f"rocketmq://{dead},{well.address}")
    first, second = lines(found, "Name server")
    assert (first[0], second[0]) == ("warning", "OK")
    assert "the others are asked" in first[2]
    assert lines(found, "Routes")


def test_tls(look: Any) -> None:
    with listening(serving("server")) as address:
        secure = f"rocketmqs://{address}"
        found, code = look("-o", f"tlsCaFile={CA}", address=secure)
        ((severity, what, _),) = lines(found, "TLS")
        assert (severity, what.split(";")[0]) == ("OK", "TLSv1.3")
        ((severity, what, advice),) = lines(found, "Brokers")
        assert (severity, what, code) == ("error", "none is registered", 1)
        assert "namesrvAddr" in advice
        found, code = look("-o", f"tlsCaFile={STRANGER}", address=secure)
        assert "not trusted" in lines(found, "Name server")[0][1]
        assert code == 1
        found, code = look(address=f"rocketmq://{address}")
        assert "tls=true" in lines(found, "Name server")[0][1]
        assert code == 1


def test_a_broker_that_cannot_be_reached_where_it_registered(well: FakeCluster, look: Any) -> None:
    well.addresses["broker-a"] = {0: dead_address()}
    found, code = look()
    ((severity, what, _),) = lines(found, "Broker broker-a")
    assert (severity, code) == ("error", 1)
    assert 'set brokerAddresses={"broker-a":"host:port"}' in what
    assert not lines(found, "Request")
    override = json.dumps({"broker-a": well.address})
    found, _ = look("-o", f"brokerAddresses={override}")
    assert lines(found, "Broker broker-a")[0][0] == "OK"
    well.addresses["broker-a"] = {1: well.address}
    found, code = look()
    assert "MQLOG_NO_MASTER" in lines(found, "Broker broker-a")[0][1]
    assert code == 1


def test_a_broker_that_cannot_tell_its_version_yet(well: FakeCluster, look: Any) -> None:
    well.refusals[28] = (1, "java.util.NoSuchElementException")
    found, code = look()
    ((severity, _, advice),) = lines(found, "Broker broker-a")
    assert (severity, code) == ("warning", 0)
    assert "first seconds" in advice
    assert lines(found, "Settings broker-a")


def test_a_topic_that_a_broker_lacks_though_name_servers_show_it(
    well: FakeCluster, look: Any
) -> None:
    well.lacking.add(("broker-a", "U"))
    found, code = look()
    ((severity, what, advice),) = lines(found, "Routes")
    assert (severity, code) == ("warning", 0)
    assert what == "1 of 2 users' topics can be read, 1 queues"
    assert "show topic U on broker-a, which does not have it" in advice


def test_credentials(well: FakeCluster, look: Any, tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: reader-1\nsecretKey: hush-hush\n")
    keys = ("-o", f"credentialsFile={file}")
    assert "not looked at" in lines(look(*keys)[0], "Credentials")[0][1]
    well.settings["aclEnable"] = "true"
    assert lines(look(*keys)[0], "Credentials") == [("OK", "accepted by broker-a", "")]
    assert lines(look()[0], "Credentials")[0][:2] == ("warning", "none given; broker-a uses ACL")
    well.refusals[26] = (1, "AclException: Check signature failed")
    found, code = look(*keys)
    ((severity, what, _),) = lines(found, "Credentials")
    assert (severity, code) == ("error", 1)
    assert "signature failed" in what
    assert "hush" not in json.dumps(found)


def test_rights_that_are_lacking(well: FakeCluster, look: Any) -> None:
    def no_pull_of_t(request: dict[str, Any]) -> bytes | None:
        if request["code"] == 11 and request["extFields"]["topic"] == "T":
            return json_answer(request["opaque"], 16, remark="Topic:T has no permission Sub")
        return None

    well.fault = no_pull_of_t
    well.refusals[203] = (16, "Group:g has no permission Get")
    found, code = look()
    told = {(what.split()[0], severity): what for severity, what, _ in lines(found, "Request")}
    assert "PULL_MESSAGE (messages) is refused for T" in told["PULL_MESSAGE", "warning"]
    assert told["GET_CONSUMER_CONNECTION_LIST", "error"].endswith("is refused for g")
    assert code == 1


def test_topics_and_settings_that_stand_in_the_way(well: FakeCluster, look: Any) -> None:
    well.attributes["U"] = {"queue.type": "BatchCQ"}
    well.settings["maxTransferCountOnMessageInMemory"] = "32"
    found, code = look()
    ((severity, what, why),) = lines(found, "Routes")
    assert (severity, what) == ("warning", "1 of 2 users' topics can be read, 1 queues")
    assert "topic U" in why
    ((severity, _, advice),) = lines(found, "Settings broker-a")
    assert severity == "warning"
    assert advice.endswith("set maxTransferCountOnMessageInMemory=1000")
    assert code == 0


def test_no_group_is_made(well: FakeCluster, look: Any) -> None:
    found, _ = look("-o", "consumerGroup=reader")
    (pulls,) = (what for _, what, _ in lines(found, "Request") if what.startswith("PULL"))
    assert pulls == "PULL_MESSAGE (messages) failed for T, U"
    assert well.pulls() == []
    well.groups["reader"] = 0
    found, _ = look("-o", "consumerGroup=reader")
    assert {severity for severity, _, _ in lines(found, "Request")} == {"OK"}
