/* The ring on the host, where a thread copies: every layer finds its weights, whatever is late. */
#include "support/support.h"

#include <pthread.h>
#include <time.h>

#include "base/memory.h"
#include "weight_stream/ring.h"

#define MOST_WEIGHTS 12
#define MOST_LAYERS  24
#define MOST_USES    48
#define MOST_BYTES   6200

static trm_device *device;
static int32_t packed_pieces, carried;

static int open_device(void **state)
{
    (void)state;
    assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, 2, &device));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    trm_device_close(device);
    return 0;
}

typedef struct weights {
    trm_residency_problem problem;
    size_t bytes[MOST_WEIGHTS];
    size_t row_bytes[MOST_WEIGHTS]; /* of those in files that are read by columns; else 0 */
    unsigned char stored[MOST_WEIGHTS][MOST_BYTES];
    bool packed[MOST_WEIGHTS];
    trm_stored_weight addresses[MOST_WEIGHTS]; /* no memory: read in every step */
    bool in_files[MOST_WEIGHTS];               /* that */
    trm_residency_use uses[MOST_USES];
    double seconds[MOST_LAYERS];
} weights;

typedef struct one_weight {
    const weights *w;
    int32_t i;
} one_weight;

static trm_status read_one(void *user, size_t begin, size_t size, void *to)
{
    const one_weight *one = user;
    assert_true(begin + size <= one->w->bytes[one->i]);
    memcpy(to, one->w->stored[one->i] + begin, size);
    return TRM_OK;
}

static void drop_packed(weights *w)
{
    for (int32_t i = 0; i < MOST_WEIGHTS; i++) {
        if (w->packed[i]) {
            trm_stored_drop(&w->addresses[i], w->bytes[i]);
            w->packed[i] = false;
        }
    }
}

/* A weight of numbers that gain, of one to three pieces. */
static void pack_weight(uint64_t *state, weights *w, int32_t i)
{
    void *memory;
    w->bytes[i] = 2048 * (size_t)(1 + test_random_below(state, MOST_BYTES / 2048)) - w->bytes[i] % 100 * 2;
    for (size_t k = 0; k < w->bytes[i]; k += 2) {
        uint16_t number = (uint16_t)(0x3c00 | (test_random(state) & 0x83ff));
        memcpy(w->stored[i] + k, &number, 2);
    }
    size_t piece = 2048 * (size_t)(1 + test_random_below(state, 2));
    assert_ok(trm_pages_alloc(w->bytes[i], &memory));
    w->addresses[i] = (trm_stored_weight){.memory = memory};
    assert_ok(trm_stored_fill(&w->addresses[i], w->bytes[i], piece, NULL, read_one, &(one_weight){w, i}));
    w->packed[i] = true;
}

static void make_weights(uint64_t *state, weights *w)
{
    drop_packed(w);
    trm_residency_problem *p = &w->problem;
    *p = (trm_residency_problem){.n_weights = 1 + (int32_t)test_random_below(state, MOST_WEIGHTS),
                                 .n_layers = 1 + (int32_t)test_random_below(state, MOST_LAYERS),
                                 .bytes = w->bytes,
                                 .uses = w->uses,
                                 .layer_seconds = w->seconds,
                                 .link_rate = 1e9,
                                 .in_files = w->in_files,
                                 .file_rate = 1e9,
                                 .unpack_rate = 1e10,
                                 .budget = (size_t)test_random_below(state, 3) * 4000,
                                 .ring_limit = (size_t)test_random_below(state, 4) * 10000};
    const bool reads = test_random_below(state, 3) == 0;
    for (int32_t i = 0; i < p->n_weights; i++) {
        w->bytes[i] = 1 + (size_t)test_random_below(state, MOST_BYTES);
        w->in_files[i] = reads && test_random_below(state, 3) == 0;
        w->row_bytes[i] = 0;
        if (w->in_files[i] && test_random_below(state, 2) == 0) {
            const size_t rows = 2 + (size_t)test_random_below(state, 8);
            w->row_bytes[i] = 1 + (size_t)test_random_below(state, (int64_t)(MOST_BYTES / rows));
            w->bytes[i] = rows * w->row_bytes[i];
        }
        w->addresses[i] = (trm_stored_weight){.memory = w->in_files[i] ? NULL : w->stored[i]};
        for (size_t k = 0; k < w->bytes[i]; k++) {
            w->stored[i][k] = (unsigned char)test_random(state);
        }
        if (w->addresses[i].memory != NULL && test_random_below(state, 2) == 0) {
            pack_weight(state, w, i);
            packed_pieces += w->addresses[i].n_pieces;
        }
    }
    for (int32_t i = 0; i < p->n_layers; i++) {
        w->seconds[i] = 1e-6 * (double)test_random_below(state, 12);
        for (int64_t k = test_random_below(state, 3); k > 0 && p->n_uses < MOST_USES; k--) {
            w->uses[p->n_uses++] = (trm_residency_use){i, (int32_t)test_random_below(state, p->n_weights), false};
        }
    }
}

