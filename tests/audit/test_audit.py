"""Audits: every message that differs is named, with what differs, and no other."""

import random
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.audit import differences as differing
from mqstore.audit import identities
from mqstore.audit.differences import differences
from mqstore.audit.digests import AuditDigests, digests_of
from mqstore.audit.found import Difference
from mqstore.audit.rows import AuditRule, default_left_out, digested
from mqstore.audit.sides import audit_sides
from mqstore.codec.fused.digester import Digester, RowDigests
from mqstore.errors import CorruptStoreError
from mqstore.native.registry import COMPILED, NUMPY
from mqstore.read.directory import open_origin
from mqstore.read.source import QueueSlice, slices_of
from support import kernels, soak, strategies
from support.oracle import Message, join_properties
from support.stores import Layout, lay_out

LAYOUT = Layout(commit_log_bytes=8192, queue_units=16)
LARGE = Layout(commit_log_bytes=1 << 20, queue_units=4096)
BY_OFFSET = AuditRule("offset", default_left_out("offset"))
BY_ID = AuditRule("id", default_left_out("id"))
CHANGES = soak.size("audited_changes", check=40, test=400, whole=100_000)


def message(number: int, **more: str) -> Message:
    named = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number}", "TAGS": "a", "mine": "x", **more}
    return Message(
        topic="AB"[number % 2],
        queue_id=number % 3,
        body=b"body %d " % number * (number % 7),
        properties=join_properties(named),
        store_timestamp_ms=1_700_000_000_000 + 1000 * number,
    )


def audited(first: Path, second: Path, rule: AuditRule) -> list[Difference]:
    with (
        closing(open_origin(first).bounds()) as here,
        closing(open_origin(second).bounds()) as there,
    ):
        sides = audit_sides([(here, here.snapshot())], [(there, there.snapshot())])
        digests = sides[0].digests(rule), sides[1].digests(rule)
        found = list(differences(sides, digests, rule))
        # What the digests say is what the messages say.
        assert bool(digests[0].unequal(digests[1])) == bool(found)
        return found


def compared(
    folder: Path,
    first: Sequence[Message],
    second: Sequence[Message],
    rule: AuditRule,
    layout: Layout = LAYOUT,
) -> list[Difference]:
    roots = [
        lay_out(folder / name / "store", sent, layout).root
        for name, sent in (("a", first), ("b", second))
    ]
    return audited(roots[0], roots[1], rule)


ALTERATIONS = {
    "body": lambda m: replace(m, body=m.body + b"!"),
    "flag": lambda m: replace(m, flag=m.flag + 1),
    "TAGS": lambda m: with_property(m, TAGS="b"),
    "KEYS": lambda m: with_property(m, KEYS="other"),
    "mine": lambda m: with_property(m, mine="y"),
    "more": lambda m: with_property(m, more="1"),
}


def with_property(one: Message, **more: str) -> Message:
    return replace(one, properties=join_properties({**one.properties_map, **more}))


@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
@pytest.mark.parametrize("field", ALTERATIONS)
def test_an_altered_message_is_named_with_its_field(
    tmp_path: Path, field: str, rule: AuditRule
) -> None:
    sent = [message(n) for n in range(40)]
    changed = [ALTERATIONS[field](m) if n == 17 else m for n, m in enumerate(sent)]
    (found,) = compared(tmp_path, sent, changed, rule)

    assert (found.kind, found.fields) == ("altered", (field,))
    assert found.first is not None
    assert found.second is not None
    assert (found.first.topic, found.first.queue_id, found.first.queue_offset) == ("B", 2, 2)
    assert found.first.stored_ms == sent[17].store_timestamp_ms
    assert found.message_id == (f"{17:032X}" if rule.by == "id" else None)


@pytest.mark.parametrize("name", ["MSG_REGION", "CLUSTER", "TRACE_ON", "WAIT"])
def test_what_brokers_set_counts_by_offset_and_not_by_id(tmp_path: Path, name: str) -> None:
    sent = [message(n) for n in range(9)]
    changed = [with_property(m, **{name: "other"}) for m in sent]
    assert len(compared(tmp_path, sent, changed, BY_OFFSET)) == 9
    assert audited(tmp_path / "a" / "store", tmp_path / "b" / "store", BY_ID) == []
    ignoring = AuditRule("offset", frozenset({name}))
    assert audited(tmp_path / "a" / "store", tmp_path / "b" / "store", ignoring) == []


