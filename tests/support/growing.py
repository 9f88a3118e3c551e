"""Stores that grow between two looks, as a broker lets them grow.

`grow` makes a store hold more of the same messages: records first, then units, each file in
place, new ones whole; what has expired since is deleted. `lay_out` gives the same bytes to the
same first messages, so what was there stays as it was.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from support.oracle import Message
from support.stores import Laid, Layout, lay_out


def grow(laid: Laid, messages: Iterable[Message], layout: Layout | None = None) -> Laid:
    """Make the store of `laid` that of `messages`, which begin with those it has."""
    scratch = laid.root.with_name("grown")
    target = lay_out(scratch, messages, layout or laid.layout)
    for folder in ("commitlog", "consumequeue", "config"):
        _take_over(scratch / folder, laid.root / folder)
    shutil.rmtree(scratch)
    return replace(target, root=laid.root)


def _take_over(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        here = target / path.relative_to(source)
        if path.is_dir():
            here.mkdir(exist_ok=True)
        elif here.exists():
            with here.open("r+b") as file:
                file.write(path.read_bytes())
        else:
            path.rename(here)
            path.touch()
    for here in sorted(target.rglob("*"), reverse=True):
        if here.is_file() and not (source / here.relative_to(target)).exists():
            here.unlink()
