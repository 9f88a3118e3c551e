/* Records to the digests of their messages, in one pass while a record is in the cache.
 *
 * The twin is codec/message_digest.py, over the columns of a scan. The rules of decode.h hold: a
 * record that breaks one, is not the one that its unit means, or is of a rare kind (here also a
 * compressed body) makes the whole call NOT_MINE.
 */
#ifndef MQ_AUDIT_H
#define MQ_AUDIT_H

#include "decode.h"
#include "digest.h"

enum { SYS_COMPRESSED = 1, BODIES_BESIDE = 2 };

typedef struct {
    const int64_t *key; /* two numbers: of what begins a digest */
    int64_t by_id;      /* the identity is the message id, else topic, queue and queue offset */
    Names left_out;     /* properties that do not count */
    int64_t left_out_count;
    /* What is made of each row: two numbers each of the first two. */
    int64_t *identities, *digests, *store_ms, *body_bytes;
} Auditing;

/* What one call keeps from row to row. */
typedef struct {
    Entries entries[2];
    Digest names[MOST_ENTRIES]; /* of the entries of the row before */
    uint8_t counts[MOST_ENTRIES];
    int current, has_before, unique_key;
    int64_t queue; /* `topic` is the digest of its topic; -1: of none yet */
    Digest topic;
    const uint8_t *limit;
} AuditPass;

static inline int is_continuation(const uint8_t *p, const uint8_t *end)
{
    return p < end && (*p & 0xC0) == 0x80;
}

/* Whether [p, end) is UTF-8 as RFC 3629 has it: what a column of text may hold. */
static int is_utf8(const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        uint8_t first = *p++;
        if (first < 0x80)
            continue;
        int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (first < 0xC2 || first > 0xF4 || end - p < more)
            return 0;
        uint8_t second = *p;
        if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
            (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
            return 0;
        for (; more; more--, p++)
            if (!is_continuation(p, end))
                return 0;
    }
    return 1;
}

static int is_left_out(const Auditing *a, const Entry *e)
{
    for (int64_t k = 0; k < a->left_out_count; k++) {
        int64_t start = a->left_out.edges[k], length = a->left_out.edges[k + 1] - start;
        if (length == e->name_length && same_bytes(a->left_out.data + start, e->name, length))
            return 1;
    }
    return 0;
}

static inline Digest start_key(const Auditing *a)
{
    Digest key = {(uint64_t)a->key[0], (uint64_t)a->key[1]};
    return key;
}

/* Hash the names of a row whose names are not those of the row before. */
static void hash_names(const Auditing *a, AuditPass *pass, Entries *found)
{
    static const uint8_t unique_key[] = "UNIQ_KEY";
    Entry wanted = {unique_key, 0, sizeof unique_key - 1, 0};
    keep_last_of_each_name(found);
    pass->unique_key = -1;
    for (int j = 0; j < found->count; j++) {
        const Entry *e = &found->entries[j];
        if (same_name(&wanted, e))
            pass->unique_key = j;
        pass->counts[j] = (uint8_t)!is_left_out(a, e);
        if (pass->counts[j])
            pass->names[j] = sip_digest(e->name, e->name_length, start_key(a));
    }
}

/* The sum of the digests of the properties of a row that count. */
static inline Digest sum_of(const AuditPass *pass, const Entries *found)
{
    Digest sum = {0, 0}, made[2];
    const uint8_t *value[2];
    int64_t size[2];
    int held = 0;
    for (int j = 0; j < found->count; j++) {
        if (!pass->counts[j])
            continue;
        made[held] = pass->names[j];
        value[held] = found->entries[j].value;
        size[held] = found->entries[j].value_length;
        if (!held++)
            continue;
        sip_two(value, size, made);
        sum.low += made[0].low + made[1].low;
        sum.high += made[0].high + made[1].high;
        held = 0;
    }
    if (held) {
        Digest last = sip_digest(value[0], size[0], made[0]);
        sum.low += last.low;
        sum.high += last.high;
    }
    return sum;
}

static Digest digest_of_msg_id(const Auditing *a, const AuditPass *pass, const Entries *found,
                               const Record *r)
{
    if (pass->unique_key >= 0) {
        const Entry *e = &found->entries[pass->unique_key];
        return sip_digest(e->value, e->value_length, start_key(a));
    }
    enum { ROOM = 4 * STEP + STEP };
    uint8_t data[ROOM + STEP];
    int32_t edges[2] = {0, 0};
    Text text = {edges, data, 0, sizeof data};
    put_msg_id(&text, 0, r);
    return sip_digest(data, text.used, start_key(a));
}

