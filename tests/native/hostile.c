/* Hostile frames through every kernel, for a build with sanitizers.
 *
 *     hostile CORPUS FRAMES SEED
 *
 * CORPUS holds records, each behind its length (int32, little-endian). Some of them are put end
 * to end into memory of exactly their size, bytes and claims are changed, and the kernels run
 * with as much room as they need or less. The kernels that write get columns of Arrow in memory of
 * exactly their size, with wrong numbers of rows, topics and bytes among the right ones. The sanitizer
 * ends the program at the first access outside; what the kernels say is checked against what they
 * were given.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kernels.c"

enum { MOST_RECORDS = 4096, MOST_ROWS = 4, PICKS = 3 };

static uint8_t *records[MOST_RECORDS];
static int64_t lengths[MOST_RECORDS], record_count;
static uint64_t state;
static int64_t results[3], blocks_made[2], records_made[2], walks[3], audits[2];

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void *room(int64_t size)
{
    void *memory = malloc((size_t)size);
    if (!memory && size)
        abort();
    return memory;
}

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        abort();
    }
}

static void load(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t head[4];
    require(file != 0, "the corpus can be opened");
    while (record_count < MOST_RECORDS && fread(head, 1, 4, file) == 4) {
        int64_t size = head[0] | head[1] << 8 | head[2] << 16 | (int64_t)head[3] << 24;
        records[record_count] = room(size);
        require(fread(records[record_count], 1, (size_t)size, file) == (size_t)size, "it is whole");
        lengths[record_count++] = size;
    }
    fclose(file);
    require(record_count > 0, "it holds records");
}

static int64_t odd_number(int64_t length)
{
    static const int64_t odd[] = {0, 1, -1, 2, 90, 91, 127, 128, 255, 32767, 32768, 65536,
                                  2147483647, -2147483647 - 1, -626843481, -626843477, 0x301};
    int64_t near = length - 4 + (int64_t)draw(9);
    return draw(3) ? odd[draw(sizeof odd / sizeof *odd)] : near;
}

static void damage(uint8_t *bytes, int64_t length)
{
    for (int times = (int)draw(4); times > 0; times--) {
        int64_t at = (int64_t)draw((uint64_t)length);
        switch (draw(4)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << draw(8));
            break;
        case 1:
            bytes[at] = (uint8_t)draw(4);
            break;
        case 2:
            if (length - at >= 4)
                store_i32(bytes + at, (uint32_t)odd_number(length));
            break;
        default: /* a field of the header */
            at = (int64_t)draw(23) * 4;
            if (at + 4 <= length)
                store_i32(bytes + at, (uint32_t)odd_number(length));
        }
    }
}

/* Room for a text column of n values: all there can be, or little. */
static Text text_room(int64_t n, int64_t most)
{
    Text text = {0, 0, 0, draw(4) ? most : (int64_t)draw((uint64_t)most + 1)};
    text.edges = room((n + 1) * 4);
    text.data = room(text.room);
    return text;
}

static void check_text(const Text *text, int64_t n)
{
    require(text->used <= text->room, "no more is used than there is room");
    for (int64_t i = 0; i < n; i++)
        require(text->edges[i] <= text->edges[i + 1], "edges ascend");
    require(text->edges[n] == text->used, "the last edge is what is used");
}

static void free_text(Text *text)
{
    free(text->edges);
    free(text->data);
}

typedef struct {
    uint8_t *buffer;
    int64_t length, rows;
    int64_t starts[MOST_ROWS], sizes[MOST_ROWS], places[MOST_ROWS], queue_offsets[MOST_ROWS];
    int64_t queue[MOST_ROWS], queue_ids[1];
    uint8_t light[1];
    int32_t topic_edges[2];
    uint8_t topic[127 + STEP];
} Frames;

