/* The timing cache: problems and their tactics in a table, read from and merged into a text file. */
#include "kernels/tuner/tuner.h"

#include <trireme/version.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"

#define MOST_BYTES    ((size_t)64 << 20)
#define MOST_PROBLEMS 16384
#define LOCK_TRIES    200 /* of 10 ms */
#define FIRST_LINE    "# trireme timing cache: problem, then tactics and their microseconds; the first is used\n"

typedef struct entry {
    trm_timing timing;
    bool is_new; /* recorded, and in no file yet */
} entry;

struct trm_tuner {
    char device[192]; /* what every key begins with */
    int32_t level;
    entry **entries; /* in the order they came */
    int32_t n_entries, capacity;
    trm_map names; /* of problems, to their place in `entries` */
    entry *last;
    trm_tuner_fn listener; /* may be NULL */
    void *listener_user;
};

/* ---- the table ----------------------------------------------------------------------------------------- */

trm_status trm_tuner_create(trm_device *device, trm_tuner **tuner)
{
    trm_device_info info;
    TRM_TRY(trm_device_get_info(device, &info));
    trm_tuner *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a tuner");
    }
    made->level = 3;
    snprintf(made->device, sizeof(made->device), "%s, %d multiprocessors; trireme %s; ", info.name,
             info.backend == TRM_BACKEND_CUDA ? info.multiprocessors : 0, TRM_VERSION);
    for (char *c = made->device; *c != '\0'; c++) { /* what a line could not hold */
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    *tuner = made;
    return TRM_OK;
}

static void entry_destroy(entry *e)
{
    if (e != NULL) {
        free(e->timing.tactics);
        free((char *)(uintptr_t)e->timing.problem);
        free(e);
    }
}

void trm_tuner_destroy(trm_tuner *tuner)
{
    if (tuner == NULL) {
        return;
    }
    for (int32_t i = 0; i < tuner->n_entries; i++) {
        entry_destroy(tuner->entries[i]);
    }
    free(tuner->entries);
    trm_map_fini(&tuner->names);
    free(tuner);
}

void trm_tuner_set_level(trm_tuner *tuner, int32_t level)
{
    tuner->level = level;
}

int32_t trm_tuner_proposals(const trm_tuner *tuner)
{
    static const int32_t proposals[] = {0, 0, 4, 8, 16, TRM_MOST_TACTICS};
    return proposals[tuner == NULL ? 3 : tuner->level < 0 ? 0 : tuner->level > 5 ? 5 : tuner->level];
}

static entry *entry_find(const trm_tuner *tuner, const char *key)
{
    uint32_t at;
    return trm_map_find(&tuner->names, key, strlen(key), &at) ? tuner->entries[at] : NULL;
}

/* An entry of a new problem, at the end. */
static trm_status entry_add(trm_tuner *tuner, const char *key, entry **added)
{
    if (tuner->n_entries == tuner->capacity) {
        int32_t capacity = tuner->capacity * 2 + 64;
        entry **grown = realloc(tuner->entries, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d timings", capacity);
        }
        tuner->entries = grown;
        tuner->capacity = capacity;
    }
    entry *made = calloc(1, sizeof(*made));
    char *name = strdup(key);
    bool existing;
    trm_status status = made == NULL || name == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a timing")
                            : trm_map_add(&tuner->names, name, strlen(name), (uint32_t)tuner->n_entries, &existing);
    if (status != TRM_OK) {
        free(name);
        free(made);
        return status;
    }
    made->timing.problem = name;
    tuner->entries[tuner->n_entries++] = made;
    *added = made;
    return TRM_OK;
}

/* False if the key would not fit into a line. */
static bool key_of(const trm_tuner *tuner, const char *problem, char key[TRM_PROBLEM_TEXT_SIZE])
{
    int n = snprintf(key, TRM_PROBLEM_TEXT_SIZE, "%s%s", tuner->device, problem);
    return n > 0 && n < TRM_PROBLEM_TEXT_SIZE;
}

