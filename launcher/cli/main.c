/* The program: picks the command, sends the library's log to stderr. */
#include <errno.h>
#include <string.h>

#include <trireme/trireme.h>

#include "launcher/cli/commands.h"
#include "launcher/cli/job.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", command_run, "continue text with a model, on one rank or, under mpirun, on many"},
    {"bench", command_bench, "measure tokens per second and where the time goes"},
    {"inspect", command_inspect, "show a model, its networks and memory, the system, the settings"},
    {"completion", command_completion, "print a completion script for bash, zsh or fish"},
};

static void print_help(FILE *out)
{
    fprintf(out, "Trireme runs large models over many GPUs: one process and one engine per GPU.\n\n"
                 "usage: trireme COMMAND [options]\n       mpirun -np N trireme COMMAND [options]\n\nCommands:\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(out, "\ntrireme COMMAND --help lists the options of a command.\n"
                 "Exit codes: 0 ok, 1 failure, 2 usage, 3 bad model or config, 4 no device or driver, 5 out of memory, "
                 "6 lost rank.\n");
}

/* What the command printed is worth nothing if it did not arrive. */
static int flush_output(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0) {
        fprintf(stderr, "trireme: cannot write to stdout: %s\n", strerror(errno));
        return trm_status_exit_code(TRM_ERROR_IO);
    }
    return code;
}

static int run_command(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("trireme %s\n", trm_version());
        return 0;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return 0;
    }
    const char *nearest = NULL;
    int32_t least = 3;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argc - 2, argv + 2);
        }
        int32_t distance = edit_distance(name, commands[i].name);
        if (distance < least) {
            least = distance;
            nearest = commands[i].name;
        }
    }
    if (*name == '\0') {
        print_help(stderr);
    } else if (nearest != NULL) {
        fprintf(stderr, "trireme: unknown command %s, did you mean %s\n", name, nearest);
    } else {
        fprintf(stderr, "trireme: unknown command %s, trireme --help lists them\n", name);
    }
    return trm_status_exit_code(TRM_ERROR_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    send_log_to_stderr(false);
    return flush_output(run_command(argc, argv));
}
