/* Weight residency: whether streamable weights are on the device, in host memory or in files, and moving them. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/unit.h"
#include "dist/parallel/bandwidth_probe.h"
#include "weight_stream/offload/streaming.h"
#include "kernels/codec/codec.h"
#include "weight_stream/offload/expert_cache.h"
#include "weight_stream/ring.h"

/* Bytes and repetitions for measuring the link. (Files are probed through the buffers of steps: no other memory is left
 * for them.) */
#define PROBE_BYTES       ((size_t)256 << 20)
#define LEAST_PROBE_BYTES ((size_t)1 << 20)
#define PROBES            4
#define LINK_BYTES        ((size_t)1 << 30) /* copied to measure the link */
/* Bytes that a thread reads at a time of a weight that moves to the device, and bytes read before a copy: host memory
 * may be nearly full. */
#define READ_BYTES ((size_t)4 << 20)
#define MOVE_BYTES (8 * READ_BYTES)

/* ---- host memory ------------------------------------------------------------------------------- */

/* Estimated host memory of a weight: packed size as last time. */
static size_t stored_guess(const trm_weight_residency *places, const trm_streaming_plan *s, int32_t i)
{
    const size_t packed =
        places->packed_took[i] > 0 ? places->packed_took[i] : trm_streaming_packed_guess(s->part_bytes[i]);
    return s->packs[i] ? packed : s->part_bytes[i];
}

/* Host memory of a stored weight; before it is filled, an estimate. */
static size_t host_bytes(const trm_weight_residency *places, const trm_plan *plan, int32_t i)
{
    const trm_streaming_plan *s = plan->streaming;
    bool filled = places->stored[i].bytes > 0;
    return s->packs[i] && !filled ? stored_guess(places, s, i)
                                  : trm_stored_host_bytes(&places->stored[i], s->part_bytes[i]);
}

static void drop_stored(trm_weight_residency *places, const trm_plan *plan, trm_device *device, int32_t i)
{
    if (places->is_pinned[i]) {
        trm_device_unpin(device, places->stored[i].memory);
    }
    if (places->stored[i].memory != NULL) {
        places->host_used -= host_bytes(places, plan, i);
    }
    trm_stored_drop(&places->stored[i], plan->streaming->part_bytes[i]);
    places->is_pinned[i] = false;
}

static void drop_resident(trm_weight_residency *places, trm_device *device, int32_t i)
{
    trm_device_free(device, places->resident[i]);
    places->resident[i] = NULL;
}

/* Whether a weight stays in its files whatever the room: its experts have a cache in host memory. */
static bool stays_in_files(const trm_streaming_plan *s, int32_t i)
{
    return s->host_experts > 0 && s->has_experts[i];
}

/* ---- the cache of experts in host memory --------------------------------------------------------- */

static void drop_experts(trm_weight_residency *places, trm_device *device)
{
    if (places->experts_are_pinned) {
        trm_device_unpin(device, places->experts);
    }
    trm_pages_free(places->experts, places->expert_bytes);
    places->host_used -= places->expert_bytes;
    places->experts = NULL;
    places->expert_bytes = 0;
    places->experts_are_pinned = false;
}

/* Makes it as large as the plan says. */
static trm_status place_experts(trm_weight_residency *places, const trm_streaming_plan *s, trm_device *device)
{
    const size_t bytes = (size_t)s->host_experts * s->host_expert_bytes;
    if (bytes == places->expert_bytes) {
        return TRM_OK;
    }
    drop_experts(places, device);
    if (bytes > 0) {
        TRM_TRY(trm_pages_alloc(bytes, &places->experts));
        places->expert_bytes = bytes;
        places->host_used += bytes;
    }
    return TRM_OK;
}

/* ---- pinning and limits ------------------------------------------------------------------------ */

static void pin(trm_weight_residency *places, const trm_plan *plan, trm_device *device, void *memory, size_t bytes,
                bool *is_pinned)
{
    if (memory != NULL && !*is_pinned && places->pinned) {
        *is_pinned = trm_device_pin(device, memory, bytes) == TRM_OK;
        if (!*is_pinned) {
            TRM_WARN("rank %d: %s: weights stream from pageable memory, which is several times slower and is not "
                     "captured",
                     plan->rank, trm_last_error());
        }
    }
    places->pinned = places->pinned && (memory == NULL || *is_pinned);
}

