/*
 * References of outputs (--expect, --against): read before a network runs, compared with its outputs.
 */
#ifndef TRM_LAUNCHER_CLI_ONNX_EXPECT_H
#define TRM_LAUNCHER_CLI_ONNX_EXPECT_H

#include "launcher/cli/job/report.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/tensors/tensor_error.h"

/* ---- references by name -------------------------------------------------------------------------------- */

typedef struct expected_tensor {
    char *name, *from; /* the tensor; the file or folder, for messages */
    tensor_value value;
    trm_dtype dtype;             /* compute type: sums of several ranks are f64 */
    trm_onnx_fixed_value *block; /* holds the value's data, to be freed with trm_free; NULL: the value owns its data */
} expected_tensor;

typedef struct expected_list {
    expected_tensor *items; /* [n] */
    int32_t n;
} expected_list;

/* Reads a .npy or .pb file as the reference of a name, replacing an earlier one; or raw elements of `tensor`, which may
 * be NULL. */
trm_status expected_add_file(expected_list *list, const char *name, const char *file, const trm_tensor *tensor);
/* Reads FOLDER/output_I.pb or .npy, if it exists and the name has no reference yet. */
trm_status expected_add_numbered(expected_list *list, const char *name, const char *folder, int32_t index);
/* NULL if there is none. */
const expected_tensor *expected_find(const expected_list *list, const char *name);
void expected_fini(expected_list *list);

/* ---- outputs of `run` and `bench` ---------------------------------------------------------------------- */

typedef struct expect_row expect_row;

typedef struct onnx_expect {
    expected_list references; /* of this rank */
    trm_dtype coarsest;       /* of the floats in the networks of all ranks */
    int32_t most;             /* maximum number of references of a rank */
    int32_t n_contexts;
    expect_row *rows; /* [n_rows] outputs after the comparison: the worst of all ranks and contexts */
    int32_t n_rows, n_differing;
} onnx_expect;

/* Whether there is anything to compare. */
bool onnx_expects(const settings *all);
/* Reads the references of the job's outputs. Names, types and dims must match as far as the network knows them. Every
 * rank reads for itself. Collective, also without references. */
trm_status onnx_expect_open(onnx_expect *e, const onnx_job *j);
/* After a run: checks that on all ranks the outputs have the dims of their references. Collective. */
trm_status onnx_expect_fits(const onnx_expect *e, const onnx_job *j, trm_context *const *contexts, int32_t n,
                            bool *fits);
/* Compares the outputs of the last run of every context with the references. Collective. */
trm_status onnx_expect_compare(onnx_expect *e, const onnx_job *j, trm_context *const *contexts, int32_t n);
/* Prints the result as a table, or as members of an object; nothing without references. */
void onnx_expect_print(const onnx_expect *e, const settings *all);
void onnx_expect_report(const onnx_expect *e, report *r);
/* Whether all outputs match; if not, rank 0 (`is_leader`) names the first that differs on stderr. Call it before
 * job_close: if a rank exits earlier, the launcher kills the others. */
bool onnx_expect_conclude(const onnx_expect *e, bool is_leader);
void onnx_expect_close(onnx_expect *e);

#endif
