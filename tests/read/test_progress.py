"""Offsets of a stream as JSON: Kafka's shape, one text for one progress, any other refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import InvalidOptionError, StoreReplacedError
from mqstore.read.progress import BrokerQueue, from_json, packed, to_json, unpacked

topics = st.sampled_from(["T", "a-b", "%RETRY%G", "Z|1"])
places = st.integers(0, 2**63 - 1)


def queues(*brokers: str) -> st.SearchStrategy[dict[BrokerQueue, int]]:
    key = st.tuples(topics, st.sampled_from(brokers), st.integers(0, 65535))
    return st.dictionaries(key, places, max_size=12)


@given(queues("b"), queues("b", "c"))
def test_progress_goes_through_json_and_back(
    one: dict[BrokerQueue, int], several: dict[BrokerQueue, int]
) -> None:
    text = json.dumps(to_json(one, by_broker=False))
    assert from_json(json.loads(text), ["b"]) == one
    text = json.dumps(to_json(several, by_broker=True))
    assert from_json(json.loads(text), ["b", "c"]) == several


@given(queues("b", "c"), st.randoms())
def test_the_same_progress_is_the_same_text(
    progress: dict[BrokerQueue, int], random: object
) -> None:
    shuffled = list(progress.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    texts = [json.dumps(to_json(p, by_broker=True)) for p in (progress, dict(shuffled))]
    assert texts[0] == texts[1]


def test_the_shape_is_kafkas() -> None:
    progress = {("T", "b", 10): 3, ("T", "b", 9): 2, ("A", "b", 0): 1}
    assert (
        json.dumps(to_json(progress, by_broker=False)) == '{"A": {"0": 1}, "T": {"9": 2, "10": 3}}'
    )
    assert to_json({("T", "b", 0): 1}, by_broker=True) == {"T": {"b": {"0": 1}}}


def test_offsets_of_other_brokers_are_of_another_store() -> None:
    with pytest.raises(StoreReplacedError, match="broker x, the query reads b"):
        from_json({"T": {"x": {"0": 1}}}, ["b"])
    with pytest.raises(StoreReplacedError, match="offsets of one store, the query reads 2: b, c"):
        from_json({"T": {"0": 1}}, ["b", "c"])
    assert from_json({"T": {"b": {"0": 1}}}, ["b"]) == {("T", "b", 0): 1}


@pytest.mark.parametrize(
    "document",
    [7, {"T": 7}, {"T": {"x": 1}}, {"T": {"0": "1"}}, {"T": {"0": -1}}, {"T": {"0": True}}],
)
def test_what_is_no_progress_is_refused(document: object) -> None:
    with pytest.raises(InvalidOptionError, match="checkpointLocation"):
        from_json(document, ["b"])


@given(queues("b", "c"), st.booleans())
def test_packed_offsets_are_those_that_were_packed(
    progress: dict[BrokerQueue, int], by_broker: bool
) -> None:
    one = {key: at for key, at in progress.items() if by_broker or key[1] == "b"}
    document = to_json(one, by_broker=by_broker)

    assert unpacked(json.loads(json.dumps(packed(document)))) == document
    assert unpacked(document) is document


def test_packed_offsets_of_160000_queues_are_a_fifth_of_their_json() -> None:
    progress = {
        (f"SHOP_{n // 8:05}", "broker-a", n % 8): n * 7_919 % 1_000_000 for n in range(160_000)
    }
    document = to_json(progress, by_broker=True)

    assert len(json.dumps(packed(document))) * 4 < len(json.dumps(document))


@pytest.mark.parametrize("text", ["%", 5, None, "", "eJw=", "eJwDAAAAAAE=", [], "x" * 1_000])
def test_packed_offsets_that_are_none_are_refused(text: object) -> None:
    document = {"/packed": text}
    if text is None:
        document = packed({"T": {"0": 23}})
        document["/packed"] = document["/packed"][:-8]
    with pytest.raises(InvalidOptionError, match="are not of mqlog"):
        unpacked(document)