def test_two_messages_that_changed_places_are_altered_by_offset_and_the_same_by_id(
    tmp_path: Path,
) -> None:
    sent = [message(n) for n in range(30)]
    swapped = list(sent)
    swapped[4], swapped[10] = (
        replace(sent[10], store_timestamp_ms=sent[4].store_timestamp_ms),
        replace(sent[4], store_timestamp_ms=sent[10].store_timestamp_ms),
    )
    found = compared(tmp_path, sent, swapped, BY_OFFSET)
    assert [one.kind for one in found] == ["altered", "altered"]
    assert audited(tmp_path / "a" / "store", tmp_path / "b" / "store", BY_ID) == []


def test_properties_in_another_order_are_the_same(tmp_path: Path) -> None:
    sent = [message(n) for n in range(9)]
    turned = [
        replace(m, properties=join_properties(dict(reversed(m.properties_map.items()))))
        for m in sent
    ]
    assert compared(tmp_path, sent, turned, BY_OFFSET) == []


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "xy", "y"])), max_size=3),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "xy", "y"])), max_size=3),
)
def test_bytes_that_move_between_fields_are_a_difference(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[tuple[str, str]],
    second: list[tuple[str, str]],
) -> None:
    both = [{n: v for n, v in named if v} for named in (first, second)]
    sent = [replace(message(0), properties=join_properties(named)) for named in both]
    found = compared(tmp_path_factory.mktemp("fields"), [sent[0]], [sent[1]], BY_OFFSET)
    assert bool(found) == (both[0] != both[1])


def changed_at_random(
    sent: list[Message], count: int, rng: random.Random
) -> tuple[list[Message], dict[str, str]]:
    """Drop, double, alter and add messages; return what is left, and each change by its id."""
    expected: dict[str, str] = {}
    left: list[Message] = []
    chosen = set(rng.sample(range(len(sent)), count))
    for number, one in enumerate(sent):
        name = one.properties_map["UNIQ_KEY"]
        kind = rng.choice(["missing", "doubled", "altered", "extra"]) if number in chosen else ""
        if kind == "altered":
            left.append(rng.choice(list(ALTERATIONS.values()))(one))
        elif kind != "missing":
            left.append(one)
        if kind == "doubled":
            left.append(one)
        if kind == "extra":
            name = f"E{number:031X}"
            left.append(with_property(one, UNIQ_KEY=name))
        if kind:
            expected[name] = kind
    rng.shuffle(left)
    return left, expected


