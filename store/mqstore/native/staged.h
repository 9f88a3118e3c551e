/* Frames of staged files, as a commit takes them: layout in format/staged.py.
 *
 * Twins of write/staged_messages.py (are the records sound?) and write/dispatch.py (their
 * ConsumeQueue units).
 */
#ifndef MQ_STAGED_H
#define MQ_STAGED_H

#include "frames.h"

enum {
    MESSAGE_BYTES = 28,
    AT_MESSAGE_QUEUE = 0,
    AT_MESSAGE_SIZE = 4,
    AT_MESSAGE_DELAY_LEVEL = 9,
    AT_MESSAGE_TAGS_CODE = 12,
    AT_MESSAGE_STORE_TIMESTAMP = 20,
    UNIT_BYTES = 20,
    RUN_BYTES = 32 * 1024, /* of records, looked at and summed before they leave the cache */
};

/* Queue k is number queue_ids[k] of the topic topic_data[topic_edges[k] .. topic_edges[k + 1]). */
typedef struct {
    const int64_t *queue_ids;
    const int32_t *topic_edges;
    const uint8_t *topic_data;
    int64_t count;
} QueueNames;

enum { SYS_TRANSACTION = 0xC, SYS_PREPARED = 0x4, SYS_ROLLED_BACK = 0xC };

/* The MESSAGE table and the records, end to end, of one frame. */
typedef struct {
    const uint8_t *messages;
    int64_t count;
    uint8_t *records;
    int64_t length;
} Staged;

static inline int64_t staged_i32(const Staged *s, int64_t i, int at)
{
    int32_t value;
    memcpy(&value, s->messages + i * MESSAGE_BYTES + at, sizeof value);
    return once(value);
}

static inline int64_t staged_i64(const Staged *s, int64_t i, int at)
{
    int64_t value;
    memcpy(&value, s->messages + i * MESSAGE_BYTES + at, sizeof value);
    return once(value);
}

/* Whether the record is of that queue, and one that queues have. */
static inline int is_in_queue(const Record *r, int64_t queue, const QueueNames *queues)
{
    int32_t state = r->sys_flag & SYS_TRANSACTION;
    if (state == SYS_PREPARED || state == SYS_ROLLED_BACK || queue < 0 || queue >= queues->count)
        return 0;
    const int32_t *edge = queues->topic_edges + queue;
    return load_i32(r->start + AT_QUEUE_ID) == queues->queue_ids[queue] &&
           r->topic_length == (int64_t)edge[1] - edge[0] &&
           same_bytes(r->topic, queues->topic_data + edge[0], r->topic_length);
}

/* Where the run of records ends that starts with record i at `at`; 0 if one claims too much. */
static const uint8_t *run_end(const Staged *s, int64_t i, const uint8_t *at, const uint8_t *end)
{
    for (const uint8_t *start = at; i < s->count && at - start < RUN_BYTES; i++) {
        int64_t size = staged_i32(s, i, AT_MESSAGE_SIZE);
        if (size < MIN_RECORD || size > MOST_RECORD || size > end - at)
            return 0;
        at += size;
    }
    return at;
}

/* DONE if the records are those of the table, each whole and of its queue; `sum`, the CRC-32 of
 * what stands before them in the frame, becomes that of both.
 *
 * The sum of a run comes first: it reads all bytes in order, and the checks then find in the
 * cache what lies here and there.
 */
int64_t mq_verify_staged(const Staged *s, const QueueNames *queues, uint32_t *sum)
{
    Record r;
    const uint8_t *at = s->records, *end = at + s->length;
    uint32_t state = ~*sum;
    for (int64_t i = 0; i < s->count;) {
        const uint8_t *stop = run_end(s, i, at, end);
        if (!stop)
            return NOT_MINE;
        state = crc_chosen(state, at, stop - at);
        for (; at < stop; at = r.end, i++)
            if (!read_record(&r, at, staged_i32(s, i, AT_MESSAGE_SIZE)) ||
                !is_in_queue(&r, staged_i32(s, i, AT_MESSAGE_QUEUE), queues))
                return NOT_MINE;
    }
    *sum = ~state;
    return at == end ? DONE : NOT_MINE;
}

/* Write the units of all messages, those of each queue together: `next[q]` is where the next one of
 * queue q goes. NOT_MINE if a message is delayed.
 */
int64_t mq_make_units(const Staged *s, const int64_t *physical_offsets, int64_t *next,
                      int64_t queues, uint8_t *units)
{
    for (int64_t i = 0; i < s->count; i++) {
        int64_t queue = staged_i32(s, i, AT_MESSAGE_QUEUE);
        if (queue < 0 || queue >= queues || next[queue] < 0 || next[queue] >= s->count ||
            s->messages[i * MESSAGE_BYTES + AT_MESSAGE_DELAY_LEVEL])
            return NOT_MINE;
        uint8_t *unit = units + next[queue]++ * UNIT_BYTES;
        store_i64(unit, (uint64_t)physical_offsets[i]);
        store_i32(unit + 8, (uint32_t)staged_i32(s, i, AT_MESSAGE_SIZE));
        store_i64(unit + 12, (uint64_t)staged_i64(s, i, AT_MESSAGE_TAGS_CODE));
    }
    return DONE;
}

#endif
