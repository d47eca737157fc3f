/* The timeline: a ring of spans, their texts, and the writer. */
#include "base/trace.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json_writer.h"
#include "base/map.h"

#define MOST_ROWS   256
#define MOST_TEXTS  65536 /* different texts that spans without an id have; later ones are left out */
#define FIRST_SPANS 1024
#define TEXT_SIZE   2048

typedef struct stored_span {
    const char *category, *name, *values; /* values: members of a JSON object, or NULL */
    char *own;                            /* the values, if they are this span's alone */
    double begin, seconds;
    uint64_t id;
    int32_t row;
} stored_span;

typedef struct trace_row {
    char name[64];
    double end; /* of its last span without an id */
} trace_row;

atomic_bool trm_trace_on_;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it: */
static struct {
    stored_span *spans; /* [capacity], a ring once there are `most` */
    int32_t n, first, capacity, most;
    int64_t dropped;
    trace_row rows[MOST_ROWS];
    int32_t n_rows, n_threads;
    uint32_t generation; /* counts beginnings */
    trm_map known;       /* the texts and their places */
    const char **texts;
    trm_arena memory;
} trace;

static _Thread_local struct {
    int32_t row;
    uint32_t generation;
} own_row;

static void clear(void)
{
    for (int32_t i = 0; i < trace.n; i++) {
        free(trace.spans[i].own);
    }
    free(trace.spans);
    trm_map_fini(&trace.known);
    free(trace.texts);
    trm_arena_fini(&trace.memory);
    const uint32_t generation = trace.generation + 1;
    memset(&trace, 0, sizeof(trace));
    trace.generation = generation;
}

void trm_trace_begin(int32_t most)
{
    pthread_mutex_lock(&mutex);
    clear();
    trace.most = most;
    pthread_mutex_unlock(&mutex);
    atomic_store(&trm_trace_on_, true);
}

void trm_trace_end(void)
{
    atomic_store(&trm_trace_on_, false);
}

void trm_trace_clear(void)
{
    trm_trace_end();
    pthread_mutex_lock(&mutex);
    clear();
    pthread_mutex_unlock(&mutex);
}

/* ---- rows -------------------------------------------------------------------------------------- */

static int32_t row_of(const char *name)
{
    int32_t row = 0;
    while (row < trace.n_rows && strcmp(trace.rows[row].name, name) != 0) {
        row++;
    }
    if (row == trace.n_rows && row < MOST_ROWS) {
        trace.rows[trace.n_rows++] = (trace_row){0};
        snprintf(trace.rows[row].name, sizeof(trace.rows[row].name), "%s", name);
    }
    return row < MOST_ROWS ? row : MOST_ROWS - 1;
}

int32_t trm_trace_row(const char *name)
{
    pthread_mutex_lock(&mutex);
    const int32_t row = row_of(name);
    pthread_mutex_unlock(&mutex);
    return row;
}

int32_t trm_trace_thread_row(void)
{
    char name[32];
    pthread_mutex_lock(&mutex);
    if (own_row.generation != trace.generation) {
        snprintf(name, sizeof(name), "host thread %d", (int)++trace.n_threads);
        own_row.row = row_of(name);
        own_row.generation = trace.generation;
    }
    const int32_t row = own_row.row;
    pthread_mutex_unlock(&mutex);
    return row;
}

double trm_trace_after(int32_t row, double begin)
{
    pthread_mutex_lock(&mutex);
    const double end = trace.rows[row].end;
    pthread_mutex_unlock(&mutex);
    return begin > end ? begin : end;
}

/* ---- spans ------------------------------------------------------------------------------------- */

/* A copy that lives as long as the timeline, one for equal texts; NULL: there are too many, or no memory. */
static const char *keep_text(const char *text)
{
    const size_t size = strlen(text);
    uint32_t place = (uint32_t)trace.known.count;
    bool existing;
    if (trm_map_find(&trace.known, text, size, &place)) {
        return trace.texts[place];
    }
    if (trace.texts == NULL) {
        trace.texts = calloc(MOST_TEXTS, sizeof(*trace.texts));
    }
    char *copy = trace.texts != NULL && place < MOST_TEXTS ? trm_arena_strdup(&trace.memory, text) : NULL;
    if (copy == NULL || trm_map_add(&trace.known, copy, size, place, &existing) != TRM_OK) {
        return NULL;
    }
    trace.texts[place] = copy;
    return copy;
}

typedef struct json_members {
    char text[TEXT_SIZE];
    size_t used;
} json_members;

/* Adds `"key":value`; what does not fit is left out. Bytes that JSON does not take as they are become ?. */
static void add_member(json_members *m, const trm_trace_value *value)
{
    char *to = m->text + m->used;
    const size_t room = sizeof(m->text) - m->used, length = value->text == NULL ? 32 : strlen(value->text);
    if (strlen(value->key) + 2 * length + 8 > room) {
        return;
    }
    to += sprintf(to, "%s\"%s\":", m->used > 0 ? "," : "", value->key);
    if (value->text == NULL) {
        to += sprintf(to, "%lld", (long long)value->number);
    } else {
        *to++ = '"';
        for (size_t i = 0; i < length; i++) {
            const char c = value->text[i];
            if (c == '"' || c == '\\') {
                *to++ = '\\';
            }
            *to++ = c >= 0x20 && c < 0x7f ? c : '?';
        }
        *to++ = '"';
    }
    *to = '\0';
    m->used = (size_t)(to - m->text);
}

