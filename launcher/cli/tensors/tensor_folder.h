/*
 * Tensors of a run in a folder. Each rank has a folder rank-R with one .npy file per tensor, in order of computation,
 * and tensors.json, which describes them. tensors.json is written last, so a run that failed leaves none.
 */
#ifndef TRM_LAUNCHER_CLI_TENSOR_FOLDER_H
#define TRM_LAUNCHER_CLI_TENSOR_FOLDER_H

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/json.h"
#include "base/map.h"
#include "launcher/cli/tensors/tensor_error.h"

/* ---- writing ------------------------------------------------------------------------------------------- */

typedef struct tensor_writer {
    char *path; /* of the rank's folder */
    FILE *file; /* tensors.json under its temporary name */
    report report;
    int32_t n;
    trm_map passes;         /* names of tensors and how often they came: those in loops come in every pass */
    trm_held_error failure; /* the first; nothing is written after it */
} tensor_writer;

typedef struct tensor_run {
    const char *model;
    trm_backend backend;
    trm_mesh mesh;
    int32_t rank, n_ranks;
} tensor_run;

/* Makes the folder of a rank, in `folder`, which is made too. */
trm_status tensor_writer_open(tensor_writer *w, const char *folder, const tensor_run *run);
/* Saves one tensor; a trm_debug_fn. A tensor that comes again is named "NAME (pass 2)" and so on. Names live until the
 * end. */
bool tensor_writer_add(void *writer, const trm_debug_tensor *tensor);
/* Completes the list if `finished`, and returns the first failure. Safe after a failed open. */
trm_status tensor_writer_close(tensor_writer *w, bool finished);

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct saved_tensor {
    const char *name, *layer, *kind, *kernel, *file;
    trm_dtype dtype;
    trm_dims dims;
    trm_tensor_part part;
} saved_tensor;

typedef struct saved_rank {
    char *path;
    trm_json_document *document;
    saved_tensor *tensors; /* [n] */
    int32_t n;
} saved_rank;

typedef struct tensor_folder {
    const char *path; /* the caller's */
    char backend[16];
    trm_mesh mesh;
    int32_t n_ranks;
    saved_rank ranks[TRM_MAX_RANKS];
    bool knows_parts; /* its tensors say which parts of whole ones they are */
} tensor_folder;

/* Whether the folder has a completed run. */
bool tensor_folder_exists(const char *path);
trm_status tensor_folder_open(tensor_folder *folder, const char *path);
void tensor_folder_close(tensor_folder *folder);
/* The tensor of a rank by name; NULL if it has none. */
const saved_tensor *tensor_folder_find(const tensor_folder *folder, int32_t rank, const char *name);
/* The whole tensor that a saved one stands for; NULL for a tensor made by a pass after the partition, which has no
 * counterpart. */
const char *tensor_folder_key(const tensor_folder *folder, const saved_tensor *tensor);
/* The first ranks of tp groups, one for each pipeline stage of the first replica. */
bool tensor_folder_begins_group(const tensor_folder *folder, int32_t rank);
/* The form of a tensor closest to the whole one, and the rank that has it; NULL if there is none. */
const saved_tensor *tensor_folder_find_best(const tensor_folder *folder, const char *key, int32_t *rank);
/* Reads a rank's tensor as it was saved. */
trm_status tensor_folder_read(const tensor_folder *folder, int32_t rank, const saved_tensor *tensor,
                              tensor_value *value);
/*
 * Reads the whole tensor of which `tensor`, of the first rank of a tp group, is a part: parts are joined, summands
 * added as f64. *complete is false if a rank of the group has no such tensor.
 */
trm_status tensor_folder_join(const tensor_folder *folder, int32_t first, const saved_tensor *tensor,
                              tensor_value *value, bool *complete);

/* Removes a folder and its contents. */
void tensor_folder_remove(const char *path);

#endif
