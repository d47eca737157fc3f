/*
 * Exchanges over peer memory, one GPU per rank of one host, under mpirun: the cases of every communicator, both ways of
 * an all-reduce at their limits, captured graphs launched thousands of times, sizes in any order, and a rank that does
 * not come.
 */
#include "support/support.h"

#include <unistd.h>

#include "collectives/peer.h"
#include "collectives/peer_lane.h"
#include "collectives/wait.h"
#include "dist/parallel/world.h"
#include "norm_cases.h"
#include "kernels/program.h"

static trm_world *world;
static trm_stream *stream;

static const trm_dtype floats[] = {TRM_F32, TRM_F16, TRM_BF16};

static bool reduces(trm_dtype dtype)
{
    return dtype != TRM_I16 && dtype != TRM_U16;
}

static void check(const case_result *result)
{
    if (result->failed > 0) {
        fail_msg("%d of %d cases failed, first: %s", result->failed, result->run, result->why);
    }
}

static void test_cases(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 37, 1000};
    case_result result = {0};
    case_setup setup = {stream, reduces, counts, 4, &result};
    assert_string_equal(world->communicator->ops->name, "peer");
    case_run_groups(world->communicator, &setup);
    check(&result);
}

/* Around the numbers where items, blocks, ways and communicators change. */
static void test_sizes(void **state)
{
    (void)state;
    case_result result = {0};
    case_setup setup = {stream, reduces, NULL, 0, &result};
    static const size_t bytes[] = {2, 6, 8, 10, 1024, 8192, 65536, 131072, 262144, 1048576, 9 << 20, 40 << 20};
    for (int d = 0; d < 3; d++) {
        for (size_t k = 0; k < sizeof(bytes) / sizeof(bytes[0]); k++) {
            for (size_t count = bytes[k] / trm_dtype_size(floats[d]), more = 0; more < 3; more++) {
                trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, floats[d], NULL, NULL, count + more - 1, 0};
                if (count + more > 1) {
                    case_run(world->communicator, &setup, x, more == 1);
                }
            }
        }
    }
    check(&result);
}

static void test_layers(void **state)
{
    (void)state;
    case_result result = {0};
    case_setup setup = {stream, reduces, NULL, 0, &result};
    layer_run_all(world->communicator, &setup);
    layer_run_peers(world->communicator, &setup);
    norm_run_all(world->communicator, &setup);
    check(&result);
}

/* Addresses that are not multiples of 8, on one rank or on all. */
static void run_unaligned(size_t count)
{
    void *memory;
    size_t bytes = count * sizeof(uint16_t);
    uint16_t *in = malloc(bytes), *out = malloc(bytes);
    assert_ok(trm_device_alloc(world->device, 2 * bytes + 64, &memory));
    for (int shift = 0; shift < 4; shift++) {
        uint16_t *from = (uint16_t *)memory + (trm_world_rank(world) == 0 ? shift : 0), *to = from + count + 5;
        for (size_t i = 0; i < count; i++) {
            case_input(TRM_BF16, trm_world_rank(world), i, &in[i]);
        }
        assert_ok(trm_stream_upload(stream, from, in, bytes));
        trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_BF16, from, to, count, 0};
        assert_ok(trm_communicator_exchange(world->communicator, &x, stream));
        assert_ok(trm_stream_download(stream, out, to, bytes));
        assert_ok(trm_stream_synchronize(stream));
        size_t where = 0;
        if (!case_correct(world->communicator, &x, (unsigned char *)out, &where)) {
            fail_msg("%zu, shift %d: element %zu is wrong", count, shift, where);
        }
        assert_true(case_identical(world->communicator, stream, (unsigned char *)out, bytes));
    }
    trm_device_free(world->device, memory);
    free(in);
    free(out);
}

static void test_unaligned(void **state)
{
    (void)state;
    run_unaligned(5003);
    run_unaligned(1200003); /* no packets any more */
}

enum { STEPS = 24, LAUNCHES = 2000, LARGEST = 5000000 };

