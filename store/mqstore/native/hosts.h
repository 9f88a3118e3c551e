/* Hosts as text, `ip:port` or `[ip]:port`, and the id a broker gives; twin of codec/hosts.py.
 *
 * Reference: org.apache.rocketmq.common.message.MessageDecoder#createMessageId; RFC 5952.
 */
#ifndef MQ_HOSTS_H
#define MQ_HOSTS_H

#include "bytes.h"

enum {
    IP_V4 = 4,
    IP_V6 = 16,
    MOST_HOST_BYTES = IP_V6 + 4,
    MOST_HOST_TEXT = 64, /* [ffff:…:ffff]:-2147483648 takes 53 */
    KNOWN_HOSTS = 16,
};

typedef struct {
    uint8_t raw[MOST_HOST_BYTES], text[MOST_HOST_TEXT];
    int32_t raw_length, length; /* raw_length 0: nothing is kept here yet */
} HostText;

/* Few hosts send many messages: texts that were made lately, by a hash of their bytes. */
typedef struct {
    HostText known[KNOWN_HOSTS];
} HostTexts;

static inline uint8_t *put_decimal(uint8_t *to, uint32_t value)
{
    uint8_t digits[10];
    int count = 0;
    do
        digits[count++] = (uint8_t)('0' + value % 10);
    while (value /= 10);
    while (count)
        *to++ = digits[--count];
    return to;
}

static inline uint8_t *put_hexadecimal(uint8_t *to, uint32_t value)
{
    int shift = 12;
    while (shift && !(value >> shift))
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        *to++ = (uint8_t)"0123456789abcdef"[(value >> shift) & 15];
    return to;
}

static uint8_t *put_ip_v4(uint8_t *to, const uint8_t *ip)
{
    for (int i = 0; i < IP_V4; i++) {
        if (i)
            *to++ = '.';
        to = put_decimal(to, ip[i]);
    }
    return to;
}

/* The longest run of zeros, the first of equals and of two groups at least, becomes `::`. */
static uint8_t *put_ip_v6(uint8_t *to, const uint8_t *ip)
{
    uint32_t groups[8];
    int run = 0, best = 0, best_end = 0;
    for (int i = 0; i < 8; i++) {
        groups[i] = (uint32_t)ip[2 * i] << 8 | ip[2 * i + 1];
        run = groups[i] ? 0 : run + 1;
        if (run > best) {
            best = run;
            best_end = i + 1;
        }
    }
    if (best < 2)
        best = best_end = 0;
    for (int i = 0; i < 8; i++) {
        int in_run = best && i >= best_end - best && i < best_end;
        if (in_run && i > best_end - best)
            continue;
        if (in_run) {
            *to++ = ':';
            if (best_end == 8)
                *to++ = ':';
            continue;
        }
        if (i)
            *to++ = ':';
        to = put_hexadecimal(to, groups[i]);
    }
    return to;
}

/* ::ffff:a.b.c.d, which is written in two ways; a broker stores it as an IPv4 host. */
static inline int is_mapped_v4(const uint8_t *ip)
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    return !memcmp(ip, prefix, sizeof prefix);
}

static void write_host(HostText *host)
{
    int32_t ip_length = host->raw_length - 4;
    uint8_t *to = host->text;
    if (ip_length == IP_V4) {
        to = put_ip_v4(to, host->raw);
    } else {
        *to++ = '[';
        to = put_ip_v6(to, host->raw);
        *to++ = ']';
    }
    *to++ = ':';
    int32_t port = load_i32(host->raw + ip_length);
    if (port < 0)
        *to++ = '-';
    to = put_decimal(to, port < 0 ? 0u - (uint32_t)port : (uint32_t)port);
    host->length = (int32_t)(to - host->text);
}

static inline HostText *known_host(HostTexts *texts, const uint8_t *raw, int32_t length)
{
    uint32_t hash = raw[length - 1] ^ raw[length - 2] ^ raw[length - 5];
    return &texts->known[hash % KNOWN_HOSTS];
}

static inline const HostText *host_v4(HostTexts *texts, const uint8_t *from)
{
    uint8_t raw[IP_V4 + 4];
    memcpy(raw, from, sizeof raw);
    HostText *host = known_host(texts, raw, sizeof raw);
    if (host->raw_length != (int32_t)sizeof raw || memcmp(host->raw, raw, sizeof raw)) {
        memcpy(host->raw, raw, sizeof raw);
        host->raw_length = sizeof raw;
        write_host(host);
    }
    return host;
}

static const HostText *host_v6(HostTexts *texts, const uint8_t *from)
{
    uint8_t raw[IP_V6 + 4];
    memcpy(raw, from, sizeof raw);
    if (is_mapped_v4(raw))
        return 0;
    HostText *host = known_host(texts, raw, sizeof raw);
    if (host->raw_length != (int32_t)sizeof raw || memcmp(host->raw, raw, sizeof raw)) {
        memcpy(host->raw, raw, sizeof raw);
        host->raw_length = sizeof raw;
        write_host(host);
    }
    return host;
}

/* Upper-case hex without a table, so that a compiler does many bytes at once. */
static inline void put_hex(uint8_t *to, const uint8_t *from, int n)
{
    for (int i = 0; i < n; i++) {
        uint8_t high = from[i] >> 4, low = from[i] & 15;
        to[2 * i] = (uint8_t)(high + (high > 9 ? 'A' - 10 : '0'));
        to[2 * i + 1] = (uint8_t)(low + (low > 9 ? 'A' - 10 : '0'));
    }
}

#endif
