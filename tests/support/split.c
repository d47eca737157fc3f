/* Costs by which the shipped model is split, and whether it is. */
#include "support/split.h"

#include "support/support.h"
#include "support/world.h"

/* The linker sends the library's calls here (tests/dist/CMakeLists.txt). */
void __real_trm_cost_model_default(trm_backend backend, trm_cost_model *model);
void __wrap_trm_cost_model_default(trm_backend backend, trm_cost_model *model);

void __wrap_trm_cost_model_default(trm_backend backend, trm_cost_model *model)
{
    (void)backend;
    __real_trm_cost_model_default(TRM_BACKEND_HOST, model);
}

void test_assert_split(const trm_plan *plan)
{
    assert_int_equal(plan->partition.shares_tokens, plan->mesh.size[TRM_AXIS_CP] > 1);
    trm_model_info info;
    trm_model_get_info(test_model, &info);
    if (plan->mesh.size[TRM_AXIS_TP] > 1) { /* a sum behind attention and one behind the MLP, at the least */
        const int64_t sums = 2 * info.layers / plan->mesh.size[TRM_AXIS_PP];
        assert_true(plan->partition.n_collectives >= sums);
        assert_true(plan->partition.bytes_exchanged > 0);
    }
}
