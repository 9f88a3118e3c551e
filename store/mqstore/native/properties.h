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

/* The 16 bytes at p; behind `end`, of which some may be at `limit`, anything. */
static inline const uint8_t *sixteen(const uint8_t *p, const uint8_t *end, const uint8_t *limit,
                                     uint8_t *spare)
{
    if (limit - p >= STEP)
        return p;
    memset(spare, 0, STEP);
    memcpy(spare, p, (size_t)(end - p));
    return spare;
}

/* Split [p, end) into `found`; `high` gathers whether any byte is above 0x7F.
 *
 * Nothing is read at `limit` or behind it. False if there are too many entries.
 */
static inline int
split_properties(const uint8_t *p, const uint8_t *end, const uint8_t *limit, Entries *found,
                 uint32_t *high)
{
    const uint8_t *start = p, *separator = 0; /* of the piece that is not at its end yet */
    Entry *entry = found->entries, *behind_last = entry + MOST_ENTRIES;
    uint32_t above_any = 0;
    for (const uint8_t *at = p; at < end; at += STEP) {
        uint8_t spare[STEP];
        const uint8_t *from = sixteen(at, end, limit, spare);
        uint32_t above, within = end - at < STEP ? (1u << (end - at)) - 1 : 0xFFFF;
        uint32_t marks = separators_of(from, &above) & within;
        above_any |= above & within;
        for (; marks; marks &= marks - 1) {
            int place = __builtin_ctz(marks);
            const uint8_t *mark = at + place;
            if (from[place] == 1) {
                separator = separator ? separator : mark;
                continue;
            }
            if (separator && separator > start && separator + 1 < mark) {
                if (entry == behind_last)
                    return 0;
                *entry++ = (Entry){start, separator + 1, (int32_t)(separator - start),
                                   (int32_t)(mark - separator - 1)};
            }
            start = mark + 1;
            separator = 0;
        }
    }
    if (separator && separator > start && separator + 1 < end) { /* without the last 0x02 */
        if (entry == behind_last)
            return 0;
        *entry++ = (Entry){start, separator + 1, (int32_t)(separator - start),
                           (int32_t)(end - separator - 1)};
    }
    found->count = (int)(entry - found->entries);
    *high |= above_any;
    return 1;
}

static inline int same_name(const Entry *a, const Entry *b)
{
    return a->name_length == b->name_length && same_bytes(a->name, b->name, a->name_length);
}

#if defined(__SSE2__)

/* Whether two names are the same, of at most 16 bytes, with 16 to be read at both. */
static inline int same_short(const uint8_t *a, const uint8_t *b, int32_t n)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)a);
    __m128i y = _mm_loadu_si128((const __m128i *)(const void *)b);
    uint32_t same = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, y));
    return !(~same & ((1u << n) - 1));
}

#else

static inline int same_short(const uint8_t *a, const uint8_t *b, int32_t n)
{
    return same_bytes(a, b, n);
}

#endif

/* Whether two rows have the same names in the same order. */
static inline int same_layout(const Entries *a, const Entries *b, const uint8_t *limit)
{
    if (a->count != b->count)
        return 0;
    for (int i = 0; i < a->count; i++) {
        const Entry *x = &a->entries[i], *y = &b->entries[i];
        int32_t n = x->name_length;
        if (n != y->name_length)
            return 0;
        int short_enough = n <= STEP && limit - x->name >= STEP && limit - y->name >= STEP;
        if (short_enough ? !same_short(x->name, y->name, n) : !same_bytes(x->name, y->name, n))
            return 0;
    }
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
