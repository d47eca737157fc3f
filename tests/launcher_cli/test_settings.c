/* Settings: where a value comes from, what is refused, and the texts made from the table. */
#include "support/support.h"

#include <stdio.h>

#include "base/json.h"
#include "launcher/cli/settings/settings.h"

static settings all;

/* Reads a line of arguments, split at spaces, as a command's. */
static trm_status load(unsigned command, const char *line)
{
    static char copy[8192];
    static char *argv[64];
    int argc = 0;
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    settings_fini(&all);
    return settings_load(&all, command, argc, argv);
}

/* A settings file; its path is valid until the next call. */
static const char *config_file(const char *content)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/trireme.conf", test_temporary_folder());
    test_write_file(path, content, strlen(content));
    return path;
}

static int no_surroundings(void **state)
{
    (void)state;
    setenv("XDG_CONFIG_HOME", test_temporary_folder(), 1);
    unsetenv("TRIREME_MAX_TOKENS");
    unsetenv("TRIREME_TEMPERATURE");
    unsetenv("TRIREME_STOP");
    unsetenv("TRIREME_CONFIG");
    unsetenv("TRIREME_ECHO");
    return 0;
}

static void rows_are_complete(void **state)
{
    (void)state;
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        const setting *row = &settings_table[i];
        assert_non_null(row->name);
        assert_true(row->commands != 0 && row->help != NULL && row->group != NULL);
        assert_true((row->type == SETTING_TYPE_FLAG) == (row->argument == NULL));
        bool number =
            row->type == SETTING_TYPE_INTEGER || row->type == SETTING_TYPE_INTEGERS || row->type == SETTING_TYPE_NUMBER;
        assert_true(number == (row->min < row->max));
        for (int32_t k = 0; k < i; k++) {
            const setting *other = &settings_table[k];
            assert_string_not_equal(row->name, other->name);
            if (row->letter != 0 && (row->commands & other->commands) != 0) {
                assert_int_not_equal(row->letter, other->letter);
            }
        }
    }
    assert_ok(load(COMMAND_ALL, "")); /* every default is a value that its row allows */
}

static void forms_of_an_option(void **state)
{
    (void)state;
    static const char *const lines[] = {"model -n 5 --echo",           "-n5 --echo model",
                                        "--max-tokens 5 model --echo", "--max-tokens=5 --echo=true model",
                                        "--echo -n 5 -- model",        "-n 9 -n 5 model --echo"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_ok(load(COMMAND_RUN, lines[i]));
        assert_int_equal(settings_integer(&all, SETTING_MAX_TOKENS), 5);
        assert_true(settings_flag(&all, SETTING_ECHO));
        assert_int_equal(all.n_operands, 1);
        assert_string_equal(all.operands[0], "model");
    }
    assert_ok(load(COMMAND_RUN, "--prompt - -- --echo -n"));
    assert_string_equal(all.lists[SETTING_PROMPT][0], "-");
    assert_false(settings_flag(&all, SETTING_ECHO));
    assert_int_equal(all.n_operands, 2);
    assert_ok(load(COMMAND_RUN, "-p a --prompt b -pc"));
    assert_int_equal(all.list_counts[SETTING_PROMPT], 3);
    assert_string_equal(all.lists[SETTING_PROMPT][2], "c");
    assert_ok(load(COMMAND_RUN, "--device -1"));
    assert_int_equal(settings_integer(&all, SETTING_DEVICE), -1);
    assert_ok(load(COMMAND_BENCH, "-n 7")); /* the letter means another row there */
    assert_int_equal(settings_integer(&all, SETTING_TOKENS), 7);
}

