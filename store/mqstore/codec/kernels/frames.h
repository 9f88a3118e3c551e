/* Records in a buffer: whether they are whole, their checksums, where each starts, their places.
 *
 * Twins of RecordHeaders.problems and codec/checksum.py, walk.py and patch.py. Where a record is
 * not whole they return NOT_MINE, and numpy tells which and why.
 */
#ifndef MQ_FRAMES_H
#define MQ_FRAMES_H

#include "record.h"

enum { MOST_RECORD = 64 * 1024 * 1024 }; /* format/message.py: HARD_RECORD_BYTES */

/* Records or slices of one buffer: i takes buffer[starts[i] .. starts[i] + sizes[i]). */
typedef struct {
    const uint8_t *buffer;
    int64_t length;
    const int64_t *starts, *sizes;
    int64_t count;
} Slices;

static inline int lies_within(const Slices *s, int64_t i)
{
    int64_t start = s->starts[i], size = s->sizes[i];
    return start >= 0 && size >= 0 && size <= s->length && start <= s->length - size;
}

/* DONE if each slice is a record that keeps all rules. */
int64_t mq_all_whole(const Slices *s)
{
    Record r;
    for (int64_t i = 0; i < s->count; i++)
        if (!lies_within(s, i) || !read_record(&r, s->buffer + s->starts[i], s->sizes[i]))
            return NOT_MINE;
    return DONE;
}

/* Tell for each record whether a checksum of it does not hold. */
int64_t mq_broken(const Slices *s, uint8_t *broken)
{
    Record r;
    for (int64_t i = 0; i < s->count; i++) {
        if (!lies_within(s, i) || !read_record(&r, s->buffer + s->starts[i], s->sizes[i]))
            return NOT_MINE;
        broken[i] = !checksums_hold(&r);
    }
    return DONE;
}

/* CRC-32 without its top bit of each slice, whatever it is. */
int64_t mq_checksums(const Slices *s, int64_t *sums)
{
    for (int64_t i = 0; i < s->count; i++) {
        if (!lies_within(s, i))
            return NOT_MINE;
        sums[i] = crc32_of(s->buffer + s->starts[i], s->sizes[i]);
    }
    return DONE;
}

/* Follow TOTALSIZE from byte 0 on for as long as there are whole records; return their number.
 *
 * At most `room` of them; `end` is where the walk stopped. Only sizes and magics are looked at.
 */
int64_t mq_follow(const uint8_t *buffer, int64_t length, int64_t *starts, int64_t *sizes,
                  int64_t room, int64_t *end)
{
    int64_t at = 0, count = 0;
    while (count < room && length - at >= 8) {
        int64_t size = load_i32(buffer + at + AT_SIZE);
        int32_t magic = load_i32(buffer + at + AT_MAGIC);
        if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < MIN_RECORD || size > MOST_RECORD ||
            size > length - at)
            break;
        starts[count] = at;
        sizes[count++] = size;
        at += size;
    }
    *end = at;
    return count;
}

/* What a commit gives each record. */
typedef struct {
    const int64_t *queue_offsets, *physical_offsets, *store_timestamps_ms;
    int64_t store_timestamp_at; /* 12 more for an IPv6 producer */
} Places;

/* Write the places into records; all of them are looked at before any is changed. */
int64_t mq_patch(uint8_t *records, int64_t length, const int64_t *starts, int64_t count,
                 const Places *p)
{
    int64_t header = p->store_timestamp_at + 8;
    if (p->store_timestamp_at < AT_STORE_TIMESTAMP || header > HEADER_BYTES)
        return NOT_MINE;
    for (int64_t i = 0; i < count; i++)
        if (starts[i] < 0 || starts[i] > length - header)
            return NOT_MINE;
    for (int64_t i = 0; i < count; i++) {
        uint8_t *start = records + starts[i];
        store_i64(start + AT_QUEUE_OFFSET, (uint64_t)p->queue_offsets[i]);
        store_i64(start + AT_PHYSICAL_OFFSET, (uint64_t)p->physical_offsets[i]);
        store_i64(start + p->store_timestamp_at, (uint64_t)p->store_timestamps_ms[i]);
    }
    return DONE;
}

#endif
