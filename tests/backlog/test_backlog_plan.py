"""Which groups and topics a backlog is of, and how its work is shared out."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backlog.counted import AS_OF_MS, measured, message
from mqstore.backlog import (
    BacklogItem,
    BacklogRequest,
    PackedItems,
    measure,
    plan_all,
    split,
)
from mqstore.errors import (
    InvalidOptionError,
    StoreNotFoundError,
    UnknownGroupError,
    UnknownTopicError,
)
from mqstore.read.directory import take
from mqstore.read.store_bounds import StoreOrigin
from support.opened import source_of
from support.stores import Layout, MakeStore


def _several(store: MakeStore) -> Path:
    groups = ("order-a", "order-b", "pay")
    config = {("T", group): {0: 0} for group in groups}
    return store([message()], Layout(group_offsets=config)).root


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (None, ["order-a", "order-b", "pay"]),
        ("pay", ["pay"]),
        (" pay , order-a,", ["order-a", "pay"]),
        ("/order-.*/", ["order-a", "order-b"]),
        ("/order/", []),
        ("/.*-b|pay/", ["order-b", "pay"]),
    ],
)
def test_groups_are_named_or_matched_whole(
    store: MakeStore, groups: str | None, found: list[str]
) -> None:
    assert [r["group"] for r in measured(_several(store), BacklogRequest(groups))] == found


def test_an_unknown_group_is_an_error_that_names_the_nearest(store: MakeStore) -> None:
    with pytest.raises(UnknownGroupError, match=r"groups: no group oder-a; .* order-a"):
        measured(_several(store), BacklogRequest("oder-a"))


def test_a_group_that_is_configured_but_never_committed_has_no_rows(store: MakeStore) -> None:
    root = _several(store)
    table = json.dumps({"subscriptionGroupTable": {"idle": {"groupName": "idle"}}})
    (root / "config/subscriptionGroup.json").write_text(table)
    assert measured(root, BacklogRequest("idle")) == []


def test_a_group_or_topic_needs_to_be_known_to_one_of_several_stores(store: MakeStore) -> None:
    laid = [
        store([message(topic=topic)], Layout(group_offsets={(topic, group): {0: 0}}))
        for topic, group in (("T", "g"), ("U", "h"))
    ]
    snapshots = [take(one.root, broker_name=f"broker-{n}") for n, one in enumerate(laid)]
    request = BacklogRequest("g,h", {"g": {"U": "A"}})
    items = plan_all([source_of(one) for one in snapshots], snapshots, request)
    assert [(i.broker_name, i.group, i.topic) for i in items] == [
        ("broker-0", "g", "T"),
        ("broker-1", "g", "U"),
        ("broker-1", "h", "U"),
    ]
    assert measure(items[::-1], request, AS_OF_MS)["brokerName"].to_pylist() == [
        "broker-1",
        "broker-1",
        "broker-0",
    ]


def test_a_subscription_to_an_unknown_topic_is_an_error(store: MakeStore) -> None:
    laid = store([message(topic="TopicTest")])
    with pytest.raises(UnknownTopicError, match=r"subscriptions: .* topic TopicTset; .* TopicTest"):
        measured(laid.root, BacklogRequest(subscriptions={"g": {"TopicTset": "A"}}))


@pytest.mark.parametrize("groups", [None, "oder-a"])
def test_a_subscription_of_an_unknown_group_that_names_no_topic_is_an_error(
    store: MakeStore, groups: str | None
) -> None:
    root = _several(store)
    subscriptions = {"oder-a": {"*": "A"}, "pay": {"*": "A"}}
    with pytest.raises(UnknownGroupError, match=r"subscriptions: no group oder-a; .* order-a"):
        measured(root, BacklogRequest(groups, subscriptions))
    table = json.dumps({"subscriptionGroupTable": {"oder-a": {"groupName": "oder-a"}}})
    (root / "config/subscriptionGroup.json").write_text(table)
    assert len(measured(root, BacklogRequest(groups, subscriptions))) == (0 if groups else 3)
    assert [r["group"] for r in measured(root, BacklogRequest("x", {"x": {"T": "A"}}))] == ["x"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lag_mode": "guess"}, "lagMode='guess'.* exact, hash, offset"),
        ({"groups": "/(/"}, r"groups='/\(/'.*no regular expression"),
        ({"groups": "/a{99999999999999}/"}, "no regular expression"),
        ({"groups": "/"}, "groups='/'.*between slashes"),
        ({"groups": " , "}, "groups=' , '.*comma list"),
        ({"subscriptions": {"g": {"T": "||"}}}, r"subscriptions='\|\|'.*at least one tag"),
    ],
)
def test_a_request_that_means_nothing_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        BacklogRequest(**fields)


def _items(counts: dict[int, int], groups: int) -> list[BacklogItem]:
    item = BacklogItem(StoreOrigin.at("/r"), "b", "g", "T", 0, 0, 0, 0)
    return [
        replace(item, group=f"g{group}", queue_id=queue_id, high=high)
        for group in range(groups)
        for queue_id, high in counts.items()
    ]


def test_work_is_shared_evenly_and_a_queue_is_never_torn() -> None:
    items = _items(dict.fromkeys(range(9), 1000000), groups=3)
    shares = split(items, 4)
    assert sorted(len(share) for share in shares) == [6, 6, 6, 9]
    assert sorted(map(repr, items)) == sorted(repr(item) for share in shares for item in share)
    of_queue = [{item.queue_id for item in share} for share in shares]
    assert sum(len(queues) for queues in of_queue) == len(set().union(*of_queue))


def test_small_queues_are_packed_into_one_share() -> None:
    assert len(split(_items(dict.fromkeys(range(100), 50), groups=2), 8)) == 1
    assert split([], 8) == []


def test_items_and_requests_travel_to_tasks() -> None:
    request = BacklogRequest("g", {"g": {"T": "A"}}, "hash", by_tag=True)
    items = _items({0: 1}, groups=1)
    assert pickle.loads(pickle.dumps((items, request))) == (items, request)


_OFFSETS = st.integers(-(2**63), 2**63 - 1)
_WORDS = st.sampled_from(["a", "b", "标签"])


@given(
    items=st.lists(
        st.builds(
            BacklogItem,
            st.builds(StoreOrigin, _WORDS, st.tuples(_WORDS)),
            *(_WORDS, _WORDS, _WORDS, st.integers(0, 65_535)),
            *(_OFFSETS, _OFFSETS, st.none() | _OFFSETS, st.none() | _WORDS),
            *(st.booleans(), st.none() | _WORDS),
        )
    )
)
def test_items_are_the_same_after_they_were_packed(items: list[BacklogItem]) -> None:
    assert pickle.loads(pickle.dumps(PackedItems.of(items))).items() == items


def test_a_thousand_groups_of_a_queue_travel_in_thirty_bytes_each() -> None:
    items = _items(dict.fromkeys(range(4), 1000), groups=1000)
    assert len(pickle.dumps(PackedItems.of(items))) < 30 * len(items)


def test_a_store_that_a_task_cannot_see_is_a_named_error(tmp_path: Path) -> None:
    item = replace(_items({0: 1}, groups=1)[0], origin=StoreOrigin.at(tmp_path / "none"))
    with pytest.raises(StoreNotFoundError, match="no such directory"):
        measure([item], BacklogRequest(), AS_OF_MS)