static trm_status read_stored(void *user, const trm_reader_piece *piece, void *to)
{
    const weights *w = user;
    const size_t pitch = w->row_bytes[piece->item];
    assert_true(piece->rows == 1 || piece->begin + piece->size <= pitch);
    for (size_t row = 0; row < piece->rows; row++) {
        const size_t at = (piece->row + row) * pitch + piece->begin;
        assert_true(at + piece->size <= w->bytes[piece->item]);
        memcpy((unsigned char *)to + row * piece->size, w->stored[piece->item] + at, piece->size);
    }
    return TRM_OK;
}

static void dawdle(uint64_t *state)
{
    if (test_random_below(state, 6) == 0) {
        nanosleep(&(struct timespec){0, (long)test_random_below(state, 60000)}, NULL);
    }
}

/* What a layer reads is what is stored, from the first to the last moment it may look. */
static void check_layer(const weights *w, const trm_residency *r, const trm_ring *ring, int32_t schedule, int32_t layer)
{
    for (int32_t i = 0; i < w->problem.n_uses; i++) {
        if (w->uses[i].layer == layer && r->use_fetch[i] >= 0) {
            int32_t weight = w->uses[i].weight;
            assert_memory_equal(trm_ring_slot(ring, schedule, r->use_fetch[i]), w->stored[weight], w->bytes[weight]);
        }
    }
}

static void run_step(uint64_t *state, const weights *w, const trm_residency *r, trm_ring *ring, int32_t schedule,
                     trm_stream *stream, int32_t layers)
{
    assert_ok(trm_ring_begin(ring, schedule, stream));
    for (int32_t layer = 0; layer < layers; layer++) {
        bool waits, fetches = false;
        for (int32_t k = r->n_carried; k < r->n_fetches; k++) {
            fetches = fetches || r->fetches[k].first_layer == layer;
        }
        assert_ok(trm_ring_before(ring, layer, stream, &waits));
        assert_int_equal(waits, fetches);
        check_layer(w, r, ring, schedule, layer);
        dawdle(state);
        check_layer(w, r, ring, schedule, layer);
        assert_ok(trm_ring_after(ring, layer, stream));
    }
    if (layers == w->problem.n_layers) {
        assert_ok(trm_ring_end(ring, stream, NULL));
    }
}

static void layers_find_their_weights(void **unused)
{
    (void)unused;
    uint64_t state = test_seed();
    int32_t reused = 0;
    static weights w;
    for (int32_t n = 0; n < 120; n++) {
        const trm_reader_options files = {.read = read_stored,
                                          .user = &w,
                                          .row_bytes = w.row_bytes,
                                          .threads = 3,
                                          .buffers = 4,
                                          .buffer_bytes = n % 2 == 0 ? 700 : 1984};
        trm_residency r;
        trm_ring *ring;
        trm_stream *stream;
        make_weights(&state, &w);
        assert_ok(trm_residency_plan(&w.problem, &r));
        assert_ok(trm_stream_create(device, &stream));
        assert_ok(trm_ring_create(device, &(const trm_residency *){&r}, 1, w.bytes, w.addresses, &files, NULL, &ring));
        for (int32_t k = 0; k < r.n_fetches; k++) {
            reused += r.fetches[k].after_layer >= 0;
        }
        carried += r.n_carried;
        for (int32_t step = 0; step < 5; step++) {
            /* a step that fails half way leaves copies in flight */
            int32_t layers = test_random_below(&state, 4) == 0 ? (int32_t)test_random_below(&state, w.problem.n_layers)
                                                               : w.problem.n_layers;
            run_step(&state, &w, &r, ring, 0, stream, layers);
        }
        trm_residency_fini(&r);
        trm_ring_destroy(ring);
        trm_stream_destroy(stream);
    }
    print_message("%d places used again, %d packed pieces, %d fetches carried over\n", reused, packed_pieces, carried);
    assert_true(reused > 100 && packed_pieces > 100 && carried > 10);
    drop_packed(&w);
}

/* Steps of two schedules in turn, in any order, some of which fail: one that fetches all, and one some of whose layers
 * read their weights elsewhere. */
