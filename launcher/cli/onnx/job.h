/*
 * What the commands share for ONNX models and plan files: the network from the settings, the inputs, the engine.
 */
#ifndef TRM_LAUNCHER_CLI_ONNX_JOB_H
#define TRM_LAUNCHER_CLI_ONNX_JOB_H

#include <trireme/trireme.h>

#include "launcher/cli/job/job.h"

#define ONNX_MOST_ELEMENTS 32 /* of an input on the command line */

/* An input of the network: from a file, from the command line, or random. */
typedef struct onnx_input {
    trm_onnx_port port;
    trm_dims dims;                      /* with --min-shapes or --max-shapes: the usual ones */
    trm_dims min, max;                  /* build; n -1: not given */
    trm_dims more[TRM_MAX_PROFILES][3]; /* build: usual, smallest and largest dims of profiles from 1 on */
    int32_t given[3], n_profiles;       /* build: how often each was given; profiles that says */
    trm_dtype dtype;
    void *data;                             /* [dims]; NULL until it is read or made */
    bool from_file;                         /* --input names a file for it */
    double elements[3][ONNX_MOST_ELEMENTS]; /* usual, least and most of --elements */
    int32_t n_elements[3];                  /* 0: not given */
    void *typed[3];                         /* the same in the input's type; `data` is the first of them */
    bool fixed;                             /* --value: it is a constant of the network */
} onnx_input;

typedef struct onnx_job {
    job job;
    const settings *all;
    trm_onnx *model;
    trm_network *network;     /* of an ONNX model */
    trm_plan *plan;           /* of a plan file, until the engine takes it over */
    const trm_network *shown; /* the one of the two there is, to tell outputs and layers from */
    onnx_input *inputs;       /* [n_inputs] in the order of the model */
    int32_t n_inputs;
    trm_onnx_fixed_value *values; /* [n_values] of --value */
    int32_t n_values;
    trm_onnx_port_type *types;     /* [of --io-type], with names that are theirs */
    trm_onnx_fixed_value **blocks; /* [n_blocks] that hold them, to trm_free() */
    int32_t n_blocks;
    trm_shape_bound *states; /* [n_states] bounds besides those of inputs */
    int32_t n_states;
    trm_mesh mesh;
    int32_t n_ranks;
    trm_backend backend;
    trm_engine *engine;
    trm_context *context;
    int32_t n_tactics;                                  /* of a plan file, in use */
    double import_seconds, build_seconds, tune_seconds; /* build: passes, partition and loading */
    trm_memory_plan memory;
    trm_streaming_info streaming;
} onnx_job;

/* Whether an operand names an ONNX file, a plan file, one of the two. */
bool names_onnx(const char *name);
bool names_plan(const char *name);
bool names_network(const char *name);
/* settings_check_operand, job_check_options, and of options that have an effect on some operands of a kind only. */
trm_status check_operand(const settings *all);
/* Whether a setting has an effect on the operand: as an option it is refused otherwise. */
bool has_effect_on_operand(const settings *all, setting_id id);

/* Opens the model, or the plan file of this rank, and reads --input, --value, --shapes and --dim. `ranks`: of the mesh.
 */
trm_status onnx_open(onnx_job *j, const char *path, int32_t ranks);
/* Builds the network: dims of inputs are those of files and --shapes; one that nobody gives is 1, with a warning, or
 * stays unknown where `open` allows it. */
