"""The bits of SYSFLAG.

    COMPRESSED       0x001   body is compressed, codec in bits 8-10
    MULTI_TAGS       0x002   the topic's filter type; no effect on hashing
    TRANSACTION      0x00C   0 none, 0x4 prepared, 0x8 commit, 0xC rollback
    BORN_HOST_V6     0x010   bornHost has 20 bytes instead of 8
    STORE_HOST_V6    0x020   storeHost has 20 bytes instead of 8
    NEED_UNWRAP      0x040   inner batch: the client unwraps the body
    INNER_BATCH      0x080   one record holds INNER_NUM messages
    COMPRESSION      0x700   0 and 3 zlib, 1 LZ4 frame, 2 ZSTD

Reference: org.apache.rocketmq.common.sysflag.MessageSysFlag, compression.CompressionType.
"""

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_MASK: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700
COMPRESSION_SHIFT: Final = 8

# Codec names by the three bits; clients before 4.9.4 leave them 0 for zlib.
CODECS: Final[dict[int, str]] = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
CODEC_BITS: Final[dict[str, int]] = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
TRANSACTION_STATES: Final[dict[int, str]] = {
    TRANSACTION_PREPARED: "PREPARED",
    TRANSACTION_COMMIT: "COMMIT",
    TRANSACTION_ROLLBACK: "ROLLBACK",
}
