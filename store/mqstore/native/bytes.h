/* Big-endian numbers and short copies, each bounded by what the caller has checked.
 *
 * Bytes may lie in a mapped file that another process writes to. So a number is read once: the
 * empty assembly keeps the compiler from reading the same bytes again after they were checked.
 */
#ifndef MQ_BYTES_H
#define MQ_BYTES_H

#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels are written for little-endian processors"
#endif

/* What a kernel returns. */
enum { DONE = 0, NOT_MINE = 1, FULL = 2 };

/* Bytes that copy_short may touch behind the ones it was asked for. */
enum { STEP = 16 };

static inline int64_t once(int64_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value;
}

static inline int32_t load_i32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return (int32_t)once((int32_t)__builtin_bswap32(value));
}

static inline int64_t load_i64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return once((int64_t)__builtin_bswap64(value));
}

static inline int32_t load_i16(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return (int32_t)once((int16_t)__builtin_bswap16(value));
}

static inline void store_i32(uint8_t *p, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(p, &value, sizeof value);
}

static inline void store_i64(uint8_t *p, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(p, &value, sizeof value);
}

/* Copy n bytes in steps of 16, for texts too short for a call of memcpy.
 *
 * Up to 15 bytes behind `to + n` are overwritten with anything: the caller has room for them.
 * Nothing is read at `limit` or behind it.
 */
static inline void copy_short(uint8_t *to, const uint8_t *from, int64_t n, const uint8_t *limit)
{
    if (limit - from < n + STEP) {
        memcpy(to, from, (size_t)n);
        return;
    }
    do {
        uint8_t step[STEP]; /* the two may overlap: see decode.h, put_names */
        memcpy(step, from, STEP);
        memcpy(to, step, STEP);
        to += STEP;
        from += STEP;
        n -= STEP;
    } while (n > 0);
}

static inline int same_bytes(const uint8_t *a, const uint8_t *b, int64_t n)
{
    for (; n >= 8; a += 8, b += 8, n -= 8) {
        uint64_t x, y;
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        if (x != y)
            return 0;
    }
    for (; n > 0; a++, b++, n--)
        if (*a != *b)
            return 0;
    return 1;
}

#endif