void trm_tuner_set_listener(trm_tuner *tuner, trm_tuner_fn fn, void *user)
{
    tuner->listener = fn;
    tuner->listener_user = user;
}

void trm_tuner_take(const trm_tuner *tuner, const char *problem, const trm_tactic *taken, int32_t n)
{
    if (tuner != NULL && tuner->listener != NULL) {
        const trm_timing timing = {problem, n, (trm_tactic *)(uintptr_t)taken};
        tuner->listener(tuner->listener_user, problem, &timing);
    }
}

const trm_timing *trm_tuner_find(trm_tuner *tuner, const char *problem)
{
    char key[TRM_PROBLEM_TEXT_SIZE];
    if (tuner == NULL || !key_of(tuner, problem, key)) {
        return NULL;
    }
    entry *found = entry_find(tuner, key);
    tuner->last = found != NULL ? found : tuner->last;
    if (found == NULL && tuner->listener != NULL) {
        tuner->listener(tuner->listener_user, problem, NULL);
    }
    return found != NULL ? &found->timing : NULL;
}

int trm_tactic_compare(const trm_tactic *a, const trm_tactic *b)
{
    return a->microseconds < b->microseconds ? -1 : a->microseconds > b->microseconds ? 1 : strcmp(a->name, b->name);
}

static int compare_tactics(const void *a, const void *b)
{
    return trm_tactic_compare(a, b);
}

void trm_tactics_sort(trm_tactic *tactics, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const double nanoseconds = round(tactics[i].microseconds * 1e3);
        tactics[i].microseconds = (nanoseconds > 1 ? nanoseconds : 1) / 1e3; /* a file has no times of nothing */
    }
    qsort(tactics, (size_t)n, sizeof(*tactics), compare_tactics);
}

/* Gives an entry a copy of the tactics. */
static trm_status set_tactics(entry *to, const trm_tactic *tactics, int32_t n)
{
    trm_tactic *copy = malloc((size_t)n * sizeof(*copy));
    if (copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d tactics", n);
    }
    memcpy(copy, tactics, (size_t)n * sizeof(*copy));
    free(to->timing.tactics);
    to->timing.tactics = copy;
    to->timing.n_tactics = n;
    return TRM_OK;
}

/* Gives the entry of a problem a copy of the tactics; *to: NULL where there is nothing to keep. */
static trm_status keep(trm_tuner *tuner, const char *problem, const trm_tactic *tactics, int32_t n, entry **to)
{
    char key[TRM_PROBLEM_TEXT_SIZE];
    *to = NULL;
    if (tuner == NULL || n < 1 || !key_of(tuner, problem, key)) {
        return TRM_OK;
    }
    entry *kept = entry_find(tuner, key);
    if (kept == NULL) {
        TRM_TRY(entry_add(tuner, key, &kept));
    }
    TRM_TRY(set_tactics(kept, tactics, n));
    tuner->last = *to = kept;
    return TRM_OK;
}

trm_status trm_tuner_record(trm_tuner *tuner, const char *problem, const trm_tactic *tactics, int32_t n)
{
    entry *to;
    TRM_TRY(keep(tuner, problem, tactics, n, &to));
    if (to != NULL) {
        trm_tactics_sort(to->timing.tactics, n);
        to->timing.n_tactics = n < TRM_MOST_TACTICS ? n : TRM_MOST_TACTICS;
        to->is_new = true;
    }
    return TRM_OK;
}

trm_status trm_tuner_put(trm_tuner *tuner, const char *problem, const trm_tactic *tactics, int32_t n)
{
    entry *to;
    return keep(tuner, problem, tactics, n, &to);
}

const trm_timing *trm_tuner_last(const trm_tuner *tuner)
{
    return tuner->last != NULL ? &tuner->last->timing : NULL;
}

