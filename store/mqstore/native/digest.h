/* SipHash-1-3 with 128 bits, of slices of one buffer, each with a key of its own.
 *
 * The twin is codec/siphash.py.
 *
 * Reference: Aumasson and Bernstein, SipHash: a fast short-input PRF; its variant of 128 bits.
 */
#ifndef MQ_DIGEST_H
#define MQ_DIGEST_H

#include "frames.h"

typedef uint64_t SipState[4];

static inline uint64_t turned(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static inline void sip_round(SipState v)
{
    v[0] += v[1];
    v[1] = turned(v[1], 13) ^ v[0];
    v[0] = turned(v[0], 32);
    v[2] += v[3];
    v[3] = turned(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = turned(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = turned(v[1], 17) ^ v[2];
    v[2] = turned(v[2], 32);
}

static inline uint64_t sip_out(SipState v)
{
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline void sip_word(SipState v, uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

/* Make the digest of each slice, two numbers, with the key of two numbers of its row. */
int64_t mq_digests(const Slices *s, const int64_t *keys, int64_t *digests)
{
    for (int64_t i = 0; i < s->count; i++) {
        if (!lies_within(s, i))
            return NOT_MINE;
        const uint8_t *p = s->buffer + s->starts[i];
        int64_t size = s->sizes[i], whole = size & ~(int64_t)7;
        uint64_t k0 = (uint64_t)keys[2 * i], k1 = (uint64_t)keys[2 * i + 1], word;
        SipState v = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee,
                      k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
        for (int64_t at = 0; at < whole; at += 8) {
            memcpy(&word, p + at, sizeof word);
            sip_word(v, word);
        }
        word = 0;
        memcpy(&word, p + whole, (size_t)(size - whole));
        sip_word(v, word | (uint64_t)size << 56);
        v[2] ^= 0xee;
        digests[2 * i] = (int64_t)sip_out(v);
        v[1] ^= 0xdd;
        digests[2 * i + 1] = (int64_t)sip_out(v);
    }
    return DONE;
}

#endif
