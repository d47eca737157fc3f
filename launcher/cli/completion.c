/* `trireme completion`: scripts for shells, and the OPTIONS section of the manual page, from the table of settings. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"

static void print_flags(unsigned mask)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if ((settings_table[id].commands & mask) != 0) {
            printf(" --%s", settings_table[id].name);
        }
    }
}

/* Shells complete single words: not "bench serve". */
static bool is_completed(const command *row)
{
    return row->summary != NULL && strchr(row->name, ' ') == NULL;
}

/* zsh uses the same function through bashcompinit. */
static void print_bash(void)
{
    printf(
        "_trireme() {\n    local word=${COMP_WORDS[COMP_CWORD]} words=\n    case ${COMP_CWORD}:${COMP_WORDS[1]} in\n");
    printf("    1:*) words=\"");
    for (size_t i = 0; i < commands_count; i++) {
        if (is_completed(&commands_table[i])) {
            printf("%s%s", i == 0 ? "" : " ", commands_table[i].name);
        }
    }
    printf("\" ;;\n");
    for (size_t i = 0; i < commands_count; i++) {
        if (!is_completed(&commands_table[i])) {
            continue;
        }
        printf("    *:%s) words=\"%s", commands_table[i].name,
               commands_table[i].run == command_completion ? "bash zsh fish" : "");
        print_flags(commands_table[i].settings);
        printf("\" ;;\n");
    }
    printf("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    if [ ${#COMPREPLY[@]} -eq 0 ]; then COMPREPLY=($(compgen -f -- \"$word\")); fi\n}\n"
           "complete -o filenames -F _trireme trireme\n");
}

static void print_fish(void)
{
    for (size_t i = 0; i < commands_count; i++) {
        if (!is_completed(&commands_table[i])) {
            continue;
        }
        printf("complete -c trireme -n __fish_use_subcommand -a %s\n", commands_table[i].name);
        for (int32_t id = 0; id < SETTING_COUNT; id++) {
            const setting *row = &settings_table[id];
            if ((row->commands & commands_table[i].settings) != 0) {
                printf("complete -c trireme -n '__fish_seen_subcommand_from %s' -l %s", commands_table[i].name,
                       row->name);
                if (row->letter != 0) {
                    printf(" -s %c", row->letter);
                }
                printf("%s -d \"%s\"\n", row->type == SETTING_TYPE_FLAG ? "" : " -r", row->help);
            }
        }
    }
}

int command_completion(const settings *all)
{
    const char *shell = all->operands[0];
    if (strcmp(shell, "bash") == 0) {
        print_bash();
    } else if (strcmp(shell, "zsh") == 0) {
        printf("autoload -U +X bashcompinit && bashcompinit\n");
        print_bash();
    } else if (strcmp(shell, "fish") == 0) {
        print_fish();
    } else if (strcmp(shell, "man") == 0) { /* for the build */
        settings_print_manual(stdout);
    } else {
        return print_failure_once(
            trm_fail(TRM_ERROR_INVALID_ARGUMENT, "unknown shell \"%s\", expected bash, zsh or fish", shell));
    }
    return 0;
}