static void programs_take_turns(void **unused)
{
    (void)unused;
    uint64_t state = test_seed();
    int32_t different = 0, both_carry = 0;
    static weights w;
    for (int32_t n = 0; n < 120; n++) {
        trm_residency schedules[2];
        bool offloaded[MOST_LAYERS];
        const double host_seconds[MOST_LAYERS] = {0};
        trm_ring *ring;
        trm_stream *stream;
        make_weights(&state, &w);
        for (int32_t i = 0; i < w.problem.n_weights; i++) {
            w.addresses[i].memory = w.packed[i] ? w.addresses[i].memory : w.stored[i];
            w.in_files[i] = false;
        }
        for (int32_t i = 0; i < MOST_LAYERS; i++) {
            offloaded[i] = test_random_below(&state, 3) == 0;
        }
        assert_ok(trm_residency_plan(&w.problem, &schedules[0]));
        w.problem.host_seconds = host_seconds;
        w.problem.offloaded = offloaded;
        assert_ok(trm_residency_of(&w.problem, schedules[0].resident, &schedules[1]));
        const trm_residency *const both[2] = {&schedules[0], &schedules[1]};
        assert_ok(trm_stream_create(device, &stream));
        assert_ok(trm_ring_create(device, both, 2, w.bytes, w.addresses, NULL, NULL, &ring));
        different += schedules[1].n_fetches < schedules[0].n_fetches;
        both_carry += schedules[0].n_carried > 0 && schedules[1].n_carried > 0;
        for (int32_t step = 0; step < 8; step++) {
            int32_t schedule = (int32_t)test_random_below(&state, 2), all = w.problem.n_layers;
            int32_t layers = test_random_below(&state, 4) == 0 ? (int32_t)test_random_below(&state, all) : all;
            run_step(&state, &w, &schedules[schedule], ring, schedule, stream, layers);
        }
        trm_residency_fini(&schedules[0]);
        trm_residency_fini(&schedules[1]);
        trm_ring_destroy(ring);
        trm_stream_destroy(stream);
    }
    print_message("%d with other fetches, %d carry over in both\n", different, both_carry);
    assert_true(different > 40 && both_carry > 3);
    drop_packed(&w);
}

/* Layers on a stream of their own too, far behind who enqueues them, as on a GPU: what they read is copied out of the
 * slots there. */
static void streams_wait_for_each_other(void **unused)
{
    (void)unused;
    uint64_t state = test_seed();
    static weights w;
    enum { DELAY = 1 << 20, STEPS = 3 };
    static unsigned char found[STEPS][MOST_USES][MOST_BYTES];
    unsigned char *delay = calloc(2, DELAY);
    assert_non_null(delay);
    for (int32_t n = 0; n < 60; n++) {
        trm_residency r;
        trm_ring *ring;
        trm_stream *layers;
        make_weights(&state, &w);
        for (int32_t i = 0; i < w.problem.n_weights; i++) {
            w.addresses[i].memory = w.packed[i] ? w.addresses[i].memory : w.stored[i];
            w.in_files[i] = false;
        }
        assert_ok(trm_residency_plan(&w.problem, &r));
        assert_ok(trm_stream_create_beside(device, &layers));
        assert_ok(trm_ring_create(device, &(const trm_residency *){&r}, 1, w.bytes, w.addresses, NULL, NULL, &ring));
        memset(found, 0, sizeof(found));
        for (int32_t step = 0; step < STEPS; step++) {
            assert_ok(trm_ring_begin(ring, 0, layers));
            for (int32_t layer = 0; layer < w.problem.n_layers; layer++) {
                assert_ok(trm_ring_before(ring, layer, layers, NULL));
                if (test_random_below(&state, 3) == 0) {
                    assert_ok(trm_stream_copy(layers, delay, delay + DELAY, DELAY));
                }
                for (int32_t i = 0; i < w.problem.n_uses; i++) {
                    if (w.uses[i].layer == layer && r.use_fetch[i] >= 0) {
                        assert_ok(trm_stream_copy(layers, found[step][i], trm_ring_slot(ring, 0, r.use_fetch[i]),
                                                  w.bytes[w.uses[i].weight]));
                    }
                }
                assert_ok(trm_ring_after(ring, layer, layers));
            }
            assert_ok(trm_ring_end(ring, layers, NULL));
        }
        assert_ok(trm_stream_synchronize(layers));
        for (int32_t i = 0; i < STEPS * w.problem.n_uses; i++) {
            int32_t use = i % w.problem.n_uses, weight = w.uses[use].weight;
            if (r.use_fetch[use] >= 0) {
                assert_memory_equal(found[i / w.problem.n_uses][use], w.stored[weight], w.bytes[weight]);
            }
        }
        trm_ring_destroy(ring);
        trm_stream_destroy(layers);
        trm_residency_fini(&r);
    }
    drop_packed(&w);
    free(delay);
}