static void make_frames(Frames *f)
{
    const uint8_t *chosen[MOST_ROWS];
    f->length = 0;
    f->rows = 1 + (int64_t)draw(MOST_ROWS);
    for (int64_t i = 0; i < f->rows; i++) {
        uint64_t which = draw((uint64_t)record_count);
        chosen[i] = records[which];
        f->starts[i] = f->length;
        f->sizes[i] = lengths[which];
        f->length += lengths[which];
    }
    f->buffer = room(f->length);
    f->light[0] = draw(4) != 0;
    f->topic_edges[0] = f->topic_edges[1] = 0;
    memset(f->topic, 0, sizeof f->topic);
    for (int64_t i = 0; i < f->rows; i++) {
        uint8_t *at = f->buffer + f->starts[i];
        memcpy(at, chosen[i], (size_t)f->sizes[i]);
        damage(at, f->sizes[i]);
        f->places[i] = load_i64(at + AT_PHYSICAL_OFFSET);
        f->queue_offsets[i] = load_i64(at + AT_QUEUE_OFFSET);
        f->queue_ids[0] = load_i32(at + AT_QUEUE_ID);
        f->queue[i] = draw(200) ? 0 : (int64_t)draw(5) - 2;
        Record r;
        if (read_record(&r, at, f->sizes[i]) && r.topic_length <= 127) {
            memcpy(f->topic, r.topic, (size_t)r.topic_length);
            f->topic_edges[1] = (int32_t)r.topic_length;
        }
    }
    if (!draw(20)) { /* a claim about another place or size */
        int64_t i = (int64_t)draw((uint64_t)f->rows);
        f->starts[i] = (int64_t)draw(2) ? odd_number(f->length) : (int64_t)(state >> draw(64));
    }
    if (!draw(20))
        f->sizes[draw((uint64_t)f->rows)] = odd_number(f->length);
}

static Decoding decoding(const Frames *f)
{
    Decoding d;
    memset(&d, 0, sizeof d);
    d.sizes = f->sizes;
    d.physical_offsets = f->places;
    d.queue_offsets = f->queue_offsets;
    d.queue = f->queue;
    d.queues = 1;
    d.queue_ids = f->queue_ids;
    d.light = f->light;
    d.topics = (Names){f->topic_edges, f->topic};
    return d;
}

static void run_decode(const Frames *f)
{
    static const char *names[PICKS] = {"TAGS", "KEYS", "UNIQ_KEY"};
    int64_t n = f->rows, most = f->length + 128 * n + 64;
    int32_t *numbers = room(6 * n * 4);
    int64_t *times = room(3 * n * 8);
    Decoding d = decoding(f);
    d.brokers = d.topics;
    d.queue_id = numbers;
    d.total_size = numbers + n;
    d.body_crc = numbers + 2 * n;
    d.flag = numbers + 3 * n;
    d.sys_flag = numbers + 4 * n;
    d.reconsume_times = numbers + 5 * n;
    d.born_us = times;
    d.store_us = times + n;
    d.prepared_transaction_offset = times + 2 * n;
    d.entry_room = draw(4) ? most / 3 : (int64_t)draw(40);
    d.entry_edges = room((n + 1) * 4);
    d.check_crc = draw(4) == 0; /* what is damaged seldom has the right sum */
    d.picks = PICKS;
    Text *texts[] = {&d.topic, &d.broker, &d.body, &d.born_host, &d.store_host, &d.msg_id};
    for (int k = 0; k < 6; k++)
        *texts[k] = text_room(n, most);
    d.names = text_room(d.entry_room, most);
    d.values = text_room(d.entry_room, most);
    for (int k = 0; k < PICKS; k++) {
        d.pick[k].name = (const uint8_t *)names[k];
        d.pick[k].name_length = (int64_t)strlen(names[k]);
        d.pick[k].or_msg_id = k == 2;
        d.pick[k].text = text_room(n, most);
        d.pick[k].valid = room((n + 7) / 8);
    }
    int64_t result = mq_decode(&d, f->buffer, f->length, f->starts, 0, 0, n);
    require(result >= DONE && result <= FULL, "a kernel is done, or not mine, or full");
    results[result]++;
    if (result == DONE) {
        for (int k = 0; k < 6; k++)
            check_text(texts[k], n);
        check_text(&d.names, d.entries);
        check_text(&d.values, d.entries);
        require(d.entry_edges[n] == d.entries && d.entries <= d.entry_room, "entries add up");
    }
    for (int k = 0; k < PICKS; k++) {
        free_text(&d.pick[k].text);
        free(d.pick[k].valid);
    }
    for (int k = 0; k < 6; k++)
        free_text(texts[k]);
    free_text(&d.names);
    free_text(&d.values);
    free(d.entry_edges);
    free(numbers);
    free(times);
}

