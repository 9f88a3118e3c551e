"""Bodies of text, in any charset of Python, to UTF-8."""

import codecs
from typing import Final

import pyarrow as pa

from mqstore.bodies.decoded import BodyDecoder, DecodedBodies
from mqstore.bodies.json_values import ENCODING

UTF_8: Final = "utf-8"


def charset(name: str) -> str:
    """Return Python's name of a charset; raises ValueError for one that it does not have."""
    try:
        codec = codecs.lookup(name)
        "".encode(codec.name)
    except (LookupError, ValueError):
        raise ValueError(
            "is no charset: there are UTF-8, GBK, GB18030, Big5, Shift_JIS, UTF-16, ISO-8859-1 …"
        ) from None
    return codec.name


class TextBodies:
    """Reads bodies as texts of a charset."""

    def __init__(self, name: str) -> None:
        self._charset = name

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Return the texts of bodies; one that is none is null, with the reason."""
        if self._charset == UTF_8:
            try:
                return DecodedBodies(bodies.cast(pa.string()), {})
            except pa.ArrowInvalid:
                pass
        texts: list[str | None] = []
        reasons = {}
        for row, body in enumerate(bodies.to_pylist()):
            try:
                text = body.decode(self._charset)
                text.encode()  # UTF-7 and others may give half of a surrogate pair.
                texts.append(text)
            except UnicodeError as error:
                texts.append(None)
                at = f"byte {error.start} is " if isinstance(error, UnicodeDecodeError) else ""
                reasons[row] = f"{ENCODING}: {at}no {self._charset}"
        return DecodedBodies(pa.array(texts, pa.string()), reasons)


class InUtf8:
    """Hands bodies of another charset as UTF-8 to what decodes them."""

    def __init__(self, name: str, inner: BodyDecoder) -> None:
        self._texts = TextBodies(name)
        self._inner = inner

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Return what the inner decoder gives; a body that is no text of the charset is bad."""
        texts = self._texts.decode(bodies)
        decoded = self._inner.decode(texts.values.fill_null("").cast(pa.binary()))
        return DecodedBodies(decoded.values, {**decoded.reasons, **texts.reasons})
