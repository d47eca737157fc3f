/*
 * Exchanges over peer memory between 2 to 8 ranks that are all on one GPU, each with a stream and a mailbox: how
 * vectors are cut into parts and who adds and sends what does not depend on where a mailbox lies. Blocks have few
 * threads, so that those of all ranks are on the device at once. Links, and mapping memory of other processes:
 * gpu_peer.c.
 */
#include "support/support.h"

#include "collectives/peer.h"
#include "kernels/device/device.h"
#include "norm_cases.h"

#define MOST_BYTES ((size_t)9 << 20)
#define THREADS    64

typedef struct virtual_rank {
    trm_peer_link link;
    trm_stream *stream;
    unsigned char *from, *to; /* device [MOST_BYTES] */
} virtual_rank;

static trm_device *device;
static virtual_rank ranks[TRM_PEER_RANKS];
static int32_t size;

static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};

static void *allocate(size_t bytes)
{
    void *memory;
    assert_ok(trm_device_alloc(device, bytes, &memory));
    return memory;
}

static void clear(void *memory, size_t bytes)
{
    assert_ok(trm_stream_fill_zero(ranks[0].stream, memory, bytes));
    assert_ok(trm_stream_synchronize(ranks[0].stream));
}

static void wait_for_all(void)
{
    for (int32_t r = 0; r < size; r++) {
        assert_ok(trm_stream_synchronize(ranks[r].stream));
    }
}

static void open_ranks(int32_t n, double seconds)
{
    size = n;
    void *mailboxes[TRM_PEER_RANKS] = {NULL};
    for (int32_t r = 0; r < n; r++) {
        assert_ok(trm_stream_create(device, &ranks[r].stream));
        mailboxes[r] = allocate(trm_peer_mailbox_bytes(n));
        clear(mailboxes[r], trm_peer_mailbox_bytes(n));
    }
    for (int32_t r = 0; r < n; r++) {
        virtual_rank *v = &ranks[r];
        void *report;
        v->link = (trm_peer_link){.rank = r, .size = n, .deadline_nanoseconds = (uint64_t)(seconds * 1e9)};
        memcpy(v->link.mailboxes, mailboxes, sizeof(mailboxes));
        v->link.state = allocate(sizeof(trm_peer_state));
        clear(v->link.state, sizeof(trm_peer_state));
        assert_ok(trm_device_alloc_host(device, sizeof(trm_peer_report), &report));
        v->link.report = report;
        *v->link.report = (trm_peer_report){0, 0};
        v->from = allocate(MOST_BYTES);
        v->to = allocate(MOST_BYTES);
    }
}

static void close_ranks(void)
{
    for (int32_t r = 0; r < size; r++) {
        virtual_rank *v = &ranks[r];
        trm_device_free(device, v->link.mailboxes[r]);
        trm_device_free(device, v->link.state);
        trm_device_free_host(device, v->link.report);
        trm_device_free(device, v->from);
        trm_device_free(device, v->to);
        trm_stream_destroy(v->stream);
        *v = (virtual_rank){.stream = NULL};
    }
}

static void nobody_is_lost(void)
{
    for (int32_t r = 0; r < size; r++) {
        assert_int_equal(ranks[r].link.report->lost, 0);
    }
}

/* Fills every rank's `from` with its numbers. */
static void fill(trm_dtype dtype, size_t count)
{
    size_t element = trm_dtype_size(dtype);
    unsigned char *host = malloc(count * element + 1);
    assert_non_null(host);
    for (int32_t r = 0; r < size; r++) {
        for (size_t i = 0; i < count; i++) {
            case_input(dtype, r, i, host + i * element);
        }
        assert_ok(trm_stream_upload(ranks[r].stream, ranks[r].from, host, count * element));
        assert_ok(trm_stream_synchronize(ranks[r].stream));
        clear(ranks[r].to, count * element);
    }
    free(host);
}

