"""What a notebook shows of a place and of a scan."""

from collections.abc import Mapping
from html import escape

from mqstore.errors import shown


def as_html(kind: str, rows: Mapping[str, object]) -> str:
    """Return a table of two columns as HTML; values are cut and made printable as in errors."""
    lines = (
        f"<tr><th>{escape(shown(name))}</th><td>{escape(shown(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>mqlog.{kind}</caption>{''.join(lines)}</table>"
