/* Records to the buffers of Arrow columns, in one pass while a record is in the cache.
 *
 * The twin of codec/gather.py, decode.py, properties.py, hosts.py and checksum.py together. What
 * is not wanted is a null pointer. A record that breaks a rule, is not the one that its
 * ConsumeQueue unit means, or is of a rare kind makes the whole call NOT_MINE: numpy then does
 * all of it and tells what is wrong. Every text has its room; a call that needs more is FULL.
 */
#ifndef MQ_DECODE_H
#define MQ_DECODE_H

#include "hosts.h"
#include "properties.h"
#include "record.h"

enum { MOST_PICKS = 8 };

/* A string or binary column: text of row i is data[edges[i] .. edges[i + 1]). */
typedef struct {
    int32_t *edges;
    uint8_t *data;
    int64_t used, room;
} Text;

/* Names end to end, as a Text; STEP more bytes may be read behind the last. */
typedef struct {
    const int32_t *edges;
    const uint8_t *data;
} Names;

/* One property as a column of its own. */
typedef struct {
    const uint8_t *name;
    int64_t name_length;
    int64_t or_msg_id; /* a record without the property gets the broker's id */
    Text text;
    uint8_t *valid; /* a bit each */
    int64_t missing;
} Pick;

typedef struct {
    /* Of each row: what its unit says, and which queue it is of. */
    const int64_t *sizes, *physical_offsets, *queue_offsets, *queue;
    /* Of each queue; light ones point at records of another topic. */
    int64_t queues;
    const int64_t *queue_ids;
    const uint8_t *light;
    Names topics, brokers;
    /* What is made of each row. */
    int32_t *queue_id, *total_size, *body_crc, *flag, *sys_flag, *reconsume_times;
    int64_t *born_us, *store_us, *prepared_transaction_offset;
    Text topic, broker, body, born_host, store_host, msg_id;
    int32_t *entry_edges;
    Text names, values;
    int64_t entries, entry_room;
    int64_t picks;
    Pick pick[MOST_PICKS];
    int64_t check_crc;
    /* What was met: all bits of SYSFLAG, and whether a property holds a byte above 0x7F. */
    int64_t sys_flags, above_ascii;
} Decoding;

/* What one call keeps from row to row. */
typedef struct {
    Entries entries[2];
    int current, has_before;
    int64_t names_start, names_bytes, first_entry; /* of the row before */
    int place[MOST_PICKS];                         /* of each pick among the entries; -1: none */
    HostTexts hosts;
    const uint8_t *limit;
    uint32_t above;
} Pass;

static inline int64_t microseconds(int64_t ms)
{
    const int64_t first = -62135596800000, last = 253402300799999; /* the years 1 to 9999 */
    return (ms < first ? first : ms > last ? last : ms) * 1000;
}

static inline int has_room(const Text *out, int64_t more)
{
    return out->room - out->used >= more + STEP;
}

static inline int put_text(Text *out, int64_t row, const uint8_t *from, int64_t n,
                           const uint8_t *limit)
{
    if (!has_room(out, n))
        return FULL;
    copy_short(out->data + out->used, from, n, limit);
    out->edges[row + 1] = (int32_t)(out->used += n);
    return DONE;
}

static inline int put_name(Text *out, int64_t row, const Names *names, int64_t index)
{
    int64_t start = names->edges[index], end = names->edges[index + 1];
    return put_text(out, row, names->data + start, end - start, names->data + end + STEP);
}

static inline int put_body(Text *out, int64_t row, const Record *r)
{
    if (!has_room(out, r->body_length))
        return FULL;
    memcpy(out->data + out->used, r->body, (size_t)r->body_length);
    out->edges[row + 1] = (int32_t)(out->used += r->body_length);
    return DONE;
}

/* A host at `raw`, of 12 bytes more if it is IPv6. */
static inline int put_host(Text *out, int64_t row, HostTexts *texts, const uint8_t *raw,
                           int32_t more)
{
    const HostText *host = more ? host_v6(texts, raw) : host_v4(texts, raw);
    if (!host)
        return NOT_MINE;
    return put_text(out, row, host->text, host->length, host->text + MOST_HOST_TEXT);
}

static inline int put_msg_id(Text *out, int64_t row, const Record *r)
{
    enum { V4 = IP_V4 + 4, OFFSET = 8, SHORT = V4 + OFFSET, LONG = SHORT + V6_MORE };
    uint8_t id[LONG], text[2 * LONG + STEP];
    const uint8_t *host = r->start + AT_STORE_HOST + r->born_more;
    const uint8_t *physical_offset = r->start + AT_PHYSICAL_OFFSET;
    if (r->store_more) {
        memcpy(id, host, V4 + V6_MORE);
        memcpy(id + V4 + V6_MORE, physical_offset, OFFSET);
        put_hex(text, id, LONG);
        return put_text(out, row, text, 2 * LONG, text + sizeof text);
    }
    memcpy(id, host, V4);
    memcpy(id + V4, physical_offset, OFFSET);
    put_hex(text, id, SHORT);
    return put_text(out, row, text, 2 * SHORT, text + sizeof text);
}

