/* Programs: lists of launches, what runs of them, and memory that is used again. */
#include "support/support.h"

#include "kernels/program.h"

static int32_t order[8], n_run;

static trm_status note(void *args, trm_stream *stream)
{
    (void)stream;
    order[n_run++] = *(const int32_t *)args;
    return TRM_OK;
}

static trm_status refuse(void *args, trm_stream *stream)
{
    (void)args;
    (void)stream;
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "this launch fails");
}

static void append(trm_program *program, int32_t number, trm_status (*enqueue)(void *, trm_stream *))
{
    int32_t *args = trm_program_alloc(program, sizeof(*args));
    assert_non_null(args);
    *args = number;
    program->layer = number / 2;
    assert_ok(trm_program_append(program, "note", enqueue, args));
}

static void launches_run_in_their_order(void **state)
{
    (void)state;
    trm_program program = {.n = 0};
    int32_t at;
    for (int32_t i = 0; i < 6; i++) {
        append(&program, i, i == 4 ? refuse : note);
    }
    assert_int_equal(program.launches[3].layer, 1);
    n_run = 0;
    assert_ok(trm_program_run(&program, 1, 4, &at));
    assert_int_equal(at, 4);
    assert_int_equal(n_run, 3);
    for (int32_t i = 0; i < n_run; i++) {
        assert_int_equal(order[i], i + 1);
    }
    assert_fails(trm_program_run_on(&program, 0, 6, NULL, &at), TRM_ERROR_UNSUPPORTED, "this launch fails");
    assert_int_equal(at, 4);
    assert_int_equal(n_run, 7);
    trm_program_fini(&program);
}

static void a_cleared_program_keeps_its_memory(void **state)
{
    (void)state;
    trm_program program = {.n = 0};
    for (int32_t i = 0; i < 100; i++) {
        assert_non_null(trm_program_alloc(&program, 4000));
        append(&program, i, note);
    }
    const trm_launch *launches = program.launches;
    const trm_arena_chunk *chunk = program.arena.chunks;
    trm_program_clear(&program);
    assert_int_equal(program.n, 0);
    assert_null(program.arena.chunks);
    assert_int_equal(program.arena.used, 0);
    for (int32_t i = 0; i < 100; i++) {
        const unsigned char *memory = trm_program_alloc(&program, 4000);
        assert_int_equal(memory[0] | memory[3999], 0);
        append(&program, i, note);
    }
    assert_ptr_equal(program.launches, launches);
    assert_ptr_equal(program.arena.chunks, chunk);
    assert_null(program.arena.spare);
    trm_program_fini(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_run_in_their_order),
        cmocka_unit_test(a_cleared_program_keeps_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
