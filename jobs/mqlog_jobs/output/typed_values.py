"""Values of typed bodies as JSON has them, with no digit lost."""

import json
import math
from base64 import b64encode
from datetime import date, datetime
from decimal import Decimal

from mqlog_jobs.output.amounts import instant


def nested(value: object) -> object:
    """Return a value of a typed body, with all that lies in it, as JSON has it.

    Times are ISO-8601, bytes base64. A decimal is a number where a reader of doubles gets the same
    one, else text: no digit is lost.
    """
    plain = value
    match value:
        case dict():
            plain = {str(name): nested(inner) for name, inner in value.items()}
        case list():
            plain = [nested(inner) for inner in value]
        case datetime() if value.tzinfo:
            plain = instant(value)
        case date():
            plain = value.isoformat()
        case bytes():
            plain = b64encode(value).decode()
        case Decimal():
            plain = exact(value)
        case float() if not math.isfinite(value):
            plain = str(value)
    return plain


def exact(value: Decimal) -> object:
    """Return a decimal as a number of JSON, or as text where a double would lose digits."""
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else format(value, "f")


def json_text(value: object, *, is_ascii: bool = False) -> str:
    r"""Return ``value`` as JSON in one line, with ``\uXXXX`` for what is not printable.

    A reader gets the same value: other characters stand as they are (RFC 8259, section 7), unless
    ``is_ascii``.
    """
    text = json.dumps(value, ensure_ascii=is_ascii, separators=(",", ":"))
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
