/*
 * What the commands share for ONNX models and plan files: the network from the settings, the inputs, the engine.
 */
#ifndef TRM_LAUNCHER_CLI_ONNX_JOB_H
#define TRM_LAUNCHER_CLI_ONNX_JOB_H

#include <trireme/trireme.h>

#include "launcher/cli/job/job.h"

#define ONNX_MAX_ELEMENTS 32 /* of an input on the command line */

/* An input of the network: from a file, from the command line, or random. */
typedef struct onnx_input {
    trm_onnx_port port;
    trm_dims dims;                      /* with --min-shapes or --max-shapes: the usual dims */
    trm_dims min, max;                  /* build; n = -1: not given */
    trm_dims more[TRM_MAX_PROFILES][3]; /* build: usual, smallest and largest dims of profiles 1 and up */
    int32_t given[3], n_profiles;       /* build: number of times each was given; number of profiles */
    trm_dtype dtype;
    void *data;                            /* [dims]; NULL until it is read or generated */
    bool from_file;                        /* --input names a file for it */
    bool has_default;                      /* the model holds a value for it; only kept if another is given */
    double elements[3][ONNX_MAX_ELEMENTS]; /* usual, smallest and largest of --elements */
    int32_t n_elements[3];                 /* 0: not given */
    void *typed[3];                        /* the same in the input's type; `data` is the first of them */
    bool fixed;                            /* --value: it is a constant of the network */
} onnx_input;

