/* Units that the records of a log imply for their ConsumeQueues, in one pass over the log's bytes.
 *
 * Twin of codec/walk.py, dispatch.py and what derive/log_sections.py makes of them. It stops before
 * a record that is not whole or not in its place, and before one with light queues, a tag that is
 * not ASCII, or a topic that is not or is too long: numpy looks at that one.
 */
#ifndef MQ_WALK_H
#define MQ_WALK_H

#include "frames.h"
#include "properties.h"

enum { SYS_TRANSACTION = 0xC, SYS_PREPARED = 0x4, SYS_ROLLED_BACK = 0xC };
enum { NAME_ROOM = 256, SYS_INNER_BATCH = 0x80, NO_SLOT = -1 };

typedef struct {
    const uint8_t *topic;
    int64_t topic_length;
    int32_t queue_id;
} KnownQueue;

/* The n < 8 bytes at p as a number; nothing is read at `limit` or behind it. */
static inline uint64_t short_word(const uint8_t *p, int64_t n, const uint8_t *limit)
{
    uint64_t word = 0;
    if (limit - p < 8) {
        memcpy(&word, p, (size_t)n);
        return word;
    }
    memcpy(&word, p, 8);
    return word & (((uint64_t)1 << (8 * n)) - 1);
}

static inline uint32_t queue_hash(const KnownQueue *q, const uint8_t *limit)
{
    uint64_t hash = (uint64_t)(uint32_t)q->queue_id * 0x9E3779B97F4A7C15u + (uint64_t)q->topic_length;
    const uint8_t *p = q->topic;
    for (int64_t n = q->topic_length; n > 0; n -= 8, p += 8) {
        uint64_t word;
        if (n < 8)
            word = short_word(p, n, limit);
        else
            memcpy(&word, p, 8);
        hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

typedef struct {
    uint8_t topic[NAME_ROOM];
    int32_t topic_length, queue_id;
} NamedQueue;

/* Rows of units, and the queues they are of; calls add to them until either has no room. */
typedef struct {
    int64_t *queue_offsets, *physical_offsets, *sizes, *tags_codes, *store_timestamps_ms;
    uint8_t *holds_several;
    uint16_t *queue; /* which of `names` */
    int64_t rows, room;
    NamedQueue *names;
    int16_t *slots; /* a power of two of them, twice queue_room or more; NO_SLOT in the free ones */
    int64_t queues, queue_room, slot_count;
    const int64_t *delays_ms; /* of delay level i; `delays` of them, at least one */
    int64_t delays;
    int64_t highest_queue_offset; /* records with a higher one, or a negative one, get no row */
    int64_t limit;                /* physical offset from which on records are not walked over */
    int64_t end;                  /* where the last call stopped */
    int64_t last_ms;              /* store timestamp of the last record before `end`, if any */
} UnitRows;

static inline int is_named(const Entry *entry, const char *name, int32_t length)
{
    return entry->name_length == length && !memcmp(entry->name, name, (size_t)length);
}

static const char SCHEDULE_TOPIC[] = "SCHEDULE_TOPIC_XXXX";

static inline int is_schedule_topic(const uint8_t *topic, int64_t length)
{
    return length == (int64_t)sizeof SCHEDULE_TOPIC - 1 &&
           !memcmp(topic, SCHEDULE_TOPIC, sizeof SCHEDULE_TOPIC - 1);
}

/* Return the queue's number, a new one if it is not known; -FULL or -NOT_MINE. */
static int64_t named_queue(UnitRows *u, const KnownQueue *own, const uint8_t *limit)
{
    uint32_t mask = (uint32_t)u->slot_count - 1, slot = queue_hash(own, limit) & mask;
    for (; u->slots[slot] != NO_SLOT; slot = (slot + 1) & mask) {
        const NamedQueue *known = &u->names[u->slots[slot]];
        if (known->queue_id == own->queue_id && known->topic_length == own->topic_length &&
            same_bytes(own->topic, known->topic, own->topic_length))
            return u->slots[slot];
    }
    if (own->topic_length > NAME_ROOM)
        return -NOT_MINE;
    if (u->queues == u->queue_room)
        return -FULL;
    NamedQueue *name = &u->names[u->queues];
    memcpy(name->topic, own->topic, (size_t)own->topic_length);
    uint8_t above = 0;
    for (int64_t i = 0; i < own->topic_length; i++)
        above |= name->topic[i];
    if (above & 0x80)
        return -NOT_MINE;
    name->topic_length = (int32_t)own->topic_length;
    name->queue_id = own->queue_id;
    u->slots[slot] = (int16_t)u->queues;
    return u->queues++;
}

/* The number in DELAY, of one to nine digits; 0 for anything else. */
static int64_t delay_level(const Entry *delay)
{
    int64_t level = 0;
    if (!delay || delay->value_length > 9)
        return 0;
    for (int32_t i = 0; i < delay->value_length; i++) {
        uint8_t digit = (uint8_t)(delay->value[i] - '0');
        if (digit > 9)
            return 0;
        level = 10 * level + digit;
    }
    return level;
}

/* The hash of TAGS, 0 without; of equal names the last stands. False if a tag is not ASCII. */
static inline int tags_hash(const Entry *tags, int64_t *code)
{
    uint32_t hash = 0, above = 0;
    for (int32_t at = 0; tags && at < tags->value_length; at++) {
        hash = 31 * hash + tags->value[at];
        above |= tags->value[at];
    }
    *code = (int32_t)hash;
    return !(above >> 7);
}

/* Put the tagsCode of a record into a row; false if numpy has to look. */
static inline int put_tags_code(const UnitRows *u, const Record *r, const uint8_t *limit,
                                int64_t row)
{
    Entries found;
    uint32_t high = 0;
    const Entry *tags = 0, *delay = 0;
    if (!split_properties(r->properties, r->end, limit, &found, &high))
        return 0;
    for (const Entry *entry = found.entries; entry < found.entries + found.count; entry++) {
        if (is_named(entry, "TAGS", 4))
            tags = entry;
        else if (is_named(entry, "DELAY", 5))
            delay = entry;
        else if (is_named(entry, "INNER_MULTI_DISPATCH", 20)) /* names light queues */
            return 0;
    }
    if (!tags_hash(tags, &u->tags_codes[row]))
        return 0;
    int64_t level = is_schedule_topic(r->topic, r->topic_length) ? delay_level(delay) : 0;
    if (level > 0)
        u->tags_codes[row] = (int64_t)((uint64_t)u->store_timestamps_ms[row] +
                                       (uint64_t)u->delays_ms[level < u->delays ? level : u->delays - 1]);
    return 1;
}

/* Add the unit of a whole record; DONE also where a record has none. */
static inline int64_t add_unit(UnitRows *u, const Record *r, const uint8_t *limit, int64_t place)
{
    int32_t state = r->sys_flag & SYS_TRANSACTION;
    int64_t row = u->rows, number = load_i64(r->start + AT_QUEUE_OFFSET);
    int64_t ms = load_i64(r->start + AT_STORE_TIMESTAMP + r->born_more);
    if (row == u->room)
        return FULL;
    u->store_timestamps_ms[row] = ms;
    if (!put_tags_code(u, r, limit, row))
        return NOT_MINE;
    if (state != SYS_PREPARED && state != SYS_ROLLED_BACK && number >= 0 &&
        number <= u->highest_queue_offset) {
        KnownQueue own = {r->topic, r->topic_length, load_i32(r->start + AT_QUEUE_ID)};
        int64_t queue = named_queue(u, &own, limit);
        if (queue < 0)
            return -queue;
        u->queue_offsets[row] = number;
        u->physical_offsets[row] = place;
        u->sizes[row] = r->end - r->start;
        u->holds_several[row] = (r->sys_flag & SYS_INNER_BATCH) != 0;
        u->queue[row] = (uint16_t)queue;
        u->rows++;
    }
    u->last_ms = ms;
    return DONE;
}

/* Walk from byte 0 on, which is `physical_offset` of the log, up to where no whole record follows.
 *
 * NOT_MINE: numpy must look at the record at `end`; FULL: there is no room for it.
 */
int64_t mq_log_units(const uint8_t *buffer, int64_t length, int64_t physical_offset, UnitRows *u)
{
    const uint8_t *limit = buffer + length;
    int64_t result = DONE, at = 0;
    Record r;
    int64_t size;
    while (physical_offset + at < u->limit && (size = stated_size(buffer + at, length - at))) {
        int64_t place = physical_offset + at;
        result = NOT_MINE;
        if (!read_record(&r, buffer + at, size) || load_i64(r.start + AT_PHYSICAL_OFFSET) != place)
            break;
        result = add_unit(u, &r, limit, place);
        if (result != DONE)
            break;
        at += size;
    }
    u->end = at;
    return result;
}

#endif
