/* `trireme compare`: decides which runs there are and where each takes place, and prints the result. */
#include "launcher/cli/compare/compare.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/onnx/job.h"

extern char **environ;

/* One run. */
typedef struct side {
    char backend[16];
    int32_t ranks;
    char title[64];
    char path[COMPARE_PATH_SIZE]; /* its tensors */
} side;

typedef struct comparer {
    const settings *all;
    side sides[COMPARE_MAX_SIDES];
    int32_t n_sides;
    char *temporary; /* NULL, or a folder to remove */
    expected_list files;
} comparer;

/* ---- which runs ---------------------------------------------------------------------------------------- */

/* Element `index` of "a,b,c"; false past the last. */
static bool list_element(const char *list, int32_t index, char *element, size_t size)
{
    for (; index > 0; index--) {
        list = strchr(list, ',');
        if (list == NULL) {
            return false;
        }
        list++;
    }
    size_t length = strcspn(list, ",");
    snprintf(element, size, "%.*s", (int)(length < size ? length : size - 1), list);
    return true;
}

static int32_t list_length(const char *list)
{
    int32_t n = 1;
    for (; *list != '\0'; list++) {
        n += *list == ',';
    }
    return n;
}

static trm_status check_backend(const char *name, const char *origin)
{
    if (strcmp(name, "host") != 0 && strcmp(name, "cuda") != 0 && strcmp(name, "auto") != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "backend is \"%s\", expected auto, cuda or host, or several such as host,cuda (%s)", name, origin);
    }
    return TRM_OK;
}

/* Pairs backends with numbers of ranks; if only one list has several, the other is the same for all. */
static trm_status list_sides(comparer *c)
{
    const char *backends = settings_text(c->all, SETTING_BACKEND), *ranks = settings_text(c->all, SETTING_RANKS);
    int32_t n_backends = list_length(backends), n_ranks = list_length(ranks);
    c->n_sides = n_backends > n_ranks ? n_backends : n_ranks;
    if (c->n_sides > COMPARE_MAX_SIDES || (n_backends > 1 && n_ranks > 1 && n_backends != n_ranks)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "there are %d backends and %d numbers of ranks, expected equally many of both, or several of one, at "
                 "most %d",
                 n_backends, n_ranks, COMPARE_MAX_SIDES);
    }
    for (int32_t i = 0; i < c->n_sides; i++) {
        side *s = &c->sides[i];
        char count[32];
        list_element(backends, n_backends > 1 ? i : 0, s->backend, sizeof(s->backend));
        list_element(ranks, n_ranks > 1 ? i : 0, count, sizeof(count));
        TRM_TRY(check_backend(s->backend, c->all->origins[SETTING_BACKEND]));
        s->ranks = (int32_t)strtol(count, NULL, 10);
        snprintf(s->title, sizeof(s->title), s->ranks == 1 ? "%s" : "%s on %d ranks", s->backend, s->ranks);
    }
    return TRM_OK;
}

/* ---- runs in other processes --------------------------------------------------------------------------- */

typedef struct words {
    char **items; /* NULL-terminated */
    int32_t n, capacity;
    bool lost; /* memory ran out */
} words;

static void add_word(words *w, const char *prefix, const char *text)
{
    if (w->n + 1 >= w->capacity) {
        int32_t capacity = 2 * w->capacity + 32;
        char **grown = realloc(w->items, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) {
            w->lost = true;
            return;
        }
        w->items = grown;
        w->capacity = capacity;
    }
    size_t size = strlen(prefix) + strlen(text) + 1;
    char *word = malloc(size);
    if (word == NULL) {
        w->lost = true;
        return;
    }
    snprintf(word, size, "%s%s", prefix, text);
    w->items[w->n++] = word;
    w->items[w->n] = NULL;
}

static void free_words(words *w)
{
    for (int32_t i = 0; i < w->n; i++) {
        free(w->items[i]);
    }
    free(w->items);
}

/* Settings that this process sets for each run. */
static bool is_own(int32_t id)
{
    static const setting_id own[] = {SETTING_BACKEND, SETTING_RANKS,  SETTING_MESH, SETTING_SAVE, SETTING_AGAINST,
                                     SETTING_EXPECT,  SETTING_CONFIG, SETTING_HELP, SETTING_JSON, SETTING_MPIRUN};
    bool found = (settings_table[id].commands & COMMAND_COMPARE) == 0;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        found = found || id == (int32_t)own[i];
    }
    return found;
}

