/*
 * References of outputs (--expect, --against): read before a network runs, compared with what it made.
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
    trm_dtype dtype;             /* what it was computed in: sums of several ranks are f64 */
    trm_onnx_fixed_value *block; /* that holds the value's data, to trm_free(); NULL: the data is its own */
} expected_tensor;

typedef struct expected_list {
    expected_tensor *items; /* [n] */
    int32_t n;
} expected_list;

/* Adds what a .npy or .pb file has; in place of what the name had before. */
trm_status expected_add_file(expected_list *list, const char *name, const char *file);
/* The same of FOLDER/output_I.pb or .npy, if there is one and the name has nothing yet. */
trm_status expected_add_numbered(expected_list *list, const char *name, const char *folder, int32_t index);
/* NULL where there is none. */
const expected_tensor *expected_find(const expected_list *list, const char *name);
void expected_fini(expected_list *list);

/* ---- outputs of `run` and `bench` ---------------------------------------------------------------------- */

typedef struct expect_row expect_row;

typedef struct onnx_expect {
    expected_list references; /* of this rank */
    trm_dtype coarsest;       /* of the floats in the networks of all ranks */
    int32_t most;             /* references that a rank has, at most */
    int32_t n_contexts;
    expect_row *rows; /* [n_rows] outputs, when they are compared: the worst of all ranks and contexts */
    int32_t n_rows, n_departed;
} onnx_expect;

/* Whether there is anything to compare with. */
bool onnx_expects(const settings *all);
/* Reads the references of the job's outputs, whose names, types and dims must fit as far as the network tells them.
 * Every rank reads for itself. Collective, also where nothing is expected. */
trm_status onnx_expect_open(onnx_expect *e, const onnx_job *j);
/* After a run: whether on all ranks the outputs have the dims of their references. Collective. */
trm_status onnx_expect_fits(const onnx_expect *e, const onnx_job *j, trm_context *const *contexts, int32_t n,
                            bool *fits);
/* Compares the outputs of the last run of every context with the references. Collective. */
trm_status onnx_expect_compare(onnx_expect *e, const onnx_job *j, trm_context *const *contexts, int32_t n);
/* What came of it, as a table or as members of an object; nothing where nothing is expected. */
void onnx_expect_print(const onnx_expect *e, const settings *all);
void onnx_expect_report(const onnx_expect *e, report *r);
/* Whether all hold; where not, rank 0, which `talks`, names the first on stderr. Before job_close: a rank that returns
 * the code of a failure sooner would have the others ended by their launcher. */
bool onnx_expect_conclude(const onnx_expect *e, bool talks);
void onnx_expect_close(onnx_expect *e);

#endif
