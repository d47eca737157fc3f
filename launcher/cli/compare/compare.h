/*
 * What the parts of `trireme compare` share.
 *
 *   compare.c         the command: which runs there are; starts them where they are others than this process's
 *   compare_run.c     one run of this process, with every tensor into a folder
 *   compare_model.c   a language model in place of a network
 *   compare_folders.c two folders, or a folder and given files: what departs
 */
#ifndef TRM_LAUNCHER_CLI_COMPARE_H
#define TRM_LAUNCHER_CLI_COMPARE_H

#include "launcher/cli/onnx/expect.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/tensors/tensor_folder.h"

#define COMPARE_PATH_SIZE  4096
#define COMPARE_MOST_SIDES 8

/* What is compared with: a folder of a run, or files. */
typedef struct compare_reference {
    const char *title; /* "host", "cuda on 2 ranks", a folder */
    const tensor_folder *folder;
    const expected_list *files; /* where there is no folder */
} compare_reference;

/* Outcome of comparisons so far. */
typedef struct compare_result {
    int32_t compared, departed;
    char first[1024]; /* what departs first, and how; "" */
} compare_result;

/* Compares what is on both sides, in the order in which `found` was made, and prints it: as a table, or as an object of
 * an array of the report. */
trm_status compare_folders(const settings *all, const compare_reference *reference, const tensor_folder *found,
                           const char *title, report *r, compare_result *result);

/* Runs the network once as the settings say, in this process and its world, and leaves the tensors of all ranks in
 * `folder`; "" makes a temporary one, and its path there. *talks: whether this is rank 0. Returns the exit code. */
int compare_run(const settings *all, char folder[COMPARE_PATH_SIZE], bool *talks);

/* Opens a language model instead of a network: inputs are one prompt of --prompt-tokens. */
trm_status compare_open_model(onnx_job *j);

/* Makes a folder under TMPDIR. */
trm_status compare_temporary_folder(char folder[COMPARE_PATH_SIZE]);

#endif
