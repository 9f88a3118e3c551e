"""The oracle: a slow, obvious, one-at-a-time codec of everything a store holds.

It is written from the Java, with `struct`, and imports nothing of mqstore: what the two agree
on, they agree on independently. It reproduces both golden stores byte for byte
(tests/support/test_oracle.py). Names follow CommitLog#checkMessageAndReturnSize,
MessageDecoder, ConsumeQueue and IndexFile.
"""

import ipaddress
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

V1 = 0xDAA320A7 - 2**32
V2 = 0xDAA320AB - 2**32
# The lengths of topic and properties, as struct names their widths.
LENGTHS = {V1: "bh", V2: "hh"}
BLANK = 0xCBD43194 - 2**32

COMPRESSED = 0x1
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC
BORN_V6 = 0x10
STORE_V6 = 0x20
LZ4 = 0x100
ZSTD = 0x200
ZLIB = 0x300

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_CRC_NAME = b"__CRC32#\x01"
FILLER = (0, 2**31 - 1, 0)


class NotARecordError(Exception):
    """These bytes are no record; says which rule they break."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """An address of 4 or 16 bytes and a port."""

    ip: bytes = bytes([127, 0, 0, 1])
    port: int = 10911

    def __str__(self) -> str:
        address = str(ipaddress.ip_address(self.ip))
        return f"[{address}]:{self.port}" if len(self.ip) == 16 else f"{address}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One record. `body` and `properties` are the stored bytes; topic is text, as on disk UTF-8.

    `body_crc` None means: whatever is right for the body.
    """

    topic: str = "T"
    body: bytes = b""
    properties: bytes = b""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 1_700_000_000_000
    born_host: Host = field(default_factory=Host)
    store_timestamp_ms: int = 1_700_000_000_001
    store_host: Host = field(default_factory=Host)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    magic: int = V1
    body_crc: int | None = None

    @property
    def crc(self) -> int:
        """What BODYCRC says: CRC-32 of the stored body without its top bit."""
        return crc32(self.body) if self.body_crc is None else self.body_crc

    @property
    def size(self) -> int:
        """TOTALSIZE."""
        return len(encode(self))

    @property
    def properties_map(self) -> dict[str, str]:
        return split_properties(self.properties)

    @property
    def tags(self) -> str | None:
        return self.properties_map.get("TAGS")

    @property
    def transaction(self) -> int:
        return self.sys_flag & ROLLBACK

    @property
    def offset_msg_id(self) -> str:
        """MessageDecoder#createMessageId: ip, port, position; upper-case hex."""
        ip, port = self.store_host.ip, self.store_host.port
        return (ip + struct.pack(">iq", port, self.physical_offset)).hex().upper()

    @property
    def msg_id(self) -> str:
        return self.properties_map.get("UNIQ_KEY", self.offset_msg_id)


def crc32(data: bytes) -> int:
    """UtilAll#crc32."""
    return zlib.crc32(data) & 0x7FFFFFFF


def pack_host(host: Host) -> bytes:
    return host.ip + struct.pack(">i", host.port)


def encode(m: Message) -> bytes:
    """MessageExtEncoder#encode, V1 and V2. The host bits of sysFlag must fit the hosts."""
    assert bool(m.sys_flag & BORN_V6) == (len(m.born_host.ip) == 16)
    assert bool(m.sys_flag & STORE_V6) == (len(m.store_host.ip) == 16)
    topic = m.topic.encode()
    after_size = (
        struct.pack(">iiiiqqi", m.magic, m.crc, m.queue_id, m.flag, m.queue_offset,
                    m.physical_offset, m.sys_flag)
        + struct.pack(">q", m.born_timestamp_ms)
        + pack_host(m.born_host)
        + struct.pack(">q", m.store_timestamp_ms)
        + pack_host(m.store_host)
        + struct.pack(">iq", m.reconsume_times, m.prepared_transaction_offset)
        + struct.pack(">i", len(m.body))
        + m.body
        + struct.pack(">" + LENGTHS[m.magic][0], len(topic))
        + topic
        + struct.pack(">" + LENGTHS[m.magic][1], len(m.properties))
        + m.properties
    )  # fmt: skip
    return struct.pack(">i", 4 + len(after_size)) + after_size