/*
 * A graph of all-reduces of many sizes, some of them too large for peer memory, launched thousands of times: ranks run
 * ahead of each other, and channels meet small and large messages in turn. Sums are whole numbers, so every bit counts.
 */
static void run_replays(uint32_t seed, int32_t launches)
{
    int32_t n = trm_world_size(world);
    float *host = malloc(LARGEST * sizeof(*host));
    void *from, *to;
    size_t counts[STEPS];
    assert_ok(trm_device_alloc(world->device, STEPS * LARGEST * sizeof(float), &from));
    assert_ok(trm_device_alloc(world->device, STEPS * LARGEST * sizeof(float), &to));
    for (int s = 0; s < STEPS; s++) {
        uint64_t bits = case_hash(seed, (uint64_t)s, 7);
        static const size_t scales[] = {16, 600, 4096, 70000, 300000, LARGEST};
        counts[s] = 1 + (size_t)(bits >> 8) % scales[bits % 6];
        for (size_t i = 0; i < counts[s]; i++) {
            host[i] = (float)((size_t)trm_world_rank(world) + i % 1000 + (size_t)s);
        }
        assert_ok(trm_stream_upload(stream, (float *)from + s * LARGEST, host, counts[s] * sizeof(float)));
        assert_ok(trm_stream_synchronize(stream));
    }
    trm_graph_exec *graph;
    assert_ok(trm_stream_begin_capture(stream));
    for (int s = 0; s < STEPS; s++) {
        trm_exchange x = {TRM_ALL_REDUCE,
                          TRM_REDUCE_SUM,
                          TRM_F32,
                          (float *)from + s * LARGEST,
                          (float *)to + s * LARGEST,
                          counts[s],
                          0};
        assert_ok(trm_communicator_exchange(world->communicator, &x, stream));
    }
    assert_ok(trm_stream_end_capture(stream, &graph));
    for (int round = 0; round < 4; round++) {
        assert_ok(trm_stream_fill_zero(stream, to, STEPS * LARGEST * sizeof(float)));
        for (int32_t k = 0; k < launches / 4; k++) {
            assert_ok(trm_graph_exec_launch(graph, stream));
            if (k % 50 == 49) { /* each rank falls behind in its turn */
                assert_ok(trm_stream_synchronize(stream));
                usleep((useconds_t)case_hash(seed, (uint64_t)k, (uint64_t)trm_world_rank(world)) % 2000);
            }
        }
        for (int s = 0; s < STEPS; s++) {
            assert_ok(trm_stream_download(stream, host, (float *)to + s * LARGEST, counts[s] * sizeof(float)));
            assert_ok(trm_stream_synchronize(stream));
            for (size_t i = 0; i < counts[s]; i++) {
                float expected = (float)((size_t)(n * (n - 1) / 2) + (size_t)n * (i % 1000 + (size_t)s));
                if (host[i] != expected) {
                    fail_msg("seed %u, step %d of %zu: element %zu is %g, expected %g", seed, s, counts[s], i,
                             (double)host[i], (double)expected);
                }
            }
        }
    }
    assert_ok(trm_communicator_check(world->communicator));
    trm_graph_exec_destroy(graph);
    trm_device_free(world->device, from);
    trm_device_free(world->device, to);
    free(host);
}

static void test_replays(void **state)
{
    (void)state;
    run_replays(1, test_is_brief() ? 8 : LAUNCHES);
    run_replays(2, test_is_brief() ? 8 : LAUNCHES / 4);
}

/* Fused and plain exchanges in turn in one graph, launched many times: the same bits as the first time, and of the
 * right rank. */