/* Pins memory that is not yet pinned; if the system refuses, it stays pageable. */
static void pin_stored(trm_weight_residency *places, const trm_plan *plan, trm_device *device)
{
    places->pinned = true;
    for (int32_t i = 0; i < places->n; i++) {
        unsigned char *memory = places->stored[i].memory;
        pin(places, plan, device, memory, memory == NULL ? 0 : host_bytes(places, plan, i), &places->is_pinned[i]);
    }
    pin(places, plan, device, places->experts, places->expert_bytes, &places->experts_are_pinned);
}

/* Takes host memory for a weight if there is room. */
static trm_status take_stored(trm_weight_residency *places, const trm_plan *plan, int32_t i)
{
    size_t bytes = plan->streaming->part_bytes[i];
    const size_t takes = stored_guess(places, plan->streaming, i);
    if (!stays_in_files(plan->streaming, i) && places->host_used <= places->host_limit &&
        takes <= places->host_limit - places->host_used) {
        void *memory;
        TRM_TRY(trm_pages_alloc(bytes, &memory));
        places->stored[i] = (trm_stored_weight){.memory = memory};
        places->host_used += takes;
    }
    return TRM_OK;
}

/* Sets the host memory limit for weights: if not all fit, less the buffers for the others. `filled`: weights without
 * memory now stay in their files. */
static void limit_host(trm_weight_residency *places, const trm_plan *plan, bool filled)
{
    const trm_streaming_plan *s = plan->streaming;
    const size_t room = places->host_room, others = trm_streaming_file_memory();
    size_t wanted = 0;
    bool all = true;
    for (int32_t i = 0; i < places->n; i++) {
        const bool is_stored = places->stored[i].memory != NULL; /* also while others move to the host, if it leaves */
        all = all && (is_stored || places->resident[i] != NULL || s->residency.resident[i] || !filled);
        wanted += is_stored ? host_bytes(places, plan, i) : s->residency.resident[i] ? 0 : stored_guess(places, s, i);
    }
    places->host_limit = s->asked.host_bytes > 0 ? s->asked.host_bytes
                         : all && wanted <= room ? room
                         : room > others         ? room - others
                                                 : 0;
}

/* Leaves weights in their files, tables last, until the rest is within the limit. */
static void make_room(trm_weight_residency *places, const trm_plan *plan, trm_device *device)
{
    const bool *resident = plan->streaming->residency.resident;
    size_t remain = (size_t)plan->streaming->host_experts * plan->streaming->host_expert_bytes;
    for (int32_t i = 0; i < places->n; i++) {
        if (stays_in_files(plan->streaming, i)) {
            drop_stored(places, plan, device, i);
        }
        remain += places->stored[i].memory != NULL && !resident[i] ? host_bytes(places, plan, i) : 0;
    }
    for (int32_t tables = 0; tables < 2; tables++) {
        for (int32_t i = places->n - 1; i >= 0 && remain > places->host_limit; i--) {
            if (places->stored[i].memory != NULL && !resident[i] &&
                trm_streaming_reads_in_place(plan, i) == (tables == 1)) {
                remain -= host_bytes(places, plan, i);
                drop_stored(places, plan, device, i);
            }
        }
    }
}

/* Warns about weights without room in host memory. */
static void report_files(const trm_weight_residency *places, const trm_plan *plan)
{
    const trm_streaming_plan *s = plan->streaming;
    size_t files = 0;
    for (int32_t i = 0; i < places->n; i++) {
        files += places->stored[i].memory == NULL && places->resident[i] == NULL ? s->part_bytes[i] : 0;
    }
    if (files > 0 && s->host_experts > 0) {
        TRM_WARN("rank %d: host memory has room for %d of %d experts (%s); steps read the others that they use from "
                 "files, at the speed of the disk, and prompts read all %s",
                 plan->rank, s->host_experts, trm_expert_cache_all(s), trm_size_text((double)places->expert_bytes).text,
                 trm_size_text((double)files).text);
    } else if (files > 0) {
        TRM_WARN("rank %d: host memory has room for %s of weights; every step reads the other %s from files, at the "
                 "speed of the disk",
                 plan->rank, trm_size_text((double)places->host_limit).text, trm_size_text((double)files).text);
    }
}

/* ---- making places ----------------------------------------------------------------------------- */

/* Plans again if the host memory decides about an expert cache: it reads experts from host memory or from a cache
 * there. Without room for the experts of a token there is no expert cache. */
