/* Reads settings from their four sources, and prints help, manual and origins. */
#include "launcher/cli/settings/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "launcher/cli/job/report.h"

#define CONFIG_LIMIT ((size_t)1 << 20)

bool settings_is_option(const settings *all, setting_id id)
{
    return all->origins[id] != NULL && strncmp(all->origins[id], "--", 2) == 0;
}

bool settings_has_effect(const settings *all, setting_id id, bool on_network)
{
    setting_operand operand = settings_table[id].operand;
    if (operand == SETTING_OPERAND_COMPARISON) {
        return on_network || all->command == COMMAND_COMPARE;
    }
    return operand == SETTING_OPERAND_ANY || (operand == SETTING_OPERAND_NETWORK) == on_network;
}

trm_status settings_check_operand(const settings *all, bool is_network)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if (settings_is_option(all, (setting_id)id) && !settings_has_effect(all, (setting_id)id, is_network)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s is for %s, %s is %s", all->origins[id],
                     is_network ? "language models" : "ONNX and plan files", all->operands[0],
                     is_network ? "a network" : "a language model");
        }
    }
    return TRM_OK;
}

struct kept_string {
    kept_string *next;
    char text[];
};

/* "TRIREME_MAX_TOKENS" for "max-tokens". */
static void variable_name(const char *name, char *variable, size_t size)
{
    int used = snprintf(variable, size, "TRIREME_%s", name);
    for (char *c = variable; used > 0 && *c != '\0'; c++) {
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    }
}

/* A copy that lives as long as the settings; NULL when out of memory. */
static char *keep(settings *all, const char *text)
{
    size_t size = strlen(text) + 1;
    kept_string *kept = malloc(sizeof(*kept) + size);
    if (kept == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a setting");
        return NULL;
    }
    memcpy(kept->text, text, size);
    kept->next = all->kept;
    all->kept = kept;
    return kept->text;
}

void settings_fini(settings *all)
{
    while (all->kept != NULL) {
        kept_string *kept = all->kept;
        all->kept = kept->next;
        free(kept);
    }
}

static trm_status assign(settings *all, setting_id id, const char *value, const char *origin)
{
    char *kept = keep(all, value);
    if (kept == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (settings_table[id].type == SETTING_TYPE_LIST) {
        if (all->list_counts[id] >= MAX_LIST) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is repeated more than %d times", origin, MAX_LIST);
        }
        all->lists[id][all->list_counts[id]++] = kept;
    }
    all->values[id] = kept;
    all->origins[id] = origin;
    return TRM_OK;
}

int32_t edit_distance(const char *a, const char *b)
{
    int32_t row[128];
    int32_t n = (int32_t)strlen(b);
    if (n >= 127 || strlen(a) >= 127) {
        return INT32_MAX;
    }
    for (int32_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (int32_t i = 1; a[i - 1] != '\0'; i++) {
        int32_t diagonal = row[0];
        row[0] = i;
        for (int32_t j = 1; j <= n; j++) {
            int32_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[n];
}

/* A prefix of a name is closest; otherwise up to a third of the characters may differ. */
const char *settings_nearest(const char *typed, unsigned command)
{
    const char *nearest = NULL;
    size_t length = strlen(typed);
    int32_t least = length < 3 ? 1 : length < 6 ? 2 : length < 9 ? 3 : 4;
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        bool begins = length >= 3 && strncmp(typed, settings_table[i].name, length) == 0;
        int32_t distance = begins ? 0 : edit_distance(typed, settings_table[i].name);
        if ((settings_table[i].commands & command) != 0 && distance < least) {
            least = distance;
            nearest = settings_table[i].name;
        }
    }
    return nearest;
}

static int32_t find_by_name(const char *name, size_t length, unsigned command)
{
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        const setting *row = &settings_table[i];
        if ((row->commands & command) != 0 && strlen(row->name) == length && memcmp(row->name, name, length) == 0) {
            return i;
        }
    }
    return -1;
}

static int32_t find_by_letter(char letter, unsigned command)
{
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        if ((settings_table[i].commands & command) != 0 && settings_table[i].letter == letter) {
            return i;
        }
    }
    return -1;
}

static const struct {
    unsigned command;
    const char *name;
} visible_commands[] = {{COMMAND_RUN, "run"},         {COMMAND_BENCH, "bench"}, {COMMAND_BENCH_SERVE, "bench serve"},
                        {COMMAND_INSPECT, "inspect"}, {COMMAND_BUILD, "build"}, {COMMAND_REFIT, "refit"},
                        {COMMAND_COMPARE, "compare"}, {COMMAND_SERVE, "serve"}, {COMMAND_QUANTIZE, "quantize"}};