/* Whether a setting of the environment or a settings file has no effect here. As an option of a run it would be
 * refused. */
static bool is_passed_over(const settings *all, setting_id id)
{
    return !has_effect_on_operand(all, id) && !settings_is_option(all, id);
}

static void add_settings(words *w, const settings *all)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        char option[64];
        snprintf(option, sizeof(option), "--%s=", settings_table[id].name);
        if (is_passed_over(all, (setting_id)id) || is_own(id) || all->values[id] == NULL ||
            strcmp(all->origins[id], "default") == 0) {
            continue;
        }
        if (settings_table[id].type != SETTING_TYPE_LIST) {
            add_word(w, option, all->values[id]);
        }
        for (int32_t i = 0; i < all->list_counts[id]; i++) {
            add_word(w, option, all->lists[id][i]);
        }
    }
}

/* Makes `trireme compare NET --save FOLDER ...`, under mpirun if there are several ranks. */
static trm_status make_command(const settings *all, const side *s, words *w)
{
    char program[4096], ranks[16];
    ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (size < 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot find the path of this program: %s", strerror(errno));
    }
    program[size] = '\0';
    snprintf(ranks, sizeof(ranks), "%d", (int)s->ranks);
    if (s->ranks > 1) {
        const char *const launcher[] = {
            settings_text(all, SETTING_MPIRUN), "-np", ranks, "--bind-to", "none", "--oversubscribe"};
        for (size_t i = 0; i < sizeof(launcher) / sizeof(launcher[0]); i++) {
            add_word(w, "", launcher[i]);
        }
    }
    add_word(w, "", program);
    add_word(w, "", "compare");
    add_word(w, "", all->operands[0]);
    add_word(w, "--backend=", s->backend);
    add_word(w, "--ranks=", "1");
    add_word(w, "--save=", s->path);
    if (s->ranks > 1 && settings_text(all, SETTING_MESH) != NULL) {
        add_word(w, "--mesh=", settings_text(all, SETTING_MESH));
    }
    add_settings(w, all);
    if (w->lost) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the command of a run");
    }
    return TRM_OK;
}

/* Runs a command without its stdout and waits. *code is its exit code; after a signal that of a failure. */
static trm_status start_and_wait(char **command_line, int *code)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0); /* usual in containers; the user has already chosen it */
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    posix_spawnattr_t attributes;
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &interrupt);
    sigaction(SIGINT, &ignore, &before); /* the run gets it too, and ends; this process must remove the folders */
    pid_t pid = 0;
    int failure = posix_spawnp(&pid, command_line[0], &actions, &attributes, command_line, environ), state = 0;
    pid_t waited = failure != 0 ? 0 : waitpid(pid, &state, 0);
    while (failure == 0 && waited < 0 && errno == EINTR) {
        waited = waitpid(pid, &state, 0);
    }
    sigaction(SIGINT, &before, NULL);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failure != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot start %s: %s", command_line[0], strerror(failure));
    }
    *code = waited > 0 && WIFEXITED(state) ? WEXITSTATUS(state) : trm_status_exit_code(TRM_ERROR_INTERNAL);
    if (waited > 0 && WIFSIGNALED(state)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "signal %d ended a run", WTERMSIG(state));
    }
    return TRM_OK;
}

/* Runs one side in other processes. A run that fails prints its own error. */
static int run_side(const comparer *c, const side *s)
{
    words line = {0};
    int code = 0;
    if (!settings_flag(c->all, SETTING_QUIET) && c->n_sides > 1) {
        fprintf(stderr, "trireme: running %s\n", s->title);
    }
    trm_status status = make_command(c->all, s, &line);
    if (status == TRM_OK) {
        status = start_and_wait(line.items, &code);
    }
    free_words(&line);
    return status == TRM_OK ? code : print_failure(status);
}