static trm_status plan_for_host(trm_weight_residency *places, trm_plan *plan)
{
    trm_streaming_plan *s = plan->streaming;
    const bool cached = s->expert_slots > 0;
    s->host_limit = trm_streaming_host_limit(s, places->host_room);
    if (cached) {
        TRM_TRY(trm_streaming_replan(plan, s->problem.budget));
    }
    limit_host(places, plan, false);
    if (cached && s->expert_slots == 0) {
        TRM_INFO("rank %d: no expert cache: host memory has room for %s of weights, too little for the experts of a "
                 "token and tables",
                 plan->rank, trm_size_text((double)places->host_limit).text);
    }
    return TRM_OK;
}

trm_status trm_weight_residency_init(trm_weight_residency *places, trm_plan *plan, trm_device *device, int32_t sharing,
                                     int32_t threads)
{
    const trm_streaming_plan *s = plan->streaming;
    size_t n = (size_t)s->problem.n_weights + 1;
    *places = (trm_weight_residency){.n = s->problem.n_weights, .version = 1, .threads = threads};
    places->resident = calloc(n, sizeof(void *));
    places->stored = calloc(n, sizeof(*places->stored));
    places->is_pinned = calloc(n, sizeof(*places->is_pinned));
    places->packed_took = calloc(n, sizeof(*places->packed_took));
    if (places->resident == NULL || places->stored == NULL || places->is_pinned == NULL ||
        places->packed_took == NULL) {
        places->n = 0;
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the residency of %zu weights", n - 1);
    }
    places->host_room = trm_streaming_host_room(sharing);
    TRM_TRY(plan_for_host(places, plan));
    TRM_TRY(place_experts(places, s, device));
    for (int32_t i = 0; i < places->n; i++) { /* tables first: their rows are read in place */
        bool wanted = !s->residency.resident[i] && trm_streaming_reads_in_place(plan, i);
        TRM_TRY(wanted ? take_stored(places, plan, i) : TRM_OK);
    }
    for (int32_t i = 0; i < places->n; i++) {
        if (s->residency.resident[i]) {
            TRM_TRY(trm_device_alloc(device, s->bytes[i], &places->resident[i]));
        } else if (places->stored[i].memory == NULL) {
            TRM_TRY(take_stored(places, plan, i));
        }
    }
    return TRM_OK;
}

/* Maps reads of a part to reads of the whole. */
typedef struct part_read {
    trm_stored_read_fn read;
    void *user;
    size_t begin;
} part_read;

static trm_status read_part(void *user, size_t begin, size_t size, void *to)
{
    const part_read *part = user;
    return part->read(part->user, part->begin + begin, size, to);
}

trm_status trm_weight_residency_store(trm_weight_residency *places, trm_plan *plan, trm_device *device, int32_t weight,
                                      trm_stored_read_fn read, void *user)
{
    trm_streaming_plan *s = plan->streaming;
    bool again = places->stored[weight].pieces != NULL;
    places->refilled = places->refilled || places->stored[weight].bytes > 0; /* rings may still use it */
    if (again) {
        drop_stored(places, plan, device, weight);
        TRM_TRY(take_stored(places, plan, weight));
        if (places->stored[weight].memory == NULL) {
            return TRM_OK;
        }
    }
    size_t before = host_bytes(places, plan, weight);
    part_read part = {read, user, s->part_begin[weight]};
    trm_status status = trm_stored_fill(&places->stored[weight], s->part_bytes[weight],
                                        s->packs[weight] ? TRM_PIECE_BYTES : 0, places->pool, read_part, &part);
    if (status == TRM_OK) {
        places->host_used += host_bytes(places, plan, weight);
        places->host_used -= before;
        s->packable[weight] = s->packable[weight] && (!s->packs[weight] || places->stored[weight].pieces != NULL);
        s->packs[weight] = places->stored[weight].pieces != NULL;
        places->packed_took[weight] = s->packs[weight] ? host_bytes(places, plan, weight) : 0;
    }
    if ((status != TRM_OK && again) || places->host_used > places->host_limit) {
        drop_stored(places, plan, device, weight);
    }
    return status;
}