static inline Digest digest_of_place(const Decoding *d, const Auditing *a, AuditPass *pass,
                                     int64_t i)
{
    int64_t queue = d->queue[i];
    if (pass->queue != queue) {
        const uint8_t *topic = d->topics.data + d->topics.edges[queue];
        int64_t length = d->topics.edges[queue + 1] - d->topics.edges[queue];
        pass->topic = sip_digest(topic, length, start_key(a));
        pass->queue = queue;
    }
    int64_t numbers[2] = {d->queue_ids[queue], d->queue_offsets[i]};
    return sip_digest((const uint8_t *)numbers, sizeof numbers, pass->topic);
}

/* Make the digest of all of a row but its body: the key of its body's. */
static inline int audit_row(const Decoding *d, const Auditing *a, AuditPass *pass, int64_t i,
                            const uint8_t *start, Record *r)
{
    Entries *found = &pass->entries[pass->current];
    uint32_t above = 0;
    if (!read_record(r, start, d->sizes[i]) || !is_meant(d, i, r))
        return NOT_MINE;
    if (d->check_crc && !checksums_hold(r))
        return NOT_MINE;
    if (r->sys_flag & SYS_COMPRESSED)
        return NOT_MINE;
    if (!split_properties(r->properties, r->end, pass->limit, found, &above))
        return NOT_MINE;
    if (above && !is_utf8(r->properties, r->end))
        return NOT_MINE;
    if (!pass->has_before || !same_layout(found, &pass->entries[!pass->current], pass->limit))
        hash_names(a, pass, found);
    Digest identity =
        a->by_id ? digest_of_msg_id(a, pass, found, r) : digest_of_place(d, a, pass, i);
    int64_t flag = load_i32(r->start + AT_FLAG);
    Digest made = sip_digest((const uint8_t *)&flag, sizeof flag, identity);
    Digest sum = sum_of(pass, found);
    made = sip_digest((const uint8_t *)&sum, sizeof sum, made);
    memcpy(a->identities + 2 * i, &identity, sizeof identity);
    memcpy(a->digests + 2 * i, &made, sizeof made);
    int64_t us = microseconds(load_i64(r->start + AT_STORE_TIMESTAMP + r->born_more));
    a->store_ms[i] = us / 1000 - (us % 1000 < 0);
    a->body_bytes[i] = r->body_length;
    pass->has_before = 1;
    pass->current = !pass->current;
    return DONE;
}

/* Hash the bodies of `count` rows up to row i, side by side. */
static inline void audit_bodies(const Auditing *a, const Record *r, int count, int64_t i)
{
    const uint8_t *p[BODIES_BESIDE] = {r[0].body, r[1].body};
    int64_t size[BODIES_BESIDE] = {r[0].body_length, r[1].body_length};
    Digest made[BODIES_BESIDE];
    int64_t *digests = a->digests + 2 * (i - count + 1);
    memcpy(made, digests, (size_t)count * sizeof *made);
    if (count == BODIES_BESIDE)
        sip_two(p, size, made);
    else
        made[0] = sip_digest(p[0], size[0], made[0]);
    memcpy(digests, made, (size_t)count * sizeof *made);
}

/* Make the digests of rows [first, last), which lie in `buffer` as in mq_decode. */
int64_t mq_audit(const Decoding *d, const Auditing *a, const uint8_t *buffer, int64_t length,
                 const int64_t *positions, int64_t base, int64_t first, int64_t last)
{
    AuditPass pass;
    Record records[BODIES_BESIDE] = {{0}, {0}};
    int held = 0;
    pass.current = pass.has_before = 0;
    pass.unique_key = -1;
    pass.queue = -1;
    pass.limit = buffer + length;
    for (int64_t i = first; i < last; i++) {
        int64_t start, size = d->sizes[i];
        if (__builtin_sub_overflow(positions[i - first], base, &start) || start < 0 ||
            size < MIN_RECORD || size > length || start > length - size)
            return NOT_MINE;
        if (audit_row(d, a, &pass, i, buffer + start, &records[held]) != DONE)
            return NOT_MINE;
        if (++held == BODIES_BESIDE || i + 1 == last) {
            audit_bodies(a, records, held, i);
            held = 0;
        }
    }
    return DONE;
}

#endif