@pytest.mark.soak
def test_every_change_of_many_is_named_by_id_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In several passes.
    monkeypatch.setattr(identities, "_MOST_IN_MEMORY", max(1000, CHANGES // 5))
    rng = random.Random(soak.SEED)
    sent = [message(n) for n in range(CHANGES * 3)]
    changed, expected = changed_at_random(sent, CHANGES, rng)
    changed = [replace(one, queue_id=rng.randrange(4)) for one in changed]  # Moved, all of them.
    found = compared(tmp_path, sent, changed, BY_ID, LARGE)

    assert {str(one.message_id): one.kind for one in found} == expected
    assert len(found) == len(expected)


@pytest.mark.soak
def test_every_alteration_and_swap_of_many_is_named_by_offset_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differing, "_OFFSETS_AT_A_TIME", max(30, CHANGES // 3))
    rng = random.Random(soak.SEED)
    sent = [message(n) for n in range(CHANGES * 3)]
    changed = list(sent)
    expected: dict[int, set[str]] = {}
    for number in rng.sample(range(0, len(sent) - 6, 12), CHANGES // 4):
        field = rng.choice([*ALTERATIONS, "swapped"])
        if field == "swapped":  # With the next one of its queue.
            changed[number], changed[number + 6] = sent[number + 6], sent[number]
            expected |= {number: {"KEYS", "UNIQ_KEY"}, number + 6: {"KEYS", "UNIQ_KEY"}}
        else:
            changed[number] = ALTERATIONS[field](sent[number])
            expected[number] = {field}
    found = compared(tmp_path, sent, changed, BY_OFFSET, LARGE)

    assert len(found) == len(expected)
    for one in found:
        assert one.kind == "altered"
        assert one.first is not None
        topic = "AB".index(one.first.topic)
        number = 6 * one.first.queue_offset + (3 * topic + 4 * one.first.queue_id) % 6
        # Two bodies may be the same though the messages were swapped.
        more = {"body"} if "UNIQ_KEY" in expected[number] else set()
        assert expected[number] <= set(one.fields) <= expected[number] | more


def test_what_expired_in_one_place_is_missing_by_offset(tmp_path: Path) -> None:
    sent = [message(n) for n in range(200)]
    for name in "ab":
        lay_out(tmp_path / name / "store", sent, LAYOUT)
    (tmp_path / "b" / "store" / "commitlog" / f"{0:020d}").unlink()
    found = audited(tmp_path / "a" / "store", tmp_path / "b" / "store", BY_OFFSET)
    other = audited(tmp_path / "b" / "store", tmp_path / "a" / "store", BY_OFFSET)

    with closing(open_origin(tmp_path / "b" / "store").bounds()) as source:
        held = sum(queue.high - queue.low for queue in source.snapshot().queues)
    assert [one.kind for one in found] == ["missing"] * (200 - held)
    assert [one.kind for one in other] == ["extra"] * (200 - held)
    assert [replace(one.first, broker="b") for one in found if one.first] == [
        one.second for one in other
    ]


def test_queues_whose_offsets_lie_far_apart_are_compared_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [message(n) for n in range(12)]
    here = lay_out(tmp_path / "a" / "store", sent, LAYOUT).root
    firsts = {(topic, queue): 2**55 for topic in "AB" for queue in range(3)}
    far = replace(LAYOUT, first_queue_offsets=firsts)
    there = lay_out(tmp_path / "b" / "store", sent, far).root
    read: list[tuple[int, int]] = []
    real = differing._rows

    def noted(piece: QueueSlice | None, rule: AuditRule, bounds: tuple[int, int]) -> object:
        read.append(bounds)
        assert len(read) <= 24, "the offsets between the queues are looked at"
        return real(piece, rule, bounds)

    monkeypatch.setattr(differing, "_rows", noted)

    found = audited(here, there, BY_OFFSET)

    assert sorted(one.kind for one in found) == ["extra"] * 12 + ["missing"] * 12


@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
def test_digests_of_parts_add_up_to_those_of_the_whole(tmp_path: Path, rule: AuditRule) -> None:
    root = lay_out(tmp_path / "store", [message(n) for n in range(900)], LAYOUT).root
    with closing(open_origin(root).bounds()) as source:
        pieces = slices_of(source.snapshot())
    halves = [
        replace(piece, start=start, end=end)
        for piece in pieces
        for start, end in ((piece.start, piece.start + 7), (piece.start + 7, piece.end))
    ]
    merged = AuditDigests()
    for half in reversed(halves):
        merged.merge(digests_of([half], rule, "b"))
    whole = digests_of(pieces, rule, "b")

    assert merged == whole
    assert whole.count == 900
    assert len(whole.buckets) > (6 if rule.by == "offset" else 100)


def digests_by(kind: str, root: Path, rule: AuditRule) -> tuple[list[tuple[object, ...]], int]:
    """What ``digested`` makes with those kernels, by place, and how many rows a kernel made."""
    found = []
    with kernels.using(kind), closing(open_origin(root).bounds()) as source:
        for part in digested(slices_of(source.snapshot()), rule):
            row = part.row
            for n, at in enumerate(part.queue_offsets.tolist()):
                queue = part.queues[int(part.queue[n])]
                digests = *row.identities[n].tolist(), *row.digests[n].tolist()
                numbers = int(row.stored_ms[n]), int(row.body_bytes[n])
                found.append((*queue, at, *digests, *numbers))
    return sorted(found), len(found)


def compare_kinds(root: Path, monkeypatch: pytest.MonkeyPatch, left_out: frozenset[str]) -> int:
    """Assert that both kinds make the same digests; return how many rows the kernel made."""
    taken: list[int] = []
    whole = Digester.digests

    def counted(self: Digester, *given: Any) -> RowDigests | None:
        made = whole(self, *given)
        taken.append(0 if made is None else len(made.digests))
        return made

    with monkeypatch.context() as patched:
        patched.setattr(Digester, "digests", counted)
        for by in ("offset", "id"):
            rule = AuditRule(by, left_out)
            assert digests_by(COMPILED, root, rule) == digests_by(NUMPY, root, rule)
    return sum(taken)


@kernels.needs_compiled()
@given(sent=strategies.batches(), left_out=st.frozensets(st.sampled_from(["TAGS", "KEYS", "a"])))
def test_numpy_makes_the_same_digests_as_the_kernel_of_any_message(
    tmp_path_factory: pytest.TempPathFactory, sent: list[Message], left_out: frozenset[str]
) -> None:
    root = lay_out(tmp_path_factory.mktemp("any") / "store", sent, replace(LAYOUT, start=0)).root
    with pytest.MonkeyPatch.context() as patch:
        compare_kinds(root, patch, left_out)


def named(**properties: str) -> Message:
    return replace(message(5), properties=join_properties(properties))


def sized(number: int, size: int, value: int) -> Message:
    """A message of one queue with so many bytes of body, and of a property."""
    made = message(6, mine="v" * value)
    return replace(made, body=bytes((number * 7 + i) % 251 for i in range(size)))


@kernels.needs_compiled()
@pytest.mark.parametrize("names", [1, 5, 9])
def test_messages_that_are_hashed_side_by_side_have_the_digests_of_each_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: int
) -> None:
    """Of all sizes alike and of mixed ones; every ``names`` messages have another property."""
    sizes = [size for size in (0, 1, 3, 4, 7, 8, 31, 32, 33, 70, 1024) for _ in range(8)]
    sizes += [(number * 37) % 150 for number in range(41)]
    sent = [sized(n, size, size % 41 + 1) for n, size in enumerate(sizes)]
    sent = [with_property(m, **{f"n{n // names % 2}": "x"}) for n, m in enumerate(sent)]
    root = lay_out(tmp_path / "store", sent, LARGE).root
    assert compare_kinds(root, monkeypatch, frozenset()) == 2 * len(sent)


RARE = {
    "names that come twice": replace(message(1), properties=b"a\x01x\x02a\x01y\x02b\x01z"),
    "letters": named(TAGS="\u00e9\u4e2d\U0001f600", KEYS="\u07ff\uffff\u0800"),
    "no id": named(TAGS="x"),
    "no property": replace(message(2), properties=b""),
    "an empty body": replace(message(3), body=b""),
    "a large body": replace(message(4), body=bytes(range(256)) * 20),
}
LEFT = {
    "no UTF-8": replace(message(1), properties=b"a\x01\xff\xfe\x02"),
    "a surrogate": replace(message(1), properties=b"a\x01\xed\xa0\x80\x02"),
    "an overlong letter": replace(message(1), properties=b"a\x01\xe0\x80\xaf\x02"),
    "cut": replace(message(1), properties=b"a\x01\xe4\xb8\x02"),
    "many properties": named(**{f"n{n}": "x" for n in range(200)}),
    "a compressed body": replace(message(1), body=zlib.compress(b"b" * 99), sys_flag=0x301),
}


@kernels.needs_compiled()
@pytest.mark.parametrize("name", [*RARE, *LEFT])
def test_what_is_rare_has_the_same_digest_by_the_kernel_or_is_left_to_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sent = [message(n) for n in range(3)] + [{**RARE, **LEFT}[name]]
    root = lay_out(tmp_path / "store", sent, replace(LAYOUT, commit_log_bytes=1 << 16)).root
    made = compare_kinds(root, monkeypatch, frozenset({"KEYS"}))
    assert made == (8 if name in RARE else 0) or (name in LEFT and made < 8)


@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
def test_a_record_that_is_damaged_is_an_error_and_no_difference(
    tmp_path: Path, rule: AuditRule
) -> None:
    root = lay_out(tmp_path / "store", [message(n) for n in range(20)], LAYOUT).root
    path = root / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    at = data.index(b"body 13 ")
    path.write_bytes(data[:at] + b"B" + data[at + 1 :])
    with (
        closing(open_origin(root).bounds()) as source,
        pytest.raises(CorruptStoreError, match="the checksum does not hold"),
    ):
        digests_of(slices_of(source.snapshot()), rule, "b")
