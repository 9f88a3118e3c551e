"""What Spark sends to tasks, refused by name where the host has another version of mqlog.

The fields of two versions differ: a task would fail with an error about one of them, or read a
field as something else. So the version comes first, and the rest is opened after it was compared.
"""

from typing import Any, Final

from pyspark.serializers import CPickleSerializer

from mqstore import __version__
from pyspark_mqlog.errors import VersionMismatchError
from pyspark_mqlog.worker import named_errors

_SERIALIZER: Final[Any] = CPickleSerializer()


class SameVersion:
    """A base of readers and writers: only the version that pickled them opens them again."""

    def __reduce__(self) -> tuple[object, ...]:
        return opened, (__version__, _SERIALIZER.dumps((type(self), self.__getstate__())))


def opened(version: str, data: bytes) -> Any:
    """Return what was pickled as ``data``. Raises VersionMismatchError."""
    if version != __version__:
        with named_errors():
            raise VersionMismatchError(version, __version__)
    kind, state = _SERIALIZER.loads(data)
    made = kind.__new__(kind)
    made.__dict__.update(state or {})
    return made
