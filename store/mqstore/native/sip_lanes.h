/* SipHash of eight slices at once, on x86-64 processors with AVX2; elsewhere of two.
 *
 * A register has one number of the state of four slices, and two such groups take turns, so that
 * the rounds of one need not wait for each other. Whether it is there is found out when the library
 * is loaded.
 */
#ifndef MQ_SIP_LANES_H
#define MQ_SIP_LANES_H

#include "crc32.h"
#include "sip.h"

enum { SIP_LANES = 8, SIP_BLOCK = 32 };

#if defined(__x86_64__)

#define LANES __attribute__((target("avx2")))

/* Turn rows into columns: number j of row i becomes number i of row j. */
LANES static inline void transpose(__m256i rows[4])
{
    __m256i a = _mm256_unpacklo_epi64(rows[0], rows[1]);
    __m256i b = _mm256_unpackhi_epi64(rows[0], rows[1]);
    __m256i c = _mm256_unpacklo_epi64(rows[2], rows[3]);
    __m256i d = _mm256_unpackhi_epi64(rows[2], rows[3]);
    rows[0] = _mm256_permute2x128_si256(a, c, 0x20);
    rows[1] = _mm256_permute2x128_si256(b, d, 0x20);
    rows[2] = _mm256_permute2x128_si256(a, c, 0x31);
    rows[3] = _mm256_permute2x128_si256(b, d, 0x31);
}

#define TURNED(x, n) _mm256_or_si256(_mm256_slli_epi64(x, n), _mm256_srli_epi64(x, 64 - (n)))
#define TURNED_32(x) _mm256_shuffle_epi32(x, 0xB1)

LANES static inline void lanes_round(__m256i v[4])
{
    const __m256i by_16 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13));
    v[0] = _mm256_add_epi64(v[0], v[1]);
    v[2] = _mm256_add_epi64(v[2], v[3]);
    v[1] = _mm256_xor_si256(TURNED(v[1], 13), v[0]);
    v[3] = _mm256_xor_si256(_mm256_shuffle_epi8(v[3], by_16), v[2]);
    v[0] = _mm256_add_epi64(TURNED_32(v[0]), v[3]);
    v[2] = _mm256_add_epi64(v[2], v[1]);
    v[3] = _mm256_xor_si256(TURNED(v[3], 21), v[0]);
    v[1] = _mm256_xor_si256(TURNED(v[1], 17), v[2]);
    v[2] = TURNED_32(v[2]);
}

LANES static inline void lanes_word(__m256i v[4], __m256i word)
{
    v[3] = _mm256_xor_si256(v[3], word);
    lanes_round(v);
    v[0] = _mm256_xor_si256(v[0], word);
}

LANES static inline __m256i lanes_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

LANES static inline void lanes_store(void *p, __m256i value)
{
    _mm256_storeu_si256((__m256i *)p, value);
}

/* Take `blocks` blocks from the begin of each slice, word by word, into its state. */
LANES static inline void lanes_blocks(__m256i v[4], __m256i w[4], const uint8_t *const *p,
                                      int64_t blocks)
{
    __m256i of_v[4], of_w[4];
    for (int64_t at = 0; at < blocks * SIP_BLOCK; at += SIP_BLOCK) {
        for (int i = 0; i < 4; i++) {
            of_v[i] = lanes_load(p[i] + at);
            of_w[i] = lanes_load(p[4 + i] + at);
        }
        transpose(of_v);
        transpose(of_w);
        for (int i = 0; i < 4; i++) {
            lanes_word(v, of_v[i]);
            lanes_word(w, of_w[i]);
        }
    }
}

LANES static void lanes_of_states(SipState states[SIP_LANES], const uint8_t *const *p,
                                  int64_t blocks)
{
    __m256i v[4], w[4];
    for (int i = 0; i < 4; i++) {
        v[i] = lanes_load(states[i]);
        w[i] = lanes_load(states[4 + i]);
    }
    transpose(v);
    transpose(w);
    lanes_blocks(v, w, p, blocks);
    transpose(v);
    transpose(w);
    for (int i = 0; i < 4; i++) {
        lanes_store(states[i], v[i]);
        lanes_store(states[4 + i], w[i]);
    }
}