/* Layers begin + 1 .. end are left out, or run several times. */
typedef struct region {
    int32_t begin, end, passes;
    bool is_loop;
} region;

/* Two regions, beside each other or one in the other. */
static void make_regions(uint64_t *state, int32_t layers, region regions[2], int32_t *sections)
{
    int32_t at[4] = {0};
    for (int32_t i = 0; i < 4; i++) {
        at[i] = i * (layers - 4) / 4 + (int32_t)test_random_below(state, (layers - 4) / 4) + i;
    }
    const bool nested = test_random_below(state, 2) == 0;
    regions[0] = (region){at[0], nested ? at[3] : at[1], 0, test_random_below(state, 3) > 0};
    regions[1] = (region){nested ? at[1] : at[2], nested ? at[2] : at[3], 0, test_random_below(state, 3) > 0};
    for (int32_t i = 0; i < layers; i++) {
        sections[i] = -1;
        for (int32_t r = 0; r < 2; r++) {
            sections[i] = regions[r].begin < i && i <= regions[r].end ? regions[r].begin : sections[i];
        }
    }
}

/* What layers found in a step, in the order in which they ran. */
typedef struct found_weights {
    int32_t n, weights[4000];
    unsigned char bytes[4000][MOST_BYTES];
} found_weights;

static void run_found_layer(const weights *w, const trm_residency *r, const trm_ring *ring, int32_t layer,
                            trm_stream *layers, found_weights *found)
{
    for (int32_t i = 0; i < w->problem.n_uses; i++) {
        if (w->uses[i].layer == layer && r->use_fetch[i] >= 0) {
            assert_true(found->n < (int32_t)(sizeof(found->weights) / sizeof(found->weights[0])));
            const int32_t weight = found->weights[found->n] = w->uses[i].weight;
            assert_ok(trm_stream_copy(layers, found->bytes[found->n++], trm_ring_slot(ring, 0, r->use_fetch[i]),
                                      w->bytes[weight]));
        }
    }
}

/* Enqueues the step; returns how often a region was left out or run again. */
static int32_t run_regions(uint64_t *state, const weights *w, const trm_residency *r, trm_ring *ring, region regions[2],
                           trm_stream *layers, found_weights *found)
{
    int32_t jumps = 0;
    assert_ok(trm_ring_begin(ring, 0, layers));
    for (int32_t layer = 0; layer < w->problem.n_layers; layer++) {
        assert_ok(trm_ring_before(ring, layer, layers, NULL));
        run_found_layer(w, r, ring, layer, layers, found);
        assert_ok(trm_ring_after(ring, layer, layers));
        for (int32_t k = 0; k < 2; k++) {
            region *of = &regions[k];
            if (layer == of->begin && test_random_below(state, 3) == 0) {
                assert_ok(trm_ring_skip(ring, layer + 1, of->end + 1, layers));
                layer = of->end;
                jumps++;
                break;
            }
            of->passes = layer == of->begin ? (int32_t)test_random_below(state, 4) : of->passes;
            if (layer == of->end && of->is_loop && of->passes-- > 0) {
                assert_ok(trm_ring_repeat(ring, of->begin + 1, layer + 1, layers));
                layer = of->begin;
                jumps++;
                break;
            }
        }
    }
    assert_ok(trm_ring_end(ring, layers, NULL));
    return jumps;
}

