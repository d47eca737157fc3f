/* The goldens' steps on an execution context; apart from hf_golden.c so that tests of the importer do without engines.
 */
#include "support/hf_golden.h"

#include "support/support.h"

static void context_set_input(void *self, const char *name, trm_dims dims, const void *data)
{
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