/* Whether the record is the one that the unit of row i means. */
static inline int is_meant(const Decoding *d, int64_t i, const Record *r)
{
    int64_t queue = d->queue[i];
    if (queue < 0 || queue >= d->queues)
        return 0;
    if (load_i64(r->start + AT_PHYSICAL_OFFSET) != d->physical_offsets[i])
        return 0;
    if (d->light[queue])
        return 1;
    const uint8_t *topic = d->topics.data + d->topics.edges[queue];
    int64_t length = d->topics.edges[queue + 1] - d->topics.edges[queue];
    return load_i64(r->start + AT_QUEUE_OFFSET) == d->queue_offsets[i] &&
           load_i32(r->start + AT_QUEUE_ID) == d->queue_ids[queue] &&
           r->topic_length == length && same_bytes(r->topic, topic, length);
}

static inline void put_numbers(const Decoding *d, int64_t i, const Record *r)
{
    const uint8_t *after_hosts = r->body - 16;
    if (d->queue_id)
        d->queue_id[i] = (int32_t)d->queue_ids[d->queue[i]];
    if (d->total_size)
        d->total_size[i] = (int32_t)d->sizes[i];
    if (d->body_crc)
        d->body_crc[i] = load_i32(r->start + AT_BODY_CRC);
    if (d->flag)
        d->flag[i] = load_i32(r->start + AT_FLAG);
    if (d->sys_flag)
        d->sys_flag[i] = r->sys_flag;
    if (d->born_us)
        d->born_us[i] = microseconds(load_i64(r->start + AT_BORN_TIMESTAMP));
    if (d->store_us)
        d->store_us[i] = microseconds(load_i64(r->start + AT_STORE_TIMESTAMP + r->born_more));
    if (d->reconsume_times)
        d->reconsume_times[i] = load_i32(after_hosts);
    if (d->prepared_transaction_offset)
        d->prepared_transaction_offset[i] = load_i64(after_hosts + 4);
}

static inline int put_texts(Decoding *d, Pass *pass, int64_t i, const Record *r)
{
    int result = DONE;
    if (d->topic.edges)
        result |= put_name(&d->topic, i, &d->topics, d->queue[i]);
    if (d->broker.edges)
        result |= put_name(&d->broker, i, &d->brokers, d->queue[i]);
    if (d->body.edges)
        result |= put_body(&d->body, i, r);
    if (d->born_host.edges)
        result |= put_host(&d->born_host, i, &pass->hosts, r->start + AT_BORN_HOST, r->born_more);
    if (d->store_host.edges)
        result |= put_host(&d->store_host, i, &pass->hosts,
                           r->start + AT_STORE_HOST + r->born_more, r->store_more);
    if (d->msg_id.edges)
        result |= put_msg_id(&d->msg_id, i, r);
    return result;
}

/* Find the picks among the entries of a row whose names are not those of the row before. */
static void find_picks(const Decoding *d, Pass *pass, Entries *found)
{
    keep_last_of_each_name(found);
    for (int k = 0; k < d->picks; k++) {
        Entry wanted = {d->pick[k].name, 0, (int32_t)d->pick[k].name_length, 0};
        pass->place[k] = -1;
        for (int j = 0; j < found->count; j++)
            if (same_name(&wanted, &found->entries[j]))
                pass->place[k] = j;
    }
}

/* Write the names: those of the row before are copied in one piece where they are the same. */
static inline void put_names(Decoding *d, Pass *pass, const Entries *found, int same)
{
    uint8_t *data = d->names.data;
    int32_t *edges = d->names.edges + d->entries + 1;
    int64_t start = d->names.used, used = start;
    if (same) {
        int32_t moved = (int32_t)(start - pass->names_start);
        const int32_t *before = d->names.edges + pass->first_entry + 1;
        copy_short(data + start, data + pass->names_start, pass->names_bytes,
                   data + d->names.room);
        for (int j = 0; j < found->count; j++)
            edges[j] = before[j] + moved;
        used += pass->names_bytes;
    } else {
        for (int j = 0; j < found->count; j++) {
            const Entry *e = &found->entries[j];
            copy_short(data + used, e->name, e->name_length, pass->limit);
            edges[j] = (int32_t)(used += e->name_length);
        }
    }
    d->names.used = used;
    pass->names_start = start;
    pass->names_bytes = used - start;
    pass->first_entry = d->entries;
}

