"""Columns to messages as a producer sends them: one buffer, and where each one starts.

Reference: org.apache.rocketmq.common.message.MessageDecoder#encodeMessages.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec import compute as pc
from mqstore.codec.encode import Encoded, Messages, binary_lengths, fixed_width
from mqstore.format.client_message import CLIENT_HEAD, CLIENT_LENGTHS
from mqstore.format.message import PROPERTIES_LENGTH


def encode_for_client(messages: Messages, order: NDArray[np.intp]) -> Encoded:
    """Return the messages of the rows ``order``, in that order; ``sizes`` as ``client_sizes``.

    Together they must stay under 2 GiB.
    """
    chosen = messages.take(order)
    header = np.zeros(len(order), CLIENT_HEAD)
    sizes = chosen.client_sizes()
    header["total_size"] = sizes
    header["flag"] = chosen.flags
    header["body_length"] = binary_lengths(chosen.bodies)
    joined = pc.binary_join_element_wise(
        fixed_width(header),
        chosen.bodies,
        fixed_width(binary_lengths(chosen.properties).astype(PROPERTIES_LENGTH)),
        chosen.properties,
        pa.scalar(b""),
    )
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    data = joined.buffers()[2]
    made = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Encoded(made[: int(sizes.sum())], np.cumsum(sizes) - sizes, sizes)


def bodies_in(messages: pa.Array) -> Iterator[memoryview]:
    """Yield the body of each message, large_binary[n], as it is stored."""
    for message in messages:
        held = memoryview(message.as_buffer())
        _, size = CLIENT_LENGTHS.unpack_from(held)
        yield held[CLIENT_HEAD.itemsize : CLIENT_HEAD.itemsize + size]