static void test_norm_replays(void **state)
{
    (void)state;
    enum { CASES = 12, SHOWN = 2 * 8192, SOME = 22 };
    static const int64_t widths[] = {4096, 8192, 128, 5120};
    int32_t me = trm_world_rank(world), n = trm_world_size(world);
    void *memory[CASES][NORM_BUFFERS], *data[CASES][NORM_BUFFERS];
    const trm_kernel *kernels[CASES];
    trm_layer_desc desc[CASES];
    trm_kernel_call call[CASES];
    norm_case cases[CASES];
    trm_graph_exec *graph;
    for (int k = 0; k < CASES; k++) {
        cases[k] = (norm_case){
            .dtype = floats[k % 3], .rows = k % 5 == 4 ? 9 : 1 + k % 2, .width = widths[k % 4], .weight = true};
        cases[k].norm = (trm_norm_params){.op = k % 3 ? TRM_NORM_RMS : TRM_NORM_LAYER, .residual = true, .eps = 1e-5f};
        assert_ok(norm_fill(&cases[k], stream, me, memory[k], data[k]));
        kernels[k] = norm_describe(&cases[k], world->communicator, stream, data[k], &desc[k], &call[k]);
        assert_non_null(kernels[k]);
        call[k].workspace_size = 1 << 20;
        assert_ok(trm_device_alloc(world->device, call[k].workspace_size, &call[k].workspace));
    }
    unsigned char *first = malloc(2 * CASES * SHOWN), *again = malloc(2 * CASES * SHOWN);
    assert_ok(trm_stream_begin_capture(stream));
    for (int k = 0; k < CASES; k++) {
        assert_ok(trm_kernel_run(kernels[k], &call[k]));
        trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, data[k][NORM_X], call[k].workspace, 32, 0};
        assert_ok(trm_communicator_exchange(world->communicator, &x, stream));
        x = (trm_exchange){TRM_BROADCAST, TRM_REDUCE_NONE, TRM_U8, data[k][NORM_X], call[k].workspace, SOME, k % n};
        assert_ok(trm_communicator_exchange(world->communicator, &x, stream));
    }
    assert_ok(trm_stream_end_capture(stream, &graph));
    for (int round = 0; round < 3; round++) {
        unsigned char *to = round == 0 ? first : again;
        for (int i = 0; i < (round == 0 ? 1 : test_is_brief() ? 3 : 1000); i++) {
            assert_ok(trm_graph_exec_launch(graph, stream));
            if (i % 50 == 49) {
                assert_ok(trm_stream_synchronize(stream));
                usleep((useconds_t)case_hash(5, (uint64_t)i, (uint64_t)me) % 1000);
            }
        }
        for (int k = 0; k < CASES; k++) {
            unsigned char found[SOME + 8], expected[SOME + 8];
            size_t s = trm_dtype_size(cases[k].dtype);
            assert_ok(trm_stream_download(stream, found, call[k].workspace, SOME));
            assert_ok(trm_stream_synchronize(stream));
            for (size_t i = 0; i < SOME; i += s) {
                case_input(cases[k].dtype, k % n, i / s, expected + i);
            }
            assert_memory_equal(found, expected, SOME);
        }
        for (int k = 0; k < 2 * CASES; k++) { /* what is normalized, and the sum */
            size_t bytes = (size_t)(cases[k / 2].rows * cases[k / 2].width) * trm_dtype_size(cases[k / 2].dtype);
            bytes = bytes < SHOWN ? bytes : SHOWN;
            assert_ok(trm_stream_download(stream, to + k * SHOWN, data[k / 2][k % 2 ? NORM_SUM : NORM_Y], bytes));
            assert_ok(trm_stream_synchronize(stream));
            assert_memory_equal(to + k * SHOWN, first + k * SHOWN, bytes);
        }
    }
    for (int k = 0; k < CASES; k++) {
        for (int b = 0; b < NORM_BUFFERS; b++) {
            trm_device_free(world->device, memory[k][b]);
        }
        trm_device_free(world->device, call[k].workspace);
    }
    trm_graph_exec_destroy(graph);
    free(first);
    free(again);
}

typedef struct lane_buffers {
    norm_case n;
    void *memory[NORM_BUFFERS], *data[NORM_BUFFERS];
    size_t bytes, row;      /* of a tensor, of a row */
    size_t own, own_bytes;  /* this rank's rows */
    unsigned char *y, *sum; /* what it is to be, host */
} lane_buffers;