static void run_audit(const Frames *f)
{
    static const int64_t key[] = {1, 2};
    static const int32_t edges[] = {0, 4, 8};
    static const uint8_t names[8 + STEP] = "TAGSKEYS";
    int64_t n = f->rows;
    int64_t *made = room(6 * n * 8);
    Decoding d = decoding(f);
    d.check_crc = draw(4) == 0;
    Auditing a = {key, (int64_t)draw(2), {edges, names}, (int64_t)draw(3), made, made + 2 * n,
                  made + 4 * n, made + 5 * n};
    int64_t result = mq_audit(&d, &a, f->buffer, f->length, f->starts, 0, 0, n);
    require(result == DONE || result == NOT_MINE, "an audit is done, or not mine");
    audits[result]++;
    free(made);
}

static void run_frames(const Frames *f)
{
    Slices slices = {f->buffer, f->length, f->starts, f->sizes, f->rows};
    uint8_t *wrong = room(f->rows);
    int64_t most = (int64_t)draw(8), end;
    int64_t *starts = room(most * 8), *sizes = room(most * 8);
    Record r;
    int whole = 1;
    for (int64_t i = 0; whole && i < f->rows; i++)
        whole = lies_within(&slices, i) && read_record(&r, f->buffer + f->starts[i], f->sizes[i]);
    require(whole == (mq_broken(&slices, wrong) == DONE), "only whole records have sums");
    int64_t count = mq_follow(f->buffer, f->length, starts, sizes, most, &end);
    require(count <= most && end >= 0 && end <= f->length, "a walk ends in its buffer");
    free(wrong);
    free(starts);
    free(sizes);
}

/* The records as property blocks, and half of them from within. */
static void run_picks(const Frames *f)
{
    static const uint8_t data[] = "TAGSKEYSUNIQ_KEYa";
    static const int32_t edges[] = {0, 4, 8, 16, 17};
    WantedNames names = {edges, data, 1 + (int64_t)draw(4)};
    int64_t starts[MOST_ROWS], sizes[MOST_ROWS];
    memcpy(starts, f->starts, sizeof starts);
    memcpy(sizes, f->sizes, sizeof sizes);
    for (int64_t i = 0; i < f->rows; i++)
        if (draw(2) && sizes[i] > 91 && starts[i] >= 0) {
            starts[i] += 91;
            sizes[i] -= 91;
        }
    Slices blocks = {f->buffer, f->length, starts, sizes, f->rows};
    int64_t *found = room(2 * names.count * f->rows * 8), *lengths = found + names.count * f->rows;
    int is_done = mq_property_values(&blocks, &names, found, lengths) == DONE;
    for (int64_t at = 0; is_done && at < names.count * f->rows; at++) {
        int64_t i = at % f->rows;
        require(found[at] == -1 || (lengths[at] > 0 && found[at] > starts[i] &&
                                    found[at] + lengths[at] <= starts[i] + sizes[i]),
                "a value lies in its block");
    }
    free(found);
}

