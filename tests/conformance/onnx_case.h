/* One conformance case: build the model's network, run it on each data set, compare. */
#ifndef TESTS_CONFORMANCE_ONNX_CASE_H
#define TESTS_CONFORMANCE_ONNX_CASE_H

#include <trireme/trireme.h>

typedef enum conformance_outcome {
    CONFORMANCE_OK = 0,
    CONFORMANCE_FAILED,
    CONFORMANCE_UNSUPPORTED,
    CONFORMANCE_EXCLUDED
} conformance_outcome;

typedef struct conformance_result {
    conformance_outcome outcome;
    char text[400]; /* why; for OK, the tensors whose values were fixed when the network was built, if any */
} conformance_result;

typedef struct conformance_world conformance_world;

/* What cases run on: this process alone, or under mpirun all ranks, on which networks are partitioned over `mesh` (as
 * trm_mesh_parse reads it). False with the cause in `result`. */
bool conformance_open(trm_backend backend, const char *mesh, conformance_world **world, conformance_result *result);
int32_t conformance_rank(const conformance_world *world);
void conformance_close(conformance_world *world);

/* Runs the case in a folder. Collective; the result is that of all ranks. */
void conformance_run(conformance_world *world, const char *folder, conformance_result *result);

#endif
