/*
 * Settings of the command line: one table row gives the flag, the environment variable, the config key, the default and
 * the help line. Order: flag, environment, config file, default.
 */
#ifndef TRM_LAUNCHER_CLI_SETTINGS_SETTINGS_H
#define TRM_LAUNCHER_CLI_SETTINGS_SETTINGS_H

#include <stdio.h>

#include <trireme/types.h>

/* The commands a setting belongs to. */
enum {
    COMMAND_RUN = 1 << 0,
    COMMAND_BENCH = 1 << 1,
    COMMAND_INSPECT = 1 << 2,
    COMMAND_COMPLETION = 1 << 3,
    COMMAND_BUILD = 1 << 4,
    COMMAND_SERVE = 1 << 5,
    COMMAND_SERVE_WORKER = 1 << 6, /* the ranks of serve */
    COMMAND_BENCH_SERVE = 1 << 7,
    COMMAND_COMPARE = 1 << 8,
    COMMAND_REFIT = 1 << 9,
    COMMAND_ALL = COMMAND_RUN | COMMAND_BENCH | COMMAND_INSPECT | COMMAND_BUILD | COMMAND_SERVE | COMMAND_SERVE_WORKER |
                  COMMAND_BENCH_SERVE | COMMAND_COMPARE | COMMAND_REFIT,
};

/* One entry per row of the table in settings_table.c, in the same order. */
typedef enum setting_id {
    SETTING_PROMPT,
    SETTING_FILE,
    SETTING_INTERACTIVE,
    SETTING_ECHO,
    SETTING_CHAT,
    SETTING_SYSTEM,
    SETTING_CHAT_TEMPLATE,
    SETTING_MAX_TOKENS,
    SETTING_STOP,
    SETTING_IGNORE_EOS,
    SETTING_TEMPERATURE,
    SETTING_TOP_K,
    SETTING_TOP_P,
    SETTING_MIN_P,
    SETTING_REPETITION_PENALTY,
    SETTING_SEED,
    SETTING_PROMPT_TOKENS,
    SETTING_TOKENS,
    SETTING_BATCH,
    SETTING_REPEAT,
    SETTING_LAYERS,
    SETTING_PROFILE,
    SETTING_AFTER,
    SETTING_RANK,
    SETTING_RANKS,
    SETTING_MEMORY_PLAN,
    SETTING_INPUT,
    SETTING_INPUTS,
    SETTING_OUTPUT,
    SETTING_OUTPUTS,
    SETTING_SHAPES,
    SETTING_MIN_SHAPES,
    SETTING_MAX_SHAPES,
    SETTING_ELEMENTS,
    SETTING_MIN_ELEMENTS,
    SETTING_MAX_ELEMENTS,
    SETTING_VALUE,
    SETTING_DIM,
    SETTING_MARK,
    SETTING_MAX_TRIPS,
    SETTING_IO_TYPE,
    SETTING_OUT,
    SETTING_EMBED_WEIGHTS,
    SETTING_STRIP_WEIGHTS,
    SETTING_REFITTABLE,
    SETTING_WEIGHTS,
    SETTING_ITERATIONS,
    SETTING_DURATION,
    SETTING_WARM_UP,
    SETTING_STREAMS,
    SETTING_TRANSFERS,
    SETTING_IDLE,
    SETTING_STREAM_THREADS,
    SETTING_PERCENTILES,
    SETTING_EXPORT_TIMES,
    SETTING_EXPORT_PROFILE,
    SETTING_EXPORT_LAYERS,
    SETTING_SAVE,
    SETTING_AGAINST,
    SETTING_EXPECT,
    SETTING_ATOL,
    SETTING_RTOL,
    SETTING_LIMIT,
    SETTING_EVERY_LAYER,
    SETTING_REQUESTS,
    SETTING_CONCURRENCY,
    SETTING_RATE,
    SETTING_SPREAD,
    SETTING_IDS_BELOW,
    SETTING_GOAL_FIRST,
    SETTING_GOAL_TOKEN,
    SETTING_API_KEY,
    SETTING_TLS_AUTHORITIES,
    SETTING_HTML,
    SETTING_HOST,
    SETTING_PORT,
    SETTING_SERVED_NAME,
    SETTING_API_KEYS,
    SETTING_CORS_ORIGIN,
    SETTING_TLS_CERTIFICATE,
    SETTING_TLS_KEY,
    SETTING_MAX_REQUESTS,
    SETTING_MAX_CONNECTIONS,
    SETTING_MAX_BODY,
    SETTING_BODY_TIMEOUT,
    SETTING_REQUEST_TIMEOUT,
    SETTING_KEEP_ALIVE,
    SETTING_SLEEP_MODE,
    SETTING_DRAIN_TIMEOUT,
    SETTING_REPLICAS,
    SETTING_REPLICA,
    SETTING_HEARTBEAT_TIMEOUT,
    SETTING_STEP_TIMEOUT,
    SETTING_HTTP_THREADS,
    SETTING_NO_PREFIX_CACHE,
    SETTING_PREFILL_CHUNK,
    SETTING_CACHE_TOKENS,
    SETTING_MPIRUN,
    SETTING_BACKEND,
    SETTING_DEVICE,
    SETTING_MESH,
    SETTING_DTYPE,
    SETTING_KV_CACHE_DTYPE,
    SETTING_CONTEXT,
    SETTING_SEQUENCES,
    SETTING_STEP_TOKENS,
    SETTING_SPECULATE,
    SETTING_DRAFT,
    SETTING_BATCH_INVARIANT,
    SETTING_WEIGHT_BUDGET,
    SETTING_HOST_MEMORY,
    SETTING_WEIGHT_COMPRESSION,
    SETTING_WEIGHT_SHARING,
    SETTING_HOST_COMPUTE,
    SETTING_NO_TUNE,
    SETTING_OPT_LEVEL,
    SETTING_TIMING_CACHE,
    SETTING_TACTICS,
    SETTING_OPT_PROFILE,
    SETTING_ALLOW_OTHER_DEVICE,
    SETTING_MAX_AUX_STREAMS,
    SETTING_WORKSPACE,
    SETTING_TF32,
    SETTING_NO_CAPTURE,
    SETTING_THREADS,
    SETTING_DEADLINE,
    SETTING_CONFIG,
    SETTING_JSON,
    SETTING_QUIET,
    SETTING_VERBOSE,
    SETTING_HELP,
    SETTING_COUNT
} setting_id;

