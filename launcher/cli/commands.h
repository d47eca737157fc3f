/*
 * The commands of the program. Each gets its arguments after its name and returns the exit code.
 */
#ifndef TRM_LAUNCHER_CLI_COMMANDS_H
#define TRM_LAUNCHER_CLI_COMMANDS_H

int command_run(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_completion(int argc, char **argv);

#endif