trm_status onnx_build(onnx_job *j, bool open);
/* Plans the network for one rank. */
trm_status onnx_plan(onnx_job *j, int32_t rank, trm_stage_fn on_stage, void *user, trm_plan **plan);
/* Applies --weight-budget to a plan, and takes what it needs of memory. */
trm_status onnx_set_budget(onnx_job *j, trm_plan *plan);
/* Makes engine and context in the world of the job. Collective. */
trm_status onnx_load(onnx_job *j);
/* Fills inputs that no file gives with random numbers: floats in -1 .. 1, integers 0 or 1. The same on every rank. */
trm_status onnx_fill_inputs(onnx_job *j, uint64_t seed);
/* Hands the inputs to a context. */
trm_status onnx_set_inputs(onnx_job *j, trm_context *context);
/* Whether --output names outputs, and writes the files of --output and --outputs after a run of the job's context. */
trm_status onnx_check_outputs(const onnx_job *j);
trm_status onnx_write_outputs(const onnx_job *j);
/* That an option's "NAME=FILE" has no output's name; lists those there are. */
trm_status onnx_unknown_output(const onnx_job *j, const char *option, const char *text);
/* Tunes the context on the inputs that are set, as --opt-level and --timing-cache say, and switches capture on. SIGINT
 * ends it: what was timed is kept, and the process ends by that signal. Collective. */
trm_status onnx_tune(onnx_job *j);
/* The same for the plans of all ranks, before there are engines: what is chosen is saved with them. */
trm_status onnx_tune_plans(onnx_job *j, trm_plan *const *plans);
/* Frees all but the world, which job_close() closes. */
void onnx_close(onnx_job *j);

/* Reads a .npy or .pb file as blocks that trm_free() takes; `type` is that of a port, "" for a tensor. */
trm_status onnx_read_file(const char *file, const char *type, trm_onnx_fixed_value **values, int32_t *n);
/* The input that an option is about; an error that lists those there are. */
trm_status onnx_find_input(onnx_job *j, const char *option, const char *name, size_t length, onnx_input **input);
/* "batch=4" of --dim into dims and names, of which there is room for all. dims.c, as is the next */
trm_status onnx_named_dims(const onnx_job *j, trm_onnx_named_dim *dims, char (*names)[64], int32_t *n);
/* Dims that an input has in this job where nobody gave them: declared, of --dim, those of a dimension of the same name
 * of another input, in every profile, or 1, with a warning. */
void onnx_settle_dims(const onnx_job *j, onnx_input *input, const trm_onnx_named_dim *dims, int32_t n_dims);
/* Dims of a plan's input that nobody gave, where another input that has some has a dimension of the same name. */
void onnx_follow_names(const onnx_job *j, onnx_input *input);
/* Reads "NAME:2x3,OTHER:5" of --elements or its least and most; settles what was read, when all is. onnx_elements.c */
trm_status onnx_read_elements(onnx_job *j, setting_id id, const char *text);
trm_status onnx_settle_elements(onnx_input *input);
/* "FOLDER/input_0.pb" or .npy of `what` "input", whichever there is. */
bool onnx_find_numbered(const char *folder, const char *what, int32_t index, char *path, size_t size);
/* "1x3x224x224" into text [size]; "scalar" for no dimensions. */
void onnx_dims_text(const trm_dims *dims, char *text, size_t size);
/* The part of "name=value" behind the first '=' if the name is this one, else NULL. */
const char *onnx_assigned(const char *assignment, const char *name);

int onnx_run_command(const settings *all);
int onnx_bench_command(const settings *all);
trm_status onnx_inspect(const settings *all, const char *path);

/* ---- plan files, in plan_job.c ---- */

/* The plan of a rank, with --weights. */
trm_status plan_load(const settings *all, const char *path, int32_t rank, trm_plan **plan);
/* Loads this rank's plan and takes inputs, mesh and backend from it. */
trm_status plan_open(onnx_job *j, const char *path);
/* Refuses another --mesh than the plan's. `ranks`: that it is to be a mesh of. */
trm_status plan_check_mesh(const settings *all, const trm_plan_info *info, int32_t ranks);
/* Dims of an input that nobody gave: the usual ones of the plan's first profile. Given ones are refused where the plan
 * fixes others. */
trm_status plan_settle_dims(onnx_job *j, int32_t index);
/* Values that the plan was built for, for an input that decides dims; NULL if there are none for its dims. */
const void *plan_values(const onnx_job *j, const onnx_input *input);
/* plan_inspect.c */
trm_status plan_inspect(const settings *all, const char *path);

#endif
