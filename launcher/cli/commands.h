/*
 * The commands of the program.
 */
#ifndef TRM_LAUNCHER_CLI_COMMANDS_H
#define TRM_LAUNCHER_CLI_COMMANDS_H

#include "launcher/cli/settings/settings.h"

typedef struct command {
    const char *name;
    unsigned settings; /* the bit of the command, COMMAND_... */
    /* Runs the command with its one operand, or serve with one or more, and returns the exit code. */
    int (*run)(const settings *all);
    const char *summary;  /* NULL: hidden */
    const char *operand;  /* the expected operand, for errors */
    const char *usage;    /* beginning of its help */
    const char *examples; /* end of its help */
} command;

extern const command commands_table[];
extern const size_t commands_count;

int command_run(const settings *all);
int command_bench(const settings *all);
int command_build(const settings *all);
int command_refit(const settings *all);
int command_quantize(const settings *all);
int command_compare(const settings *all);
int command_inspect(const settings *all);
int command_serve(const settings *all);
int command_bench_serve(const settings *all);
int command_serve_worker(const settings *all);
int command_completion(const settings *all);

/* The version, the commit, and the CUDA and GPU architectures that the program was built with. */
void print_version(void);
extern const char build_commit[], build_cuda[]; /* no commit: not built in a repository */

#endif