/* What every rank is to have: added in rank order in f32 and rounded once. */
static void add_up(trm_dtype dtype, size_t count, unsigned char *expected)
{
    size_t element = trm_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int32_t r = 0; r < size; r++) {
            unsigned char at[8];
            case_input(dtype, r, i, at);
            sum = r == 0 ? (float)case_load_float(dtype, at) : sum + (float)case_load_float(dtype, at);
        }
        case_store_float(dtype, (double)sum, expected + i * element);
    }
}

static void check_all(const unsigned char *expected, size_t bytes, bool in_place, const char *what)
{
    unsigned char *found = malloc(bytes + 1);
    assert_non_null(found);
    for (int32_t r = 0; r < size; r++) {
        assert_ok(trm_stream_download(ranks[r].stream, found, in_place ? ranks[r].from : ranks[r].to, bytes));
        assert_ok(trm_stream_synchronize(ranks[r].stream));
        for (size_t i = 0; i < bytes; i++) {
            if (found[i] != expected[i]) {
                fail_msg("%s between %d ranks: byte %zu of %zu of rank %d is %d, expected %d", what, size, i, bytes, r,
                         found[i], expected[i]);
            }
        }
    }
    free(found);
}

static void reduce_once(trm_dtype dtype, trm_peer_way way, size_t count, bool in_place)
{
    static const char *const names[] = {"none", "one-shot", "two-shot", "bulk"};
    size_t bytes = count * trm_dtype_size(dtype);
    unsigned char *expected = malloc(bytes + 1);
    assert_non_null(expected);
    char what[128];
    snprintf(what, sizeof(what), "%s sum of %zu %s", names[way], count, trm_dtype_name(dtype));
    fill(dtype, count);
    add_up(dtype, count, expected);
    for (int32_t r = 0; r < size; r++) {
        virtual_rank *v = &ranks[r];
        void *to = in_place ? v->from : v->to, *stream = trm_stream_native(v->stream);
        assert_ok(way == TRM_PEER_BULK
                      ? trm_cuda_peer_all_reduce_bulk(&v->link, dtype, v->from, to, count, 8, stream)
                      : trm_cuda_peer_all_reduce(&v->link, way, dtype, v->from, to, count, THREADS, stream));
    }
    wait_for_all();
    nobody_is_lost();
    check_all(expected, bytes, in_place, what);
    free(expected);
}

/* Under a sanitizer 2, 5 and 8 ranks. */
static int32_t rank_step(void)
{
    return test_is_brief() ? 3 : 1;
}

/* Around the numbers where items and parts change: with 3, 5, 6 and 7 ranks the last part is shorter. */
static void sums(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 5, 7, 37, 255, 1000, 4096, 4099, 30001};
    const size_t step = test_is_brief() ? 4 : 1; /* of counts */
    for (int32_t n = 2; n <= TRM_PEER_RANKS; n += rank_step()) {
        open_ranks(n, 10.0);
        for (int32_t way = TRM_PEER_ONE_SHOT; way <= TRM_PEER_BULK; way++) {
            for (size_t i = step - 1; i < sizeof(counts) / sizeof(counts[0]); i += step) {
                for (int32_t d = 0; d < 3; d++) {
                    size_t bytes = counts[i] * trm_dtype_size(floats[d]);
                    if (trm_peer_fits(n, bytes, (trm_peer_way)way)) {
                        reduce_once(floats[d], (trm_peer_way)way, counts[i], (i + (size_t)d) % 2 == 0);
                    }
                }
            }
        }
        close_ranks();
    }
}

static void large_sums(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= TRM_PEER_RANKS; n += 3) {
        open_ranks(n, 10.0);
        if (test_is_brief()) {
            reduce_once(TRM_BF16, TRM_PEER_BULK, 300001, n % 2 == 0);
            close_ranks();
            continue;
        }
        reduce_once(TRM_BF16, TRM_PEER_BULK, TRM_PEER_BULK_BYTES / 2, n % 2 == 0);
        reduce_once(TRM_F32, TRM_PEER_BULK, TRM_PEER_BULK_BYTES / 4 - 3, n % 2 != 0);
        close_ranks();
    }
}

