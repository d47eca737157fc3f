/*
 * The world's exchange on device memory gives what it gives on host memory, which other tests hold to a reference: one
 * GPU per rank, under mpirun or alone.
 */
#include "support/support.h"

#include <string.h>

#include "dist/parallel/world.h"

enum { COUNT = 1237, ELEMENTS = COUNT * TRM_MAX_RANKS };

static trm_world *world;
static trm_stream *stream;
static int32_t in[ELEMENTS], on_host[ELEMENTS], on_device[ELEMENTS];

/* How many of COUNT elements a rank gets. 0: none. */
static size_t received(const trm_collective_params *p, bool is_root)
{
    size_t n = (size_t)trm_world_size(world);
    switch (p->op) {
    case TRM_ALL_GATHER:
    case TRM_ALL_TO_ALL:
        return n * COUNT;
    case TRM_GATHER:
        return is_root ? n * COUNT : 0;
    case TRM_REDUCE:
        return is_root ? COUNT : 0;
    default:
        return COUNT;
    }
}

/* The same exchange on host memory, on two device buffers, and where the sizes agree on one. */
static void compare(const trm_collective_params *p, bool in_place)
{
    int32_t rank = trm_world_rank(world);
    for (int32_t i = 0; i < ELEMENTS; i++) {
        in[i] = (rank + 3) * 1000 + i % 997;
    }
    memset(on_host, 0, sizeof(on_host));
    assert_ok(trm_world_collective(world, p, TRM_I32, in, on_host, COUNT, false));
    void *from, *to;
    assert_ok(trm_memory_allocate(world, sizeof(in), &from));
    assert_ok(trm_memory_allocate(world, sizeof(in), &to));
    assert_ok(trm_stream_upload(stream, from, in, sizeof(in)));
    assert_ok(trm_stream_synchronize(stream));
    assert_ok(trm_world_collective(world, p, TRM_I32, from, in_place ? from : to, COUNT, true));
    assert_ok(trm_stream_download(stream, on_device, in_place ? from : to, sizeof(in)));
    assert_ok(trm_stream_synchronize(stream));
    for (size_t i = 0; i < received(p, rank == p->root); i++) {
        if (on_device[i] != on_host[i]) {
            fail_msg("%s, rank %d: element %d is %d, on the host %d", trm_collective_op_name(p->op), (int)rank, (int)i,
                     (int)on_device[i], (int)on_host[i]);
        }
    }
    trm_memory_free(world, from);
    trm_memory_free(world, to);
}

static void collectives(void **state)
{
    (void)state;
    int32_t last = trm_world_size(world) - 1;
    for (int op = TRM_ALL_REDUCE; op <= TRM_SCATTER; op++) {
        trm_collective_params p = {.op = (trm_collective_op)op, .reduce = TRM_REDUCE_NONE};
        if (trm_collective_reduces(p.op)) {
            p.reduce = TRM_REDUCE_SUM;
        }
        for (p.root = 0; p.root <= (trm_collective_has_root(p.op) ? last : 0); p.root++) {
            compare(&p, false);
            if (p.op == TRM_ALL_REDUCE || p.op == TRM_BROADCAST) {
                compare(&p, true);
            }
        }
    }
}

static void from_first_to_last(void **state)
{
    (void)state;
    int32_t rank = trm_world_rank(world), last = trm_world_size(world) - 1;
    if (last > 0 && (rank == 0 || rank == last)) {
        trm_collective_params p = {
            .op = rank == 0 ? TRM_SEND : TRM_RECV, .reduce = TRM_REDUCE_NONE, .root = last - rank};
        int32_t *memory;
        for (int32_t i = 0; i < COUNT; i++) {
            in[i] = rank == 0 ? 7 * i : -1;
        }
        assert_ok(trm_device_alloc(world->device, sizeof(in), (void **)&memory));
        assert_ok(trm_stream_upload(stream, memory, in, sizeof(in)));
        assert_ok(trm_stream_synchronize(stream));
        assert_ok(trm_world_collective(world, &p, TRM_I32, memory, memory, COUNT, true));
        assert_ok(trm_stream_download(stream, on_device, memory, sizeof(in)));
        assert_ok(trm_stream_synchronize(stream));
        for (int32_t i = 0; i < COUNT; i++) {
            assert_int_equal(on_device[i], 7 * i);
        }
        trm_device_free(world->device, memory);
    }
}

static void gpu_has_its_number(void **state)
{
    (void)state;
    trm_device_info info;
    assert_ok(trm_device_get_info(world->device, &info));
    assert_int_equal(trm_world_gpu(world), info.ordinal + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_has_its_number),
        cmocka_unit_test(collectives),
        cmocka_unit_test(from_first_to_last),
    };
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    if (trm_world_open(&options, &world) != TRM_OK) {
        print_error("%s\n", trm_last_error());
        return trm_device_cuda_count(NULL, 0) == 0 ? 77 : 1;
    }
    assert_ok(trm_stream_create(world->device, &stream));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0) {
        trm_world_abort(world, TRM_ERROR_INTERNAL); /* peers may wait in a collective */
    }
    trm_stream_destroy(stream);
    trm_world_close(world);
    return failed;
}