void trm_weight_residency_fini(trm_weight_residency *places, const trm_plan *plan, trm_device *device)
{
    for (int32_t i = 0; i < places->n; i++) {
        drop_resident(places, device, i);
        drop_stored(places, plan, device, i);
    }
    drop_experts(places, device);
    free(places->resident);
    free(places->stored);
    free(places->is_pinned);
    free(places->packed_took);
    *places = (trm_weight_residency){0};
}

/* Bytes per second since the probe began, for `bytes` moved. */
static trm_status find_rate(trm_bandwidth_probe *p, size_t bytes, double *rate)
{
    TRM_TRY(trm_bandwidth_probe_end(p));
    TRM_TRY(trm_stream_synchronize(p->stream));
    return trm_bandwidth_probe_rate(p, (double)bytes, rate);
}

/* The largest stored weight, or packed one if `packed`; -1: none. */
static int32_t largest_stored(const trm_weight_residency *places, bool packed)
{
    int32_t largest = -1;
    for (int32_t i = 0; i < places->n; i++) {
        const trm_stored_weight *stored = &places->stored[i];
        bool counts = stored->memory != NULL && (stored->pieces != NULL || !packed);
        largest = counts && (largest < 0 || stored->bytes > places->stored[largest].bytes) ? i : largest;
    }
    return largest;
}

/* Copies stored weights in turn, up to `most` bytes of each, until LINK_BYTES are copied: copies from CPU caches would
 * be faster than in steps. */
static trm_status copy_stored(const trm_weight_residency *places, trm_stream *stream, void *to, size_t most,
                              size_t *copied)
{
    size_t least = most < LEAST_PROBE_BYTES ? most : LEAST_PROBE_BYTES;
    for (*copied = 0; *copied < LINK_BYTES && *copied < PROBES * most;) {
        for (int32_t i = 0; i < places->n && *copied < LINK_BYTES; i++) {
            const trm_stored_weight *stored = &places->stored[i];
            size_t bytes = stored->bytes < most ? stored->bytes : most;
            if (stored->memory != NULL && bytes >= least) {
                TRM_TRY(trm_stream_upload(stream, to, stored->memory, bytes));
                *copied += bytes;
            }
        }
    }
    return TRM_OK;
}

/* Bytes per second of copies from the stored weights; 0 without any. */
static trm_status measure_link(const trm_weight_residency *places, trm_device *device, double *rate)
{
    int32_t largest = largest_stored(places, false);
    *rate = 0;
    if (largest < 0) {
        return TRM_OK;
    }
    const trm_stored_weight *stored = &places->stored[largest];
    size_t bytes = stored->bytes < PROBE_BYTES ? stored->bytes : PROBE_BYTES, copied;
    trm_bandwidth_probe p = {0};
    void *to = NULL;
    trm_status status;
    while ((status = trm_device_alloc(device, bytes, &to)) != TRM_OK && bytes > LEAST_PROBE_BYTES) {
        bytes /= 2; /* memory may be nearly full by now */
    }
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, trm_bandwidth_probe_init(&p, device), done);
    TRM_TRY_GOTO(status, trm_stream_upload(p.stream, to, stored->memory, bytes), done); /* the first one is slower */
    TRM_TRY_GOTO(status, trm_bandwidth_probe_begin(&p), done);
    TRM_TRY_GOTO(status, copy_stored(places, p.stream, to, bytes, &copied), done);
    status = find_rate(&p, copied, rate);
done:
    trm_bandwidth_probe_fini(&p);
    trm_device_free(device, to);
    return status;
}

/* Bytes per second of unpacking a piece; stays 0 if nothing is packed or memory is full. */
static trm_status measure_unpacking(const trm_weight_residency *places, const trm_plan *plan, trm_device *device,
                                    double *rate)
{
    int32_t largest = largest_stored(places, true);
    *rate = 0;
    if (largest < 0) {
        return TRM_OK;
    }
    const trm_stored_weight *stored = &places->stored[largest];
    size_t bytes = trm_stored_piece_bytes(stored, plan->streaming->part_bytes[largest], 0);
    trm_bandwidth_probe p = {0};
    void *from = NULL, *to = NULL;
    trm_status status = TRM_OK;
    if (trm_device_alloc(device, stored->pieces[1], &from) != TRM_OK ||
        trm_device_alloc(device, bytes, &to) != TRM_OK) {
        goto done;
    }
    TRM_TRY_GOTO(status, trm_bandwidth_probe_init(&p, device), done);
    TRM_TRY_GOTO(status, trm_stream_upload(p.stream, from, stored->memory, stored->pieces[1]), done);
    for (int32_t i = 0; i <= PROBES; i++) {
        if (i == 1) { /* the first one loads the kernel */
            TRM_TRY_GOTO(status, trm_bandwidth_probe_begin(&p), done);
        }
        TRM_TRY_GOTO(status, trm_bf16_decode(p.stream, from, to, bytes / sizeof(uint16_t), 0), done);
    }
    status = find_rate(&p, PROBES * bytes, rate);
done:
    trm_bandwidth_probe_fini(&p);
    trm_device_free(device, from);
    trm_device_free(device, to);
    return status;
}