class _Cursor:
    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise NotARecordError(f"{count} bytes at {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self, code: str) -> int:
        value: int = struct.unpack(">" + code, self.take(struct.calcsize(code)))[0]
        return value


def decode(data: bytes, position: int = 0) -> Message:
    """CommitLog#checkMessageAndReturnSize: the record at `position`, and nothing but a record."""
    at = _Cursor(data, position)
    size = at.number("i")
    magic = at.number("i")
    if magic not in LENGTHS:
        raise NotARecordError(f"magic {magic:#x}")
    body_crc = at.number("i")
    queue_id = at.number("i")
    flag = at.number("i")
    queue_offset = at.number("q")
    physical_offset = at.number("q")
    sys_flag = at.number("i")
    born_timestamp_ms = at.number("q")
    born_host = Host(ip=at.take(16 if sys_flag & BORN_V6 else 4), port=at.number("i"))
    store_timestamp_ms = at.number("q")
    store_host = Host(ip=at.take(16 if sys_flag & STORE_V6 else 4), port=at.number("i"))
    reconsume_times = at.number("i")
    prepared_transaction_offset = at.number("q")
    body = at.take(max(0, at.number("i")))  # a length below 0 is none, as for the broker
    topic_length, properties_length = LENGTHS[magic]
    topic = at.take(at.number(topic_length)).decode()
    properties = at.take(max(0, at.number(properties_length)))
    if at.position - position != size:
        raise NotARecordError(f"TOTALSIZE {size}, fields {at.position - position}")
    return Message(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
        store_timestamp_ms=store_timestamp_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        magic=magic,
        body_crc=None if body_crc == crc32(body) else body_crc,
    )


def walk(data: bytes) -> Iterator[tuple[int, Message]]:
    """Yield (position, record) of one CommitLog file, up to its blank record or first zero."""
    position = 0
    while position + 8 <= len(data):
        size, magic = struct.unpack_from(">ii", data, position)
        if magic in (0, BLANK):
            return
        yield position, decode(data, position)
        position += size


def walk_entries(data: bytes) -> Iterator[tuple[int, Message]]:
    """Yield (position, record) of one file of DLedger entries, up to its blank entry or zero."""
    position = 0
    while position + 8 <= len(data):
        magic, size = struct.unpack_from(">ii", data, position)
        if magic in (0, -1):
            return
        yield position + 48, decode(data, position + 48)
        position += size


def blank(room: int) -> bytes:
    """The blank record that fills a file's last `room` bytes."""
    return struct.pack(">ii", room, BLANK).ljust(room, b"\0")


# --- properties -----------------------------------------------------------------------------


def split_properties(block: bytes) -> dict[str, str]:
    """MessageDecoder#string2messageProperties (since 4.9.1), index by index as the Java does."""
    text = block.decode(errors="replace")
    found: dict[str, str] = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        end = len(text) if end < 0 else end
        if end - index >= 3:
            divider = text.find("\x01", index)
            if index < divider < end - 1:
                found[text[index:divider]] = text[divider + 1 : end]
        index = end + 1
    return found


def join_properties(properties: dict[str, str], *, trailing: bool = True) -> bytes:
    """MessageDecoder#messageProperties2String; without the last separator as 4.9.1 to 5.1.4."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return (text if trailing else text[:-1]).encode()


def with_property_crc(m: Message) -> Message:
    """Append ``__CRC32#`` as enabledAppendPropCRC does."""
    gap = b"" if not m.properties or m.properties.endswith(b"\x02") else b"\x02"
    empty = _CRC_NAME + b"0" * 10 + b"\x02"
    return sealed(replace(m, properties=m.properties + gap + empty))


def sealed(m: Message) -> Message:
    """Return a record that ends in ``__CRC32#`` with the right one, least digit first.

    The sum covers all that comes before it, with offsets and store time as they are.
    """
    if m.properties[-20:-11] != _CRC_NAME:
        return m
    digits = f"{crc32(encode(m)[:-20]):010d}"[::-1].encode()
    return replace(m, properties=m.properties[:-11] + digits + b"\x02")


# --- bodies ---------------------------------------------------------------------------------


def compress(body: bytes, codec: int) -> bytes:
    """CompressorFactory: what a producer puts into the body; codec is ZLIB, LZ4, ZSTD or 0."""
    if codec in (0, ZLIB):
        return zlib.compress(body, 5)
    if codec == ZSTD:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:  # no content size in the frame
            stream.write(body)
        return sink.getvalue().to_pybytes()
    frame = bytes.fromhex("04224d18607073")  # LZ4FrameOutputStream's header
    for start in range(0, len(body), 4 << 20):
        raw = body[start : start + (4 << 20)]
        packed = pa.compress(raw, codec="lz4_raw", asbytes=True)
        stored = len(packed) >= len(raw)
        frame += struct.pack("<I", len(raw) | 1 << 31 if stored else len(packed))
        frame += raw if stored else packed
    return frame + bytes(4)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """MessageDecoder#decode: the body as the producer had it."""
    if not sys_flag & COMPRESSED or not body:
        return body
    codec = sys_flag & 0x700
    if codec in (0, ZLIB):
        return zlib.decompress(body)
    stream = pa.CompressedInputStream(pa.BufferReader(body), {LZ4: "lz4", ZSTD: "zstd"}[codec])
    return stream.read()


# --- ConsumeQueue ---------------------------------------------------------------------------


def java_hash(text: str) -> int:
    """String#hashCode."""
    h = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        h = (31 * h + unit) % 2**32
    return h - 2**32 if h >= 2**31 else h


def tags_code(m: Message) -> int:
    """What CommitLog#checkMessageAndReturnSize puts into the DispatchRequest."""
    properties = m.properties_map
    level = int(properties.get("DELAY", "0")) if m.topic == SCHEDULE_TOPIC else 0
    if level > 0:
        return m.store_timestamp_ms + 1000 * LEVELS_S[min(level, 18) - 1]
    return java_hash(properties.get("TAGS", ""))


def unit(m: Message) -> bytes:
    """ConsumeQueue#putMessagePositionInfo."""
    return struct.pack(">qiq", m.physical_offset, m.size, tags_code(m))


# --- IndexFile ------------------------------------------------------------------------------


def index_keys(m: Message, *, tags: bool) -> list[str]:
    """IndexService#buildIndex: UNIQ_KEY, then each of KEYS, then (5.5.0) the tags."""
    properties = m.properties_map
    keys = []
    if properties.get("UNIQ_KEY"):
        keys.append(f"{m.topic}#{properties['UNIQ_KEY']}")
    keys += [f"{m.topic}#{key}" for key in properties.get("KEYS", "").split(" ") if key]
    if tags and properties.get("TAGS"):
        keys.append(f"{m.topic}#T#{properties['TAGS']}")
    return keys


def key_hash(key: str) -> int:
    """IndexFile#indexKeyHashMethod: Java's abs(-2^31) is negative, and becomes 0."""
    h = abs(java_hash(key))
    return 0 if h == 2**31 else h


class IndexFile:
    """One file, unit by unit, as IndexFile#putKey."""

    def __init__(self, slots: int, units: int, *, end_timestamp_ms: int = 0, end: int = 0) -> None:
        # A rolled file starts with the end values of the file before it.
        self.slots, self.units = [0] * slots, units
        self.begin_timestamp_ms = self.end_timestamp_ms = end_timestamp_ms
        self.begin = self.end = end
        self.used, self.count = 0, 1
        self.entries: list[tuple[int, int, int, int]] = []

    @property
    def full(self) -> bool:
        return self.count >= self.units

    def put(self, key: str, physical_offset: int, store_timestamp_ms: int) -> None:
        h = key_hash(key)
        slot = h % len(self.slots)
        previous = self.slots[slot]
        previous = previous if 0 < previous <= self.count else 0
        seconds = int((store_timestamp_ms - self.begin_timestamp_ms) / 1000)
        if self.begin_timestamp_ms <= 0:
            seconds = 0
        self.entries.append((h, physical_offset, max(0, min(seconds, 2**31 - 1)), previous))
        if self.count <= 1:
            self.begin, self.begin_timestamp_ms = physical_offset, store_timestamp_ms
        self.used += previous == 0
        self.slots[slot] = self.count
        self.count += 1
        self.end, self.end_timestamp_ms = physical_offset, store_timestamp_ms

    def bytes(self) -> bytes:
        header = struct.pack(
            ">qqqqii", self.begin_timestamp_ms, self.end_timestamp_ms, self.begin, self.end,
            self.used, self.count,
        )  # fmt: skip
        slots = struct.pack(f">{len(self.slots)}i", *self.slots)
        units = b"".join(struct.pack(">iqii", *entry) for entry in self.entries)
        size = 40 + 4 * len(self.slots) + 20 * self.units
        return (header + slots + bytes(20) + units).ljust(size, b"\0")


def index_files(
    messages: list[Message], *, slots: int, units: int, tags: bool
) -> Iterator[IndexFile]:
    """Yield the files a broker makes of `messages`, which come in log order."""
    current: IndexFile | None = None
    for m in messages:
        if m.transaction == ROLLBACK or (current and m.physical_offset < current.end):
            continue
        for key in index_keys(m, tags=tags):
            if current is None:
                current = IndexFile(slots, units)
            elif current.full:
                yield current
                current = IndexFile(
                    slots, units, end_timestamp_ms=current.end_timestamp_ms, end=current.end
                )
            current.put(key, m.physical_offset, m.store_timestamp_ms)
    if current:
        yield current