/* The buffer as a part of a log, walked over with room for few rows and queues. */
static void run_walk(const Frames *f)
{
    enum { QUEUES = 3, SLOTS = 8 };
    static const int64_t delays[] = {0, 1000, 5000};
    int64_t base = (int64_t)draw(1000), most = 1 + (int64_t)draw(MOST_ROWS + 1);
    for (int64_t i = 0; i < f->rows; i++)
        if (draw(8) && f->starts[i] >= 0 && f->starts[i] <= f->length - HEADER_BYTES) {
            store_i64(f->buffer + f->starts[i] + AT_PHYSICAL_OFFSET, (uint64_t)(base + f->starts[i]));
            store_i64(f->buffer + f->starts[i] + AT_QUEUE_OFFSET, draw(9));
        }
    int64_t *wide = room(5 * most * 8);
    uint8_t *several = room(most);
    uint16_t *queue = room(most * 2);
    NamedQueue *names = room(QUEUES * (int64_t)sizeof(NamedQueue));
    int16_t *slots = room(SLOTS * 2);
    memset(slots, 0xFF, SLOTS * 2);
    UnitRows u = {wide, wide + most, wide + 2 * most, wide + 3 * most, wide + 4 * most, several, queue,
                  0, most, names, slots, 0, 1 + (int64_t)draw(QUEUES), SLOTS, delays, 3, 1000,
                  draw(4) ? INT64_MAX : base + (int64_t)draw((uint64_t)f->length + 1), 0, 0};
    int64_t result = mq_log_units(f->buffer, f->length, base, &u), before = base;
    walks[result]++;
    require(u.end >= 0 && u.end <= f->length, "a walk ends in its buffer");
    require(u.rows <= u.room && u.queues <= u.queue_room, "rows and queues have their room");
    for (int64_t i = 0; i < u.rows; i++) {
        require(u.physical_offsets[i] >= before && u.queue[i] < u.queues, "units are in log order");
        before = u.physical_offsets[i] + u.sizes[i];
    }
    require(before <= base + u.end, "no unit is behind the end of the walk");
    free(wide);
    free(several);
    free(queue);
    free(names);
    free(slots);
}

/* A column of n values, in memory of exactly their size; some are null if `nulls`. */
static Column make_column(int64_t n, int nulls)
{
    int64_t from = nulls ? (int64_t)draw(9) : 0, bytes = (from + n + 7) / 8;
    int32_t *edges = room((n + 1) * 4);
    edges[0] = (int32_t)draw(5);
    for (int64_t i = 0; i < n; i++)
        edges[i + 1] = edges[i] + (draw(3) ? (int32_t)draw(40) : 0);
    uint8_t *data = room(edges[n]), *valid = nulls ? room(bytes) : 0;
    uint8_t least = draw(20) ? 0x7f : 0xff;
    for (int32_t i = 0; i < edges[n]; i++)
        data[i] = (uint8_t)draw(256) & least;
    for (int64_t i = 0; valid && i < bytes; i++)
        valid[i] = (uint8_t)draw(256);
    return (Column){edges, data, valid, from};
}

static void free_column(Column *c)
{
    free((void *)c->edges);
    free((void *)c->data);
    free((void *)c->valid);
}

static void run_blocks(void)
{
    static const uint8_t prefix[] = "KEYS\1";
    int64_t n = (int64_t)draw(9), count = (int64_t)draw(4), most = 0;
    Piece pieces[3];
    for (int64_t k = 0; k < count; k++) {
        int is_column = draw(3) != 0;
        pieces[k] = (Piece){prefix, (int64_t)draw(6), is_column ? (int64_t)draw(3) : 0, {0}};
        if (is_column)
            pieces[k].values = make_column(n, (int)draw(2));
        most += n * (pieces[k].prefix_length + 1);
        most += is_column ? pieces[k].values.edges[n] - pieces[k].values.edges[0] : 0;
    }
    int64_t size = draw(4) ? most : (int64_t)draw((uint64_t)most + 1);
    int32_t *edges = room((n + 1) * 4);
    uint8_t *data = room(size);
    int64_t result = mq_join_blocks(pieces, count, n, edges, data, size);
    require(result == DONE || (result == NOT_MINE && size < most), "all room there can be is enough");
    blocks_made[result]++;
    if (result == DONE) {
        for (int64_t i = 0; i < n; i++)
            require(edges[i] <= edges[i + 1], "blocks follow each other");
        require(edges[n] <= size, "blocks lie within their room");
    }
    for (int64_t k = 0; k < count; k++)
        if (pieces[k].values.edges)
            free_column(&pieces[k].values);
    free(edges);
    free(data);
}

/* Every way to a checksum that this processor has, over memory of exactly the bytes. */
static void run_checksums(void)
{
    int64_t n = (int64_t)draw(3) ? (int64_t)draw(1200) : (int64_t)draw(70);
    uint32_t before = (uint32_t)state;
    uint8_t *bytes = room(n);
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)draw(256);
    uint32_t sum = crc_sliced(before, bytes, n);
    require(sum == crc_chosen(before, bytes, n), "the fastest sum is that of the tables");