typedef struct file_probe {
    trm_plan *plan;
    const trm_reader_piece *pieces;
    unsigned char *to; /* most bytes of a piece for each */
    size_t most;
} file_probe;

static void read_pieces(void *user, int64_t begin, int64_t end)
{
    const file_probe *p = user;
    for (int64_t i = begin; i < end; i++) { /* a failure here repeats, and is reported, when it matters */
        (void)trm_streaming_read_piece(p->plan, &p->pieces[i], p->to + (size_t)i * p->most);
    }
}

/* The largest weight that every step reads from a file; -1: none. */
static int32_t largest_read(const trm_weight_residency *places, const trm_plan *plan)
{
    const size_t *all = plan->streaming->part_bytes;
    int32_t largest = -1;
    for (int32_t i = 0; i < places->n; i++) {
        bool is_read = places->stored[i].memory == NULL && places->resident[i] == NULL;
        largest = is_read && (largest < 0 || all[i] > all[largest]) ? i : largest;
    }
    return largest;
}

/* Lists pieces of a weight as steps read them, smaller ones for a small flat weight, so that all threads have some; at
 * most as many as a step has buffers. */
static trm_status list_probe(const trm_plan *plan, int32_t weight, size_t *most, trm_reader_piece **pieces, size_t *n)
{
    const size_t bytes = plan->streaming->part_bytes[weight], row_bytes = plan->streaming->row_bytes[weight];
    const size_t share = trm_align_up(bytes / (TRM_READER_THREADS * 4) + 1, 64);
    *most = row_bytes > 0 || share > TRM_READER_BUFFER_BYTES ? TRM_READER_BUFFER_BYTES : share;
    *n = trm_reader_list(weight, bytes, row_bytes, *most, NULL);
    *pieces = calloc(*n, sizeof(**pieces));
    if (*pieces == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %zu pieces", *n);
    }
    (void)trm_reader_list(weight, bytes, row_bytes, *most, *pieces);
    const size_t fit = TRM_READER_BUFFERS * TRM_READER_BUFFER_BYTES / *most;
    *n = *n < fit ? *n : fit;
    return TRM_OK;
}

