"""The versions of a CommitLog record: a row each. Their fields differ in width, not in order.

A record of any version has the header of message.py, then its body, its topic behind the length of
the topic, and its properties behind the length of the properties. A broker of a new version whose
lengths are wider is one more row here: what reads, walks, checks and rebuilds takes its widths from
the rows, and ``c_header`` gives the same rows to the compiled kernels.

This module imports the standard library only: the build of mqlog runs it by its path.

Reference: org.apache.rocketmq.common.message.MessageVersion.
"""

from typing import Final, NamedTuple


class RecordVersion(NamedTuple):
    """One version: its magic, and the bytes of its two lengths, each 1, 2 or 4 and signed."""

    number: int
    magic: int
    topic_length_bytes: int
    properties_length_bytes: int


RECORD_VERSIONS: Final = (
    # 0xDAA320A7, MessageDecoder.MESSAGE_MAGIC_CODE
    RecordVersion(1, -626843481, 1, 2),
    # 0xDAA320AB, MessageVersion.MESSAGE_VERSION_V2 (5.1.0)
    RecordVersion(2, -626843477, 2, 2),
)
WRITTEN_VERSION: Final = RECORD_VERSIONS[0]
"""What mqlog writes: brokers of all versions read it."""


def c_header() -> str:
    """Return the rows as a C header: the same for every build of these sources."""
    rows = ", ".join(
        f"{{{row.magic}, {row.topic_length_bytes}, {row.properties_length_bytes}}}"
        for row in RECORD_VERSIONS
    )
    least = min(row.topic_length_bytes + row.properties_length_bytes for row in RECORD_VERSIONS)
    return (
        "/* Made from format/record_versions.py, a row for each version. */\n"
        "typedef struct {\n    int32_t magic;\n    int64_t topic_word, properties_word;\n"
        "} RecordVersion;\n"
        f"static const RecordVersion RECORD_VERSIONS[] = {{{rows}}};\n"
        f"enum {{ LEAST_LENGTHS = {least} }};\n"
    )