static void lane_describe(const lane_buffers *b, trm_peer_norm *n)
{
    const bool residual = b->n.norm.residual;
    *n = (trm_peer_norm){.dtype = b->n.dtype,
                         .rows = b->n.rows,
                         .width = b->n.width,
                         .from = b->data[NORM_X],
                         .residual = residual ? b->data[NORM_RESIDUAL] : NULL,
                         .weight = b->n.weight ? b->data[NORM_WEIGHT] : NULL,
                         .bias = b->n.bias ? b->data[NORM_BIAS] : NULL,
                         .to = b->data[NORM_Y],
                         .sum = residual ? b->data[NORM_SUM] : NULL};
}

static void lane_download(unsigned char *to, const void *from, size_t bytes)
{
    assert_ok(trm_stream_download(stream, to, from, bytes));
    assert_ok(trm_stream_synchronize(stream));
}

/* The sum of all ranks' inputs, added in f32 in the order of the ranks and rounded once. */
static void sum_in_order(const norm_case *n, unsigned char *sum)
{
    const size_t s = trm_dtype_size(n->dtype);
    for (size_t i = 0; i < (size_t)(n->rows * n->width); i++) {
        float total = 0;
        for (int32_t r = 0; r < trm_world_size(world); r++) {
            unsigned char element[8];
            case_input(n->dtype, r, i, element);
            const float value = (float)case_load_float(n->dtype, element);
            total = r == 0 ? value : total + value;
        }
        case_store_float(n->dtype, total, sum + i * s);
    }
}

/* Fills the buffers and runs the layer once, with all of the sum for everybody. A lane adds in the order of the ranks
 * for any size, which NCCL's all-reduce of large tensors does not. */
static void lane_open(lane_buffers *b, trm_peer_lane *lane)
{
    const int32_t me = trm_world_rank(world);
    const int64_t part = (b->n.rows + trm_world_size(world) - 1) / trm_world_size(world);
    const int64_t first = part * me < b->n.rows ? part * me : b->n.rows;
    const int64_t end = first + part < b->n.rows ? first + part : b->n.rows;
    char why[256] = "";
    trm_peer_norm n;
    b->row = (size_t)b->n.width * trm_dtype_size(b->n.dtype);
    b->bytes = (size_t)b->n.rows * b->row;
    b->own = (size_t)first * b->row;
    b->own_bytes = (size_t)(end - first) * b->row;
    b->y = malloc(b->bytes + 1);
    b->sum = malloc(b->bytes + 1);
    unsigned char *reduced = malloc(b->bytes + 1);
    assert_ok(norm_fill(&b->n, stream, me, b->memory, b->data));
    lane_describe(b, &n);
    assert_true(trm_peer_lane_takes(lane, &n));
    assert_ok(trm_peer_lane_norm(lane, &n, &b->n.norm, true, stream));
    lane_download(b->y, b->data[NORM_Y], b->bytes);
    lane_download(b->sum, b->data[NORM_SUM], b->bytes);
    sum_in_order(&b->n, reduced);
    if (!norm_check(&b->n, reduced, b->y, b->sum, why, sizeof(why))) {
        fail_msg("rank %d, [%lld, %lld] %s: %s", (int)me, (long long)b->n.rows, (long long)b->n.width,
                 trm_dtype_name(b->n.dtype), why);
    }
    assert_true(case_identical(world->communicator, stream, b->y, b->bytes));
    free(reduced);
}

static void lane_close(lane_buffers *b)
{
    for (int i = 0; i < NORM_BUFFERS; i++) {
        trm_device_free(world->device, b->memory[i]);
    }
    free(b->y);
    free(b->sum);
}

