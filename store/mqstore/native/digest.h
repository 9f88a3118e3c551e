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

typedef struct {
    uint64_t low, high;
} Digest;

static inline void sip_start(SipState v, Digest key)
{
    v[0] = key.low ^ 0x736f6d6570736575;
    v[1] = key.high ^ 0x646f72616e646f6d ^ 0xee;
    v[2] = key.low ^ 0x6c7967656e657261;
    v[3] = key.high ^ 0x7465646279746573;
}

static inline uint64_t sip_load(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Take the words of [p, p + size) from `at` on, and what ends them. */
static inline Digest sip_end(SipState v, const uint8_t *p, int64_t at, int64_t size)
{
    Digest made;
    uint64_t word = 0;
    for (; size - at >= 8; at += 8)
        sip_word(v, sip_load(p + at));
    memcpy(&word, p + at, (size_t)(size - at));
    sip_word(v, word | (uint64_t)size << 56);
    v[2] ^= 0xee;
    made.low = sip_out(v);
    v[1] ^= 0xdd;
    made.high = sip_out(v);
    return made;
}

static inline Digest sip_digest(const uint8_t *p, int64_t size, Digest key)
{
    SipState v;
    sip_start(v, key);
    return sip_end(v, p, 0, size);
}

/* The digests of two slices, each with the key that stands in its place: side by side, as a
 * processor has room for two chains of rounds.
 */
static inline void sip_two(const uint8_t *const p[2], const int64_t size[2], Digest digests[2])
{
    SipState v, w;
    int64_t at = 0, both = size[0] < size[1] ? size[0] : size[1];
    sip_start(v, digests[0]);
    sip_start(w, digests[1]);
    for (; both - at >= 8; at += 8) {
        sip_word(v, sip_load(p[0] + at));
        sip_word(w, sip_load(p[1] + at));
    }
    digests[0] = sip_end(v, p[0], at, size[0]);
    digests[1] = sip_end(w, p[1], at, size[1]);
}

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
