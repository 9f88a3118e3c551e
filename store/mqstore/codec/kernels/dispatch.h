/* What a broker derives from records for their ConsumeQueues, in one pass; twin of
 * codec/dispatch.py.
 */
#ifndef MQ_DISPATCH_H
#define MQ_DISPATCH_H

#include "frames.h"
#include "properties.h"

enum { MOST_QUEUES = 512, QUEUE_SLOTS = 1024 /* a power of two */ };

/* Of each record; and of each pair of topic and queue id the first record that has it. */
typedef struct {
    int64_t *queue_offsets, *physical_offsets, *store_timestamps_ms;
    int64_t *tags_codes; /* 0 without TAGS */
    int32_t *sys_flags;
    int32_t *queue; /* which of the pairs */
    int32_t *first; /* has room for MOST_QUEUES */
    int64_t queues;
    int64_t odd_tags; /* a tag is not ASCII: then tags_codes are not to be used */
    int64_t light;    /* records that name light queues */
} Dispatching;

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

/* Return which queue it is, a new one if it is not known; -1 if there are too many. */
static inline int64_t queue_number(const KnownQueue *wanted, KnownQueue *known, int64_t *count,
                                   int16_t *slots, const uint8_t *limit)
{
    uint32_t slot = queue_hash(wanted, limit) & (QUEUE_SLOTS - 1);
    for (;; slot = (slot + 1) & (QUEUE_SLOTS - 1)) {
        int64_t number = slots[slot];
        if (number < 0) {
            if (*count == MOST_QUEUES)
                return -1;
            known[*count] = *wanted;
            slots[slot] = (int16_t)*count;
            return (*count)++;
        }
        const KnownQueue *q = &known[number];
        if (q->queue_id == wanted->queue_id && q->topic_length == wanted->topic_length &&
            same_bytes(q->topic, wanted->topic, wanted->topic_length))
            return number;
    }
}

static inline int is_named(const Entry *entry, const char *name, int32_t length)
{
    return entry->name_length == length && !memcmp(entry->name, name, (size_t)length);
}

/* Take tag and light queues from the properties of record i; of equal names the last stands. */
static void dispatch_properties(const Entries *found, Dispatching *d, int64_t i)
{
    const Entry *tags = 0;
    for (const Entry *entry = found->entries; entry < found->entries + found->count; entry++) {
        if (is_named(entry, "TAGS", 4))
            tags = entry;
        d->light += is_named(entry, "INNER_MULTI_DISPATCH", 20);
    }
    uint32_t hash = 0, above = 0;
    for (int32_t at = 0; tags && at < tags->value_length; at++) {
        hash = 31 * hash + tags->value[at];
        above |= tags->value[at];
    }
    d->tags_codes[i] = (int32_t)hash;
    d->odd_tags |= above >> 7;
}

/* NOT_MINE if a record is not whole, or there are too many queues or properties. */
int64_t mq_dispatch(const Slices *s, Dispatching *d)
{
    KnownQueue known[MOST_QUEUES];
    int16_t slots[QUEUE_SLOTS];
    Entries found;
    Record r;
    uint32_t high = 0;
    memset(slots, 0xFF, sizeof slots);
    d->queues = d->odd_tags = d->light = 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (!lies_within(s, i) || !read_record(&r, s->buffer + s->starts[i], s->sizes[i]))
            return NOT_MINE;
        KnownQueue own = {r.topic, r.topic_length, load_i32(r.start + AT_QUEUE_ID)};
        const uint8_t *limit = s->buffer + s->length;
        int64_t before = d->queues, number = queue_number(&own, known, &d->queues, slots, limit);
        if (number < 0)
            return NOT_MINE;
        if (number == before)
            d->first[number] = (int32_t)i;
        d->queue[i] = (int32_t)number;
        d->queue_offsets[i] = load_i64(r.start + AT_QUEUE_OFFSET);
        d->physical_offsets[i] = load_i64(r.start + AT_PHYSICAL_OFFSET);
        d->store_timestamps_ms[i] = load_i64(r.start + AT_STORE_TIMESTAMP + r.born_more);
        d->sys_flags[i] = r.sys_flag;
        if (!split_properties(r.properties, r.end, limit, &found, &high))
            return NOT_MINE;
        dispatch_properties(&found, d, i);
    }
    return DONE;
}

#endif
