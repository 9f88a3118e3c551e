"""The doctor on real brokers of both versions, with and without ACL."""

import pytest

from broker.harness import BROKER_NAME
from live.real import Live
from live.secure import READER, STRANGER, TRUSTED, Guarded
from mqstore.check.cluster import examine_cluster
from mqstore.diagnosis import ERROR, GOOD, WARNING, Diagnosis
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.settings import ClusterSettings, Limits

pytestmark = pytest.mark.broker

SLOW = Limits(connect_timeout_ms=30_000, request_timeout_ms=60_000)  # No verdict by load.


def told(settings: ClusterSettings) -> dict[str, Diagnosis]:
    """The doctor's lines by subject; a request's by its name."""
    return {
        one.found.split()[0] if one.subject == "Request" else one.subject: one
        for one in examine_cluster(settings)
    }


def test_the_doctor_finds_a_broker_well_and_changes_nothing(live: Live) -> None:
    before = live.state()
    found = told(ClusterSettings(name_servers=live.name_servers, limits=SLOW))
    assert live.state() == before
    assert found["Name server"].severity in {GOOD, WARNING}  # One of the two is dead.
    assert found[f"Broker {BROKER_NAME}"].found.endswith(f"RocketMQ {live.broker.version}")
    odd = {subject for subject, one in found.items() if one.severity != GOOD}
    assert odd <= {"Name server", f"Settings {BROKER_NAME}"}
    assert "maxTransferCountOnMessageInMemory=1000" in found[f"Settings {BROKER_NAME}"].advice
    assert len(found) > 10


def test_the_doctor_tells_who_may_ask_for_what(guard: Guarded) -> None:
    def of(who: Credentials | None) -> dict[str, Diagnosis]:
        names = (guard.name_server,)
        return told(ClusterSettings(name_servers=names, credentials=who, tls=TRUSTED, limits=SLOW))

    reader = of(READER)
    # A broker of 4.9 cannot tell its version in its first seconds.
    assert reader[f"Broker {BROKER_NAME}"].severity in {GOOD, WARNING}, reader
    assert (reader["TLS"].severity, reader["Credentials"].severity) == (GOOD, GOOD)
    assert reader["Credentials"].found == f"accepted by {BROKER_NAME}"
    assert {reader[name].severity for name in ("PULL_MESSAGE", "GET_TOPIC_STATS_INFO")} <= {
        GOOD,
        WARNING,  # Other topics than its own.
    }
    stranger = of(STRANGER)
    assert stranger[f"Broker {BROKER_NAME}"].severity == ERROR
    assert "MQLOG_ACCESS_DENIED" in stranger[f"Broker {BROKER_NAME}"].found