static trm_status choose_paths(comparer *c)
{
    const char *kept = settings_text(c->all, SETTING_SAVE);
    if (kept == NULL) {
        char made[COMPARE_PATH_SIZE];
        TRM_TRY(compare_temporary_folder(made));
        kept = c->temporary = strdup(made);
        if (kept == NULL) {
            tensor_folder_remove(made);
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a path");
        }
    } else if (mkdir(kept, 0777) != 0 && errno != EEXIST) {
        TRM_FAIL(TRM_ERROR_IO, "cannot make folder %s: %s", kept, strerror(errno));
    }
    for (int32_t i = 0; i < c->n_sides; i++) {
        side *s = &c->sides[i];
        char name[64] = "";
        if (c->n_sides > 1) {
            snprintf(name, sizeof(name), "/%s-%d", s->backend, (int)s->ranks);
        }
        int used = snprintf(s->path, sizeof(s->path), "%s%s", kept, name);
        if (used < 0 || (size_t)used >= sizeof(s->path)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the path of folder %.100s is too long", kept);
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(s->path, c->sides[k].path) == 0) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s cannot be compared with itself", s->title);
            }
        }
    }
    return TRM_OK;
}

/* ---- given references ---------------------------------------------------------------------------------- */

/* Reads output_0.pb and so on of an ONNX model or a plan. */
static trm_status read_numbered(comparer *c, const char *folder)
{
    const char *path = c->all->operands[0];
    trm_onnx *model = NULL;
    trm_plan *plan = NULL;
    trm_onnx_port port;
    trm_status status = TRM_OK;
    if (names_onnx(path)) {
        TRM_TRY(trm_onnx_open(path, &model));
        for (int32_t i = 0; status == TRM_OK && trm_onnx_get_output(model, i, &port); i++) {
            status = expected_add_numbered(&c->files, port.name, folder, i);
        }
        trm_onnx_close(model);
    } else if (names_plan(path)) {
        TRM_TRY(plan_load(c->all, path, 0, &plan));
        const trm_network *network = trm_plan_network(plan);
        for (int32_t i = 0; status == TRM_OK && i < trm_network_output_count(network); i++) {
            status = expected_add_numbered(&c->files, trm_tensor_name(trm_network_output(network, i)), folder, i);
        }
        trm_plan_destroy(plan);
    } else {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "folder %s has no completed run", folder);
    }
    TRM_TRY(status);
    if (c->files.n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "folder %s has neither a completed run nor output_0.pb or output_0.npy",
                 folder);
    }
    return TRM_OK;
}

static trm_status read_references(comparer *c)
{
    const char *folder = settings_text(c->all, SETTING_AGAINST);
    for (int32_t i = 0; i < c->all->list_counts[SETTING_EXPECT]; i++) {
        const char *text = c->all->lists[SETTING_EXPECT][i], *equals = strrchr(text, '=');
        char name[256];
        size_t length = equals == NULL ? 0 : (size_t)(equals - text);
        if (length == 0 || length >= sizeof(name) || equals[1] == '\0') {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--expect is \"%s\", expected NAME=FILE", text);
        }
        snprintf(name, sizeof(name), "%.*s", (int)length, text);
        TRM_TRY(expected_add_file(&c->files, name, equals + 1, NULL));
    }
    return folder == NULL || tensor_folder_exists(folder) ? TRM_OK : read_numbered(c, folder);
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* Compares sides `first` and up with a reference. */
static trm_status compare_sides(const comparer *c, const compare_reference *reference, int32_t first, report *r,
                                compare_result *result)
{
    for (int32_t i = first; i < c->n_sides; i++) {
        tensor_folder found;
        trm_status status = tensor_folder_open(&found, c->sides[i].path);
        if (status == TRM_OK) {
            status = compare_folders(c->all, reference, &found, c->sides[i].title, r, result);
        }
        tensor_folder_close(&found);
        TRM_TRY(status);
    }
    return TRM_OK;
}

static trm_status compare_with_all(const comparer *c, report *r, compare_result *result)
{
    const char *against = settings_text(c->all, SETTING_AGAINST);
    bool is_run = against != NULL && tensor_folder_exists(against);
    if (c->files.n > 0) {
        compare_reference given = {.title = "given files", .files = &c->files};
        TRM_TRY(compare_sides(c, &given, 0, r, result));
    }
    if (is_run || (c->n_sides > 1 && c->files.n == 0)) {
        tensor_folder folder;
        compare_reference run = {.title = is_run ? against : c->sides[0].title, .folder = &folder};
        trm_status status = tensor_folder_open(&folder, is_run ? against : c->sides[0].path);
        if (status == TRM_OK) {
            status = compare_sides(c, &run, is_run ? 0 : 1, r, result);
        }
        tensor_folder_close(&folder);
        TRM_TRY(status);
    }
    return TRM_OK;
}