/* The place of the next span; NULL: it is dropped. */
static stored_span *make_place(void)
{
    if (trace.n == trace.capacity && trace.capacity < trace.most) {
        int32_t capacity = trace.capacity == 0 ? FIRST_SPANS : 2 * trace.capacity;
        capacity = capacity < trace.most ? capacity : trace.most;
        stored_span *grown = realloc(trace.spans, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) {
            trace.dropped++;
            return NULL;
        }
        trace.spans = grown;
        trace.capacity = capacity;
    }
    if (trace.n < trace.capacity) {
        return &trace.spans[trace.n++];
    }
    stored_span *oldest = &trace.spans[trace.first];
    trace.first = (trace.first + 1) % trace.n;
    trace.dropped++;
    free(oldest->own);
    return oldest;
}

void trm_trace_add(const trm_trace_span *span)
{
    if (!trm_trace_is_on()) {
        return;
    }
    json_members members = {.used = 0};
    for (int32_t i = 0; i < span->n_values; i++) {
        add_member(&members, &span->values[i]);
    }
    pthread_mutex_lock(&mutex);
    stored_span *to = trace.most > 0 ? make_place() : NULL;
    if (to != NULL) {
        *to = (stored_span){.category = span->category,
                            .name = keep_text(span->name),
                            .begin = span->begin,
                            .seconds = span->seconds > 0 ? span->seconds : 0,
                            .id = span->id,
                            .row = span->row};
        if (members.used > 0 && span->id != 0) { /* they are hardly ever those of another one */
            to->values = to->own = strdup(members.text);
        } else if (members.used > 0) {
            to->values = keep_text(members.text);
        }
        const double end = to->begin + to->seconds;
        trace_row *row = &trace.rows[span->row];
        row->end = span->id == 0 && end > row->end ? end : row->end;
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* Viewers give the processes and threads of number 0 a meaning of their own. */
enum { FIRST_NUMBER = 1 };

static void write_fact(FILE *out, int32_t rank, int32_t row, const char *fact, const char *name, int32_t order)
{
    fprintf(out, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{", (int)rank + FIRST_NUMBER,
            row < 0 ? 0 : (int)row + FIRST_NUMBER, fact);
    if (name != NULL) {
        fputs("\"name\":", out);
        trm_json_write_text(out, name, strlen(name));
    } else {
        fprintf(out, "\"sort_index\":%d", (int)order);
    }
    fputs("}},\n", out);
}

static void write_facts(FILE *out, int32_t rank)
{
    char name[96];
    if (trace.dropped > 0) {
        snprintf(name, sizeof(name), "rank %d, without %lld older spans", (int)rank, (long long)trace.dropped);
    } else {
        snprintf(name, sizeof(name), "rank %d", (int)rank);
    }
    write_fact(out, rank, -1, "process_name", name, 0);
    write_fact(out, rank, -1, "process_sort_index", NULL, rank);
    for (int32_t i = 0; i < trace.n_rows; i++) {
        write_fact(out, rank, i, "thread_name", trace.rows[i].name, 0);
        write_fact(out, rank, i, "thread_sort_index", NULL, i);
    }
}

/* Microseconds, whatever the locale's decimal point is. */
static void write_time(FILE *out, const char *key, int64_t nanoseconds)
{
    const int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
    fprintf(out, "\"%s\":%s%lld.%03d,", key, nanoseconds < 0 ? "-" : "", (long long)(size / 1000), (int)(size % 1000));
}

static void write_event(FILE *out, int32_t rank, const stored_span *span, const char *phase, int64_t begin, int64_t end)
{
    const char *name = span->name != NULL ? span->name : "(one of too many names)";
    fprintf(out, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,", phase, (int)rank + FIRST_NUMBER,
            (int)span->row + FIRST_NUMBER);
    write_time(out, "ts", phase[0] == 'e' ? end : begin);
    if (span->id == 0) {
        write_time(out, "dur", end - begin);
    } else {
        fprintf(out, "\"id2\":{\"local\":\"%llu\"},", (unsigned long long)span->id);
    }
    fprintf(out, "\"cat\":\"%s\",\"name\":", span->category);
    trm_json_write_text(out, name, strlen(name));
    if (span->values != NULL && phase[0] != 'e') {
        fprintf(out, ",\"args\":{%s}", span->values);
    }
    fputs("},\n", out);
}

void trm_trace_write(FILE *out, int32_t rank, double origin, double ahead)
{
    pthread_mutex_lock(&mutex);
    write_facts(out, rank);
    for (int32_t i = 0; i < trace.n; i++) {
        const stored_span *span = &trace.spans[(trace.first + i) % trace.n];
        const double after = span->begin + ahead - origin;
        const int64_t begin = llround(after * 1e9), end = llround((after + span->seconds) * 1e9);
        write_event(out, rank, span, span->id == 0 ? "X" : "b", begin, end);
        if (span->id != 0) {
            write_event(out, rank, span, "e", begin, end);
        }
    }
    pthread_mutex_unlock(&mutex);
}
