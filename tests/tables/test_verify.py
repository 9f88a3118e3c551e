"""The table of findings is what mqstore.check says."""

from dataclasses import astuple
from pathlib import Path

from mqstore.check import check
from mqstore.tables import verify
from mqstore.tables.choice import open_root
from support import parts
from support.oracle import Message
from support.stores import lay_out


def test_a_whole_store_has_no_row(golden: tuple[str, Path]) -> None:
    assert parts.rows("verify", verify.plan(open_root(str(golden[1])))) == []


def test_every_finding_has_a_row(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(), Message()])
    path, position = laid.file_of(laid.messages[1])
    data = bytearray(path.read_bytes())
    data[position + 30] ^= 1
    path.write_bytes(data)
    found = parts.rows("verify", verify.plan(open_root(str(laid.root), broker_name="b")))
    assert found
    assert [tuple(row.values()) for row in found] == [
        (*astuple(finding), "b") for finding in check(laid.root)
    ]