/* The result where it is gathered, and of the sum this rank's rows alone. */
static void lane_check_again(lane_buffers *b, trm_peer_lane *lane)
{
    unsigned char *found = malloc(b->bytes + 1);
    trm_peer_norm n;
    lane_describe(b, &n);
    n.to = trm_peer_lane_gathered(lane);
    assert_ok(trm_stream_fill_zero(stream, b->data[NORM_SUM], b->bytes));
    assert_ok(trm_peer_lane_norm(lane, &n, &b->n.norm, false, stream));
    lane_download(found, n.to, b->bytes);
    assert_memory_equal(found, b->y, b->bytes);
    if (b->n.norm.residual) {
        lane_download(found, b->data[NORM_SUM], b->bytes);
        assert_memory_equal(found + b->own, b->sum + b->own, b->own_bytes);
    }
    free(found);
}

/* Rows that ranks can share equally or not, fewer than ranks; widths of each kernel of norms. */
static void test_lanes(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 128, 776, 1032, 4096, 8192}, rows[] = {1, 2, 5, 70, 131, 1027};
    const size_t room = (size_t)1040 * 8192 * 4;
    trm_peer_lane *lane, *second, *third, *larger;
    assert_ok(trm_communicator_take_lane(world->communicator, room, &lane));
    assert_ok(trm_communicator_take_lane(world->communicator, 4096, &second));
    assert_non_null(lane);
    assert_non_null(second);
    assert_ptr_not_equal(lane, second);
    trm_peer_lane_return(lane);
    assert_ok(trm_communicator_take_lane(world->communicator, room / 2, &third));
    assert_ptr_equal(third, lane); /* what came back is taken again */
    assert_ok(trm_communicator_take_lane(world->communicator, room / 2, &larger));
    assert_ptr_not_equal(larger, lane);
    trm_peer_lane_return(larger);
    trm_peer_lane_return(second);
    for (int32_t k = 0; k < 3 * 6 * 6; k++) {
        lane_buffers b = {.n = {.dtype = floats[k % 3], .rows = rows[k / 3 % 6], .width = widths[k / 18]}};
        const bool layer = k % 5 == 0;
        b.n.norm = (trm_norm_params){.op = layer ? TRM_NORM_LAYER : TRM_NORM_RMS, .residual = k % 4 != 0, .eps = 1e-5f};
        b.n.bias = layer && k % 2 == 0;
        b.n.weight = b.n.bias || k % 7 != 0;
        if (test_is_brief() && b.n.rows * b.n.width > 70 * 1032) {
            continue;
        }
        lane_open(&b, lane);
        lane_check_again(&b, lane);
        lane_close(&b);
    }
    trm_peer_norm odd = {.dtype = TRM_BF16, .rows = 2, .width = 12, .from = &lane, .to = &lane};
    assert_false(trm_peer_lane_takes(lane, &odd)); /* rows of no whole runs of 16 bytes */
    odd.width = 8192;
    odd.rows = 4 * 1040;
    assert_false(trm_peer_lane_takes(lane, &odd)); /* more than it has room for */
    assert_fails(trm_peer_lane_norm(lane, &odd, &(trm_norm_params){.op = TRM_NORM_RMS}, false, stream),
                 TRM_ERROR_INVALID_ARGUMENT, "was given 4160 rows of 8192 bf16");
    trm_peer_lane_return(lane);
}

/* Two lanes on a stream each, hundreds of sums of several sizes in each, ranks that fall behind in their turn: the same
 * bits as at first. */