typedef struct onnx_job {
    job job;
    const settings *all;
    trm_onnx *model;
    trm_network *network;     /* of an ONNX model */
    trm_plan *plan;           /* of a plan file, until the engine takes it over */
    const trm_network *shown; /* whichever of the two there is, to read outputs and layers from */
    onnx_input *inputs;       /* [n_inputs] in the order of the model */
    int32_t n_inputs;
    trm_onnx_fixed_value *values; /* [n_values] of --value */
    int32_t n_values;
    trm_onnx_port_type *types;     /* [of --io-type]; owns the names */
    trm_onnx_fixed_value **blocks; /* [n_blocks] that hold the tensors, to be freed with trm_free */
    int32_t n_blocks;
    trm_shape_bound *states; /* [n_states] bounds of states, besides those of inputs */
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

/* Whether an operand is an ONNX file, a plan file, either of them. */
bool names_onnx(const char *name);
bool names_plan(const char *name);
bool names_network(const char *name);
/* Calls settings_check_operand and job_check_options, and refuses options that do not affect this operand. */
trm_status check_operand(const settings *all);
/* Whether a setting affects the operand. An option that does not is refused. */
bool has_effect_on_operand(const settings *all, setting_id id);

/* Opens the model, or this rank's plan, and reads --input, --value, --shapes and --dim. `ranks`: size of the mesh. */
trm_status onnx_open(onnx_job *j, const char *path, int32_t ranks);
/* Builds the network with the dims of files and --shapes. A dim that is not given becomes 1, with a warning, or stays
 * dynamic if `open`. */
trm_status onnx_build(onnx_job *j, bool open);
/* Plans the network for one rank. */
trm_status onnx_plan(onnx_job *j, int32_t rank, trm_stage_fn on_stage, void *user, trm_plan **plan);
/* Applies --weight-budget to a plan and computes its memory. */
trm_status onnx_set_budget(onnx_job *j, trm_plan *plan);
/* Creates engine and context in the world of the job. Collective. */
trm_status onnx_load(onnx_job *j);
/* Fills inputs that no file gives with random numbers: floats in -1 .. 1, integers 0 or 1. The same on every rank. */
trm_status onnx_fill_inputs(onnx_job *j, uint64_t seed);
/* Passes the inputs to a context. */
trm_status onnx_set_inputs(onnx_job *j, trm_context *context);
/* Checks that --output names outputs; after a run of the job's context, writes the files of --output and --outputs. */
trm_status onnx_check_outputs(const onnx_job *j);
trm_status onnx_write_outputs(const onnx_job *j);
/* Fails because no output has the name of an option's "NAME=FILE", and lists the outputs. */
trm_status onnx_unknown_output(const onnx_job *j, const char *option, const char *text);
/* Tunes the context with the current inputs, as --opt-level and --timing-cache say, and enables capture. SIGINT ends
 * it: timings are kept, and the process ends by the signal. Collective. */
trm_status onnx_tune(onnx_job *j);
/* The same for the plans of all ranks, before there are engines. The tactics are saved in the plans. */
trm_status onnx_tune_plans(onnx_job *j, trm_plan *const *plans);
/* Frees everything except the world, which job_close() closes. */
void onnx_close(onnx_job *j);

/* Reads a .npy or .pb file, or raw elements (.bin, .raw, .dat) that have the port's type and dims, into a block, to be
 * freed with trm_free. In files.c, like the next one. */
trm_status onnx_read_file(const char *file, const trm_onnx_port *port, trm_onnx_fixed_value **values, int32_t *n);
/* Writes a .npy file, or raw elements where the name ends so. */
trm_status onnx_write_file(const char *file, trm_dtype dtype, const trm_dims *dims, const void *data);
/* The input of an option; the error lists the inputs. */
trm_status onnx_find_input(onnx_job *j, const char *option, const char *name, size_t length, onnx_input **input);
/* Parses "batch=4" of --dim into dims and names, which have room for all. In dims.c, like the next one. */
trm_status onnx_named_dims(const onnx_job *j, trm_onnx_named_dim *dims, char (*names)[64], int32_t *n);
/* The dims of an input that are not given: the declared ones, those of --dim, those of another input's dimension of the
 * same name, in every profile, or 1, with a warning. */
void onnx_settle_dims(const onnx_job *j, onnx_input *input, const trm_onnx_named_dim *dims, int32_t n_dims);
/* The dims of a plan's input that are not given, if another input has a dimension of the same name. */
void onnx_follow_names(const onnx_job *j, onnx_input *input);
/* Parses "NAME:2x3,OTHER:5" of --elements, --min-elements or --max-elements; the second call completes them all. In
 * elements.c. */
trm_status onnx_read_elements(onnx_job *j, setting_id id, const char *text);
trm_status onnx_settle_elements(onnx_input *input);
/* "FOLDER/input_0.pb" or .npy, whichever exists; `what` is "input". */
bool onnx_find_numbered(const char *folder, const char *what, int32_t index, char *path, size_t size);
/* Writes "1x3x224x224" into text [size]; "scalar" without dimensions. */
void onnx_dims_text(const trm_dims *dims, char *text, size_t size);
/* The part of "name=value" after the first '=' if the name is this one; otherwise NULL. */
const char *onnx_assigned(const char *assignment, const char *name);

int onnx_run_command(const settings *all);
int onnx_bench_command(const settings *all);
trm_status onnx_inspect(const settings *all, const char *path);

/* ---- plan files, in plan_job.c ---- */

/* The plan of a rank, with --weights. */
trm_status plan_load(const settings *all, const char *path, int32_t rank, trm_plan **plan);
/* Loads this rank's plan and takes inputs, mesh and backend from it. */
trm_status plan_open(onnx_job *j, const char *path);
/* Refuses a --mesh that is not the plan's. `ranks`: the size of the mesh. */
trm_status plan_check_mesh(const settings *all, const trm_plan_info *info, int32_t ranks);
/* The dims of an input that are not given: the usual ones of the plan's first profile. Refuses dims that differ from
 * fixed ones. */
trm_status plan_settle_dims(onnx_job *j, int32_t index);
/* The elements that the plan was built for, for an input that determines dims; NULL if there are none for its dims. */
const void *plan_values(const onnx_job *j, const onnx_input *input);
/* plan_inspect.c */
trm_status plan_inspect(const settings *all, const char *path);

#endif
