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

enum { SYS_COMPRESSED = 1 };

typedef struct {
    const int64_t *key; /* two numbers: of what begins a digest */
    int64_t by_id;      /* the identity is the message id, else topic, queue and queue offset */
    Names left_out;     /* properties that do not count */
    int64_t left_out_count;
    /* What is made of each row: two numbers each of the first two. */
    int64_t *identities, *digests, *store_ms, *body_bytes;
} Auditing;

/* What one call keeps from row to row. The rows that are held have the same names of properties. */
typedef struct {
    Record records[SIP_LANES];
    Entries entries[SIP_LANES];
    int64_t rows[SIP_LANES];
    int held;
    int before;                 /* where the entries of the row before are; -1: there is none */
    Digest names[MOST_ENTRIES]; /* of the entries of that row */
    uint8_t counts[MOST_ENTRIES];
    int unique_key;
    int64_t queue; /* `topic` is the digest of its topic; -1: of none yet */
    Digest topic;
    const uint8_t *limit;
} AuditPass;

/* Slices, one of each row that is held, and the digests that are made of them. */
typedef struct {
    const uint8_t *p[SIP_LANES];
    int64_t size[SIP_LANES];
    Digest made[SIP_LANES];
} Held;

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

/* The digest of the message id of a record without UNIQ_KEY. */
static Digest digest_of_offset_id(const Auditing *a, const Record *r)
{
    enum { ROOM = 4 * STEP + STEP };
    uint8_t data[ROOM + STEP];
    int32_t edges[2] = {0, 0};
    Text text = {edges, data, 0, sizeof data};
    put_msg_id(&text, 0, r);
    return sip_digest(data, text.used, start_key(a));
}

/* Take the values of one property, the same of each row that is held. */
static inline void values_of(const AuditPass *pass, int property, Digest key, Held *of)
{
    for (int k = 0; k < pass->held; k++) {
        const Entry *e = &pass->entries[k].entries[property];
        of->p[k] = e->value;
        of->size[k] = e->value_length;
        of->made[k] = key;
    }
}

/* Take numbers, `each` of every row that is held; the keys are there. */
static inline void numbers_of(const AuditPass *pass, const void *numbers, int each, Held *of)
{
    for (int k = 0; k < pass->held; k++) {
        of->p[k] = (const uint8_t *)numbers + 8 * each * k;
        of->size[k] = 8 * each;
    }
}

static inline void hash_held(const AuditPass *pass, Held *of)
{
    sip_many(of->p, of->size, of->made, pass->held);
}

static inline void identities_by_id(const Auditing *a, const AuditPass *pass, Held *of)
{
    if (pass->unique_key >= 0) {
        values_of(pass, pass->unique_key, start_key(a), of);
        hash_held(pass, of);
    } else
        for (int k = 0; k < pass->held; k++)
            of->made[k] = digest_of_offset_id(a, &pass->records[k]);
}

static inline void identities_by_offset(const Decoding *d, const Auditing *a, AuditPass *pass,
                                        Held *of)
{
    int64_t numbers[SIP_LANES][2];
    for (int k = 0; k < pass->held; k++) {
        int64_t queue = d->queue[pass->rows[k]];
        if (pass->queue != queue) {
            const uint8_t *topic = d->topics.data + d->topics.edges[queue];
            int64_t length = d->topics.edges[queue + 1] - d->topics.edges[queue];
            pass->topic = sip_digest(topic, length, start_key(a));
            pass->queue = queue;
        }
        of->made[k] = pass->topic;
        numbers[k][0] = d->queue_ids[queue];
        numbers[k][1] = d->queue_offsets[pass->rows[k]];
    }
    numbers_of(pass, numbers, 2, of);
    hash_held(pass, of);
}

/* Sum up the digests of the properties that count of each row that is held. */
static inline void sums_of(const AuditPass *pass, Digest sums[SIP_LANES])
{
    Held values = {{0}, {0}, {{0, 0}}};
    memset(sums, 0, SIP_LANES * sizeof *sums);
    for (int j = 0; pass->held && j < pass->entries[0].count; j++) {
        if (!pass->counts[j])
            continue;
        values_of(pass, j, pass->names[j], &values);
        hash_held(pass, &values);
        for (int k = 0; k < pass->held; k++) {
            sums[k].low += values.made[k].low;
            sums[k].high += values.made[k].high;
        }
    }
}

/* Make the digests of the rows that are held, part after part, side by side. */
static void audit_held(const Decoding *d, const Auditing *a, AuditPass *pass)
{
    Held of = {{0}, {0}, {{0, 0}}};
    Digest sums[SIP_LANES];
    int64_t flags[SIP_LANES];
    if (a->by_id)
        identities_by_id(a, pass, &of);
    else
        identities_by_offset(d, a, pass, &of);
    for (int k = 0; k < pass->held; k++) {
        memcpy(a->identities + 2 * pass->rows[k], &of.made[k], sizeof of.made[k]);
        flags[k] = load_i32(pass->records[k].start + AT_FLAG);
    }
    numbers_of(pass, flags, 1, &of);
    hash_held(pass, &of);
    sums_of(pass, sums);
    numbers_of(pass, sums, 2, &of);
    hash_held(pass, &of);
    for (int k = 0; k < pass->held; k++) {
        of.p[k] = pass->records[k].body;
        of.size[k] = pass->records[k].body_length;
    }
    hash_held(pass, &of);
    for (int k = 0; k < pass->held; k++)
        memcpy(a->digests + 2 * pass->rows[k], &of.made[k], sizeof of.made[k]);
    pass->held = 0;
}

/* Hold one more row; those before it are made first if its properties have other names. */
static inline int hold_row(const Decoding *d, const Auditing *a, AuditPass *pass, int64_t i,
                           const uint8_t *start)
{
    int at = pass->held;
    Record *r = &pass->records[at];
    Entries *found = &pass->entries[at];
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
    if (pass->before < 0 || !same_layout(found, &pass->entries[pass->before], pass->limit)) {
        if (at) {
            audit_held(d, a, pass);
            pass->records[0] = *r;
            memcpy(pass->entries[0].entries, found->entries,
                   (size_t)found->count * sizeof *found->entries);
            pass->entries[0].count = found->count;
            at = 0;
            r = &pass->records[0];
            found = &pass->entries[0];
        }
        hash_names(a, pass, found);
    }
    int64_t us = microseconds(load_i64(r->start + AT_STORE_TIMESTAMP + r->born_more));
    a->store_ms[i] = us / 1000 - (us % 1000 < 0);
    a->body_bytes[i] = r->body_length;
    pass->rows[at] = i;
    pass->before = at;
    if (++pass->held == SIP_LANES)
        audit_held(d, a, pass);
    return DONE;
}

/* Make the digests of rows [first, last), which lie in `buffer` as in mq_decode. */
int64_t mq_audit(const Decoding *d, const Auditing *a, const uint8_t *buffer, int64_t length,
                 const int64_t *positions, int64_t base, int64_t first, int64_t last)
{
    AuditPass pass;
    pass.held = 0;
    pass.before = pass.unique_key = -1;
    pass.queue = -1;
    pass.limit = buffer + length;
    for (int64_t i = first; i < last; i++) {
        int64_t start, size = d->sizes[i];
        if (__builtin_sub_overflow(positions[i - first], base, &start) || start < 0 ||
            size < MIN_RECORD || size > length || start > length - size)
            return NOT_MINE;
        if (hold_row(d, a, &pass, i, buffer + start) != DONE)
            return NOT_MINE;
    }
    if (pass.held)
        audit_held(d, a, &pass);
    return DONE;
}

#endif