static inline int put_entries(Decoding *d, Pass *pass, int64_t i, const Record *r,
                              const Entries *found, int same)
{
    int count = found->count;
    if (!has_room(&d->names, r->properties_length) || !has_room(&d->values, r->properties_length) ||
        d->entry_room - d->entries < count)
        return FULL;
    put_names(d, pass, found, same);
    const uint8_t *limit = pass->limit;
    uint8_t *data = d->values.data;
    int32_t *edges = d->values.edges + d->entries + 1;
    int64_t used = d->values.used;
    for (int j = 0; j < count; j++) {
        const Entry *e = &found->entries[j];
        copy_short(data + used, e->value, e->value_length, limit);
        edges[j] = (int32_t)(used += e->value_length);
    }
    d->values.used = used;
    d->entries += count;
    d->entry_edges[i + 1] = (int32_t)d->entries;
    return DONE;
}

static inline int put_pick(Pick *pick, Pass *pass, int64_t i, const Record *r, const Entry *e)
{
    uint8_t *valid = pick->valid + (i >> 3), bit = (uint8_t)(1 << (i & 7));
    if (!(i & 7))
        *valid = 0;
    if (e) {
        *valid |= bit;
        return put_text(&pick->text, i, e->value, e->value_length, pass->limit);
    }
    if (pick->or_msg_id) {
        *valid |= bit;
        return put_msg_id(&pick->text, i, r);
    }
    pick->missing++;
    pick->text.edges[i + 1] = (int32_t)pick->text.used;
    return DONE;
}

static inline int put_properties(Decoding *d, Pass *pass, int64_t i, const Record *r)
{
    Entries *found = &pass->entries[pass->current];
    if (!split_properties(r->properties, r->end, pass->limit, found, &pass->above))
        return NOT_MINE;
    int same = pass->has_before && same_layout(found, &pass->entries[!pass->current], pass->limit);
    if (!same)
        find_picks(d, pass, found);
    int result = d->entry_edges ? put_entries(d, pass, i, r, found, same) : DONE;
    for (int k = 0; k < d->picks && result == DONE; k++) {
        int place = pass->place[k];
        const Entry *e = place < 0 ? 0 : &found->entries[place];
        result = put_pick(&d->pick[k], pass, i, r, e);
    }
    pass->has_before = 1;
    pass->current = !pass->current;
    return result;
}

static void start_text(Text *text)
{
    if (text->edges)
        text->edges[0] = 0;
}

static void start_columns(Decoding *d)
{
    Text *texts[] = {&d->topic,      &d->broker, &d->body,  &d->born_host,
                     &d->store_host, &d->msg_id, &d->names, &d->values};
    for (unsigned k = 0; k < sizeof texts / sizeof *texts; k++)
        start_text(texts[k]);
    for (int k = 0; k < d->picks; k++)
        start_text(&d->pick[k].text);
    if (d->entry_edges)
        d->entry_edges[0] = 0;
}

static inline int decode_row(Decoding *d, Pass *pass, int64_t i, const uint8_t *start)
{
    Record r;
    if (!read_record(&r, start, d->sizes[i]) || !is_meant(d, i, &r))
        return NOT_MINE;
    if (d->check_crc && !checksums_hold(&r))
        return NOT_MINE;
    d->sys_flags |= r.sys_flag;
    put_numbers(d, i, &r);
    int result = put_texts(d, pass, i, &r);
    if (result == DONE && (d->entry_edges || d->picks))
        result = put_properties(d, pass, i, &r);
    return result & FULL ? FULL : result;
}

/* Decode rows [first, last), which lie in `buffer`: row i at positions[i - first] - base.
 *
 * Rows come in order, from 0 on, over as many calls as there are pieces of the log.
 */
int64_t mq_decode(Decoding *d, const uint8_t *buffer, int64_t length, const int64_t *positions,
                  int64_t base, int64_t first, int64_t last)
{
    Pass pass;
    pass.current = pass.has_before = 0;
    pass.above = 0;
    pass.names_start = pass.names_bytes = pass.first_entry = 0;
    pass.limit = buffer + length;
    for (int k = 0; k < KNOWN_HOSTS; k++)
        pass.hosts.known[k].raw_length = 0;
    if (d->picks < 0 || d->picks > MOST_PICKS)
        return NOT_MINE;
    if (first == 0)
        start_columns(d);
    int result = DONE;
    for (int64_t i = first; i < last && result == DONE; i++) {
        int64_t start, size = d->sizes[i];
        if (__builtin_sub_overflow(positions[i - first], base, &start) || start < 0 ||
            size < MIN_RECORD || size > length || start > length - size)
            return NOT_MINE;
        result = decode_row(d, &pass, i, buffer + start);
    }
    d->above_ascii |= pass.above;
    return result;
}

#endif