LANES static inline void lanes_start(__m256i v[4], const Digest *keys)
{
    const __m256i low = _mm256_setr_epi64x((int64_t)keys[0].low, (int64_t)keys[1].low,
                                           (int64_t)keys[2].low, (int64_t)keys[3].low);
    const __m256i high = _mm256_setr_epi64x((int64_t)keys[0].high, (int64_t)keys[1].high,
                                            (int64_t)keys[2].high, (int64_t)keys[3].high);
    SipState zero;
    sip_start(zero, (Digest){0, 0});
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_xor_si256(i % 2 ? high : low, _mm256_set1_epi64x((int64_t)zero[i]));
}

LANES static inline __m256i lanes_out(__m256i v[4])
{
    for (int i = 0; i < 3; i++)
        lanes_round(v);
    return _mm256_xor_si256(_mm256_xor_si256(v[0], v[1]), _mm256_xor_si256(v[2], v[3]));
}

/* Write the digests of four slices whose words are taken. */
LANES static inline void lanes_end(__m256i v[4], Digest *made)
{
    uint64_t low[4], high[4];
    v[2] = _mm256_xor_si256(v[2], _mm256_set1_epi64x(0xee));
    lanes_store(low, lanes_out(v));
    v[1] = _mm256_xor_si256(v[1], _mm256_set1_epi64x(0xdd));
    lanes_store(high, lanes_out(v));
    for (int i = 0; i < 4; i++)
        made[i] = (Digest){low[i], high[i]};
}

/* The digests of slices that are all of one size. */
LANES static void lanes_of_one_size(const uint8_t *const *p, int64_t size, Digest *digests)
{
    __m256i v[4], w[4];
    uint64_t words[SIP_LANES];
    lanes_start(v, digests);
    lanes_start(w, digests + 4);
    lanes_blocks(v, w, p, size / SIP_BLOCK);
    for (int64_t at = size / SIP_BLOCK * SIP_BLOCK; at <= size; at += 8) {
        for (int i = 0; i < SIP_LANES; i++)
            words[i] = size - at >= 8 ? sip_load(p[i] + at)
                                      : sip_rest(p[i], size) | (uint64_t)size << 56;
        lanes_word(v, lanes_load(words));
        lanes_word(w, lanes_load(words + 4));
    }
    lanes_end(v, digests);
    lanes_end(w, digests + 4);
}

static int find_lanes(void)
{
    enum { XMM_AND_YMM = 6 };
    unsigned a, b, c, d;
    return keeps_registers(XMM_AND_YMM) && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b & bit_AVX2);
}

#else

static void lanes_of_states(SipState states[SIP_LANES], const uint8_t *const *p, int64_t blocks)
{
    (void)states, (void)p, (void)blocks;
}

static void lanes_of_one_size(const uint8_t *const *p, int64_t size, Digest *digests)
{
    (void)p, (void)size, (void)digests;
}

static int find_lanes(void)
{
    return 0;
}

#endif

static int has_lanes = 0;

__attribute__((constructor)) static void choose_lanes(void)
{
    has_lanes = find_lanes();
}

/* The digests of SIP_LANES slices, each with the key that stands in its place. */
static void sip_lanes(const uint8_t *const *p, const int64_t *size, Digest *digests)
{
    SipState states[SIP_LANES];
    int64_t least = size[0], most = size[0], at = 0;
    for (int i = 1; i < SIP_LANES; i++) {
        least = size[i] < least ? size[i] : least;
        most = size[i] > most ? size[i] : most;
    }
    if (has_lanes && least == most) {
        lanes_of_one_size(p, least, digests);
        return;
    }
    for (int i = 0; i < SIP_LANES; i++)
        sip_start(states[i], digests[i]);
    if (has_lanes && least >= SIP_BLOCK) {
        at = least / SIP_BLOCK * SIP_BLOCK;
        lanes_of_states(states, p, at / SIP_BLOCK);
    }
    for (int i = 0; i < SIP_LANES; i += 2)
        sip_end_two(states + i, p + i, at, size + i, digests + i);
}

/* The digests of up to SIP_LANES slices, each with the key that stands in its place. */
static inline void sip_many(const uint8_t *const *p, const int64_t *size, Digest *digests,
                            int count)
{
    if (count == SIP_LANES)
        sip_lanes(p, size, digests);
    else
        for (int i = 0; i < count; i++)
            digests[i] = sip_digest(p[i], size[i], digests[i]);
}

#endif
