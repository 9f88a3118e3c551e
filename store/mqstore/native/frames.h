/* Records in a buffer: where each starts, and their checksums.
 *
 * Twins of codec/walk.py and checksum.py. Where a record is not whole the second returns NOT_MINE,
 * and numpy tells which and why.
 */
#ifndef MQ_FRAMES_H
#define MQ_FRAMES_H

#include "record.h"

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

/* Follow TOTALSIZE from byte 0 on for as long as there are whole records; return their number.
 *
 * At most `room` of them; `end` is where the walk stopped. Only sizes and magics are looked at.
 */
int64_t mq_follow(const uint8_t *buffer, int64_t length, int64_t *starts, int64_t *sizes,
                  int64_t room, int64_t *end)
{
    int64_t at = 0, count = 0;
    int64_t size;
    while (count < room && (size = stated_size(buffer + at, length - at))) {
        starts[count] = at;
        sizes[count++] = size;
        at += size;
    }
    *end = at;
    return count;
}

#endif
