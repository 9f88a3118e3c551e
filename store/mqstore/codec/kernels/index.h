/* Keys chained into the slots of an IndexFile; twin of files/index/index_append.py.
 */
#ifndef MQ_INDEX_H
#define MQ_INDEX_H

#include "bytes.h"

enum { INDEX_UNIT_BYTES = 20, FIRST_INDEX_UNIT = 1, KEYS_AHEAD = 16 };

/* Keys in log order, and the slots of the file, in memory. */
typedef struct {
    const int32_t *hashes;
    const int64_t *physical_offsets, *seconds;
    int64_t count;
    int32_t *slots;
    int64_t slot_count;
    int64_t first; /* the number of the first key's unit */
    int64_t used;  /* out: slots that were empty, or pointed outside the file */
} Chaining;

static inline int64_t slot_of(const Chaining *c, int64_t i)
{
    int32_t place = c->hashes[i] % (int32_t)c->slot_count;
    return place < 0 ? place + c->slot_count : place;
}

static int fits_chaining(const Chaining *c)
{
    return c->slot_count > 0 && c->slot_count <= INT32_MAX && c->first >= FIRST_INDEX_UNIT &&
           c->count >= 0 && c->first <= INT32_MAX - c->count;
}

/* Mark the pages of slots that the keys fall into. */
int64_t mq_index_pages(const Chaining *c, int64_t page_slots, uint8_t *pages)
{
    if (!fits_chaining(c) || page_slots <= 0)
        return NOT_MINE;
    for (int64_t i = 0; i < c->count; i++)
        pages[slot_of(c, i) / page_slots] = 1;
    return DONE;
}

/* Let each slot point at its last key, and write the units of all. */
int64_t mq_index_chain(Chaining *c, uint8_t *units)
{
    if (!fits_chaining(c))
        return NOT_MINE;
    for (int64_t i = 0; i < c->count; i++) {
        int32_t *slot = c->slots + slot_of(c, i);
        if (i + KEYS_AHEAD < c->count)
            __builtin_prefetch(c->slots + slot_of(c, i + KEYS_AHEAD), 1);
        if (*slot < FIRST_INDEX_UNIT || *slot >= c->first)
            *slot = 0;
    }
    c->used = 0;
    for (int64_t i = 0; i < c->count; i++) {
        int32_t *slot = c->slots + slot_of(c, i);
        uint8_t *unit = units + i * INDEX_UNIT_BYTES;
        store_i32(unit, (uint32_t)c->hashes[i]);
        store_i64(unit + 4, (uint64_t)c->physical_offsets[i]);
        store_i32(unit + 12, (uint32_t)c->seconds[i]);
        store_i32(unit + 16, (uint32_t)*slot);
        c->used += !*slot;
        *slot = (int32_t)(c->first + i);
    }
    return DONE;
}

#endif