/* Bytes per second at which threads read the largest weight in files, as in a step; 0 without one. */
static trm_status measure_files(const trm_weight_residency *places, trm_plan *plan, double *rate)
{
    const int32_t weight = largest_read(places, plan);
    *rate = 0;
    if (weight < 0) {
        return TRM_OK;
    }
    trm_reader_piece *pieces = NULL;
    trm_pool *pool = NULL;
    void *memory = NULL;
    size_t most, n, bytes = 0;
    struct timespec start, end;
    TRM_TRY(list_probe(plan, weight, &most, &pieces, &n));
    for (size_t i = 0; i < n; i++) {
        bytes += pieces[i].rows * pieces[i].size;
    }
    trm_status status = trm_pool_create(TRM_READER_THREADS, &pool);
    status = status == TRM_OK ? trm_pages_alloc(n * most, &memory) : status;
    if (status == TRM_OK) {
        file_probe p = {.plan = plan, .pieces = pieces, .to = memory, .most = most};
        clock_gettime(CLOCK_MONOTONIC, &start);
        trm_pool_for(pool, (int64_t)n, 1, read_pieces, &p);
        clock_gettime(CLOCK_MONOTONIC, &end);
        *rate =
            (double)bytes / ((double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9 + 1e-9);
    }
    trm_pages_free(memory, n * most);
    trm_pool_destroy(pool);
    free(pieces);
    return status;
}

/* Bytes copied for a weight at its actual or planned place. */
static void follow_stored(const trm_weight_residency *places, trm_streaming_plan *s)
{
    for (int32_t i = 0; i < places->n; i++) {
        bool is_stored = places->stored[i].bytes > 0, is_resident = places->resident[i] != NULL;
        s->packed_bytes[i] = places->stored[i].pieces != NULL ? places->stored[i].bytes : s->packed_bytes[i];
        s->in_files[i] = !is_stored && !is_resident;
        s->link_bytes[i] = is_stored                    ? places->stored[i].bytes
                           : is_resident && s->packs[i] ? s->packed_bytes[i]
                                                        : s->part_bytes[i];
    }
}

/* Plans for the actual places of weights. */
static trm_status adjust(trm_weight_residency *places, trm_plan *plan, const trm_streaming_rates *rates)
{
    bool *resident = calloc((size_t)places->n * 2 + 1, sizeof(*resident)); /* also weights that the CPU can read */
    if (resident == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the residency of %d weights", places->n);
    }
    bool *readable = resident + places->n;
    trm_streaming_facts facts = {
        .resident = resident, .readable = readable, .rates = *rates, .rows_in_place = places->pinned};
    places->capturable = places->pinned;
    for (int32_t i = 0; i < places->n; i++) {
        bool is_read = places->resident[i] == NULL && places->stored[i].memory == NULL;
        resident[i] = places->resident[i] != NULL;
        readable[i] = places->stored[i].memory != NULL && places->stored[i].pieces == NULL;
        places->capturable = places->capturable && !is_read;
        facts.rows_in_place = facts.rows_in_place && !(is_read && trm_streaming_reads_in_place(plan, i));
    }
    follow_stored(places, plan->streaming);
    trm_status status = trm_streaming_adjust(plan, &facts);
    /* NCCL registers buffers of captured exchanges, which a new ring would move; the link hides the launches */
    const trm_streaming_plan *s = plan->streaming;
    places->capturable = places->capturable && (s->n_sharers == 1 || s->residency.n_fetches == 0);
    free(resident);
    places->version++;
    return status;
}

void trm_weight_residency_pin(trm_weight_residency *places, const trm_plan *plan, trm_device *device)
{
    limit_host(places, plan, true); /* packed weights may be larger than estimated */
    make_room(places, plan, device);
    report_files(places, plan);
    pin_stored(places, plan, device);
}

trm_status trm_weight_residency_measure(const trm_weight_residency *places, trm_plan *plan, trm_device *device,
                                        trm_streaming_rates *rates)
{
    TRM_TRY(measure_link(places, device, &rates->link));
    TRM_TRY(measure_unpacking(places, plan, device, &rates->unpack));
    return measure_files(places, plan, &rates->file);
}

trm_status trm_weight_residency_settle(trm_weight_residency *places, trm_plan *plan, const trm_streaming_rates *rates)
{
    trm_streaming_rates settled = *rates;
    places->measured = *rates;
    settled.link = plan->streaming->measured ? 0 : rates->link; /* beside processors, which share the memory */
    TRM_TRY(adjust(places, plan, &settled));
    trm_cpu_offload_report(plan);
    return TRM_OK;
}

trm_status trm_weight_residency_follow(trm_weight_residency *places, trm_plan *plan, trm_device *device)
{
    if (!places->refilled) {
        return TRM_OK;
    }
    places->refilled = false;
    trm_weight_residency_pin(places, plan, device);
    return adjust(places, plan, &(trm_streaming_rates){0});
}

/* ---- another budget ---------------------------------------------------------------------------- */

typedef struct device_read {
    trm_stream *stream;
    const unsigned char *from;
} device_read;

static trm_status read_device(void *user, size_t begin, size_t size, void *to)
{
    const device_read *read = user;
    TRM_TRY(trm_stream_download(read->stream, to, read->from + begin, size));
    return trm_stream_synchronize(read->stream);
}

static trm_status move_to_host(trm_weight_residency *places, trm_plan *plan, trm_stream *stream, int32_t i)
{
    TRM_TRY(take_stored(places, plan, i));
    if (places->stored[i].memory != NULL) { /* otherwise it is read again when it is needed */
        trm_status status = trm_weight_residency_store(places, plan, trm_stream_device(stream), i, read_device,
                                                       &(device_read){stream, places->resident[i]});
        if (status != TRM_OK) {
            drop_stored(places, plan, trm_stream_device(stream), i);
            return status;
        }
    }
    drop_resident(places, trm_stream_device(stream), i);
    return TRM_OK;
}

/* Reads a weight from its source, in stretches split over all threads. */
typedef struct source_read {
    const trm_plan *plan;
    struct trm_pool *pool;
    int32_t weight;
    size_t begin, size;
    unsigned char *to;
    atomic_bool failed;
} source_read;

static void read_source(void *user, int64_t begin, int64_t end)
{
    source_read *read = user;
    for (int64_t i = begin; i < end; i++) {
        size_t at = (size_t)i * READ_BYTES, size = read->size - at < READ_BYTES ? read->size - at : READ_BYTES;
        if (trm_streaming_read(read->plan, read->weight, read->begin + at, size, read->to + at) != TRM_OK) {
            atomic_store(&read->failed, true);
        }
    }
}

static trm_status read_on_threads(void *user, size_t begin, size_t size, void *to)
{
    source_read *read = user;
    read->begin = begin;
    read->size = size;
    read->to = to;
    trm_pool_for(read->pool, (int64_t)((size + READ_BYTES - 1) / READ_BYTES), 1, read_source, read);
    /* a failure of another thread is reported here, with its cause */
    return atomic_load(&read->failed) ? trm_streaming_read(read->plan, read->weight, begin, size, to) : TRM_OK;
}

/* Stores a weight from its source, if there is room; else it is read when needed. */
static trm_status store_from_source(trm_weight_residency *places, trm_plan *plan, trm_device *device, int32_t i)
{
    TRM_TRY(take_stored(places, plan, i));
    if (places->stored[i].memory == NULL) {
        return TRM_OK;
    }
    source_read read = {.plan = plan, .pool = places->pool, .weight = i};
    trm_status status = trm_weight_residency_store(places, plan, device, i, read_on_threads, &read);
    if (status != TRM_OK) {
        drop_stored(places, plan, device, i);
    }
    return status;
}

/* Stores a weight in the other form: packed, or as the CPU reads it. */
static trm_status store_otherwise(trm_weight_residency *places, trm_plan *plan, trm_device *device, int32_t i)
{
    drop_stored(places, plan, device, i);
    return store_from_source(places, plan, device, i);
}

/* Moves weights from files into freed host memory, tables first. */
static trm_status leave_files(trm_weight_residency *places, trm_plan *plan, trm_device *device)
{
    limit_host(places, plan, false);
    for (int32_t tables = 1; tables >= 0; tables--) {
        for (int32_t i = 0; i < places->n; i++) {
            bool in_file = places->stored[i].memory == NULL && places->resident[i] == NULL;
            if (in_file && trm_streaming_reads_in_place(plan, i) == (tables == 1)) {
                TRM_TRY(store_from_source(places, plan, device, i));
            }
        }
    }
    limit_host(places, plan, true); /* packed ones may take more than was thought */
    make_room(places, plan, device);
    return TRM_OK;
}

static trm_status read_to_device(trm_plan *plan, trm_stream *stream, struct trm_pool *pool, int32_t i,
                                 unsigned char *to)
{
    size_t bytes = plan->streaming->bytes[i], most = bytes < MOVE_BYTES ? bytes : MOVE_BYTES;
    void *stretch = NULL;
    trm_status status = trm_pages_alloc(most, &stretch);
    for (size_t begin = 0; status == TRM_OK && begin < bytes; begin += most) {
        size_t size = bytes - begin < most ? bytes - begin : most;
        source_read read = {.plan = plan, .pool = pool, .weight = i};
        status = read_on_threads(&read, begin, size, stretch);
        status = status == TRM_OK ? trm_stream_upload(stream, to + begin, stretch, size) : status;
        status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
    }
    trm_pages_free(stretch, most);
    return status;
}

/* Copies in pieces through a buffer for one piece. */
static trm_status unpack_to_device(const trm_stored_weight *stored, size_t bytes, trm_stream *stream, unsigned char *to)
{
    trm_device *device = trm_stream_device(stream);
    void *stage;
    TRM_TRY(trm_device_alloc(device, trm_stored_most_of_piece(stored->piece_bytes) + TRM_PIECE_ALIGNMENT, &stage));
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < stored->n_pieces; i++) {
        size_t size = trm_stored_piece_bytes(stored, bytes, i);
        status = trm_stream_upload(stream, stage, stored->memory + stored->pieces[i],
                                   stored->pieces[i + 1] - stored->pieces[i]);
        status = status == TRM_OK
                     ? trm_bf16_decode(stream, stage, to + (size_t)i * stored->piece_bytes, size / sizeof(uint16_t), 0)
                     : status;
    }
    (void)trm_stream_synchronize(stream);
    trm_device_free(device, stage);
    return status;
}