/* "run, bench": the visible ones of the commands. */
static void list_commands(unsigned commands, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(visible_commands) / sizeof(visible_commands[0]); i++) {
        if ((commands & visible_commands[i].command) != 0 && used < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ", visible_commands[i].name);
        }
    }
}

/* Whether an option looks like one of trtexec's: two words written together, or one of these. */
static bool is_of_trtexec(const char *name)
{
    static const char *const short_names[] = {"onnx", "fp16", "bf16", "int8", "fp8", "int4", "best", "calib", "refit"};
    bool is = false;
    for (const char *at = name; *at != '\0'; at++) {
        is = is || (at > name && *at >= 'A' && *at <= 'Z');
    }
    for (size_t i = 0; i < sizeof(short_names) / sizeof(short_names[0]); i++) {
        is = is || strcmp(name, short_names[i]) == 0;
    }
    return is;
}

static trm_status unknown_option(const char *typed, const char *name, unsigned command)
{
    int32_t elsewhere = find_by_name(name, strlen(name), COMMAND_VISIBLE);
    if (elsewhere >= 0) {
        char here[32], owners[128];
        list_commands(command, here, sizeof(here));
        list_commands(settings_table[elsewhere].commands, owners, sizeof(owners));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s is for %s, not for %s", typed, owners,
                 here[0] == '\0' ? "this command" : here);
    }
    const char *nearest = settings_nearest(name, command);
    if (is_of_trtexec(name) && (command & ~(unsigned)(COMMAND_SERVE | COMMAND_BENCH_SERVE)) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "unknown option %s%s%s: docs/guides/trtexec.md lists what to use for each option of trtexec", typed,
                 nearest == NULL ? "" : ", did you mean --", nearest == NULL ? "" : nearest);
    }
    if (nearest != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "unknown option %s, did you mean --%s", typed, nearest);
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "unknown option %s, --help lists all options", typed);
}

/* Reads the option at argv[*at] and moves *at past it and its value. */
static trm_status read_option(settings *all, int argc, char **argv, int *at)
{
    const char *typed = argv[*at];
    const char *value = NULL;
    int32_t id;
    if (typed[1] == '-') {
        const char *name = typed + 2;
        size_t length = strcspn(name, "=");
        value = name[length] == '=' ? name + length + 1 : NULL;
        id = find_by_name(name, length, all->command);
        if (id < 0) {
            char only_name[128];
            snprintf(only_name, sizeof(only_name), "%.*s", (int)(length < 100 ? length : 100), name);
            return unknown_option(typed, only_name, all->command);
        }
    } else {
        id = find_by_letter(typed[1], all->command);
        if (id < 0) {
            return unknown_option(typed, typed + 1, all->command);
        }
        value = typed[2] != '\0' ? typed + 2 : NULL;
    }
    const setting *row = &settings_table[id];
    char origin[64];
    snprintf(origin, sizeof(origin), "--%s", row->name);
    char *kept_origin = keep(all, origin);
    if (kept_origin == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (row->type == SETTING_TYPE_FLAG) {
        if (value != NULL && strcmp(value, "true") != 0 && strcmp(value, "false") != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s takes no value, found \"%s\"", row->name, value);
        }
        (*at)++;
        return assign(all, (setting_id)id, value == NULL ? "true" : value, kept_origin);
    }
    if (value == NULL) {
        if (*at + 1 >= argc) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s needs a value: %s", row->name, row->argument);
        }
        value = argv[++*at];
    }
    (*at)++;
    return assign(all, (setting_id)id, value, kept_origin);
}

static trm_status read_arguments(settings *all, int argc, char **argv)
{
    bool options = true;
    for (int at = 0; at < argc;) {
        if (options && strcmp(argv[at], "--") == 0) {
            options = false;
            at++;
        } else if (options && argv[at][0] == '-' && argv[at][1] != '\0') {
            TRM_TRY(read_option(all, argc, argv, &at));
        } else if (all->n_operands < MAX_OPERANDS) {
            all->operands[all->n_operands++] = argv[at++];
        } else {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "too many arguments at \"%s\", expected at most %d", argv[at],
                     MAX_OPERANDS);
        }
    }
    return TRM_OK;
}

static trm_status read_environment(settings *all)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        char variable[96];
        variable_name(settings_table[id].name, variable, sizeof(variable));
        const char *value = getenv(variable);
        if (all->values[id] == NULL && value != NULL && (settings_table[id].commands & all->command) != 0) {
            char *origin = keep(all, variable);
            if (origin == NULL) {
                return TRM_ERROR_OUT_OF_MEMORY;
            }
            TRM_TRY(assign(all, (setting_id)id, value, origin));
        }
    }
    return TRM_OK;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

