"""Groups, subscriptions and brokers of stores: what their files tell."""

from pathlib import Path
from typing import Any

from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read
from support.expectations import rows
from support.oracle import Message
from support.stores import Layout, lay_out, write_json


def table(root: Path, name: str) -> list[dict[str, Any]]:
    parsed = parse_read({"path": f"{root}#{name}"})
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows(batch)]


def test_what_a_store_tells_of_groups_and_of_its_broker(tmp_path: Path) -> None:
    offsets_by = {("T", "g"): {0: 1}, ("U", "g"): {0: 0}, ("T", "gone"): {0: 1}}
    laid = lay_out(tmp_path / "broker-a" / "store", [Message()], Layout(group_offsets=offsets_by))
    config = laid.root / "config"
    write_json(config / "subscriptionGroup.json", {"subscriptionGroupTable": {"g": {}, "h": {}}})
    entry = {"expression": "a > 5", "expressionType": "SQL92"}
    filters = {"filterDataByTopic": {"T": {"groupFilterData": {"g": entry}}}}
    write_json(config / "consumerFilter.json", filters)
    assert [tuple(row.values()) for row in table(laid.root, "groups")] == [
        ("broker-a", "g", True, 2, None, None, False),
        ("broker-a", "gone", False, 1, None, None, False),
        ("broker-a", "h", True, 0, None, None, False),
    ]
    assert [tuple(row.values()) for row in table(laid.root, "subscriptions")] == [
        ("broker-a", "g", "T", "a > 5", "SQL92", False)
    ]
    (broker,) = table(laid.root, "brokers")
    assert (broker["place"], broker["version"], broker["groups"]) == (str(laid.root), None, 2)
    assert broker["minPhysicalOffset"] < broker["maxPhysicalOffset"]