static void test_lanes_in_turn(void **state)
{
    (void)state;
    enum { CASES = 4, TURNS = 400 };
    const int32_t me = trm_world_rank(world), turns = test_is_brief() ? 8 : TURNS;
    static const int64_t rows[CASES] = {1024, 37, 515, 3};
    lane_buffers b[2][CASES];
    unsigned char *found[2][CASES];
    trm_peer_lane *lanes[2];
    trm_stream *streams[2] = {stream, NULL};
    assert_ok(trm_stream_create(world->device, &streams[1]));
    for (int l = 0; l < 2; l++) {
        assert_ok(trm_communicator_take_lane(world->communicator, (size_t)1024 * 4096 * 2, &lanes[l]));
        for (int k = 0; k < CASES; k++) {
            b[l][k] =
                (lane_buffers){.n = {.dtype = TRM_BF16, .rows = rows[(k + l) % CASES], .width = 4096, .weight = true}};
            b[l][k].n.norm = (trm_norm_params){.op = TRM_NORM_RMS, .residual = true, .eps = 1e-5f};
            lane_open(&b[l][k], lanes[l]);
            found[l][k] = malloc(b[l][k].bytes + 1);
            assert_ok(trm_stream_fill_zero(stream, b[l][k].data[NORM_Y], b[l][k].bytes));
        }
    }
    assert_ok(trm_stream_synchronize(stream));
    for (int32_t turn = 0; turn < turns; turn++) {
        for (int l = 0; l < 2; l++) {
            lane_buffers *c = &b[l][turn % CASES];
            trm_peer_norm n;
            lane_describe(c, &n);
            assert_ok(trm_peer_lane_norm(lanes[l], &n, &c->n.norm, turn % 3 == 0, streams[l]));
        }
        if (turn % 40 == 39) {
            usleep((useconds_t)case_hash(11, (uint64_t)turn, (uint64_t)me) % 2000);
        }
    }
    for (int l = 0; l < 2; l++) {
        assert_ok(trm_stream_synchronize(streams[l]));
        for (int k = 0; k < CASES; k++) {
            lane_download(found[l][k], b[l][k].data[NORM_Y], b[l][k].bytes);
            assert_memory_equal(found[l][k], b[l][k].y, b[l][k].bytes);
            lane_close(&b[l][k]);
            free(found[l][k]);
        }
        trm_peer_lane_return(lanes[l]);
    }
    assert_ok(trm_communicator_check(world->communicator));
    trm_stream_destroy(streams[1]);
}

typedef struct lost_case {
    trm_communicator *peer;
    trm_graph_exec *graph; /* of sums, or NULL: in a lane */
    trm_peer_lane *lane;
    void *data;
} lost_case;

static void lost_enqueue(const lost_case *l)
{
    const trm_norm_params norm = {.op = TRM_NORM_RMS, .eps = 1e-5f};
    const trm_peer_norm n = {.dtype = TRM_BF16, .rows = 8, .width = 4096, .from = l->data, .to = l->data};
    if (l->graph != NULL) {
        assert_ok(trm_graph_exec_launch(l->graph, stream));
        return;
    }
    for (int i = 0; i < 16; i++) {
        assert_ok(trm_peer_lane_norm(l->lane, &n, &norm, i % 2 == 0, stream));
    }
}

static trm_communicator *make_peer(double deadline)
{
    unsigned char id[TRM_NCCL_ID_SIZE] = {0};
    char why[256];
    trm_communicator *host, *nccl, *peer;
    assert_ok(trm_world_rank(world) == 0 ? trm_nccl_make_id(id) : TRM_OK);
    assert_ok(trm_world_broadcast(world, id, sizeof(id), 0));
    assert_ok(
        trm_communicator_nccl_create(world->device, id, trm_world_rank(world), trm_world_size(world), deadline, &nccl));
    assert_ok(trm_world_host_communicator(world, &host));
    assert_ok(trm_communicator_peer_create(world->device, host, nccl, &peer, why, sizeof(why)));
    assert_true(peer != nccl);
    return peer;
}

/* The last rank stays away: the others get an error in time, what they have enqueued behind that does not wait again,
 * and the communicator is dead. */
