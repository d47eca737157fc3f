/*
 * The commands of the program.
 */
#ifndef TRM_LAUNCHER_CLI_COMMANDS_H
#define TRM_LAUNCHER_CLI_COMMANDS_H

#include "launcher/cli/settings/settings.h"

typedef struct command {
    const char *name;
    unsigned settings; /* which rows of the table it takes, COMMAND_... */
    /* Does the work and returns the exit code. There is one operand. */
    int (*run)(const settings *all);
    const char *summary;  /* NULL: started by the program itself, and not listed */
    const char *operand;  /* what its operand is, for the error when there is none */
    const char *usage;    /* first part of its help */
    const char *examples; /* last part */
} command;

extern const command commands_table[];
extern const size_t commands_count;

int command_run(const settings *all);
int command_bench(const settings *all);
int command_build(const settings *all);
int command_refit(const settings *all);
int command_compare(const settings *all);
int command_inspect(const settings *all);
int command_serve(const settings *all);
int command_bench_serve(const settings *all);
int command_serve_worker(const settings *all);
int command_completion(const settings *all);

#endif
