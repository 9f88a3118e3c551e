"""Every option of a read or a write says its default once, at its declaration."""

import ast
from collections.abc import Iterator
from pathlib import Path

from mqstore.deliver.settings import SEND_OPTIONS
from mqstore.request.places import LIVE, OBJECTS
from mqstore.request.read_options import READ_OPTIONS, STREAM_OPTIONS
from mqstore.write.stage.settings import WRITE_OPTIONS

ROOT = Path(__file__).parents[2]
FIELDS = {*READ_OPTIONS, *STREAM_OPTIONS, *LIVE, *OBJECTS, *WRITE_OPTIONS, *SEND_OPTIONS}


def numbers_again(text: str) -> Iterator[str]:
    """Yield the fields of classes that are named like an option's and have a number as default."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    default = ast.unparse(field.value) if field.value else ""
                    if field.target.id in FIELDS and default[:1].isdigit() and default != "0":
                        yield f"{node.name}.{field.target.id} = {default}"


def test_no_setting_says_the_default_number_of_an_option_again() -> None:
    assert list(numbers_again("class S:\n    batch_rows: int = 8 << 9")) == [
        "S.batch_rows = 8 << 9"
    ]
    for path in (p for top in ("store", "connector", "jobs") for p in (ROOT / top).rglob("*.py")):
        assert list(numbers_again(path.read_text(encoding="utf-8"))) == [], path