static trm_status move_to_device(trm_weight_residency *places, trm_plan *plan, trm_stream *stream, int32_t i)
{
    void *memory = NULL;
    trm_device *device = trm_stream_device(stream);
    size_t bytes = plan->streaming->bytes[i];
    TRM_TRY(trm_device_alloc(device, bytes, &memory));
    const trm_stored_weight *stored = &places->stored[i];
    bool is_whole = !plan->streaming->shared[i]; /* otherwise the other ranks have the rest */
    trm_status status = !is_whole                ? read_to_device(plan, stream, places->pool, i, memory)
                        : stored->pieces != NULL ? unpack_to_device(stored, bytes, stream, memory)
                        : stored->memory != NULL ? trm_stream_upload(stream, memory, stored->memory, bytes)
                                                 : read_to_device(plan, stream, places->pool, i, memory);
    status = status == TRM_OK ? trm_stream_synchronize(stream) : status;
    if (status != TRM_OK) {
        trm_device_free(device, memory);
        return status;
    }
    places->resident[i] = memory;
    drop_stored(places, plan, device, i);
    return TRM_OK;
}

/* Measures rates that could not be measured before, because all weights stayed or none was in a file; failures leave
 * estimates. Ranks that share weights keep their common rates. */
static trm_streaming_rates measure_rest(trm_weight_residency *places, trm_plan *plan, trm_device *device)
{
    trm_streaming_rates now = {0}, *before = &places->measured;
    if (plan->streaming->n_sharers == 1) {
        (void)(before->link > 0 ? TRM_OK : measure_link(places, device, &now.link));
        (void)(before->unpack > 0 ? TRM_OK : measure_unpacking(places, plan, device, &now.unpack));
        (void)(before->file > 0 ? TRM_OK : measure_files(places, plan, &now.file));
    }
    before->link += now.link;
    before->unpack += now.unpack;
    before->file += now.file;
    now.link = plan->streaming->measured ? 0 : now.link;
    return now;
}

