/*
 * The passes of a stage, in their order, until nothing changes.
 */
#include "graph/network.h"

#include "base/error.h"

static trm_status run_once(trm_network *network, trm_pass_stage stage, int32_t *changes)
{
    TRM_TRY(trm_pass_dead_code(network, changes));
    TRM_TRY(trm_pass_fold_constants(network, changes));
    TRM_TRY(trm_pass_simplify(network, changes));
    TRM_TRY(trm_pass_common_subexpressions(network, changes));
    if (stage == TRM_PASSES_BEFORE_PARTITION) {
        int32_t n_moved = 0;
        TRM_TRY(trm_pass_select_rows(network, &n_moved));
        if (n_moved > 0) { /* patterns are looked for when what is left of the choices is simplified */
            *changes += n_moved;
            return TRM_OK;
        }
    }
    TRM_TRY(trm_pass_fuse(network, stage, changes));
    if (stage == TRM_PASSES_AFTER_PARTITION) {
        TRM_TRY(trm_pass_fuse_convolutions(network, changes));
        TRM_TRY(trm_pass_join_matmuls(network, changes));
        TRM_TRY(trm_pass_fuse_qkv(network, changes));
        TRM_TRY(trm_pass_fuse_delta(network, changes));
    }
    return TRM_OK;
}

trm_status trm_run_passes(trm_network *network, trm_pass_stage stage)
{
    int32_t changes;
    do {
        changes = 0;
        TRM_TRY(run_once(network, stage, &changes));
    } while (changes > 0); /* ends: every change leaves fewer layers, constants or uses, or fewer rows */
    return TRM_OK;
}