/* Reads one "key = value" line. Settings of other commands are skipped. */
static trm_status read_config_line(settings *all, const char *path, int32_t number, char *line)
{
    line = trim(line);
    if (*line == '\0' || *line == '#') {
        return TRM_OK;
    }
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s:%d: found \"%s\", expected key = value", path, number, line);
    }
    *equals = '\0';
    char *key = trim(line), *value = trim(equals + 1);
    int32_t id = find_by_name(key, strlen(key), COMMAND_VISIBLE);
    if (id < 0) {
        const char *nearest = settings_nearest(key, COMMAND_VISIBLE);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s:%d: unknown setting \"%s\"%s%s", path, number, key,
                 nearest == NULL ? "" : ", did you mean ", nearest == NULL ? "" : nearest);
    }
    if (all->values[id] != NULL || (settings_table[id].commands & all->command) == 0) {
        return TRM_OK;
    }
    char origin[4200];
    snprintf(origin, sizeof(origin), "%s:%d", path, number);
    char *kept = keep(all, origin);
    return kept == NULL ? TRM_ERROR_OUT_OF_MEMORY : assign(all, (setting_id)id, value, kept);
}

static trm_status read_config(settings *all)
{
    char path[4096] = "";
    const char *given = all->values[SETTING_CONFIG];
    if (given != NULL) {
        snprintf(path, sizeof(path), "%s", given);
    } else {
        const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        if (folder != NULL && *folder != '\0') {
            snprintf(path, sizeof(path), "%s/trireme/trireme.conf", folder);
        } else if (home != NULL) {
            snprintf(path, sizeof(path), "%s/.config/trireme/trireme.conf", home);
        }
        if (path[0] == '\0' || !trm_file_exists(path)) {
            snprintf(path, sizeof(path), "/etc/trireme/trireme.conf");
        }
        if (!trm_file_exists(path)) {
            return TRM_OK;
        }
    }
    char *text;
    size_t size;
    TRM_TRY(trm_file_read_stream(path, CONFIG_LIMIT, &text, &size));
    trm_status status = TRM_OK;
    int32_t number = 0;
    for (char *line = text; status == TRM_OK && line != NULL;) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        status = read_config_line(all, path, ++number, line);
        line = end == NULL ? NULL : end + 1;
    }
    free(text);
    return status;
}

/* "0 to 65535" */
static void range_text(const setting *row, char *text, size_t size)
{
    if (row->type == SETTING_TYPE_NUMBER) {
        snprintf(text, size, "%.10g to %.10g", row->min, row->max);
    } else {
        snprintf(text, size, "%.0f to %.0f", row->min, row->max);
    }
}

/* A list such as "1,2", each in the range of the row. */
static trm_status check_integers(const settings *all, setting_id id)
{
    const setting *row = &settings_table[id];
    const char *text = all->values[id];
    bool good = true;
    for (bool more = true; good && more;) {
        char *end;
        long long number = strtoll(text, &end, 10);
        good = end != text && (double)number >= row->min && (double)number <= row->max && (*end == '\0' || *end == ',');
        more = *end == ',';
        text = end + 1;
    }
    if (!good) {
        char range[64];
        range_text(row, range, sizeof(range));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is \"%s\", expected integers from %s, such as 1,2 (%s)", row->name,
                 all->values[id], range, all->origins[id]);
    }
    return TRM_OK;
}

static trm_status check_value(const settings *all, setting_id id)
{
    const setting *row = &settings_table[id];
    const char *value = all->values[id];
    if (value == NULL) {
        return TRM_OK;
    }
    if (row->type == SETTING_TYPE_FLAG) {
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is \"%s\", expected true or false (%s)", row->name, value,
                     all->origins[id]);
        }
    } else if (row->type == SETTING_TYPE_INTEGERS && all->command == COMMAND_COMPARE) {
        return check_integers(all, id);
    } else if (row->type == SETTING_TYPE_INTEGER || row->type == SETTING_TYPE_INTEGERS ||
               row->type == SETTING_TYPE_NUMBER) {
        char *end;
        errno = 0;
        double number = strtod(value, &end);
        bool whole = row->type == SETTING_TYPE_NUMBER || (floor(number) == number && strpbrk(value, ".eExXnN") == NULL);
        if (end == value || *end != '\0' || errno == ERANGE || !whole || !(number >= row->min && number <= row->max)) {
            char range[64];
            range_text(row, range, sizeof(range));
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is \"%s\", expected %s from %s (%s)", row->name, value,
                     row->type == SETTING_TYPE_NUMBER ? "a number" : "an integer", range, all->origins[id]);
        }
    }
    return TRM_OK;
}

