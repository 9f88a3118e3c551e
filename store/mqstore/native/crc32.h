/* CRC-32 as zlib and java.util.zip.CRC32 compute it (IEEE 802.3, reflected).
 *
 * x86-64 processors with PCLMULQDQ fold 64 bytes at a time by carry-less multiplication, those
 * with VPCLMULQDQ and AVX-512 fold 256, ARM ones with the CRC extension use its instructions, all
 * others eight tables. Which it is is found out when the library is loaded.
 *
 * Reference: V. Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction, Intel 2009, whose constants for the reflected polynomial these are.
 */
#ifndef MQ_CRC32_H
#define MQ_CRC32_H

#include "bytes.h"

typedef uint32_t (*CrcFunction)(uint32_t state, const uint8_t *p, int64_t n);

static uint32_t crc_tables[8][256];

static void fill_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++)
            state = (state >> 1) ^ (0xEDB88320u & (0u - (state & 1)));
        crc_tables[0][byte] = state;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc_tables[table - 1][byte];
            crc_tables[table][byte] = (before >> 8) ^ crc_tables[0][before & 0xFF];
        }
}

static uint32_t crc_sliced(uint32_t state, const uint8_t *p, int64_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word ^= state;
        state = 0;
        for (int i = 0; i < 8; i++)
            state ^= crc_tables[7 - i][(word >> (8 * i)) & 0xFF];
    }
    for (; n > 0; p++, n--)
        state = (state >> 8) ^ crc_tables[0][(state ^ *p) & 0xFF];
    return state;
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define CARRYLESS __attribute__((target("pclmul,sse4.1")))

CARRYLESS static inline __m128i fold(__m128i state, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(state, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(state, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

CARRYLESS static inline __m128i block_at(const uint8_t *p, int index)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p + index);
}

CARRYLESS static uint32_t reduce(__m128i state)
{
    const __m128i fold_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i fold_64 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_32 = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i part = _mm_clmulepi64_si128(state, fold_128, 0x10);
    state = _mm_xor_si128(_mm_srli_si128(state, 8), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(state, low_32), fold_64, 0x00);
    state = _mm_xor_si128(_mm_srli_si128(state, 4), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(state, low_32), barrett, 0x10);
    part = _mm_clmulepi64_si128(_mm_and_si128(part, low_32), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(state, part), 1);
}

CARRYLESS static uint32_t crc_carryless(uint32_t state, const uint8_t *p, int64_t n)
{
    if (n < 64)
        return crc_sliced(state, p, n);
    const __m128i fold_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i fold_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i lanes[4];
    for (int i = 0; i < 4; i++)
        lanes[i] = block_at(p, i);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)state));
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
        for (int i = 0; i < 4; i++)
            lanes[i] = fold(lanes[i], fold_512, block_at(p, i));
    for (int i = 1; i < 4; i++)
        lanes[0] = fold(lanes[0], fold_128, lanes[i]);
    for (; n >= 16; p += 16, n -= 16)
        lanes[0] = fold(lanes[0], fold_128, block_at(p, 0));
    return crc_sliced(reduce(lanes[0]), p, n);
}

#define WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

WIDE static inline __m512i wide_fold(__m512i state, __m512i constants, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(state, constants, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(state, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* exclusive or of the three */
}

WIDE static uint32_t crc_wide(uint32_t state, const uint8_t *p, int64_t n)
{
    if (n < 256)
        return crc_carryless(state, p, n);
    const __m512i fold_2048 =
        _mm512_broadcast_i32x4(_mm_set_epi64x(0x1322d1430, 0x11542778a));
    const __m512i fold_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1c6e41596, 0x154442bd4));
    const __m128i fold_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m512i lanes[4];
    for (int i = 0; i < 4; i++)
        lanes[i] = _mm512_loadu_si512(p + 64 * i);
    __m512i before = _mm512_castsi128_si512(_mm_cvtsi32_si128((int)state));
    lanes[0] = _mm512_xor_si512(lanes[0], _mm512_maskz_mov_epi64(1, before));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256)
        for (int i = 0; i < 4; i++)
            lanes[i] = wide_fold(lanes[i], fold_2048, _mm512_loadu_si512(p + 64 * i));
    for (int i = 1; i < 4; i++)
        lanes[0] = wide_fold(lanes[0], fold_512, lanes[i]);
    for (; n >= 64; p += 64, n -= 64)
        lanes[0] = wide_fold(lanes[0], fold_512, _mm512_loadu_si512(p));
    __m128i one = _mm512_extracti32x4_epi32(lanes[0], 0);
    one = fold(one, fold_128, _mm512_extracti32x4_epi32(lanes[0], 1));
    one = fold(one, fold_128, _mm512_extracti32x4_epi32(lanes[0], 2));
    one = fold(one, fold_128, _mm512_extracti32x4_epi32(lanes[0], 3));
    for (; n >= 16; p += 16, n -= 16)
        one = fold(one, fold_128, block_at(p, 0));
    return crc_sliced(reduce(one), p, n);
}

/* Whether the system keeps these registers, bits of XCR0, for each process. */
static int keeps_registers(unsigned wanted)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & wanted) == wanted;
}

/* Whether the processor has 512-bit registers and their multiplication without carries. */
static int has_wide(void)
{
    enum { OPMASK_AND_ZMM = 0xE6 };
    unsigned a, b, c, d;
    if (!keeps_registers(OPMASK_AND_ZMM))
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX512F) && (c & bit_VPCLMULQDQ);
}

/* Compilers' own __builtin_cpu_supports needs a runtime that not all of them link. */
static CrcFunction fastest_crc(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_PCLMUL) || !(c & bit_SSE4_1))
        return crc_sliced;
    return has_wide() ? crc_wide : crc_carryless;
}

#elif defined(__aarch64__)

#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

__attribute__((target("+crc"))) static uint32_t
crc_instruction(uint32_t state, const uint8_t *p, int64_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        state = __crc32d(state, word);
    }
    for (; n > 0; p++, n--)
        state = __crc32b(state, *p);
    return state;
}

static CrcFunction fastest_crc(void)
{
#if defined(__linux__)
    return getauxval(AT_HWCAP) & (1u << 7) ? crc_instruction : crc_sliced; /* HWCAP_CRC32 */
#else
    return crc_instruction; /* Every ARM Mac has it. */
#endif
}

#else

static CrcFunction fastest_crc(void)
{
    return crc_sliced;
}

#endif

static CrcFunction crc_chosen = crc_sliced;

__attribute__((constructor)) static void choose_crc(void)
{
    fill_crc_tables();
    crc_chosen = fastest_crc();
}

/* CRC-32 without its top bit, as RocketMQ stores it: UtilAll#crc32. */
static inline uint32_t crc32_of(const uint8_t *p, int64_t n)
{
    return ~crc_chosen(~0u, p, n) & 0x7FFFFFFFu;
}

#endif