static void gather_once(int32_t root, size_t bytes)
{
    unsigned char *expected = malloc((size_t)size * bytes + 1);
    char what[64];
    assert_non_null(expected);
    snprintf(what, sizeof(what), "gather of %zu bytes, root %d", bytes, root);
    fill(TRM_U8, bytes);
    for (int32_t r = 0; r < size; r++) {
        clear(ranks[r].to, bytes * (size_t)size);
        for (size_t i = 0; i < bytes && (root < 0 || r == root); i++) {
            case_input(TRM_U8, r, i, expected + (root < 0 ? (size_t)r * bytes : 0) + i);
        }
    }
    for (int32_t r = 0; r < size; r++) {
        virtual_rank *v = &ranks[r];
        assert_ok(trm_cuda_peer_gather(&v->link, root, v->from, v->to, bytes, trm_stream_native(v->stream)));
    }
    wait_for_all();
    nobody_is_lost();
    check_all(expected, root < 0 ? bytes * (size_t)size : bytes, false, what);
    free(expected);
}

static void gathers(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 8, 13, 1000, 4096};
    for (int32_t n = 2; n <= TRM_PEER_RANKS; n += rank_step()) {
        open_ranks(n, 10.0);
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            for (int32_t root = -1; root < n; root += rank_step()) {
                if (trm_peer_gathers(n, counts[i])) {
                    gather_once(root, counts[i]);
                }
            }
        }
        close_ranks();
    }
}

/* Sums and norms in one kernel: rows [2, width]. */
static void norm_once(trm_dtype dtype, int64_t width)
{
    const norm_case n = {.dtype = dtype,
                         .rows = 2,
                         .width = width,
                         .norm = {.op = TRM_NORM_RMS, .eps = 1e-5f, .residual = true},
                         .weight = true};
    size_t bytes = (size_t)(n.rows * width) * trm_dtype_size(dtype);
    void *memory[TRM_PEER_RANKS][NORM_BUFFERS] = {{NULL}}, *data[NORM_BUFFERS];
    unsigned char *host[3] = {malloc(bytes), malloc(bytes), malloc(bytes)}; /* the sum, y, the sum with the residual */
    bool fits = true;
    for (int32_t r = 0; r < size; r++) {
        virtual_rank *v = &ranks[r];
        assert_ok(norm_fill(&n, v->stream, r, memory[r], data));
        const trm_peer_norm p = {.dtype = dtype,
                                 .rows = n.rows,
                                 .width = width,
                                 .from = data[NORM_X],
                                 .residual = data[NORM_RESIDUAL],
                                 .weight = data[NORM_WEIGHT],
                                 .to = data[NORM_Y],
                                 .sum = data[NORM_SUM]};
        fits = fits && trm_peer_norm_fits(size, &p, 256);
        if (fits) {
            assert_ok(trm_cuda_peer_norm(&v->link, &p, &n.norm, 256, trm_stream_native(v->stream)));
        }
    }
    wait_for_all();
    nobody_is_lost();
    add_up(dtype, bytes / trm_dtype_size(dtype), host[0]);
    for (int32_t r = 0; fits && r < size; r++) {
        char why[256] = "";
        assert_ok(trm_stream_download(ranks[r].stream, host[1], memory[r][NORM_Y], bytes));
        assert_ok(trm_stream_download(ranks[r].stream, host[2], memory[r][NORM_SUM], bytes));
        assert_ok(trm_stream_synchronize(ranks[r].stream));
        if (!norm_check(&n, host[0], host[1], host[2], why, sizeof(why))) {
            fail_msg("norm of [2, %lld] %s between %d ranks: rank %d: %s", (long long)width, trm_dtype_name(dtype),
                     size, r, why);
        }
    }
    for (int32_t i = 0; i < size * NORM_BUFFERS; i++) {
        trm_device_free(device, memory[i / NORM_BUFFERS][i % NORM_BUFFERS]);
    }
    for (int32_t i = 0; i < 3; i++) {
        free(host[i]);
    }
}

