/* The digest of each of many slices of one buffer, with a key of its own: SipHash, see sip.h. */
#ifndef MQ_DIGEST_H
#define MQ_DIGEST_H

#include "frames.h"
#include "sip_lanes.h"

/* Make the digest of each slice, two numbers, with the key of two numbers of its row. */
int64_t mq_digests(const Slices *s, const int64_t *keys, int64_t *digests)
{
    for (int64_t i = 0; i < s->count; i++) {
        if (!lies_within(s, i))
            return NOT_MINE;
        Digest key = {(uint64_t)keys[2 * i], (uint64_t)keys[2 * i + 1]};
        Digest made = sip_digest(s->buffer + s->starts[i], s->sizes[i], key);
        digests[2 * i] = (int64_t)made.low;
        digests[2 * i + 1] = (int64_t)made.high;
    }
    return DONE;
}

#endif