trm_status settings_load(settings *all, unsigned command, int argc, char **argv)
{
    *all = (settings){.command = command};
    TRM_TRY(read_arguments(all, argc, argv));
    if (settings_flag(all, SETTING_HELP)) {
        return TRM_OK;
    }
    TRM_TRY(read_environment(all));
    TRM_TRY(read_config(all));
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if (all->values[id] == NULL && settings_table[id].default_value != NULL) {
            all->values[id] = settings_table[id].default_value;
            all->origins[id] = "default";
        }
        TRM_TRY(check_value(all, (setting_id)id));
    }
    return TRM_OK;
}

bool settings_flag(const settings *all, setting_id id)
{
    return all->values[id] != NULL && strcmp(all->values[id], "true") == 0;
}

int64_t settings_integer(const settings *all, setting_id id)
{
    return all->values[id] == NULL ? 0 : strtoll(all->values[id], NULL, 10);
}

double settings_number(const settings *all, setting_id id)
{
    return all->values[id] == NULL ? 0.0 : strtod(all->values[id], NULL);
}

const char *settings_text(const settings *all, setting_id id)
{
    return all->values[id];
}

static void print_help_line(FILE *out, const setting *row)
{
    char flag[64], letter[8] = "    ";
    if (row->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", row->letter);
    }
    snprintf(flag, sizeof(flag), "--%s%s%s", row->name, row->argument == NULL ? "" : " ",
             row->argument == NULL ? "" : row->argument);
    fprintf(out, "  %s%-26s %s", letter, flag, row->help);
    if (row->default_value != NULL) {
        fprintf(out, " [%s]", row->default_value);
    }
    fputc('\n', out);
}

/* Prints the settings of the commands by group, groups in the order of their first rows. */
static void print_groups(FILE *out, unsigned commands, const char *heading, void (*print)(FILE *, const setting *))
{
    bool printed[SETTING_COUNT] = {false};
    for (int32_t first = 0; first < SETTING_COUNT; first++) {
        if (printed[first] || (settings_table[first].commands & commands) == 0) {
            continue;
        }
        fprintf(out, heading, settings_table[first].group);
        for (int32_t id = first; id < SETTING_COUNT; id++) {
            const setting *row = &settings_table[id];
            if ((row->commands & commands) != 0 && strcmp(row->group, settings_table[first].group) == 0) {
                print(out, row);
                printed[id] = true;
            }
        }
    }
}

void settings_print_help(FILE *out, unsigned command)
{
    print_groups(out, command, "\n%s:\n", print_help_line);
    fprintf(out, "\nEvery option has an environment variable (--max-tokens: TRIREME_MAX_TOKENS) and a key in the "
                 "settings file (max-tokens = 64).\n");
}

/* Text as roff prints it: hyphens stay hyphens, and no line becomes a request. */
static void print_roff(FILE *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (c == text && (*c == '.' || *c == '\'')) {
            fputs("\\&", out);
        }
        fputs(*c == '-' ? "\\-" : *c == '\\' ? "\\e" : (const char[]){*c, '\0'}, out);
    }
}

static void print_manual_entry(FILE *out, const setting *row)
{
    char commands[128];
    fputs(".TP\n", out);
    if (row->letter != 0) {
        fprintf(out, "\\fB\\-%c\\fR, ", row->letter);
    }
    fputs("\\fB\\-\\-", out);
    print_roff(out, row->name);
    fprintf(out, "\\fR%s%s%s\n", row->argument == NULL ? "" : " \\fI", row->argument == NULL ? "" : row->argument,
            row->argument == NULL ? "" : "\\fR");
    fputc(toupper((unsigned char)row->help[0]), out);
    print_roff(out, row->help + 1);
    fputs(".\n", out);
    if (row->manual[0] != '\0') {
        print_roff(out, row->manual);
        fputc('\n', out);
    }
    if ((row->commands & COMMAND_VISIBLE) != COMMAND_VISIBLE) {
        list_commands(row->commands, commands, sizeof(commands));
        fprintf(out, "Commands: %s.\n", commands);
    }
    if (row->default_value != NULL) {
        fputs("Default: ", out);
        print_roff(out, row->default_value);
        fputs(".\n", out);
    }
}

void settings_print_manual(FILE *out)
{
    print_groups(out, COMMAND_VISIBLE, ".SS %s\n", print_manual_entry);
}

void settings_print_origins(FILE *out, const settings *all, bool json)
{
    report r;
    report_begin(&r, out);
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if ((settings_table[id].commands & all->command) == 0) {
            continue;
        }
        const char *value = all->values[id] == NULL ? "" : all->values[id];
        const char *origin = all->origins[id] == NULL ? "not set" : all->origins[id];
        if (json) {
            report_open(&r, settings_table[id].name, '{');
            report_text(&r, "value", value);
            report_text(&r, "origin", origin);
            report_close(&r);
        } else {
            fprintf(out, "%-20s %-24s %s\n", settings_table[id].name, value, origin);
        }
    }
    if (json) {
        report_end(&r);
    }
}