#if defined(__x86_64__)
    if (crc_chosen != crc_sliced)
        require(sum == crc_carryless(before, bytes, n), "so is that of 128 bits at a time");
#endif
    free(bytes);
}

enum { TOPICS = 2, COLUMNS = 4 };

static void run_encode(void)
{
    int64_t rows = 1 + (int64_t)draw(6), count = rows, total = 0;
    Column topics = make_column(TOPICS, 0), bodies = make_column(rows, 0);
    Column properties = make_column(rows, 0);
    int64_t header_length = draw(20) ? HEADER_BYTES + 12 * (int64_t)draw(3) : (int64_t)draw(90);
    uint8_t *header = room(header_length);
    int32_t *numbers = room(COLUMNS * rows * 4);
    int64_t *born = room(rows * 8), *order = 0;
    memset(header, 7, (size_t)header_length);
    for (int64_t i = 0; i < COLUMNS * rows; i++)
        numbers[i] = (int32_t)draw(TOPICS);
    for (int64_t i = 0; i < rows; i++)
        born[i] = odd_number(100);
    if (draw(2)) {
        count = (int64_t)draw(8);
        order = room(count * 8);
        for (int64_t i = 0; i < count; i++)
            order[i] = (int64_t)draw((uint64_t)rows);
    }
    int64_t *sizes = room(count * 8);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = order ? order[i] : i, topic = numbers[row];
        sizes[i] = header_length + 2 + bodies.edges[row + 1] - bodies.edges[row] +
                   topics.edges[topic + 1] - topics.edges[topic] + properties.edges[row + 1] -
                   properties.edges[row];
        total += sizes[i];
    }
    int is_right = header_length >= HEADER_BYTES;
    int64_t size = total;
    switch (draw(8)) { /* one claim that is not so */
    case 0:
        size = (int64_t)draw((uint64_t)total + 20);
        is_right &= size == total;
        break;
    case 1:
        if (count) {
            sizes[draw((uint64_t)count)] = odd_number(100);
            is_right = -1; /* it may be the right one by chance */
        }
        break;
    case 2:
        if (order && count) {
            order[draw((uint64_t)count)] = draw(2) ? rows : -1;
            is_right = 0;
        }
        break;
    case 3:
        if (!order) {
            numbers[draw((uint64_t)rows)] = draw(2) ? TOPICS : -1;
            is_right = 0;
        }
    }
    uint8_t *out = room(size);
    Encoding e = {rows, order, header, header_length, TOPICS, topics.edges, topics.data,
                  numbers, numbers + rows, numbers + 2 * rows, numbers + 3 * rows, born,
                  bodies, properties};
    int64_t result = mq_encode(&e, count, sizes, out, size);
    require(is_right < 0 || is_right == (result == DONE) || !count, "wrong claims are not taken");
    records_made[result]++;
    free(out);
    free(sizes);
    free(order);
    free(born);
    free(numbers);
    free(header);
    free_column(&topics);
    free_column(&bodies);
    free_column(&properties);
}

int main(int count, char **arguments)
{
    require(count == 4, "there are three arguments");
    load(arguments[1]);
    state = strtoull(arguments[3], 0, 10) * 2654435769u + 1;
    for (int64_t frame = 0, frames = atoll(arguments[2]); frame < frames;) {
        Frames f;
        make_frames(&f);
        frame += f.rows;
        run_decode(&f);
        run_audit(&f);
        run_picks(&f);
        run_frames(&f);
        run_walk(&f);
        free(f.buffer);
        run_blocks();
        run_checksums();
        run_encode();
    }
    const int64_t counts[] = {results[DONE], results[NOT_MINE], results[FULL],
                              blocks_made[DONE], blocks_made[NOT_MINE],
                              records_made[DONE], records_made[NOT_MINE],
                              walks[DONE], walks[NOT_MINE], walks[FULL],
                              audits[DONE], audits[NOT_MINE]};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        printf("%lld ", (long long)counts[i]);
    for (int64_t i = 0; i < record_count; i++)
        free(records[i]);
    return 0;
}
