"""The structures and functions of the compiled library, as ctypes sees them.

Each structure is declared in the C header that its docstring names, field by field; the library
says how large its own are, and one that differs is not used.
"""

import ctypes
from typing import Final

KERNEL_DONE: Final = 0
NOT_MINE: Final = 1
FULL: Final = 2
STEP: Final = 16
"""Bytes that a kernel may touch behind a text it reads from a table or writes."""
MOST_PICKS: Final = 8

_P: Final = ctypes.c_void_p
_I: Final = ctypes.c_int64


class Text(ctypes.Structure):
    """``Text`` of decode.h."""

    _fields_ = (("edges", _P), ("data", _P), ("used", _I), ("room", _I))


class Names(ctypes.Structure):
    """``Names`` of decode.h."""

    _fields_ = (("edges", _P), ("data", _P))


class Pick(ctypes.Structure):
    """``Pick`` of decode.h."""

    _fields_ = (
        ("name", _P),
        ("name_length", _I),
        ("or_msg_id", _I),
        ("text", Text),
        ("valid", _P),
        ("missing", _I),
    )


class Decoding(ctypes.Structure):
    """``Decoding`` of decode.h."""

    _fields_ = (
        ("sizes", _P),
        ("physical_offsets", _P),
        ("queue_offsets", _P),
        ("queue", _P),
        ("queues", _I),
        ("queue_ids", _P),
        ("light", _P),
        ("topics", Names),
        ("brokers", Names),
        ("queue_id", _P),
        ("total_size", _P),
        ("body_crc", _P),
        ("flag", _P),
        ("sys_flag", _P),
        ("reconsume_times", _P),
        ("born_us", _P),
        ("store_us", _P),
        ("prepared_transaction_offset", _P),
        ("topic", Text),
        ("broker", Text),
        ("body", Text),
        ("born_host", Text),
        ("store_host", Text),
        ("msg_id", Text),
        ("entry_edges", _P),
        ("names", Text),
        ("values", Text),
        ("entries", _I),
        ("entry_room", _I),
        ("picks", _I),
        ("pick", Pick * MOST_PICKS),
        ("check_crc", _I),
        ("sys_flags", _I),
        ("above_ascii", _I),
    )


class Slices(ctypes.Structure):
    """``Slices`` of frames.h."""

    _fields_ = (("buffer", _P), ("length", _I), ("starts", _P), ("sizes", _P), ("count", _I))


class PlaceFields(ctypes.Structure):
    """``Places`` of frames.h."""

    _fields_ = (
        ("queue_offsets", _P),
        ("physical_offsets", _P),
        ("store_timestamps_ms", _P),
        ("store_timestamp_at", _I),
    )


class ColumnPointers(ctypes.Structure):
    """``Column`` of encode.h."""

    _fields_ = (("edges", _P), ("data", _P), ("valid", _P), ("valid_from", _I))


class Piece(ctypes.Structure):
    """``Piece`` of encode.h."""

    _fields_ = (("prefix", _P), ("prefix_length", _I), ("suffix", _I), ("values", ColumnPointers))


class Encoding(ctypes.Structure):
    """``Encoding`` of encode.h."""

    _fields_ = (
        ("rows", _I),
        ("order", _P),
        ("header", _P),
        ("header_length", _I),
        ("topics", _I),
        ("topic_edges", _P),
        ("topic_data", _P),
        ("topic", _P),
        ("queue_ids", _P),
        ("flags", _P),
        ("sys_flags", _P),
        ("born_timestamps_ms", _P),
        ("bodies", ColumnPointers),
        ("properties", ColumnPointers),
    )


class WantedNames(ctypes.Structure):
    """``WantedNames`` of picked.h."""

    _fields_ = (("edges", _P), ("data", _P), ("count", _I))


class Dispatching(ctypes.Structure):
    """``Dispatching`` of dispatch.h."""

    _fields_ = (
        ("queue_offsets", _P),
        ("physical_offsets", _P),
        ("store_timestamps_ms", _P),
        ("tags_codes", _P),
        ("sys_flags", _P),
        ("queue", _P),
        ("first", _P),
        ("queues", _I),
        ("odd_tags", _I),
        ("light", _I),
    )