static void norms(void **state)
{
    (void)state;
    static const int64_t widths[] = {64, 520, 4096, 8192};
    for (int32_t n = 2; n <= TRM_PEER_RANKS; n += rank_step()) {
        open_ranks(n, 10.0);
        for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
            for (int32_t d = 0; d < 3; d++) {
                if (test_is_brief() && d != (int32_t)i % 3) {
                    continue;
                }
                norm_once(floats[d], widths[i]);
            }
        }
        close_ranks();
    }
}

/* Exchanges of changing kinds one after the other, while ranks run ahead of each other: epochs of all channels. */
static void exchanges_in_a_row(void **state)
{
    (void)state;
    enum { COUNT = 3000, LEAST = 128 }; /* LEAST: two shots take no less */
    const int32_t rounds = test_is_brief() ? 18 : 200;
    const size_t large = test_is_brief() ? 1 << 16 : 1 << 20;
    for (int32_t n = 5; n <= TRM_PEER_RANKS; n += rank_step()) {
        open_ranks(n, 10.0);
        fill(TRM_F32, COUNT);
        unsigned char *expected = malloc(COUNT * sizeof(float));
        assert_non_null(expected);
        add_up(TRM_F32, COUNT, expected);
        for (int32_t k = 0; k < rounds; k++) {
            for (int32_t i = 0; i < n; i++) { /* another rank is first in every round */
                virtual_rank *v = &ranks[(i + k) % n];
                void *stream = trm_stream_native(v->stream);
                size_t count = k == rounds - 1 ? COUNT : LEAST + (size_t)(k * 37) % (COUNT - LEAST);
                bool bulk = k % 3 == 2 && k < rounds - 1;
                count = bulk ? large - (size_t)k : count;
                assert_ok(bulk ? trm_cuda_peer_all_reduce_bulk(&v->link, TRM_F32, v->from, v->to, count, 4, stream)
                               : trm_cuda_peer_all_reduce(&v->link, k % 3 == 0 ? TRM_PEER_ONE_SHOT : TRM_PEER_TWO_SHOT,
                                                          TRM_F32, v->from, v->to, count, THREADS, stream));
            }
        }
        wait_for_all();
        nobody_is_lost();
        check_all(expected, COUNT * sizeof(float), false, "the last of many sums");
        free(expected);
        close_ranks();
    }
}

static void a_rank_that_does_not_come(void **state)
{
    (void)state;
    for (int32_t n = 5; n <= TRM_PEER_RANKS; n++) {
        for (int32_t absent = 0; absent < n; absent += 3) {
            open_ranks(n, 0.05);
            fill(TRM_BF16, 1000);
            for (int32_t r = 0; r < n; r++) {
                virtual_rank *v = &ranks[r];
                if (r != absent) {
                    assert_ok(trm_cuda_peer_all_reduce(&v->link, TRM_PEER_ONE_SHOT, TRM_BF16, v->from, v->to, 1000,
                                                       THREADS, trm_stream_native(v->stream)));
                }
            }
            wait_for_all();
            for (int32_t r = 0; r < n; r++) {
                assert_int_equal(ranks[r].link.report->lost, r == absent ? 0 : 1 + absent);
            }
            close_ranks();
        }
    }
}

int main(void)
{
    char why[256] = "";
    if (trm_device_cuda_count(why, sizeof(why)) == 0) {
        fprintf(stderr, "needs a GPU: %s\n", why);
        return 77;
    }
    if (trm_device_open(TRM_BACKEND_CUDA, 0, 1, &device) != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),  cmocka_unit_test(large_sums),         cmocka_unit_test(gathers),
        cmocka_unit_test(norms), cmocka_unit_test(exchanges_in_a_row), cmocka_unit_test(a_rank_that_does_not_come),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_device_close(device);
    return failed;
}
