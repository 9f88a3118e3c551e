"""A broker.conf is what the classes of brokers make of it: Properties and MixAll."""

from pathlib import Path

import pytest

from broker.harness import Cluster
from files.test_java_properties import NUMBERS, TABLE
from mqstore.files.config.java_properties import parse_properties
from mqstore.read.retention import HOUR_MS, policy_of_file

pytestmark = pytest.mark.broker

SETTINGS = {
    "deleteWhen=04;16": {4, 16},
    "deleteWhen=5": {5},
}
FORCES = {"true": True, "TRUE": True, "true ": False, "yes": False, "": False}


def test_settings_are_what_a_broker_loads(cluster: Cluster, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    for data, values in TABLE.items():
        conf.write_bytes(data)
        assert cluster.ask("loaded", conf)["properties"] == values == parse_properties(data)
    for text in NUMBERS:
        escaped = text.encode("ascii", "backslashreplace").decode()
        conf.write_text(f"fileReservedTime={escaped}\ndiskMaxUsedSpaceRatio={escaped}\n")
        told, ours = cluster.ask("loaded", conf), policy_of_file("brokerConf", str(conf))
        assert ours.kept_ms == max(0, told["fileReservedTime"]) * HOUR_MS, text
        assert ours.reclaimed_above == told["diskMaxUsedSpaceRatio"] / 100, text
    for text, hours in SETTINGS.items():
        conf.write_text(text)
        told = cluster.ask("loaded", conf)
        assert {int(hour) for hour in told["deleteWhen"].split(";")} == hours
        assert policy_of_file("brokerConf", str(conf)).hours == hours
    for text, is_forced in FORCES.items():
        conf.write_text(f"cleanFileForciblyEnable={text}")
        assert cluster.ask("loaded", conf)["cleanFileForciblyEnable"] == is_forced
        assert (policy_of_file("brokerConf", str(conf)).forced_above is not None) == is_forced