/* Loops and branches: whatever runs finds its weights, on a stream that is far behind who enqueues it. */
static void layers_are_left_out_and_run_again(void **unused)
{
    (void)unused;
    uint64_t state = test_seed();
    int32_t jumps = 0, reused = 0, n_read = 0;
    static weights w;
    found_weights *found = calloc(1, sizeof(*found));
    assert_non_null(found);
    for (int32_t n = 0; n < 150; n++) {
        const trm_reader_options files = {.read = read_stored,
                                          .user = &w,
                                          .row_bytes = w.row_bytes,
                                          .threads = 3,
                                          .buffers = 4,
                                          .buffer_bytes = 1984};
        int32_t sections[MOST_LAYERS], runs[MOST_LAYERS];
        region regions[2];
        trm_residency r;
        trm_ring *ring;
        trm_stream *layers;
        do {
            make_weights(&state, &w);
        } while (w.problem.n_layers < 12);
        make_regions(&state, w.problem.n_layers, regions, sections);
        for (int32_t i = 0; i < w.problem.n_layers; i++) {
            runs[i] = sections[i] < 0 ? 1 : 3;
        }
        w.problem.sections = sections;
        w.problem.runs = runs;
        assert_ok(trm_residency_plan(&w.problem, &r));
        assert_ok(trm_stream_create_beside(device, &layers));
        assert_ok(trm_ring_create(device, &(const trm_residency *){&r}, 1, w.bytes, w.addresses, &files, NULL, &ring));
        for (int32_t k = 0; k < r.n_fetches; k++) {
            reused += r.fetches[k].after_layer >= 0;
            n_read += w.addresses[r.fetches[k].weight].memory == NULL;
        }
        found->n = 0;
        for (int32_t step = 0; step < 4; step++) {
            jumps += run_regions(&state, &w, &r, ring, regions, layers, found);
        }
        assert_ok(trm_stream_synchronize(layers));
        for (int32_t i = 0; i < found->n; i++) {
            const int32_t weight = found->weights[i];
            assert_memory_equal(found->bytes[i], w.stored[weight], w.bytes[weight]);
        }
        trm_ring_destroy(ring);
        trm_stream_destroy(layers);
        trm_residency_fini(&r);
    }
    print_message("%d regions left out or run again, %d places used again, %d read from files\n", jumps, reused,
                  n_read);
    assert_true(jumps > 300 && reused > 300 && n_read > 50);
    drop_packed(&w);
    free(found);
}

typedef struct faulty {
    weights *w;
    int32_t reads, fails_at; /* which of them */
    pthread_mutex_t mutex;
} faulty;

static trm_status read_or_fail(void *user, const trm_reader_piece *piece, void *to)
{
    faulty *f = user;
    pthread_mutex_lock(&f->mutex);
    bool fails = f->reads++ == f->fails_at;
    pthread_mutex_unlock(&f->mutex);
    return fails ? trm_fail(TRM_ERROR_IO, "the disk is gone") : read_stored(f->w, piece, to);
}

/* A piece that cannot be read ends the step; the next one is whole again. */
static void a_failed_read_ends_the_step(void **unused)
{
    (void)unused;
    uint64_t state = test_seed();
    static weights w;
    do {
        make_weights(&state, &w);
        drop_packed(&w);
        memset(w.addresses, 0, sizeof(w.addresses));
        memset(w.in_files, true, sizeof(w.in_files));
        w.problem.budget = 0;
    } while (w.problem.n_uses < 12 || w.problem.n_weights < 6);
    trm_residency r;
    assert_ok(trm_residency_plan(&w.problem, &r));
    int32_t failed = 0;
    for (int32_t at = 0; at < 40; at++) {
        faulty f = {.w = &w, .fails_at = at, .mutex = PTHREAD_MUTEX_INITIALIZER};
        const trm_reader_options files = {.read = read_or_fail,
                                          .user = &f,
                                          .row_bytes = w.row_bytes,
                                          .threads = 2,
                                          .buffers = 3,
                                          .buffer_bytes = 1000};
        trm_ring *ring;
        trm_stream *stream;
        assert_ok(trm_stream_create(device, &stream));
        assert_ok(trm_ring_create(device, &(const trm_residency *){&r}, 1, w.bytes, w.addresses, &files, NULL, &ring));
        for (int32_t step = 0; step < 4; step++) {
            trm_status status = trm_ring_begin(ring, 0, stream);
            for (int32_t layer = 0; status == TRM_OK && layer < w.problem.n_layers; layer++) {
                assert_ok(trm_ring_before(ring, layer, stream, NULL));
                check_layer(&w, &r, ring, 0, layer);
                status = trm_ring_after(ring, layer, stream);
            }
            status = status == TRM_OK ? trm_ring_end(ring, stream, NULL) : status;
            if (status != TRM_OK) {
                assert_int_equal(status, TRM_ERROR_IO);
                assert_string_equal(trm_last_error(), "the disk is gone");
                failed++;
            }
        }
        trm_ring_destroy(ring);
        trm_stream_destroy(stream);
    }
    print_message("%d of 40 failed, %d fetches\n", failed, r.n_fetches);
    assert_true(failed >= 5 && failed <= 40);
    trm_residency_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_find_their_weights),   cmocka_unit_test(programs_take_turns),
        cmocka_unit_test(streams_wait_for_each_other), cmocka_unit_test(layers_are_left_out_and_run_again),
        cmocka_unit_test(a_failed_read_ends_the_step),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
