/* Where the values of some properties lie in property blocks; twin of PropertyBlocks.column. */
#ifndef MQ_PICKED_H
#define MQ_PICKED_H

#include "frames.h"
#include "properties.h"

/* Name k is data[edges[k] .. edges[k + 1]). */
typedef struct {
    const int32_t *edges;
    const uint8_t *data;
    int64_t count;
} WantedNames;

/* Of block i, of n, the value of name k is the slice starts[k n + i], lengths[k n + i] of the
 * buffer; where the block has no such property its start is -1.
 */
int64_t mq_property_values(const Slices *blocks, const WantedNames *names, int64_t *starts,
                           int64_t *lengths)
{
    Entries found;
    uint32_t high = 0;
    const uint8_t *limit = blocks->buffer + blocks->length;
    for (int64_t i = 0; i < blocks->count; i++) {
        if (!lies_within(blocks, i))
            return NOT_MINE;
        const uint8_t *block = blocks->buffer + blocks->starts[i];
        if (!split_properties(block, block + blocks->sizes[i], limit, &found, &high))
            return NOT_MINE;
        for (int64_t k = 0; k < names->count; k++) {
            const uint8_t *name = names->data + names->edges[k];
            int32_t length = names->edges[k + 1] - names->edges[k];
            int64_t at = k * blocks->count + i;
            starts[at] = -1;
            lengths[at] = 0;
            for (int j = found.count - 1; j >= 0; j--) { /* of two equal names the last stands */
                const Entry *entry = &found.entries[j];
                if (entry->name_length != length || !same_bytes(entry->name, name, length))
                    continue;
                starts[at] = entry->value - blocks->buffer;
                lengths[at] = entry->value_length;
                break;
            }
        }
    }
    return DONE;
}

#endif