static void lose_a_rank(bool in_lane)
{
    const double deadline = 1.0;
    int32_t n = trm_world_size(world), me = trm_world_rank(world);
    lost_case l = {.peer = make_peer(deadline)};
    assert_ok(trm_device_alloc(world->device, 1 << 20, &l.data));
    assert_ok(trm_stream_fill_zero(stream, l.data, 1 << 20));
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_BF16, l.data, l.data, 4096, 0};
    trm_exchange larger = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_BF16, l.data, l.data, 1 << 18, 0};
    if (in_lane) {
        assert_ok(trm_communicator_take_lane(l.peer, 1 << 20, &l.lane));
        assert_non_null(l.lane);
    } else {
        assert_ok(trm_stream_begin_capture(stream));
        for (int i = 0; i < 64; i++) {
            assert_ok(trm_communicator_exchange(l.peer, i % 2 ? &larger : &x, stream));
        }
        assert_ok(trm_stream_end_capture(stream, &l.graph));
    }
    lost_enqueue(&l);
    assert_ok(trm_stream_synchronize(stream));
    assert_ok(trm_communicator_check(l.peer));
    if (me != n - 1) {
        double start = trm_wait_now();
        lost_enqueue(&l);
        assert_ok(trm_stream_synchronize(stream)); /* ends by itself */
        double waited = trm_wait_now() - start;
        assert_true(waited > 0.9 * deadline && (waited < 3 * deadline || test_is_brief()));
        assert_fails(trm_communicator_check(l.peer), TRM_ERROR_LOST_RANK, "in an exchange over peer memory");
        assert_fails(trm_communicator_exchange(l.peer, &x, stream), TRM_ERROR_LOST_RANK, "waited 1 s for rank");
        trm_peer_lane *another;
        assert_fails(trm_communicator_take_lane(l.peer, 1 << 20, &another), TRM_ERROR_LOST_RANK, "waited 1 s for rank");
    }
    assert_ok(trm_world_all_ok(world, TRM_OK));
    if (me == n - 1) { /* late: nobody answers any more; the host ends the wait before the deadline does */
        lost_enqueue(&l);
        trm_communicator_abort(l.peer);
        assert_ok(trm_stream_synchronize(stream));
        assert_fails(trm_communicator_check(l.peer), TRM_ERROR_LOST_RANK, "cannot be used after a failure");
    } else {
        trm_communicator_abort(l.peer);
    }
    assert_ok(trm_world_all_ok(world, TRM_OK));
    trm_graph_exec_destroy(l.graph);
    trm_device_free(world->device, l.data);
    trm_communicator_destroy(l.peer);
}

static void test_lost_rank(void **state)
{
    (void)state;
    lose_a_rank(false);
}

static void test_lost_rank_of_a_lane(void **state)
{
    (void)state;
    lose_a_rank(true);
}

/* On one rank there is nothing to map; of several that refuse, all get the communicator they had. */
static void test_alone(void **state)
{
    (void)state;
    trm_communicator *self, *result = NULL;
    char why[256] = "";
    assert_ok(trm_communicator_self_create(&self));
    assert_ok(trm_communicator_peer_create(world->device, self, self, &result, why, sizeof(why)));
    assert_ptr_equal(result, self);
    assert_non_null(strstr(why, "a group of 1 ranks"));
    trm_communicator_destroy(self);
}

int main(void)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    setenv("TRIREME_EXCHANGE", "peer", 1);
    alarm(test_is_brief() ? 1200 : 120); /* whatever happens, no rank stays */
    if (trm_world_open(&options, &world) != TRM_OK || trm_stream_create(world->device, &stream) != TRM_OK) {
        fprintf(stderr, "cannot open the world: %s\n", trm_last_error());
        return trm_device_cuda_count(NULL, 0) == 0 ? 77 : 1;
    }
    const struct CMUnitTest several[] = {
        cmocka_unit_test(test_cases),     cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_layers),    cmocka_unit_test(test_unaligned),
        cmocka_unit_test(test_replays),   cmocka_unit_test(test_norm_replays),
        cmocka_unit_test(test_lanes),     cmocka_unit_test(test_lanes_in_turn),
        cmocka_unit_test(test_lost_rank), cmocka_unit_test(test_lost_rank_of_a_lane),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(test_alone)};
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    int failed = trm_world_size(world) > 1 ? cmocka_run_group_tests(several, NULL, NULL)
                                           : cmocka_run_group_tests(one, NULL, NULL);
    trm_stream_destroy(stream);
    trm_world_close(world);
    return failed;
}
