"""Both kinds of kernels in one process: what the compiled ones do, and what numpy does.

Where no compiler is there, neither is the compiled kind, and a test that compares has nothing to
compare: it is skipped, with that as its reason.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pytest

from mqstore.errors import StoreError
from mqstore.native import registry
from mqstore.read.fused import FusedDecode
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice

KINDS = (registry.COMPILED, registry.NUMPY)
Found = TypeVar("Found")
Outcome: TypeAlias = list[pa.RecordBatch] | tuple[str, str]


@cache
def why_not_compiled() -> str:
    """Why there is no compiled kernel; empty if there is one."""
    with using(""):
        used = registry.kernels_in_use()
    return "" if used.kind == registry.COMPILED else used.reason


def needs_compiled() -> pytest.MarkDecorator:
    """Skip a test where there is nothing to compare."""
    return pytest.mark.skipif(bool(why_not_compiled()), reason=why_not_compiled() or "there is one")


@contextmanager
def using(kind: str) -> Iterator[None]:
    """Let MQSTORE_KERNELS be ``kind``; unset it if that is empty."""
    before = os.environ.pop(registry.VARIABLE, None)
    if kind:
        os.environ[registry.VARIABLE] = kind
    try:
        yield
    finally:
        os.environ.pop(registry.VARIABLE, None)
        if before is not None:
            os.environ[registry.VARIABLE] = before


def left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of each batch the compiled decoder leaves to numpy, from now on."""
    found: list[int] = []
    whole = FusedDecode.batches

    def counted(*arguments: object) -> Iterator[pa.RecordBatch]:
        rest = yield from whole(*arguments)  # type: ignore[arg-type]
        found.append(len(rest))
        return rest

    monkeypatch.setattr(FusedDecode, "batches", counted)
    return found


def with_both(work: Callable[[], Found]) -> tuple[Found, Found]:
    """Return what the compiled kernels make of ``work``, and what numpy does."""
    found = []
    for kind in KINDS:
        with using(kind):
            found.append(work())
    return found[0], found[1]


def outcome(slices: Sequence[QueueSlice], settings: ScanSettings) -> Outcome:
    """Return the batches of a scan, or the name and the text of its error."""
    try:
        batches = list(scan(slices, settings))
    except StoreError as error:
        return type(error).__name__, str(error)
    for batch in batches:
        batch.validate(full=True)
    return batches


def assert_same(ours: Outcome, theirs: Outcome) -> None:
    """Fail unless both are the same error or the same batches, column for column."""
    if isinstance(ours, tuple) or isinstance(theirs, tuple):
        assert ours == theirs
        return
    assert [batch.num_rows for batch in ours] == [batch.num_rows for batch in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.schema.equals(other.schema)
        for name in one.schema.names:
            assert one.column(name).equals(other.column(name)), name
