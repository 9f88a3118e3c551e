"""Host and id columns: ``ip:port`` text and the hex of offsetMsgId.

Reference: org.apache.rocketmq.common.message.MessageDecoder#createMessageId, UtilAll#bytes2string.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import numpy as np
import pyarrow as pa

from mqstore.codec.gather import RecordHeaders, sliding
from mqstore.codec.slices import scatter
from mqstore.format.arrays import Bytes, Int64s
from mqstore.format.message import HEADER, IP_V4_BYTES, IP_V6_BYTES
from mqstore.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6

_PORT_BYTES = HEADER["store_port"].itemsize
_PHYSICAL_OFFSET = HEADER["physical_offset"]
# The two digits of each byte, as one number, so that they are fetched at once.
_HEX = np.array([f"{byte:02X}".encode() for byte in range(256)], "S2").view(np.uint16)


def host_text(headers: RecordHeaders, which: str) -> pa.StringArray:
    """Return ``ip:port`` (``[ip]:port`` for IPv6) of the ``born`` or the ``store`` host.

    There are few hosts among many messages: each distinct one is written out once.
    """

    def text(host: Bytes, _rows: Int64s) -> pa.StringArray:
        count, width = host.shape
        encoded = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(host)])
        distinct = encoded.dictionary_encode()
        addresses = [_address(address) for address in distinct.dictionary.to_pylist()]
        return pa.array(addresses, pa.string()).take(distinct.indices)

    return _by_family(headers, which, text)


def offset_msg_id(headers: RecordHeaders) -> pa.StringArray:
    """Return the id a broker gives: upper-case hex of store ip, port and physical offset."""
    places = headers.position("physical_offset")

    def text(host: Bytes, rows: Int64s) -> pa.StringArray:
        physical = _bytes(headers.buffer, places[rows], _PHYSICAL_OFFSET.itemsize)
        return hex_text(np.concatenate((host, physical), axis=1))

    return _by_family(headers, "store", text)


def hex_text(rows: Bytes) -> pa.StringArray:
    """Return the upper-case hex of each row of a matrix of bytes."""
    count, width = rows.shape
    digits = _HEX.take(rows)
    edges = np.arange(count + 1, dtype=np.int32) * np.int32(2 * width)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(edges), pa.py_buffer(digits)]
    )


def _by_family(
    headers: RecordHeaders, which: str, text: Callable[[Bytes, Int64s], pa.StringArray]
) -> pa.StringArray:
    """Apply ``text`` to the ip-and-port bytes of IPv4 rows, then of IPv6 rows, and join them."""
    bit = BORN_HOST_V6 if which == "born" else STORE_HOST_V6
    places = headers.position(f"{which}_ip")
    if not headers.has_v6:
        rows = np.arange(len(headers))
        return text(_bytes(headers.buffer, places, IP_V4_BYTES + _PORT_BYTES), rows)
    is_v6 = (headers.sys_flags & bit) != 0
    parts, order = [], []
    for family, ip_bytes in ((~is_v6, IP_V4_BYTES), (is_v6, IP_V6_BYTES)):
        rows = np.flatnonzero(family)
        if len(rows):
            host = _bytes(headers.buffer, places[rows], ip_bytes + _PORT_BYTES)
            parts.append(text(host, rows))
            order.append(rows)
    return scatter(pa.concat_arrays(parts), np.concatenate(order), len(headers))


def _bytes(buffer: Bytes, places: Int64s, width: int) -> Bytes:
    window = sliding(buffer, np.dtype(f"V{width}"))
    return window[places].view(np.uint8).reshape(len(places), width)


def _address(host: bytes) -> str:
    ip, port = host[:-_PORT_BYTES], int.from_bytes(host[-_PORT_BYTES:], signed=True)
    if len(ip) == IP_V4_BYTES:
        return f"{IPv4Address(ip)}:{port}"
    return f"[{IPv6Address(ip)}]:{port}"
