/* Frames between the front end and the ranks: what goes in comes out, cut and broken ones are refused. */
#include "launcher/serve/ipc/channel.h"
#include "support/support.h"

#include <sys/socket.h>
#include <unistd.h>

static ipc_submission example(void)
{
    static const int32_t prompt[] = {1, 2, 3}, stops[] = {7};
    static const trm_logit_bias bias[] = {{4, -1.5f}, {5, 100}};
    ipc_submission s = {.request = TRM_SERVING_REQUEST_INIT, .grammar_kind = 2, .grammar = "{\"type\":\"object\"}"};
    s.request.id = 77;
    s.request.prompt = prompt;
    s.request.n_prompt = 3;
    s.request.n_resumed = 1;
    s.request.stop_tokens = stops;
    s.request.n_stop_tokens = 1;
    s.request.sampling.bias = bias;
    s.request.sampling.n_bias = 2;
    s.request.sampling.base.seed = 99;
    s.request.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    return s;
}

static void submissions_arrive(void **state)
{
    trm_bytes out = {0};
    ipc_submission sent = example(), got;
    ipc_frame frame;
    bool complete;
    (void)state;
    assert_ok(ipc_write_submission(&out, &sent));
    assert_ok(ipc_next(out.data, out.size, &complete, &frame));
    assert_true(complete);
    assert_int_equal(frame.kind, IPC_SUBMIT);
    assert_int_equal(frame.whole, out.size);
    assert_ok(ipc_read_submission(&frame, &got));
    assert_int_equal(got.request.id, 77);
    assert_memory_equal(got.request.prompt, sent.request.prompt, 3 * sizeof(int32_t));
    assert_int_equal(got.request.n_resumed, 1);
    assert_int_equal(got.request.stop_tokens[0], 7);
    assert_memory_equal(got.request.sampling.bias, sent.request.sampling.bias, 2 * sizeof(trm_logit_bias));
    assert_int_equal(got.request.sampling.base.seed, 99);
    assert_string_equal(got.grammar, sent.grammar);
    assert_string_equal(got.request.traceparent, sent.request.traceparent);
    assert_null(got.request.tracestate);
    trm_bytes_fini(&out);
}

static void every_cut_is_noticed(void **state)
{
    trm_bytes out = {0};
    ipc_submission sent = example(), got;
    ipc_frame frame;
    bool complete;
    (void)state;
    assert_ok(ipc_write_submission(&out, &sent));
    for (size_t size = 0; size < out.size; size++) {
        assert_ok(ipc_next(out.data, size, &complete, &frame));
        assert_false(complete);
    }
    assert_ok(ipc_next(out.data, out.size, &complete, &frame));
    for (size_t size = 0; size < frame.size; size++) {
        ipc_frame cut = frame;
        cut.size = size;
        assert_fails(ipc_read_submission(&cut, &got), TRM_ERROR_IO, "frame of kind");
    }
    out.data[0] ^= 1;
    assert_fails(ipc_next(out.data, out.size, &complete, &frame), TRM_ERROR_IO, "magic");
    trm_bytes_fini(&out);
}

static void events_and_failures_arrive(void **state)
{
    static const trm_token_logprob top[] = {{3, -0.5f}, {4, -1.5f}};
    trm_serving_event event = {
        .kind = TRM_EVENT_TOKEN, .id = 5, .token = 3, .logprob = -0.5f, .n_top = 2, .top = top, .error = "why"};
    trm_bytes out = {0};
    ipc_frame frame;
    ipc_event got;
    ipc_failure failure;
    ipc_refusal refusal;
    ipc_stalls stalls;
    bool complete;
    (void)state;
    assert_ok(ipc_write_event(&out, &event));
    size_t first = out.size;
    assert_ok(ipc_write_failure(&out, TRM_ERROR_NO_DEVICE, "no GPU"));
    size_t second = out.size;
    assert_ok(ipc_write_refusal(&out, 9, TRM_ERROR_BUSY, "full"));
    size_t third = out.size;
    assert_ok(ipc_write_stalls(&out, &(ipc_stalls){.steps = 2, .layers = "0.5 a b\n"}));
    assert_ok(ipc_next(out.data + third, out.size - third, &complete, &frame));
    assert_ok(ipc_read_stalls(&frame, &stalls));
    assert_int_equal(stalls.steps, 2);
    assert_string_equal(stalls.layers, "0.5 a b\n");
    frame.size--;
    assert_fails(ipc_read_stalls(&frame, &stalls), TRM_ERROR_IO, "frame of kind");
    assert_ok(ipc_next(out.data, out.size, &complete, &frame));
    assert_ok(ipc_read_event(&frame, &got));
    assert_int_equal(got.event.token, 3);
    assert_int_equal(got.event.n_top, 2);
    assert_int_equal(got.event.top[1].token, 4);
    assert_string_equal(got.event.error, "why");
    assert_ok(ipc_next(out.data + first, out.size - first, &complete, &frame));
    assert_ok(ipc_read_failure(&frame, &failure));
    assert_int_equal(failure.status, TRM_ERROR_NO_DEVICE);
    assert_string_equal(failure.cause, "no GPU");
    assert_ok(ipc_next(out.data + second, out.size - second, &complete, &frame));
    assert_ok(ipc_read_refusal(&frame, &refusal));
    assert_int_equal(refusal.id, 9);
    assert_int_equal(refusal.status, TRM_ERROR_BUSY);
    trm_bytes_fini(&out);
}

/* Frames of odd sizes, so that most begin at odd places. */
static void channels_carry_frames(void **state)
{
    int ends[2];
    channel a, b;
    bool closed, found;
    ipc_frame frame;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    channel_init(&a, ends[0]);
    channel_init(&b, ends[1]);
    enum { COUNT = 300 };
    char payload[COUNT * 50] = {0};
    int32_t got = 0;
    for (int32_t i = 0; i < COUNT; i++) {
        payload[0] = (char)i;
        assert_ok(ipc_write(&a.out, IPC_CANCEL, payload, 1 + (size_t)i * 37 % sizeof(payload)));
    }
    while (got < COUNT) {
        assert_ok(channel_send(&a));
        assert_ok(channel_receive(&b, &closed));
        assert_false(closed);
        for (assert_ok(channel_next(&b, &found, &frame)); found; assert_ok(channel_next(&b, &found, &frame))) {
            assert_int_equal((uintptr_t)frame.payload % 8, 0);
            assert_int_equal(frame.size, 1 + (size_t)got * 37 % sizeof(payload));
            assert_int_equal(frame.payload[0], (char)got);
            got++;
        }
    }
    assert_false(channel_has_output(&a));
    channel_fini(&a);
    assert_ok(channel_receive(&b, &closed));
    assert_true(closed);
    channel_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(submissions_arrive), cmocka_unit_test(every_cut_is_noticed),
                                       cmocka_unit_test(events_and_failures_arrive),
                                       cmocka_unit_test(channels_carry_frames)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
