"""The command line of all jobs.

    --from PLACE          where rows come from
    --to PLACE            where they go
    --option NAME=VALUE   an option of the source ``mqlog``, any number of times

A store is a directory. Anything else is FORMAT:PLACE, or the word console:

    parquet:/data/orders   csv:/data/orders.csv   json:/data/orders   table:shop.orders   console

argparse, because a job sent with --py-files may import only the packages that Spark itself needs.
"""

import argparse
from dataclasses import dataclass
from typing import Final

from mqlog_jobs.output.whole_file import FILE_FORMATS

CONSOLE: Final = "console"
TABLE: Final = "table"


@dataclass(frozen=True, slots=True)
class RowsPlace:
    """Files of a format, a table of the catalog, or the console (whose ``where`` is empty)."""

    format: str
    where: str


def add_store(made: argparse.ArgumentParser) -> None:
    """Add ``--from STORE`` for a job that reads one store, or a glob of several."""
    made.add_argument(
        "--from",
        dest="store",
        required=True,
        metavar="STORE",
        help="a broker's store directory, or a glob of several",
    )


def parser(description: str, example: str) -> argparse.ArgumentParser:
    """Return a parser that has ``--option`` and shows an example."""
    made = argparse.ArgumentParser(
        description=description,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "--option",
        action="append",
        default=[],
        type=option,
        metavar="NAME=VALUE",
        dest="options",
        help="an option of the source mqlog; may be repeated",
    )
    return made


def option(text: str) -> tuple[str, str]:
    """Return NAME and VALUE of ``NAME=VALUE``; the value may hold more equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE, such as groups=CG_WAREHOUSE")
    return name.strip(), value


def source(text: str) -> RowsPlace:
    """Return the place of ``FORMAT:PLACE`` to read rows from."""
    kind, colon, where = text.partition(":")
    if not colon or not where or kind not in (*FILE_FORMATS, TABLE):
        raise not_a_place(text)
    return RowsPlace(kind, where)


def target(text: str) -> RowsPlace:
    """Return the place of ``FORMAT:PLACE`` or ``console`` to write a report to."""
    if text == CONSOLE:
        return RowsPlace(CONSOLE, "")
    try:
        return source(text)
    except argparse.ArgumentTypeError:
        raise not_a_place(text, CONSOLE) from None


def not_a_place(text: str, *more: str) -> argparse.ArgumentTypeError:
    """Return the error for a text that is no place: it names all forms, first those of ``more``."""
    forms = ", ".join((*more, *(f"{name}:PATH" for name in FILE_FORMATS)))
    return argparse.ArgumentTypeError(f"{text!r}: write {forms} or table:NAME")
