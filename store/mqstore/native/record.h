/* One record of a CommitLog: its rules, checked before anything of it is used.
 *
 * The layout and its reference are in format/message.py; the numpy twin of these rules is
 * codec/gather.py. A record that breaks any of them is not a kernel's.
 */
#ifndef MQ_RECORD_H
#define MQ_RECORD_H

#include "crc32.h"
#include "record_versions.h"

enum {
    AT_SIZE = 0,
    AT_MAGIC = 4,
    AT_BODY_CRC = 8,
    AT_QUEUE_ID = 12,
    AT_FLAG = 16,
    AT_QUEUE_OFFSET = 20,
    AT_PHYSICAL_OFFSET = 28,
    AT_SYS_FLAG = 36,
    AT_BORN_TIMESTAMP = 40,
    AT_BORN_HOST = 48,
    AT_STORE_TIMESTAMP = 56, /* this and what follows: 12 more for each IPv6 host before it */
    AT_STORE_HOST = 64,
    HEADER_BYTES = 88,
    MIN_RECORD = HEADER_BYTES + LEAST_LENGTHS,
    MOST_RECORD = 64 * 1024 * 1024, /* format/message.py: HARD_RECORD_BYTES */
    V6_MORE = 12,
    SYS_BORN_V6 = 0x10,
    SYS_STORE_V6 = 0x20,
    CRC_PROPERTY_BYTES = 20, /* __CRC32# 0x01, ten digits, 0x02 */
};

typedef struct {
    const uint8_t *start, *end;
    const uint8_t *body, *topic, *properties;
    int64_t body_length, topic_length, properties_length;
    int32_t sys_flag;
    int32_t born_more, store_more; /* 12 for an IPv6 host, else 0 */
} Record;

/* The version with that magic, or null. */
static inline const RecordVersion *version_of(int32_t magic)
{
    enum { VERSIONS = sizeof RECORD_VERSIONS / sizeof *RECORD_VERSIONS };
    for (int i = 0; i < VERSIONS; i++)
        if (RECORD_VERSIONS[i].magic == magic)
            return &RECORD_VERSIONS[i];
    return 0;
}

/* A length of 1, 2 or 4 bytes, signed. */
static inline int64_t load_length(const uint8_t *p, int64_t bytes)
{
    return bytes == 2 ? load_i16(p) : bytes == 1 ? once((int8_t)*p) : load_i32(p);
}

/* The size that a record states at p, of which `room` bytes are there; 0 if there is none. */
static inline int64_t stated_size(const uint8_t *p, int64_t room)
{
    if (room < 8 || !version_of(load_i32(p + AT_MAGIC)))
        return 0;
    int64_t size = load_i32(p + AT_SIZE);
    return size < MIN_RECORD || size > MOST_RECORD || size > room ? 0 : size;
}

/* Read the record that takes [start, start + size); false if it is none of that size. */
static inline int read_record(Record *r, const uint8_t *start, int64_t size)
{
    if (size < MIN_RECORD)
        return 0;
    const RecordVersion *version = version_of(load_i32(start + AT_MAGIC));
    if (!version || load_i32(start + AT_SIZE) != size)
        return 0;
    int64_t topic_word = version->topic_word, properties_word = version->properties_word;
    r->start = start;
    r->end = start + size;
    r->sys_flag = load_i32(start + AT_SYS_FLAG);
    r->born_more = r->sys_flag & SYS_BORN_V6 ? V6_MORE : 0;
    r->store_more = r->sys_flag & SYS_STORE_V6 ? V6_MORE : 0;
    int64_t header = HEADER_BYTES + r->born_more + r->store_more;
    int64_t room = size - header - topic_word - properties_word;
    if (room < 0)
        return 0;
    r->body = start + header;
    r->body_length = load_i32(r->body - 4);
    if (r->body_length < 0 || r->body_length > room)
        return 0;
    room -= r->body_length;
    r->topic = r->body + r->body_length + topic_word;
    r->topic_length = load_length(r->topic - topic_word, topic_word);
    if (r->topic_length <= 0 || r->topic_length > room)
        return 0;
    room -= r->topic_length;
    r->properties = r->topic + r->topic_length + properties_word;
    r->properties_length = load_length(r->properties - properties_word, properties_word);
    return r->properties_length == room;
}

/* Whether the record ends in the property __CRC32#, which covers all before it. */
static inline int has_record_crc(const Record *r)
{
    return r->properties_length >= CRC_PROPERTY_BYTES &&
           !memcmp(r->end - CRC_PROPERTY_BYTES, "__CRC32#\1", 9);
}

static int record_crc_holds(const Record *r)
{
    const uint8_t *digit = r->end - 11;
    uint32_t sum = crc32_of(r->start, r->end - r->start - CRC_PROPERTY_BYTES);
    for (int i = 0; i < 10; i++, sum /= 10) /* the least digit first */
        if (digit[i] != '0' + sum % 10)
            return 0;
    return digit[10] == 2;
}

/* Whether the checksums hold: of a body that is not empty, of the record where it has one. */
static inline int checksums_hold(const Record *r)
{
    if (r->body_length &&
        crc32_of(r->body, r->body_length) != (uint32_t)load_i32(r->start + AT_BODY_CRC))
        return 0;
    return !has_record_crc(r) || record_crc_holds(r);
}

#endif