/* Compares the saved runs and prints the result. Returns the exit code. */
static int conclude(comparer *c)
{
    compare_result result = {0};
    report r;
    bool json = settings_flag(c->all, SETTING_JSON);
    if (json) {
        report_begin(&r, stdout);
        report_text(&r, "model", c->all->operands[0]);
        report_text(&r, "version", trm_version());
        report_open(&r, "comparisons", '[');
    }
    trm_status status = compare_with_all(c, json ? &r : NULL, &result);
    if (json && status == TRM_OK) {
        report_close(&r);
        report_bool(&r, "holds", result.differing == 0);
        report_text(&r, "first_difference", result.first[0] == '\0' ? NULL : result.first);
    }
    if (json) {
        report_end(&r);
    }
    if (status != TRM_OK) {
        return print_failure(status);
    }
    if (result.differing > 0) {
        fprintf(stderr, "trireme: %d of %d tensors differ, first in %s\n", result.differing, result.compared,
                result.first);
        return trm_status_exit_code(TRM_ERROR_INTERNAL);
    }
    return 0;
}

static bool compares(const comparer *c)
{
    return c->n_sides > 1 || settings_text(c->all, SETTING_AGAINST) != NULL || c->all->list_counts[SETTING_EXPECT] > 0;
}

/* Each run is one or several other processes. */
static int run_elsewhere(comparer *c)
{
    int code = 0;
    trm_status status = choose_paths(c);
    for (int32_t i = 0; i < c->n_sides && status == TRM_OK && code == 0; i++) {
        code = run_side(c, &c->sides[i]);
    }
    if (status != TRM_OK) {
        return print_failure(status);
    }
    return code != 0 || !compares(c) ? code : conclude(c);
}

/* This process, with its peers if it has any, is the run. */
static int run_here(comparer *c)
{
    bool is_leader = false;
    const char *kept = settings_text(c->all, SETTING_SAVE);
    side *s = &c->sides[0];
    if (kept != NULL && strlen(kept) >= sizeof(s->path)) {
        return print_failure_once(trm_fail(TRM_ERROR_INVALID_ARGUMENT, "the path of the folder is too long"));
    }
    snprintf(s->path, sizeof(s->path), "%s", kept == NULL ? "" : kept);
    int code = compare_run(c->all, s->path, &is_leader);
    if (kept == NULL && is_leader && s->path[0] != '\0') {
        c->temporary = strdup(s->path);
    }
    return code != 0 || !is_leader || !compares(c) ? code : conclude(c);
}

/* The operand is a folder of a run: nothing is run. */
static int run_nowhere(comparer *c)
{
    side *s = &c->sides[0];
    snprintf(s->path, sizeof(s->path), "%s", c->all->operands[0]);
    snprintf(s->title, sizeof(s->title), "%.60s", c->all->operands[0]);
    return is_first_rank() ? conclude(c) : 0;
}

static trm_status check(const comparer *c, bool launched, bool is_saved)
{
    if (!is_saved) {
        TRM_TRY(check_operand(c->all));
    }
    TRM_TRY(tensor_check_limits(c->all));
    if (launched && c->n_sides > 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "comparing several backends or numbers of ranks starts its own processes: run compare without mpirun");
    }
    if (!compares(c) && (is_saved || settings_text(c->all, SETTING_SAVE) == NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "nothing to compare: give two backends (--backend host,cuda), two numbers "
                                             "of ranks (--ranks 1,2), --against, --expect or --save");
    }
    if (is_saved && (c->n_sides > 1 || settings_text(c->all, SETTING_SAVE) != NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is a saved run and cannot be run again", c->all->operands[0]);
    }
    return TRM_OK;
}

int command_compare(const settings *all)
{
    comparer c = {.all = all};
    bool launched = launched_rank() != NULL, is_saved = tensor_folder_exists(all->operands[0]);
    trm_status status = list_sides(&c);
    if (status == TRM_OK) {
        status = check(&c, launched, is_saved);
    }
    if (status == TRM_OK && is_first_rank()) {
        status = read_references(&c);
    }
    /* The process that made a temporary folder removes it. */
    bool here = launched || (c.n_sides == 1 && c.sides[0].ranks == 1 && settings_text(all, SETTING_SAVE) != NULL);
    int code = status != TRM_OK ? print_failure_once(status)
               : is_saved       ? run_nowhere(&c)
               : here           ? run_here(&c)
                                : run_elsewhere(&c);
    if (c.temporary != NULL) {
        tensor_folder_remove(c.temporary);
        free(c.temporary);
    }
    expected_fini(&c.files);
    return code;
}