void trm_tuner_forget_last(trm_tuner *tuner)
{
    tuner->last = NULL;
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static bool is_printable(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

/* "name microseconds" of [text, end). */
static bool parse_tactic(const char *text, const char *end, trm_tactic *tactic)
{
    const char *space = memchr(text, ' ', (size_t)(end - text));
    char number[32], *after;
    if (space == NULL || space == text || (size_t)(space - text) >= sizeof(tactic->name) ||
        !is_printable(text, (size_t)(space - text)) || (size_t)(end - space) > sizeof(number) || end - space < 2) {
        return false;
    }
    memcpy(tactic->name, text, (size_t)(space - text));
    tactic->name[space - text] = '\0';
    memcpy(number, space + 1, (size_t)(end - space - 1));
    number[end - space - 1] = '\0';
    tactic->microseconds = trm_c_strtod(number, &after);
    return *after == '\0' && after != number && isfinite(tactic->microseconds) && tactic->microseconds > 0;
}

/* A line without its end. */
typedef struct parsed_line {
    char key[TRM_PROBLEM_TEXT_SIZE];
    trm_tactic tactics[TRM_MOST_TACTICS]; /* as they stand */
    int32_t n_tactics;
} parsed_line;

/* False if it is damaged. */
static bool parse_line(const char *line, size_t size, parsed_line *to)
{
    const char *end = line + size, *tab = memchr(line, '\t', size);
    to->n_tactics = 0;
    if (tab == NULL || tab == line || tab - line >= TRM_PROBLEM_TEXT_SIZE ||
        !is_printable(line, (size_t)(tab - line))) {
        return false;
    }
    memcpy(to->key, line, (size_t)(tab - line));
    to->key[tab - line] = '\0';
    while (tab < end) {
        const char *from = tab + 1, *next = memchr(from, '\t', (size_t)(end - from));
        tab = next != NULL ? next : end;
        if (to->n_tactics == TRM_MOST_TACTICS || !parse_tactic(from, tab, &to->tactics[to->n_tactics])) {
            return false;
        }
        to->n_tactics++;
    }
    return to->n_tactics > 0;
}

static void write_line(FILE *out, const trm_timing *timing)
{
    fputs(timing->problem, out);
    for (int32_t i = 0; i < timing->n_tactics; i++) {
        char text[400]; /* that a double needs at most */
        trm_c_snprintf(text, sizeof(text), "%.3f", timing->tactics[i].microseconds);
        fprintf(out, "\t%s %s", timing->tactics[i].name, text);
    }
    fputc('\n', out);
}

/* ---- files --------------------------------------------------------------------------------------------- */

/* Adds the lines of a file that are not known yet; `comments` (may be NULL) receives those but the first. */
static trm_status read_lines(trm_tuner *tuner, const char *path, FILE *comments)
{
    char *text = NULL;
    size_t size = 0, damaged = 0;
    if (!trm_file_exists(path)) {
        return TRM_OK;
    }
    TRM_TRY(trm_file_read(path, MOST_BYTES, &text, &size));
    parsed_line *line = malloc(sizeof(*line));
    trm_status status = line == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a timing") : TRM_OK;
    for (const char *at = text; status == TRM_OK && at < text + size;) {
        const char *end = memchr(at, '\n', (size_t)(text + size - at));
        size_t length = (size_t)((end != NULL ? end : text + size) - at);
        if (length > 0 && *at == '#') {
            bool is_first = length == strlen(FIRST_LINE) - 1 && memcmp(at, FIRST_LINE, length) == 0;
            if (comments != NULL && !is_first) {
                fprintf(comments, "%.*s\n", (int)length, at);
            }
        } else if (length > 0 && !parse_line(at, length, line)) {
            damaged++;
        } else if (length > 0 && entry_find(tuner, line->key) == NULL) {
            entry *added;
            status = entry_add(tuner, line->key, &added);
            if (status == TRM_OK) {
                status = set_tactics(added, line->tactics, line->n_tactics);
            }
        }
        at += length + 1;
    }
    free(line);
    free(text);
    if (damaged > 0) {
        TRM_WARN("timing cache %s: %zu damaged lines are left out", path, damaged);
    }
    return status;
}

trm_status trm_tuner_load(trm_tuner *tuner, const char *path)
{
    return read_lines(tuner, path, NULL);
}

static trm_status fail_write(const char *path)
{
    return trm_fail(TRM_ERROR_IO, "cannot write timing cache %s: %s", path, strerror(errno));
}

/* A lock that dies with the process; -1 with the record set. */
static int lock_open(const char *path, const char *name)
{
    int lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) {
        fail_write(path);
        return -1;
    }
    for (int i = 0; flock(lock, LOCK_EX | LOCK_NB) != 0; i++) {
        const struct timespec pause = {0, 10000000};
        if (errno != EWOULDBLOCK || i == LOCK_TRIES) {
            trm_fail(TRM_ERROR_IO, "cannot write timing cache %s: another process holds %s", path, name);
            close(lock);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return lock;
}

/* Under the lock: what others wrote first, then what is new here. */
static trm_status merge(const trm_tuner *tuner, const char *path, const char *temporary)
{
    trm_tuner all = {.n_entries = 0};
    char *comments = NULL;
    size_t comments_size;
    trm_status status = TRM_OK;
    FILE *kept = open_memstream(&comments, &comments_size), *out = NULL;
    if (kept == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a timing cache");
    }
    if (read_lines(&all, path, kept) == TRM_ERROR_OUT_OF_MEMORY) {
        status = TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; status == TRM_OK && i < tuner->n_entries; i++) {
        const entry *mine = tuner->entries[i];
        entry *to = mine->is_new ? entry_find(&all, mine->timing.problem) : NULL;
        if (mine->is_new && to == NULL) {
            status = entry_add(&all, mine->timing.problem, &to);
        }
        if (status == TRM_OK && mine->is_new) {
            status = set_tactics(to, mine->timing.tactics, mine->timing.n_tactics);
        }
    }
    bool closed = fclose(kept) == 0;
    if (status == TRM_OK && (!closed || (out = fopen(temporary, "w")) == NULL)) {
        status = fail_write(path);
    }
    if (status == TRM_OK) {
        int32_t first = all.n_entries > MOST_PROBLEMS ? all.n_entries - MOST_PROBLEMS : 0;
        fputs(FIRST_LINE, out);
        fputs(comments, out);
        for (int32_t i = first; i < all.n_entries; i++) {
            write_line(out, &all.entries[i]->timing);
        }
        bool written = ferror(out) == 0;
        written = fclose(out) == 0 && written;
        if (!written || rename(temporary, path) != 0) {
            status = fail_write(path);
            unlink(temporary);
        }
    }
    for (int32_t i = 0; i < all.n_entries; i++) {
        entry_destroy(all.entries[i]);
    }
    free(all.entries);
    trm_map_fini(&all.names);
    free(comments);
    return status;
}

trm_status trm_tuner_save(trm_tuner *tuner, const char *path)
{
    bool any = false;
    for (int32_t i = 0; i < tuner->n_entries; i++) {
        any = any || tuner->entries[i]->is_new;
    }
    if (!any) {
        return TRM_OK;
    }
    TRM_TRY(trm_file_check_replaceable(path));
    trm_file_make_folders(path);
    size_t size = strlen(path) + 32;
    char *name = malloc(2 * size);
    if (name == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a path");
    }
    char *temporary = name + size;
    snprintf(name, size, "%s.lock", path);
    snprintf(temporary, size, "%s.%ld.part", path, (long)getpid());
    int lock = lock_open(path, name);
    trm_status status = lock < 0 ? TRM_ERROR_IO : merge(tuner, path, temporary);
    if (lock >= 0) {
        close(lock);
    }
    free(name);
    for (int32_t i = 0; status == TRM_OK && i < tuner->n_entries; i++) {
        tuner->entries[i]->is_new = false;
    }
    return status;
}
