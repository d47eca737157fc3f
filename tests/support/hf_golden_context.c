/* The goldens' steps on an execution context; apart from hf_golden.c so that tests of the importer do without engines.
 */
#include "support/hf_golden.h"

#include "support/support.h"

#include "dist/runtime/context.h"

/* Tokens that ranks share are padded to a multiple of these; what pads belongs to no sequence. */
static void context_set_input(void *self, const char *name, trm_dims dims, const void *data)
{
    const trm_context *context = self;
    const trm_tensor *input = trm_network_find_tensor(context->engine->plan->network, name);
    int32_t padded[TEST_GOLDEN_STEP_TOKENS] = {0};
    if (input->batch_ranks > 1) {
        assert_true(dims.n == 1 && dims.d[0] <= TEST_GOLDEN_STEP_TOKENS - input->batch_ranks);
        memcpy(padded, data, (size_t)dims.d[0] * sizeof(*padded));
        dims.d[0] = (dims.d[0] + input->batch_ranks - 1) / input->batch_ranks * input->batch_ranks;
        data = padded;
    }
    assert_ok(trm_context_set_input(self, name, dims, data));
}

static const float *context_run(void *self)
{
    const void *data;
    trm_dims dims;
    assert_ok(trm_context_run(self));
    assert_ok(trm_context_output(self, "logits", &dims, &data));
    return data;
}

test_runner test_runner_of_context(trm_context *context, const trm_network *network)
{
    return (test_runner){context, network, context_set_input, context_run};
}

int32_t test_golden_bounds(const trm_network *network, trm_shape_bound *bounds)
{
    int32_t n = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role != TRM_TENSOR_INPUT && tensor->role != TRM_TENSOR_STATE) {
            continue;
        }
        trm_dims max = tensor->dims;
        if (trm_tensor_is_by_sequence(tensor)) {
            max.d[0] = TEST_GOLDEN_SEQUENCES + 1;
            max.d[1] = 3; /* the inputs that a convolution of 4 taps reads */
        } else if (tensor->role == TRM_TENSOR_STATE) {
            max.d[0] = TEST_GOLDEN_CACHE;
        } else if (strcmp(tensor->name, "sequence_slots") == 0) {
            max.d[0] = TEST_GOLDEN_SEQUENCES;
        } else if (max.n == 2) {
            max = (trm_dims){2, {TEST_GOLDEN_SEQUENCES, TEST_GOLDEN_BLOCKS}};
        } else if (strncmp(tensor->name, "sequence_", 9) == 0) {
            max.d[0] = TEST_GOLDEN_SEQUENCES + (strcmp(tensor->name, "sequence_starts") == 0);
        } else {
            max.d[0] = TEST_GOLDEN_STEP_TOKENS;
        }
        assert_true(n < TEST_GOLDEN_MAX_BOUNDS);
        bounds[n++] = (trm_shape_bound){.tensor = tensor->name, .max = max};
    }
    return n;
}
