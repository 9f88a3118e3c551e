/* Columns to property blocks and records; twins of codec/properties_encode.py and encode.py.
 * The columns are Arrow's, of this process; what is written is bounded by `room`.
 */
#ifndef MQ_ENCODE_H
#define MQ_ENCODE_H

#include "record.h"

enum { MOST_PROPERTIES = 32767 };

/* A string or binary column of Arrow: value i is data[edges[i] .. edges[i + 1]). */
typedef struct {
    const int32_t *edges;
    const uint8_t *data;
    const uint8_t *valid; /* a bit each, from `valid_from` on; null: all are there */
    int64_t valid_from;
} Column;

/* One part of each block: `prefix value suffix`, or the prefix alone where there is no column. */
typedef struct {
    const uint8_t *prefix;
    int64_t prefix_length;
    int64_t suffix; /* a byte behind the value; 0: none */
    Column values;
} Piece;

static inline int has_value(const Column *c, int64_t i)
{
    int64_t bit = c->valid_from + i;
    return !c->valid || (c->valid[bit >> 3] >> (bit & 7) & 1);
}

/* Write the blocks of n rows end to end: block i is data[edges[i] .. edges[i + 1]). */
int64_t mq_join_blocks(const Piece *pieces, int64_t count, int64_t n, int32_t *edges,
                       uint8_t *data, int64_t room)
{
    int64_t used = 0;
    edges[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        for (const Piece *p = pieces; p < pieces + count; p++) {
            const Column *c = &p->values;
            int64_t length = 0;
            if (c->edges && !has_value(c, i))
                continue;
            if (c->edges)
                length = (int64_t)c->edges[i + 1] - c->edges[i];
            if (length < 0 || p->prefix_length + length + 1 > room - used)
                return NOT_MINE;
            memcpy(data + used, p->prefix, (size_t)p->prefix_length);
            used += p->prefix_length;
            if (length)
                memcpy(data + used, c->data + c->edges[i], (size_t)length);
            used += length;
            if (p->suffix)
                data[used++] = (uint8_t)p->suffix;
        }
        edges[i + 1] = (int32_t)used;
    }
    return DONE;
}

typedef struct {
    int64_t rows;         /* of the columns */
    const int64_t *order; /* which row becomes record i; null: row i */
    const uint8_t *header; /* what all records share, of `header_length` bytes */
    int64_t header_length;
    int64_t topics;
    const int32_t *topic_edges; /* topics end to end, each with its length byte before it */
    const uint8_t *topic_data;
    const int32_t *topic, *queue_ids, *flags, *sys_flags;
    const int64_t *born_timestamps_ms;
    Column bodies, properties;
} Encoding;

enum { ROWS_AHEAD = 4, LEAST_AHEAD = 512, MOST_AHEAD = 2048 };

/* Begin to load a body to come, while the records before it are made; short ones follow so close
 * on each other that the processor does it by itself. A compiler may drop a call of a function
 * that does nothing else, so it is none.
 */
static inline __attribute__((always_inline)) void
load_ahead(const Encoding *e, int64_t record, int64_t count)
{
    if (record >= count)
        return;
    int64_t row = e->order ? e->order[record] : record;
    if (row < 0 || row >= e->rows)
        return;
    int64_t from = e->bodies.edges[row], length = e->bodies.edges[row + 1] - from;
    for (int64_t at = 0; length >= LEAST_AHEAD && at < length && at < MOST_AHEAD; at += 64)
        __builtin_prefetch(e->bodies.data + from + at);
}

/* Write `count` records end to end; record i must take sizes[i] bytes. */
int64_t mq_encode(const Encoding *e, int64_t count, const int64_t *sizes, uint8_t *out,
                  int64_t room)
{
    uint8_t *to = out;
    if (e->header_length < HEADER_BYTES)
        return NOT_MINE;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = e->order ? e->order[i] : i;
        load_ahead(e, i + ROWS_AHEAD, count);
        if (row < 0 || row >= e->rows || e->topic[row] < 0 || e->topic[row] >= e->topics)
            return NOT_MINE;
        const int32_t *body_edge = e->bodies.edges + row, *block_edge = e->properties.edges + row;
        const int32_t *topic_edge = e->topic_edges + e->topic[row];
        int64_t body = (int64_t)body_edge[1] - body_edge[0];
        int64_t block = (int64_t)block_edge[1] - block_edge[0];
        int64_t topic = (int64_t)topic_edge[1] - topic_edge[0];
        int64_t size = e->header_length + body + topic + 2 + block;
        if (body < 0 || block < 0 || block > MOST_PROPERTIES || size != sizes[i] ||
            size > room - (to - out))
            return NOT_MINE;
        uint8_t *body_at = to + e->header_length, *topic_at = body_at + body;
        uint8_t *block_at = topic_at + topic + 2;
        memcpy(to, e->header, (size_t)e->header_length);
        if (body)
            memcpy(body_at, e->bodies.data + *body_edge, (size_t)body);
        memcpy(topic_at, e->topic_data + *topic_edge, (size_t)topic);
        block_at[-2] = (uint8_t)(block >> 8);
        block_at[-1] = (uint8_t)block;
        if (block)
            memcpy(block_at, e->properties.data + *block_edge, (size_t)block);
        store_i32(to + AT_SIZE, (uint32_t)size);
        store_i32(to + AT_BODY_CRC, body ? crc32_of(body_at, body) : 0);
        store_i32(to + AT_QUEUE_ID, (uint32_t)e->queue_ids[row]);
        store_i32(to + AT_FLAG, (uint32_t)e->flags[row]);
        store_i32(to + AT_SYS_FLAG, (uint32_t)e->sys_flags[row]);
        store_i64(to + AT_BORN_TIMESTAMP, (uint64_t)e->born_timestamps_ms[row]);
        store_i32(body_at - 4, (uint32_t)body);
        to += size;
    }
    return to - out == room ? DONE : NOT_MINE;
}

#endif
