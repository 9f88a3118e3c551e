"""The sections about directories: their files, and what verify finds."""

from collections.abc import Sequence
from typing import Final

from mqlog_jobs.output.amounts import count, several, size
from mqlog_jobs.report.cells import (
    Head,
    bytes_cell,
    cell,
    group_row,
    more,
    note,
    row,
    section,
    table,
    unread,
)
from mqlog_jobs.report.charts import bar
from mqlog_jobs.report.facts import FileKind, Files, Found, StoreFile, Unread, Verified
from mqlog_jobs.report.markup import Element, element
from mqstore.check.finding import ERROR

_ALLOCATED: Final = {"commitlog", "consumequeue", "index"}  # Of a fixed length, empty or full.


def files_section(files: Found[Files]) -> Element:
    """Return how large and how full the files are."""
    if isinstance(files, Unread):
        return section("files", "Files", unread(files))
    heads = (
        Head("Kind"), Head("Files", number=True), Head("Length", number=True),
        Head("In use", number=True), Head("Full"),
    )  # fmt: skip
    brokers: dict[str, list[FileKind]] = {}
    for kind in sorted(files.kinds, key=lambda one: (one.broker, -one.size)):
        brokers.setdefault(kind.broker, []).append(kind)
    bodies = [
        [*([_of_broker(broker, kinds, len(heads))] if len(brokers) > 1 else []), *map(_kind, kinds)]
        for broker, kinds in brokers.items()
    ]
    hint = "mqlog verify checks what is in them; table=files lists all."
    return section(
        "files",
        "Files",
        note("Brokers allocate whole files: of the last one of a sequence a part is in use."),
        table("Files by kind", heads, bodies),
        element("h3", "The newest files of the CommitLog"),
        _listed("The newest files of the CommitLog", files.log),
        more(files.log_files - len(files.log), "older files", "they are in the sums above."),
        element("h3", "Files with a problem") if files.wrong else None,
        _problems(files.wrong) if files.wrong else None,
        more(files.wrong_files - len(files.wrong), "files with a problem", hint),
    )


def verify_section(verified: Verified) -> Element:
    """Return the broken rules."""
    skipped = [
        note(element("strong", broker), f" was not checked: {reason}.")
        for broker, reason in verified.skipped.items()
    ]
    parts: list[Element | None] = [*skipped]
    if verified.findings:
        heads = (Head("Severity"), Head("Broker"), Head("Place"), Head("Problem"))
        rows = [
            element(
                "tr",
                cell(element("span", one.severity,
                             class_="chip bad" if one.severity == ERROR else "chip mild")),
                cell(one.broker),
                cell(element("code", one.place)),
                cell(one.problem, class_="long"),
            )
            for one in verified.findings
        ]  # fmt: skip
        parts.append(table("Broken rules, errors first", heads, [rows]))
        rest = verified.errors + verified.warnings - len(rows)
        parts.append(more(rest, "findings", "mqlog verify lists them."))
    elif verified.checked:
        whole = "Every rule that a broker relies on holds in "
        parts.insert(0, element("p", element("span", "whole", class_="chip good"), " ", whole,
                                ", ".join(verified.checked), "."))  # fmt: skip
    return section("verify", "Findings of verify", *parts)


def _of_broker(broker: str, kinds: Sequence[FileKind], columns: int) -> Element:
    number, length = sum(kind.files for kind in kinds), sum(kind.size for kind in kinds)
    return group_row(broker, f"{several(number, 'file')}, {size(length)}", columns)


def _kind(kind: FileKind) -> Element:
    whole = _fullness(kind.used, kind.size) if kind.kind in _ALLOCATED else ["–"]
    return row(
        kind.kind,
        cell(count(kind.files), number=True),
        bytes_cell(kind.size),
        bytes_cell(kind.used),
        cell(*whole),
    )


def _fullness(used: int | None, whole: int) -> list[Element | str]:
    if used is None or not whole:
        return ["not known" if used is None else "–"]
    share = used / whole
    text = f"{share:.0%}"
    line = bar([(share, "s0")], f"{text} in use")
    return [element("div", line, element("span", text, class_="percent"), class_="full")]


def _listed(caption: str, files: Sequence[StoreFile]) -> Element:
    heads = (
        Head("File"), Head("Broker"), Head("Length", number=True), Head("In use", number=True),
        Head("Full"),
    )  # fmt: skip
    rows = [
        row(
            element("code", file.path),
            cell(file.broker),
            bytes_cell(file.size),
            cell("not known" if file.used is None else size(file.used), number=True),
            cell(*_fullness(file.used, file.size)),
        )
        for file in files
    ]
    return table(caption, heads, [rows])


def _problems(files: Sequence[StoreFile]) -> Element:
    heads = (Head("File"), Head("Broker"), Head("Problem"))
    rows = [
        row(element("code", file.path), cell(file.broker), cell(file.problem, class_="long"))
        for file in files
    ]
    return table("Files with a problem", heads, [rows])
