/* A property block split into names and values: name 0x01 value 0x02, the last 0x02 optional.
 *
 * A piece without 0x01, or with an empty name or value, is dropped; of two equal names the last
 * stands. The numpy twin is codec/properties.py.
 *
 * Reference: org.apache.rocketmq.common.message.MessageDecoder#string2messageProperties.
 */
#ifndef MQ_PROPERTIES_H
#define MQ_PROPERTIES_H

#include "bytes.h"

enum { MOST_ENTRIES = 128 };

typedef struct {
    const uint8_t *name, *value;
    int32_t name_length, value_length;
} Entry;

typedef struct {
    Entry entries[MOST_ENTRIES];
    int count;
} Entries;

#if defined(__SSE2__)
#include <emmintrin.h>

/* A bit for each of the 16 bytes at p that is 0x01 or 0x02, and one for each above 0x7F. */
static inline uint32_t separators_of(const uint8_t *p, uint32_t *high)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i less_one = _mm_sub_epi8(bytes, _mm_set1_epi8(1));
    __m128i is_one = _mm_cmpeq_epi8(less_one, _mm_min_epu8(less_one, _mm_set1_epi8(1)));
    *high = (uint32_t)_mm_movemask_epi8(bytes);
    return (uint32_t)_mm_movemask_epi8(is_one);
}

#else

static inline uint32_t separators_of(const uint8_t *p, uint32_t *high)
{
    uint32_t found = 0, above = 0;
    for (int i = 0; i < STEP; i++) {
        found |= (uint32_t)((uint8_t)(p[i] - 1) <= 1) << i;
        above |= (uint32_t)(p[i] >> 7) << i;
    }
    *high = above;
    return found;
}

#endif

typedef struct {
    const uint8_t *start, *separator; /* of the piece that is not at its end yet */
    Entries *found;
} Splitting;

/* Take the piece that ends at `end`; false if there are more than a kernel keeps. */
static inline int end_piece(Splitting *s, const uint8_t *end)
{
    if (s->separator && s->separator > s->start && s->separator + 1 < end) {
        if (s->found->count == MOST_ENTRIES)
            return 0;
        s->found->entries[s->found->count++] = (Entry){
            s->start, s->separator + 1,
            (int32_t)(s->separator - s->start), (int32_t)(end - s->separator - 1),
        };
    }
    s->start = end + 1;
    s->separator = 0;
    return 1;
}

/* Split [p, end) into `found`; `high` gathers whether any byte is above 0x7F.
 *
 * Nothing is read at `limit` or behind it. False if there are too many entries.
 */
static inline int
split_properties(const uint8_t *p, const uint8_t *end, const uint8_t *limit, Entries *found,
                 uint32_t *high)
{
    Splitting s = {p, 0, found};
    found->count = 0;
    for (const uint8_t *at = p; at < end; at += STEP) {
        uint8_t tail[STEP] = {0};
        const uint8_t *from = at;
        int64_t count = end - at < STEP ? end - at : STEP;
        if (limit - at < STEP) {
            memcpy(tail, at, (size_t)count);
            from = tail;
        }
        uint32_t within = (1u << count) - 1, above;
        uint32_t marks = separators_of(from, &above) & within;
        *high |= above & within;
        for (; marks; marks &= marks - 1) {
            int place = __builtin_ctz(marks);
            if (once(from[place]) == 2) {
                if (!end_piece(&s, at + place))
                    return 0;
            } else if (!s.separator) {
                s.separator = at + place;
            }
        }
    }
    return s.start >= end || end_piece(&s, end);
}

static inline int same_name(const Entry *a, const Entry *b)
{
    return a->name_length == b->name_length && same_bytes(a->name, b->name, a->name_length);
}

static inline int same_layout(const Entries *a, const Entries *b)
{
    if (a->count != b->count)
        return 0;
    for (int i = 0; i < a->count; i++)
        if (!same_name(&a->entries[i], &b->entries[i]))
            return 0;
    return 1;
}

/* Drop each entry whose name comes again behind it. */
static void keep_last_of_each_name(Entries *found)
{
    int kept = 0;
    for (int i = 0; i < found->count; i++) {
        int again = 0;
        for (int j = i + 1; j < found->count && !again; j++)
            again = same_name(&found->entries[i], &found->entries[j]);
        if (!again)
            found->entries[kept++] = found->entries[i];
    }
    found->count = kept;
}

#endif
