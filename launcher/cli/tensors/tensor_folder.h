/*
 * Tensors of a run in a folder: for each rank a folder rank-R with one .npy file per tensor, in the order in which they
 * were made, and tensors.json, which says what each of them is. The last file to be written is tensors.json, so a run
 * that failed leaves none.
 */
#ifndef TRM_LAUNCHER_CLI_TENSOR_FOLDER_H
#define TRM_LAUNCHER_CLI_TENSOR_FOLDER_H

#include <trireme/trireme.h>

#include "base/json.h"
#include "base/map.h"
#include "launcher/cli/tensors/tensor_error.h"

/* ---- writing ------------------------------------------------------------------------------------------- */

typedef struct tensor_writer {
    char *path; /* of the rank's folder */
    FILE *file; /* tensors.json under another name */
    report report;
    int32_t n;
    trm_map passes;    /* names of tensors, to how often they came: those of loops come in every pass */
    trm_status status; /* of the first failure; nothing is written after it */
    char cause[512];
} tensor_writer;

typedef struct tensor_run {
    const char *model;
    trm_backend backend;
    trm_mesh mesh;
    int32_t rank, n_ranks;
} tensor_run;

/* Makes the folder of a rank, in `folder`, which is made too. */
trm_status tensor_writer_open(tensor_writer *w, const char *folder, const tensor_run *run);
/* Keeps one tensor; a trm_debug_fn. One that comes again is "NAME (pass 2)" and so on. Names live until the end. */
bool tensor_writer_add(void *writer, const trm_debug_tensor *tensor);
/* Ends the list if `finished`, and gives the first failure. Safe after a failed open. */
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
    bool knows_parts; /* its tensors say what they are of whole ones */
} tensor_folder;

/* Whether there is a run in the folder. */
bool tensor_folder_exists(const char *path);
trm_status tensor_folder_open(tensor_folder *folder, const char *path);
void tensor_folder_close(tensor_folder *folder);
/* A tensor of a rank by its name; NULL if it has none. */
const saved_tensor *tensor_folder_find(const tensor_folder *folder, int32_t rank, const char *name);
/* The whole tensor that a saved one stands for; NULL for what a pass made after the partition, which has no meaning on
 * another side. */
const char *tensor_folder_key(const tensor_folder *folder, const saved_tensor *tensor);
/* Ranks that begin a tp group, one for each pipeline stage of the first replica. */
bool tensor_folder_begins_group(const tensor_folder *folder, int32_t rank);
/* The form of a tensor that is closest to the whole one, and the rank that has it; NULL where there is none. */
const saved_tensor *tensor_folder_find_best(const tensor_folder *folder, const char *key, int32_t *rank);
/* A rank's tensor as it was. */
trm_status tensor_folder_read(const tensor_folder *folder, int32_t rank, const saved_tensor *tensor,
                              tensor_value *value);
/*
 * The whole tensor of which `tensor`, of the first rank of a tp group, is a part: parts are joined, summands added as
 * f64. *complete is false where a rank of the group has no such tensor.
 */
trm_status tensor_folder_join(const tensor_folder *folder, int32_t first, const saved_tensor *tensor,
                              tensor_value *value, bool *complete);

/* Removes a folder with all that is in it. */
void tensor_folder_remove(const char *path);

#endif
