"""What the commands of a store's history do beside the work: the loop, and what they print."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from mqlog_jobs.machine.exit_codes import problem_of
from mqlog_jobs.machine.interrupts import rounds
from mqlog_jobs.output import render
from mqlog_jobs.output.amounts import moment_of, several, size
from mqlog_jobs.output.render import FieldView, Row
from mqlog_jobs.places import option_texts
from mqstore.copy.check_points import PointProblem, check_points, mend_points
from mqstore.copy.errors import OtherStoreError
from mqstore.copy.hold_points import Budget, Guarded, guard_once
from mqstore.copy.keep_rules import KeepRule, parse_keep
from mqstore.copy.point_continues import Accepted
from mqstore.copy.prune_points import Pruned, prune_points
from mqstore.errors import (
    InvalidOptionError,
    NoSpaceError,
    NotARepositoryError,
    StoreError,
    UnsupportedStoreError,
    printable,
    shown,
)
from mqstore.options import grammar
from mqstore.request.places import is_cluster
from mqstore.request.repositories import open_repository, point_at, repository_at

if TYPE_CHECKING:
    from mqstore.request.repositories import PointFolder, PointHead, Repository

_NEVER_HEALS: Final = (
    InvalidOptionError,
    NotARepositoryError,
    OtherStoreError,
    UnsupportedStoreError,
)
_FAILED_ROUND: Final = "no point this time, the next round tries again: {}"
_OPTION_FLAG: Final = "-o"
_POINT_NOTE: Final = "the point that is being made is finished; once more ends at once"
_HISTORY: Final = (
    FieldView("number", "POINT", "number"),
    FieldView("began", "BEGAN (UTC)", "time"),
    FieldView("brokerName", "BROKER", rank=3),
    FieldView("source", "SOURCE", rank=5),
    FieldView("messages", "MESSAGES", "count", rank=1),
    FieldView("queues", "QUEUES", "count", rank=4),
    FieldView("bytes", "BYTES", "bytes"),
    FieldView("writtenBytes", "WRITTEN", "bytes"),
    FieldView("linkedBytes", "LINKED", "bytes", rank=2),
)
_PROBLEMS: Final = (
    FieldView("points", "POINTS", stretch=True),
    FieldView("file", "FILE"),
    FieldView("position", "AT BYTE", "count", rank=1),
    FieldView("problem", "PROBLEM", stretch=True, wrap=True),
)


@dataclass(frozen=True, slots=True)
class Guarding:
    """How often points are made (None: once), how much may be held, and which points stay."""

    every_ms: int | None
    most_bytes: int | None
    count: int
    rules: tuple[KeepRule, ...]
    accepted: Accepted


def guarding(
    every: str | None, hold_max: str | None, number: int, keep: str | None, accepted: Accepted
) -> Guarding:
    """Return the options of ``snapshot``. Raises InvalidOptionError."""
    return Guarding(
        grammar.milliseconds("--every", every) if every is not None else None,
        _bytes("--hold-max", hold_max) if hold_max is not None else None,
        number,
        parse_keep("--keep", keep) if keep is not None else (),
        accepted,
    )


def _bytes(flag: str, text: str) -> int:
    """Return the bytes of 200GB, 200GiB or 200g, which are the same: units are powers of 1,024."""
    return grammar.size(flag, text.removesuffix("B").removesuffix("i"))


def repository(path: str, options: Sequence[str] | None) -> "Repository":
    """Return the repository that a command names. Raises InvalidOptionError."""
    return open_repository(path, option_texts(options or (), _OPTION_FLAG))


def repositories(paths: Sequence[str], options: Sequence[str] | None) -> "dict[str, Repository]":
    """Return those of the paths that are repositories, without a point."""
    texts = option_texts(options or (), _OPTION_FLAG)
    found = {path: repository_at(path, texts) for path in paths if not is_cluster(path)}
    return {path: one for path, one in found.items() if one is not None}


def heads(path: str, options: Sequence[str] | None) -> "list[PointHead]":
    """Return the points of a repository, oldest first. Raises as ``Repository.head``."""
    found = repository(path, options)
    return [found.head(number) for number in found.numbers()]


def point(path: str, options: Sequence[str] | None) -> "PointFolder":
    """Return the point that a command names. Raises InvalidOptionError for any other path."""
    found = point_at(path, option_texts(options or (), _OPTION_FLAG))
    if found is None:
        expected = "names no point: write REPO@latest, REPO@3, REPO@2026-11-22T09:00Z or REPO@all"
        raise InvalidOptionError("REPO@POINT", path, expected)
    return found


def points(
    store: Path,
    path: str,
    commit_log: Sequence[str],
    options: Sequence[str] | None,
    asked: Guarding,
    as_json: bool,
) -> bool:
    """Make one point, or one after the other; tell whether points went, or rounds failed.

    With ``every_ms`` a round that fails is a line on standard error, and the next one tries again.
    Raises what can't heal by itself, and any error of the first round but a full disk.
    """
    named = repository(path, options)
    found = False
    for number, waits in enumerate(rounds(asked.every_ms, asked.count, _POINT_NOTE)):
        try:
            made, gone = _round(store, named, commit_log, asked)
        except (StoreError, OSError) as error:
            if asked.every_ms is None or not _may_heal(error, is_first=not number):
                raise
            found = True
            _warn(_FAILED_ROUND.format(problem_of(error)))
        else:
            found |= bool(made.dropped)
            if as_json:
                render.json_lines([_row_of_round(made, gone)])
            else:
                _print_round(render.terminal(), path, made, gone)
            sys.stdout.flush()
        waits()
    return found


def _round(
    store: Path, named: "Repository", commit_log: Sequence[str], asked: Guarding
) -> tuple[Guarded, Pruned | None]:
    made = guard_once(
        store,
        named.backing,
        Budget(asked.most_bytes, makes_room=asked.every_ms is not None),
        commit_log=commit_log,
        accepted=asked.accepted,
        told=_warn,
    )
    return made, prune_points(named.backing, asked.rules) if asked.rules else None


def _may_heal(error: Exception, *, is_first: bool) -> bool:
    """Tell whether a round that failed is tried again.

    At the first one somebody looks on, so only the full disk, which the guard is for, is waited
    out. Later, all but what is the same at each try: options, another store, another repository.
    """
    if isinstance(error, BrokenPipeError):
        return False
    if is_first:
        return isinstance(error, NoSpaceError)
    return not isinstance(error, _NEVER_HEALS)


def _warn(text: str) -> None:
    sys.stderr.write(f"mqlog: {printable(text)}\n")
    sys.stderr.flush()


def row_of_point(head: "PointHead") -> dict[str, object]:
    """Return a point as a row; times are UTC."""
    row = {render.camel_case(name): value for name, value in asdict(head).items()}
    began, ended = row.pop("beganMs"), row.pop("endedMs")
    assert isinstance(began, int)
    assert isinstance(ended, int)
    left_out = list(head.left_out)
    times = {
        "began": datetime.fromtimestamp(began / 1000, UTC),
        "ended": datetime.fromtimestamp(ended / 1000, UTC),
    }
    return {"number": head.number, **times, **row, "leftOut": left_out}


def history(console: Console, path: str, found: "Sequence[PointHead]") -> None:
    """Print the points of a repository."""
    if not found:
        console.print(f"{shown(path)}: no points", markup=False)
        return
    render.table(console, _HISTORY, [row_of_point(head) for head in found])
    if len(found) > 1:
        told = f"{shown(path)}@all is all of them as one store: each message once"
        console.print(told, markup=False, soft_wrap=True)


def pruned(console: Console, path: str, found: Pruned, *, dry_run: bool) -> None:
    """Print which points went."""
    verb = "would go" if dry_run else "removed"
    told = f"{several(len(found.gone), 'point')} {verb}, {several(len(found.stay), 'point')} stay"
    console.print(f"{shown(path)}: {told}", markup=False, soft_wrap=True)
    if found.gone:
        render.table(console, _HISTORY, [row_of_point(head) for head in found.gone])


def check(path: str, found: "Repository", *, mends: bool, as_json: bool) -> bool:
    """Check a repository and print what is wrong; tell whether something is.

    With ``mends`` what changed is noted, so that the next point takes it anew.
    """
    from mqlog_jobs.output.progress import Bar  # noqa: PLC0415 - as in the commands

    with Bar(f"Checking {path}") as bar:
        problems = check_points(found, bar)
    noted = mend_points(found, problems) if mends else 0
    console = render.terminal()
    if as_json:
        render.json_lines({"repository": path, **_row_of_problem(one)} for one in problems)
    elif problems:
        rows = [{**_row_of_problem(p), "points": _numbers(p.points)} for p in problems]
        render.table(console, _PROBLEMS, rows)
        for line in _advice(path, problems, noted, mends=mends):
            console.print(line, markup=False, soft_wrap=True)
    else:
        told = several(len(found.numbers()), "point")
        console.print(f"{shown(path)}: whole, all bytes of {told} are there", markup=False)
    return bool(problems)


def _advice(
    path: str, problems: Sequence[PointProblem], noted: int, *, mends: bool
) -> Iterator[str]:
    """Yield what to do about a damaged repository."""
    harmed = sorted({number for problem in problems for number in problem.points})
    yield f"Points {_numbers(harmed)} cannot be restored whole. What to do:"
    if mends:
        yield f"  {several(noted, 'part')} noted as damaged: the next mqlog snapshot takes anew"
        yield "  what the store still has of them, and the points from there on are whole"
    elif any(problem.length for problem in problems):
        yield f"  mqlog verify {shown(path)} --mend notes what is damaged: else later points use it"
        yield "  too. The next mqlog snapshot takes anew what the store still has of it"
    else:
        yield "  the next mqlog snapshot takes anew what the store still has of what is missing"
    yield f"  mqlog prune {shown(path)} --point {harmed[0]} removes a point that is of no use"


def _row_of_problem(problem: PointProblem) -> Row:
    return {**asdict(problem), "points": list(problem.points)}


def _numbers(numbers: Sequence[int]) -> str:
    few = ", ".join(map(str, numbers[:5]))
    return f"{few} and {len(numbers) - 5} more" if len(numbers) > 5 else few


def _row_of_round(made: Guarded, gone: Pruned | None) -> Row:
    removed = [*made.dropped, *(head.number for head in (gone.gone if gone else ()))]
    return {**row_of_point(made.head), "heldBytes": made.held_bytes, "removed": removed}


def _print_round(console: Console, path: str, made: Guarded, gone: Pruned | None) -> None:
    head = made.head
    took = f"{size(head.written_bytes)} written, {size(head.linked_bytes)} linked"
    held_bytes = made.held_bytes
    held_text = "" if held_bytes is None else f"; {size(held_bytes)} held that no store has"
    told = f"{several(head.messages, 'message')} in {several(head.queues, 'queue')}"
    line = f"{shown(path)}@{head.number}  {moment_of(head.began_ms)}  {told}; {took}{held_text}"
    if gone is not None and gone.gone:
        line += f"; {several(len(gone.gone), 'point')} pruned"
    console.print(line, markup=False, soft_wrap=True)
    for name in head.left_out:
        console.print(f"left out, it cannot be read: {shown(name)}", markup=False, soft_wrap=True)
