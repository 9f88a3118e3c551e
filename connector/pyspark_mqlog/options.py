"""The options of each operation in Spark's map: parsed once on the driver, for tasks as well."""

from collections.abc import Mapping
from typing import Final

from mqstore.deliver.settings import SendSettings
from mqstore.errors import InvalidOptionError
from mqstore.options.texts import refusals
from mqstore.request.places import is_cluster
from mqstore.request.read import read_options
from mqstore.request.read_options import STREAM_OPTIONS, ReadOptions, StreamOptions
from mqstore.request.stream import refused_in_stream, stream_options
from mqstore.request.write import write_settings
from mqstore.write.stage.settings import WRITE_OPTIONS, WriteSettings
from pyspark_mqlog.option_map import named_paths, own_options, texts_of

_MISSING_WRITE_PATH: Final = (
    "a write needs the path of one store: "
    'df.write.format("mqlog").mode("append").option("topic", "…").save("/data/broker-a/store")'
)
_REFUSED_IN_READ: Final = (
    refusals(
        (option.name for option in STREAM_OPTIONS.values()),
        "is for streaming reads: remove it, or use spark.readStream",
    )
    | refusals((option.name for option in WRITE_OPTIONS.values()), "is an option of writes")
    | refusals(["topic"], "is an option of writes; in a read use subscribe")
    | refusals(["checkpointLocation", "queryName"], "is for writeStream: a read has none")
)
_REFUSED_IN_STREAM: Final = _REFUSED_IN_READ | refused_in_stream(
    ends="is for spark.read: a stream has no end; to stop at the messages stored now use "
    "trigger(availableNow=True)",
    from_log="is for spark.read: a stream follows the ConsumeQueues that a broker appends to",
    tables="is for tables, which only spark.read has",
)


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a batch read; raises InvalidOptionError, touches no store."""
    own, paths = _own(options)
    return read_options(paths, texts_of(own, _REFUSED_IN_READ), _REFUSED_IN_READ)


def parse_stream(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a streaming read; raises InvalidOptionError, touches no store."""
    own, paths = _own(options)
    return stream_options(paths, texts_of(own, _REFUSED_IN_STREAM), _REFUSED_IN_STREAM)


def _own(options: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the options of a read, with the table that a path names, and the paths without it."""
    own = own_options(options)
    paths, suffix = named_paths(own)
    if suffix is not None:
        if own.get("table", suffix).strip().lower() != suffix.lower():
            raise InvalidOptionError("table", own["table"], f"the path has #{suffix}")
        own["table"] = suffix
    return own, paths


def parse_write(options: Mapping[str, str]) -> WriteSettings | SendSettings:
    """Return the settings of a batch write; raises InvalidOptionError, touches no store."""
    return _parse_write(options, in_stream=False)


def parse_stream_write(options: Mapping[str, str]) -> WriteSettings | SendSettings:
    """Return the settings of a streaming write; raises InvalidOptionError, touches no store."""
    return _parse_write(options, in_stream=True)


def _parse_write(options: Mapping[str, str], *, in_stream: bool) -> WriteSettings | SendSettings:
    own = own_options(options)
    paths, table = named_paths(own)
    if table is not None:
        kind = "cluster" if any(map(is_cluster, paths)) else "store"
        raise InvalidOptionError("path", own["path"], f"no table can be written: give the {kind}")
    return write_settings(paths, texts_of(own, {}), _MISSING_WRITE_PATH, in_stream=in_stream)


def stream_name(options: Mapping[str, str]) -> str | None:
    """Return the name that a streaming write keeps through restarts, if its options give one."""
    own = own_options(options)
    return own.get("checkpointlocation") or own.get("queryname")


def names_stream(options: Mapping[str, str]) -> bool:
    """Tell whether an option is set that only a streaming read has."""
    return not {o.name.lower() for o in STREAM_OPTIONS.values()}.isdisjoint(own_options(options))


def is_create_table(options: Mapping[str, str]) -> bool:
    """Tell whether the schema is for CREATE TABLE, which names no store yet."""
    return "provider" in options