static void flag_wins_over_environment_over_file(void **state)
{
    (void)state;
    const char *path = config_file("# a comment\n\n max-tokens = 30 \ntemperature=0.5\nstop = from file\n"
                                   "prompt-tokens = 4\r\necho = true");
    char line[5000];
    snprintf(line, sizeof(line), "--config %s", path);
    assert_ok(load(COMMAND_RUN, line));
    assert_int_equal(settings_integer(&all, SETTING_MAX_TOKENS), 30);
    assert_true(settings_number(&all, SETTING_TEMPERATURE) == 0.5);
    assert_string_equal(all.lists[SETTING_STOP][0], "from file");
    assert_true(settings_flag(&all, SETTING_ECHO));
    assert_null(strstr(all.origins[SETTING_PROMPT_TOKENS], "conf")); /* bench's: left */
    char origin[5000];
    snprintf(origin, sizeof(origin), "%s:3", path);
    assert_string_equal(all.origins[SETTING_MAX_TOKENS], origin);

    setenv("TRIREME_MAX_TOKENS", "20", 1);
    setenv("TRIREME_STOP", "from environment", 1);
    setenv("TRIREME_ECHO", "false", 1);
    assert_ok(load(COMMAND_RUN, line));
    assert_int_equal(settings_integer(&all, SETTING_MAX_TOKENS), 20);
    assert_string_equal(all.origins[SETTING_MAX_TOKENS], "TRIREME_MAX_TOKENS");
    assert_int_equal(all.list_counts[SETTING_STOP], 1);
    assert_string_equal(all.lists[SETTING_STOP][0], "from environment");
    assert_false(settings_flag(&all, SETTING_ECHO));

    snprintf(line, sizeof(line), "--config %s -n 10 --stop x", path);
    assert_ok(load(COMMAND_RUN, line));
    assert_int_equal(settings_integer(&all, SETTING_MAX_TOKENS), 10);
    assert_string_equal(all.origins[SETTING_MAX_TOKENS], "--max-tokens");
    assert_int_equal(all.list_counts[SETTING_STOP], 1);
    assert_string_equal(all.lists[SETTING_STOP][0], "x");

    no_surroundings(NULL);
    setenv("TRIREME_CONFIG", path, 1);
    assert_ok(load(COMMAND_RUN, ""));
    assert_int_equal(settings_integer(&all, SETTING_MAX_TOKENS), 30);
    unsetenv("TRIREME_CONFIG");
    assert_ok(load(COMMAND_RUN, ""));
    assert_int_equal(settings_integer(&all, SETTING_MAX_TOKENS), 128);
    assert_string_equal(all.origins[SETTING_MAX_TOKENS], "default");
}

static void wrong_values_name_their_origin(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"--max-tokens five", "max-tokens is \"five\", expected an integer from 0 to"},
        {"--seed -1", "seed is \"-1\", expected an integer from 0 to 9007199254740992 (--seed)"},
        {"--max-tokens 1.5", "max-tokens is \"1.5\", expected an integer"},
        {"--max-tokens 1e3", "max-tokens is \"1e3\", expected an integer"},
        {"--max-tokens 0x10", "max-tokens is \"0x10\", expected an integer"},
        {"--max-tokens -1", "(--max-tokens)"},
        {"--max-tokens 99999999999999999999", "expected an integer"},
        {"--max-tokens=", "max-tokens is \"\""},
        {"--temperature nan", "temperature is \"nan\", expected a number from 0 to 1000"},
        {"--temperature inf", "temperature is \"inf\""},
        {"--top-p 0", "top-p is \"0\""},
        {"--top-p 1.1", "top-p is \"1.1\""},
        {"--min-p 2", "min-p is \"2\""},
        {"--echo=yes", "--echo takes no value, found \"yes\""},
        {"--max-tokens", "--max-tokens needs a value: N"},
        {"-p", "--prompt needs a value: TEXT"},
        {"--max-token 1", "unknown option --max-token, did you mean --max-tokens"},
        {"--temprature 1", "unknown option --temprature, did you mean --temperature"},
        {"--rep 1", "unknown option --rep, did you mean --repetition-penalty"},
        {"--profile", "option --profile is for bench, not for run"},
        {"--layers=2", "option --layers=2 is for bench, inspect, compare, not for run"},
        {"--xyzzy", "unknown option --xyzzy, --help lists all options"},
        {"--x=5", "unknown option --x=5, --help lists all options"},
        {"-z", "unknown option -z, --help lists all options"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_fails(load(COMMAND_RUN, cases[i].line), TRM_ERROR_INVALID_ARGUMENT, cases[i].part);
    }
    /* what only the ranks of serve take is unknown to users */
    assert_fails(load(COMMAND_SERVE, "--replica 1"), TRM_ERROR_INVALID_ARGUMENT,
                 "unknown option --replica, did you mean --replicas");
    assert_fails(load(COMMAND_BENCH, "--replica 1"), TRM_ERROR_INVALID_ARGUMENT, "unknown option --replica, --help");
    setenv("TRIREME_TOP_P", "most", 1);
    assert_fails(load(COMMAND_RUN, ""), TRM_ERROR_INVALID_ARGUMENT, "(TRIREME_TOP_P)");
    assert_ok(load(COMMAND_BENCH, "")); /* not a setting of bench */
    unsetenv("TRIREME_TOP_P");
    setenv("TRIREME_ECHO", "maybe", 1);
    assert_fails(load(COMMAND_RUN, ""), TRM_ERROR_INVALID_ARGUMENT, "echo is \"maybe\", expected true or false");
    assert_ok(load(COMMAND_RUN, "--help")); /* help is there when all else is wrong */
}

static void broken_files_name_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *content, *part;
    } cases[] = {
        {"max-tokens = 1\nnonsense\n", ":2: found \"nonsense\", expected key = value"},
        {"max-token = 1\n", ":1: unknown setting \"max-token\", did you mean max-tokens"},
        {"replica = 1\n", ":1: unknown setting \"replica\", did you mean replicas"},
        {"\n\n= 1\n", ":3: unknown setting \"\""},
        {"max-tokens = many\n", "max-tokens is \"many\", expected an integer"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        setenv("TRIREME_CONFIG", config_file(cases[i].content), 1);
        assert_fails(load(COMMAND_RUN, ""), TRM_ERROR_INVALID_ARGUMENT, cases[i].part);
    }
    setenv("TRIREME_CONFIG", "/nonexistent/trireme.conf", 1);
    assert_fails(load(COMMAND_RUN, ""), TRM_ERROR_IO, "/nonexistent/trireme.conf");
}

