/* SipHash-1-3 with 128 bits, of one slice or of two side by side.
 *
 * The twin is codec/siphash.py.
 *
 * Reference: Aumasson and Bernstein, SipHash: a fast short-input PRF; its variant of 128 bits.
 */
#ifndef MQ_SIP_H
#define MQ_SIP_H

#include "bytes.h"

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

/* The bytes of a slice that are behind its last whole word, fewer than eight. */
static inline uint64_t sip_rest(const uint8_t *p, int64_t size)
{
    int64_t left = size & 7;
    uint32_t first, last;
    if (!left)
        return 0;
    if (size >= 8)
        return sip_load(p + size - 8) >> (64 - 8 * left);
    if (left < 4)
        return p[0] | (uint64_t)p[left / 2] << 8 * (left / 2) | (uint64_t)p[left - 1] << 8 * (left - 1);
    memcpy(&first, p, sizeof first);
    memcpy(&last, p + left - 4, sizeof last);
    return first | (uint64_t)last << 8 * (left - 4);
}

/* Take the words of [p, p + size) from `at` on, a multiple of eight, and what ends them. */
static inline Digest sip_end(SipState v, const uint8_t *p, int64_t at, int64_t size)
{
    Digest made;
    for (; size - at >= 8; at += 8)
        sip_word(v, sip_load(p + at));
    sip_word(v, sip_rest(p, size) | (uint64_t)size << 56);
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

/* Finish two slices of which the bytes before `at` are taken: side by side, as a processor has room
 * for two chains of rounds.
 */
static inline void sip_end_two(SipState states[2], const uint8_t *const p[2], int64_t at,
                               const int64_t size[2], Digest made[2])
{
    SipState v, w;
    int64_t both = size[0] < size[1] ? size[0] : size[1];
    memcpy(v, states[0], sizeof v);
    memcpy(w, states[1], sizeof w);
    for (; both - at >= 8; at += 8) {
        sip_word(v, sip_load(p[0] + at));
        sip_word(w, sip_load(p[1] + at));
    }
    made[0] = sip_end(v, p[0], at, size[0]);
    made[1] = sip_end(w, p[1], at, size[1]);
}

#endif