class QueueNames(ctypes.Structure):
    """``QueueNames`` of frames.h."""

    _fields_ = (("queue_ids", _P), ("topic_edges", _P), ("topic_data", _P), ("count", _I))


class Staged(ctypes.Structure):
    """``Staged`` of staged.h."""

    _fields_ = (("messages", _P), ("count", _I), ("records", _P), ("length", _I))


class Assigning(ctypes.Structure):
    """``Assigning`` of staged.h."""

    _fields_ = (
        ("next", _P),
        ("queues", _I),
        ("start", _I),
        ("store_timestamp_ms", _I),
        ("least_ms", _I),
        ("queue_offsets", _P),
        ("physical_offsets", _P),
        ("store_timestamps_ms", _P),
    )


class Chaining(ctypes.Structure):
    """``Chaining`` of index.h."""

    _fields_ = (
        ("hashes", _P),
        ("physical_offsets", _P),
        ("seconds", _P),
        ("count", _I),
        ("slots", _P),
        ("slot_count", _I),
        ("first", _I),
        ("used", _I),
    )


class NamedQueue(ctypes.Structure):
    """``NamedQueue`` of walk.h."""

    _fields_ = (
        ("topic", ctypes.c_uint8 * 256),
        ("topic_length", ctypes.c_int32),
        ("queue_id", ctypes.c_int32),
    )


class UnitRows(ctypes.Structure):
    """``UnitRows`` of walk.h."""

    _fields_ = (
        ("queue_offsets", _P),
        ("physical_offsets", _P),
        ("sizes", _P),
        ("tags_codes", _P),
        ("store_timestamps_ms", _P),
        ("holds_several", _P),
        ("queue", _P),
        ("rows", _I),
        ("room", _I),
        ("names", _P),
        ("slots", _P),
        ("queues", _I),
        ("queue_room", _I),
        ("slot_count", _I),
        ("delays_ms", _P),
        ("delays", _I),
        ("highest_queue_offset", _I),
        ("limit", _I),
        ("end", _I),
        ("last_ms", _I),
    )


_STRUCTURES: Final = (
    Decoding,
    Slices,
    PlaceFields,
    Piece,
    Encoding,
    WantedNames,
    Dispatching,
    QueueNames,
    Staged,
    Assigning,
    Chaining,
    UnitRows,
    NamedQueue,
)
_FUNCTIONS: Final = {
    "mq_sources": (ctypes.c_char_p, ()),
    "mq_crc_kind": (_I, ()),
    "mq_structure_bytes": (_I, (_I,)),
    "mq_decode": (_I, (_P, _P, _I, _P, _I, _I, _I)),
    "mq_all_whole": (_I, (_P,)),
    "mq_broken": (_I, (_P, _P)),
    "mq_checksums": (_I, (_P, _P)),
    "mq_property_values": (_I, (_P, _P, _P, _P)),
    "mq_dispatch": (_I, (_P, _P)),
    "mq_log_units": (_I, (_P, _I, _I, _P)),
    "mq_follow": (_I, (_P, _I, _P, _P, _I, _P)),
    "mq_patch": (_I, (_P, _I, _P, _I, _P)),
    "mq_verify_staged": (_I, (_P, _P, _P)),
    "mq_assign": (_I, (_P, _P)),
    "mq_make_units": (_I, (_P, _P, _P, _I, _P)),
    "mq_index_pages": (_I, (_P, _I, _P)),
    "mq_index_chain": (_I, (_P, _P)),
    "mq_join_blocks": (_I, (_P, _I, _I, _P, _P, _I)),
    "mq_encode": (_I, (_P, _I, _P, _P, _I)),
    "mq_java_hashes": (_I, (_P, _P, _I, _P)),
}


def declare(library: ctypes.CDLL) -> bool:
    """Declare the functions of a library; tell whether its structures are those of this file.

    Raises AttributeError for a library that lacks one of the functions.
    """
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    sizes = [library.mq_structure_bytes(number) for number in range(len(_STRUCTURES))]
    return sizes == [ctypes.sizeof(structure) for structure in _STRUCTURES]