trm_status trm_weight_residency_change(trm_weight_residency *places, trm_plan *plan, trm_device *device, size_t budget)
{
    trm_stream *stream = NULL;
    TRM_TRY(trm_stream_create(device, &stream));
    trm_status status = trm_streaming_replan(plan, budget);
    status = status == TRM_OK ? trm_pool_create(places->threads, &places->pool) : status;
    const bool *resident = plan->streaming->residency.resident;
    if (status == TRM_OK) {
        limit_host(places, plan, true); /* another budget may leave weights in their files, or none */
        make_room(places, plan, device);
        status = place_experts(places, plan->streaming, device);
    }
    for (int32_t i = 0; status == TRM_OK && i < places->n; i++) {
        status = resident[i] || places->resident[i] == NULL ? TRM_OK : move_to_host(places, plan, stream, i);
    }
    for (int32_t i = 0; status == TRM_OK && i < places->n; i++) {
        status = !resident[i] || places->resident[i] != NULL ? TRM_OK : move_to_device(places, plan, stream, i);
    }
    for (int32_t i = 0; status == TRM_OK && i < places->n; i++) {
        bool is_packed = places->stored[i].pieces != NULL;
        status = places->stored[i].memory == NULL || plan->streaming->packs[i] == is_packed
                     ? TRM_OK
                     : store_otherwise(places, plan, device, i);
    }
    status = status == TRM_OK ? leave_files(places, plan, device) : status;
    trm_pool_destroy(places->pool);
    places->pool = NULL;
    trm_stream_destroy(stream);
    if (status != TRM_OK) {
        trm_held_error held;
        trm_error_hold(status, &held);
        pin_stored(places, plan, device); /* weights that moved to the host: kernels may read tables there */
        (void)adjust(places, plan, &(trm_streaming_rates){0});
        return trm_fail(status, "cannot change the weight budget to %zu bytes: %s", budget, held.cause);
    }
    pin_stored(places, plan, device);
    report_files(places, plan);
    const trm_streaming_rates rates = measure_rest(places, plan, device);
    TRM_TRY(adjust(places, plan, &rates));
    trm_cpu_offload_report(plan);
    return TRM_OK;
}
