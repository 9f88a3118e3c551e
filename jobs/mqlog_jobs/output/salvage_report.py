"""The result of ``mqlog salvage``, as a few lines of text or as one row."""

from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from mqlog_jobs.output.amounts import count, several, size
from mqlog_jobs.output.render import Row, camel_case
from mqstore.copy.salvage import Salvaged
from mqstore.copy.salvage_report import REPORT_FOLDER
from mqstore.errors import shown


def show(console: Console, made: Salvaged, target: str) -> None:
    """Print what was salvaged, and what was not."""
    text = f"{several(made.messages, 'message')} in {several(made.queues, 'queue')}"
    console.print(Text.assemble((text, "green"), f" are in {shown(target)}"), soft_wrap=True)
    for line in _losses(made):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    for line in _notes(made, target):
        console.print(Text(line, style="dim"), soft_wrap=True)


def row(made: Salvaged, target: str) -> Row:
    """Return the result as a row."""
    return {"target": target, "report": f"{target}/{REPORT_FOLDER}"} | {
        camel_case(name): value for name, value in asdict(made).items()
    }


def _losses(made: Salvaged) -> list[str]:
    lines = []
    if made.lost_bytes:
        lines.append(f"lost: {size(made.lost_bytes)} of the CommitLog have no whole record")
    if made.lost_messages:
        lines.append(
            f"lost: {several(made.lost_messages, 'message')} between others of their queues"
        )
    if made.lost_files:
        files = several(made.lost_files, "file or database", "files or databases")
        lines.append(f"lost: {files} of configuration or timers")
    if made.doubted:
        lines.append(f"doubted: {several(made.doubted, 'record')}, in the report only")
    return lines


def _notes(made: Salvaged, target: str) -> list[str]:
    lines = []
    if made.moved:
        lines.append(f"moved: {several(made.moved, 'record')} from another place in the log")
    if made.moved_by:
        lines.append(
            f"all physical offsets are {count(made.moved_by)} higher, and message ids made of them"
        )
    if made.is_packed:
        lines.append("each record has another physical offset, and another message id made of it")
    return [*lines, f"the report: {shown(target)}/{REPORT_FOLDER}"]