typedef enum setting_type {
    SETTING_FLAG,
    SETTING_INTEGER,
    SETTING_INTEGERS, /* as INTEGER, but for `compare` several with commas between them */
    SETTING_NUMBER,
    SETTING_TEXT,
    SETTING_LIST
} setting_type;

/* What a setting has an effect on, where a command takes both. */
typedef enum setting_operand {
    SETTING_ANY_OPERAND,
    SETTING_MODELS,     /* language models */
    SETTING_NETWORKS,   /* ONNX and plan files */
    SETTING_COMPARISONS /* ONNX and plan files, and whatever `compare` takes */
} setting_operand;

typedef struct setting {
    const char *name; /* "max-tokens": --max-tokens, TRIREME_MAX_TOKENS, key max-tokens */
    char letter;      /* -n, or 0 */
    setting_type type;
    unsigned commands;
    double least, most;    /* of INTEGER and NUMBER */
    const char *otherwise; /* the default, as it would be typed; NULL: not set */
    const char *argument;  /* name of the value in help; NULL for flags */
    const char *group;
    const char *help;
    setting_operand operand;
} setting;

extern const setting settings_table[SETTING_COUNT];

#define MAX_LIST     256
#define MAX_OPERANDS 16

typedef struct kept_string kept_string;

/* The values in force and where each came from. Strings live until settings_fini, operands as long as argv. */
typedef struct settings {
    unsigned command;
    const char *values[SETTING_COUNT];  /* NULL: not set */
    const char *origins[SETTING_COUNT]; /* "default", "--max-tokens", "TRIREME_MAX_TOKENS", "<file>:<line>" */
    const char *lists[SETTING_COUNT][MAX_LIST];
    int32_t list_counts[SETTING_COUNT];
    const char *operands[MAX_OPERANDS];
    int32_t n_operands;
    kept_string *kept;
} settings;

/* Reads flags and operands of argv [argc] (after the command's name), then environment, config file and
 * defaults, and checks every value; with --help only the flags. TRM_ERROR_INVALID_ARGUMENT with the origin of what is
 * wrong; settings_fini then too. */
trm_status settings_load(settings *all, unsigned command, int argc, char **argv);
void settings_fini(settings *all);

/* Whether its value comes from the command line. */
bool settings_is_option(const settings *all, setting_id id);
bool settings_has_effect(const settings *all, setting_id id, bool on_network);
/* An option on the command line that has no effect on what the command was given is refused, not passed over; those of
 * the environment and the file are for all that comes. */
trm_status settings_check_operand(const settings *all, bool is_network);

bool settings_flag(const settings *all, setting_id id);
int64_t settings_integer(const settings *all, setting_id id);
double settings_number(const settings *all, setting_id id);
const char *settings_text(const settings *all, setting_id id); /* NULL: not set */

/* Options of a command with their defaults and variables. */
void settings_print_help(FILE *out, unsigned command);
/* Every setting, its value and where it came from. */
void settings_print_origins(FILE *out, const settings *all, bool json);
/* The name nearest to what was typed, among those of a command, for "did you mean"; NULL if none is near. */
const char *settings_nearest(const char *typed, unsigned command);
/* How many single-character edits lead from a to b. */
int32_t edit_distance(const char *a, const char *b);

#endif
