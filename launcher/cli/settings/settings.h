/*
 * Settings: one row of settings.def gives the option, the environment variable, the key of the settings file, the
 * default and the help. Order of precedence: option, environment, settings file, default.
 */
#ifndef TRM_LAUNCHER_CLI_SETTINGS_SETTINGS_H
#define TRM_LAUNCHER_CLI_SETTINGS_SETTINGS_H

#include <stdio.h>

#include <trireme/types.h>

/* Commands, as bits: the settings that a command takes are those with its bit. */
enum {
    COMMAND_RUN = 1 << 0,
    COMMAND_BENCH = 1 << 1,
    COMMAND_INSPECT = 1 << 2,
    COMMAND_COMPLETION = 1 << 3,
    COMMAND_BUILD = 1 << 4,
    COMMAND_SERVE = 1 << 5,
    COMMAND_SERVE_WORKER = 1 << 6, /* the ranks of serve; hidden: no text for users mentions it */
    COMMAND_BENCH_SERVE = 1 << 7,
    COMMAND_COMPARE = 1 << 8,
    COMMAND_REFIT = 1 << 9,
    COMMAND_QUANTIZE = 1 << 10,
    COMMAND_VISIBLE = COMMAND_RUN | COMMAND_BENCH | COMMAND_INSPECT | COMMAND_BUILD | COMMAND_SERVE |
                      COMMAND_BENCH_SERVE | COMMAND_COMPARE | COMMAND_REFIT |
                      COMMAND_QUANTIZE, /* those with settings of their own */
    COMMAND_ALL = COMMAND_VISIBLE | COMMAND_SERVE_WORKER,
};

typedef enum setting_id {
#define SETTING(id, ...) SETTING_##id,
#include "launcher/cli/settings/settings.def"
#undef SETTING
    SETTING_COUNT
} setting_id;

typedef enum setting_type {
    SETTING_TYPE_FLAG,
    SETTING_TYPE_INTEGER,
    SETTING_TYPE_INTEGERS, /* one integer; for compare a comma-separated list */
    SETTING_TYPE_NUMBER,
    SETTING_TYPE_TEXT,
    SETTING_TYPE_LIST /* an option that can be repeated */
} setting_type;

/* What a setting affects, for commands that take both models and networks. */
typedef enum setting_operand {
    SETTING_OPERAND_ANY,
    SETTING_OPERAND_MODEL,     /* language models */
    SETTING_OPERAND_NETWORK,   /* ONNX and plan files */
    SETTING_OPERAND_COMPARISON /* ONNX and plan files, and every operand of compare */
} setting_operand;

/* Rules that several commands check. */
enum {
    SETTING_TRAIT_PER_RANK = 1 << 0,  /* may differ between ranks */
    SETTING_TRAIT_PLANNED = 1 << 1,   /* inspect takes it only if it makes a plan */
    SETTING_TRAIT_STREAMING = 1 << 2, /* affects streamed weights only */
};

/* A row of settings.def. */
typedef struct setting {
    const char *name;
    char letter;
    setting_type type;
    unsigned commands;
    double min, max;
    const char *default_value;
    const char *argument;
    const char *group;
    setting_operand operand;
    unsigned traits;
    const char *help, *manual;
} setting;

extern const setting settings_table[SETTING_COUNT];

#define MAX_LIST     256
#define MAX_OPERANDS 16

typedef struct kept_string kept_string;

/* Values and their origins. Strings live until settings_fini, operands as long as argv. */
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

/* Reads options and operands from argv [argc], which begins after the command's name, then environment, settings file
 * and defaults, and checks every value. With --help it reads options only. Call settings_fini on failure too.
 * TRM_ERROR_INVALID_ARGUMENT names the origin of the wrong value. */
trm_status settings_load(settings *all, unsigned command, int argc, char **argv);
void settings_fini(settings *all);

/* Whether the value comes from the command line. */
bool settings_is_option(const settings *all, setting_id id);
bool settings_has_effect(const settings *all, setting_id id, bool on_network);
/* Refuses options that have no effect on the operand. The environment and the settings file may set them: they serve
 * all commands. */
trm_status settings_check_operand(const settings *all, bool is_network);

bool settings_flag(const settings *all, setting_id id);
int64_t settings_integer(const settings *all, setting_id id);
double settings_number(const settings *all, setting_id id);
const char *settings_text(const settings *all, setting_id id); /* NULL: not set */

/* Writes the options of a command for --help. */
void settings_print_help(FILE *out, unsigned command);
/* Writes the options of all visible commands as the OPTIONS section of the manual page (roff). */
void settings_print_manual(FILE *out);
/* Writes every setting of the command with its value and origin. */
void settings_print_origins(FILE *out, const settings *all, bool json);
/* The name of the command's setting that is closest to what was typed, for "did you mean"; NULL if none is close. */
const char *settings_nearest(const char *typed, unsigned command);
/* Number of single-character edits between a and b; INT32_MAX for long strings. */
int32_t edit_distance(const char *a, const char *b);

#endif
