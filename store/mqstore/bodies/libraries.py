"""The packages that decode bodies of Avro and Protobuf: no dependency of mqlog, loaded here."""

from importlib import import_module
from typing import Any, Final

from mqstore.errors import InvalidOptionError

_AVRO: Final = ("fastavro", "fastavro>=1.9")
_PROTOBUF: Final = ("google.protobuf", "protobuf>=5.26")


def avro_library() -> Any:
    """Return the module fastavro; raises InvalidOptionError with the command that installs it."""
    return _library("avro", *_AVRO)


def protobuf_library(module: str) -> Any:
    """Return a module of google.protobuf; raises InvalidOptionError as ``avro_library``."""
    _library("protobuf", *_PROTOBUF)
    return import_module(f"google.protobuf.{module}")


def _library(body: str, module: str, requirement: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        name = requirement.partition(">")[0]
        expected = f"needs the package {name}: pip install '{requirement}'"
        raise InvalidOptionError("body", body, expected) from None
