/*
 * What the parts of `trireme compare` share.
 *
 *   compare.c  the command: decides which runs there are and starts those in other processes
 *   run.c      one run in this process, which saves every tensor in a folder
 *   model.c    opens a language model in place of a network
 *   folders.c  compares two folders, or a folder and given files
 */
#ifndef TRM_LAUNCHER_CLI_COMPARE_H
#define TRM_LAUNCHER_CLI_COMPARE_H

#include "launcher/cli/onnx/expect.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/tensors/tensor_folder.h"

#define COMPARE_PATH_SIZE 4096
#define COMPARE_MAX_SIDES 8

/* The reference: a folder of a run, or files. */
typedef struct compare_reference {
    const char *title; /* "host", "cuda on 2 ranks", a folder */
    const tensor_folder *folder;
    const expected_list *files; /* if there is no folder */
} compare_reference;

/* The result of comparisons so far. */
typedef struct compare_result {
    int32_t compared, differing;
    char first[1024]; /* the first difference, or "" */
} compare_result;

/* Compares the tensors that both sides have, in the order in which `found` computed them, and prints a table, or an
 * object of the report's array. */
trm_status compare_folders(const settings *all, const compare_reference *reference, const tensor_folder *found,
                           const char *title, report *r, compare_result *result);

/* Runs the network once as the settings say, in this process and its world, and saves the tensors of all ranks in
 * `folder`; "" makes a temporary folder and returns its path. *is_leader: whether this is rank 0. Returns the exit
 * code. */
int compare_run(const settings *all, char folder[COMPARE_PATH_SIZE], bool *is_leader);

/* Opens a language model as a network whose inputs are one prompt of --prompt-tokens. */
trm_status compare_open_model(onnx_job *j);

/* Makes a folder under TMPDIR. */
trm_status compare_temporary_folder(char folder[COMPARE_PATH_SIZE]);

#endif
