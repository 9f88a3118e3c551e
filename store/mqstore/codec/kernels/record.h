/* One record of a CommitLog: its rules, checked before anything of it is used.
 *
 * The layout and its reference are in format/message.py; the numpy twin of these rules is
 * codec/gather.py. A record that breaks any of them is not a kernel's.
 */
#ifndef MQ_RECORD_H
#define MQ_RECORD_H

#include "crc32.h"

enum {
    MAGIC_V1 = -626843481,
    MAGIC_V2 = -626843477,
    MIN_RECORD = 91,
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

/* Read the record that takes [start, start + size); false if it is none of that size. */
static inline int read_record(Record *r, const uint8_t *start, int64_t size)
{
    if (size < MIN_RECORD)
        return 0;
    int32_t magic = load_i32(start + AT_MAGIC);
    int64_t topic_word = magic == MAGIC_V2 ? 2 : 1;
    if ((magic != MAGIC_V1 && magic != MAGIC_V2) || load_i32(start + AT_SIZE) != size)
        return 0;
    r->start = start;
    r->end = start + size;
    r->sys_flag = load_i32(start + AT_SYS_FLAG);
    r->born_more = r->sys_flag & SYS_BORN_V6 ? V6_MORE : 0;
    r->store_more = r->sys_flag & SYS_STORE_V6 ? V6_MORE : 0;
    int64_t header = HEADER_BYTES + r->born_more + r->store_more;
    int64_t room = size - header - topic_word - 2;
    if (room < 0)
        return 0;
    r->body = start + header;
    r->body_length = load_i32(r->body - 4);
    if (r->body_length < 0 || r->body_length > room)
        return 0;
    room -= r->body_length;
    r->topic = r->body + r->body_length + topic_word;
    r->topic_length = topic_word == 2 ? load_i16(r->topic - 2) : once((int8_t)r->topic[-1]);
    if (r->topic_length <= 0 || r->topic_length > room)
        return 0;
    room -= r->topic_length;
    r->properties = r->topic + r->topic_length + 2;
    r->properties_length = load_i16(r->properties - 2);
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