static void too_many_are_refused(void **state)
{
    (void)state;
    char line[1024] = "";
    for (int32_t i = 0; i < MAX_OPERANDS; i++) {
        strcat(line, "m ");
    }
    assert_ok(load(COMMAND_RUN, line));
    strcat(line, "one-more");
    assert_fails(load(COMMAND_RUN, line), TRM_ERROR_INVALID_ARGUMENT,
                 "too many arguments at \"one-more\", expected at most 16");
    char *argv[2 * MAX_LIST + 2];
    for (int32_t i = 0; i < 2 * MAX_LIST + 2; i++) {
        argv[i] = i % 2 == 0 ? "-p" : "x";
    }
    settings_fini(&all);
    assert_ok(settings_load(&all, COMMAND_RUN, 2 * MAX_LIST, argv));
    assert_int_equal(all.list_counts[SETTING_PROMPT], MAX_LIST);
    settings_fini(&all);
    assert_fails(settings_load(&all, COMMAND_RUN, 2 * MAX_LIST + 2, argv), TRM_ERROR_INVALID_ARGUMENT,
                 "--prompt is repeated more than 256 times");
}

static void distances(void **state)
{
    (void)state;
    assert_int_equal(edit_distance("", ""), 0);
    assert_int_equal(edit_distance("", "abc"), 3);
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("flaw", "lawn"), 2);
    char long_name[200];
    memset(long_name, 'a', sizeof(long_name));
    long_name[199] = '\0';
    assert_int_equal(edit_distance(long_name, "seed"), INT32_MAX);
    assert_string_equal(settings_nearest("sead", COMMAND_RUN), "seed");
    assert_null(settings_nearest("foo", COMMAND_RUN));
}

static void the_manual_has_every_option_of_users(void **state)
{
    (void)state;
    char *manual = NULL;
    size_t size;
    FILE *out = open_memstream(&manual, &size);
    settings_print_manual(out);
    fclose(out);
    assert_non_null(strstr(manual, "\\fB\\-n\\fR, \\fB\\-\\-max\\-tokens\\fR \\fIN\\fR\n"
                                   "Generate at most N tokens per prompt.\nCommands: run.\nDefault: 128.\n"));
    assert_null(strstr(manual, "\\-replica\\fR"));
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        assert_true(settings_table[i].help[strlen(settings_table[i].help) - 1] != '.');
    }
    free(manual);
}

static void texts_list_every_setting(void **state)
{
    (void)state;
    char *help = NULL, *plain = NULL, *json = NULL;
    size_t size;
    FILE *out = open_memstream(&help, &size);
    settings_print_help(out, COMMAND_ALL);
    fclose(out);
    assert_ok(load(COMMAND_ALL, "--seed 7"));
    out = open_memstream(&plain, &size);
    settings_print_origins(out, &all, false);
    fclose(out);
    out = open_memstream(&json, &size);
    settings_print_origins(out, &all, true);
    fclose(out);
    trm_json_document *document;
    assert_ok(trm_json_parse("origins", json, size, &document));
    for (int32_t i = 0; i < SETTING_COUNT; i++) {
        const trm_json *entry = trm_json_get(trm_json_root(document), settings_table[i].name);
        assert_non_null(strstr(help, settings_table[i].name));
        assert_non_null(strstr(plain, settings_table[i].name));
        assert_true(trm_json_is_object(entry));
        const char *expected = i == SETTING_SEED                         ? "--seed"
                               : settings_table[i].default_value != NULL ? "default"
                                                                         : "not set";
        assert_string_equal(trm_json_string(trm_json_get(entry, "origin")), expected);
    }
    trm_json_close(document);
    free(help);
    free(plain);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(rows_are_complete, no_surroundings),
        cmocka_unit_test_setup(forms_of_an_option, no_surroundings),
        cmocka_unit_test_setup(flag_wins_over_environment_over_file, no_surroundings),
        cmocka_unit_test_setup(wrong_values_name_their_origin, no_surroundings),
        cmocka_unit_test_setup(broken_files_name_their_line, no_surroundings),
        cmocka_unit_test_setup(too_many_are_refused, no_surroundings),
        cmocka_unit_test_setup(distances, no_surroundings),
        cmocka_unit_test_setup(the_manual_has_every_option_of_users, no_surroundings),
        cmocka_unit_test_setup(texts_list_every_setting, no_surroundings),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    settings_fini(&all);
    return failed;
}
