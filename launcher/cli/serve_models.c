/* The language models of `trireme serve`. */
#include "launcher/cli/serve_models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/serve.h"
#include "launcher/serve/responses/embedding.h"

/* ---- names ----------------------------------------------------------------------------------------------- */

trm_status serve_choose_name(const settings *all, const char *operand, char name[SERVER_LONGEST_NAME + 1])
{
    const char *given = settings_text(all, SETTING_SERVED_NAME);
    size_t size = strlen(operand);
    while (size > 1 && operand[size - 1] == '/') {
        size--;
    }
    size_t start = size;
    while (start > 0 && operand[start - 1] != '/') {
        start--;
    }
    int written = given != NULL ? snprintf(name, SERVER_LONGEST_NAME + 1, "%s", given)
                                : snprintf(name, SERVER_LONGEST_NAME + 1, "%.*s", (int)(size - start), operand + start);
    if (written <= 0 || written > SERVER_LONGEST_NAME) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the name of model %s has %d bytes, expected 1 to %d", operand, written,
                 SERVER_LONGEST_NAME);
    }
    return TRM_OK;
}

/* Takes an operand apart: NAME=MODEL, unless it is a path as a whole. */
static trm_status take_operand(const settings *all, const char *operand, serve_model *m)
{
    const char *equals = strchr(operand, '=');
    m->operand = operand;
    if (equals == NULL || access(operand, F_OK) == 0) {
        return serve_choose_name(all, operand, m->name);
    }
    if (equals == operand || equals[1] == '\0' || equals - operand > SERVER_LONGEST_NAME) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "model is %s, expected MODEL or NAME=MODEL with a name of 1 to %d bytes",
                 operand, SERVER_LONGEST_NAME);
    }
    if (settings_text(all, SETTING_SERVED_NAME) != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "model is %s, but served-name is %s (%s): name it once", operand,
                 settings_text(all, SETTING_SERVED_NAME), all->origins[SETTING_SERVED_NAME]);
    }
    snprintf(m->name, sizeof(m->name), "%.*s", (int)(equals - operand), operand);
    m->operand = equals + 1;
    return TRM_OK;
}

/* Gives an adapter, MODEL:NAME=FOLDER, to its model. The only model need not be named. */
static trm_status give_adapter(serve_model *models, int32_t n, const char *adapter)
{
    serve_model *its = n == 1 ? models : NULL;
    for (int32_t i = 0; i < n && n > 1; i++) {
        const size_t size = strlen(models[i].name);
        if (strncmp(adapter, models[i].name, size) == 0 && adapter[size] == ':') {
            its = &models[i];
            adapter += size + 1;
            break;
        }
    }
    if (its == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "adapter is %s, expected MODEL:NAME=FOLDER with the name of one of the %d models", adapter, n);
    }
    its->adapters[its->n_adapters++] = adapter;
    return TRM_OK;
}

/* Whether a text NAME=FOLDER has the name [size]. */
static bool names(const char *adapter, const char *name, size_t size)
{
    return strncmp(adapter, name, size) == 0 && adapter[size] == '=';
}

/* Requests choose adapters by name as well, so among all models a name stands for one thing. */
static trm_status check_adapter(const serve_model *models, int32_t n, int32_t owner, const char *adapter)
{
    const size_t size = strcspn(adapter, "=");
    for (int32_t i = 0; i < n; i++) {
        bool taken = names(adapter, models[i].name, strlen(models[i].name));
        for (int32_t k = 0; k < models[i].n_adapters && i != owner; k++) {
            taken = taken || names(models[i].adapters[k], adapter, size);
        }
        if (taken) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "adapter %.*s of model %s has the name of model %s, or of its adapter",
                     (int)size, adapter, models[owner].name, models[i].name);
        }
    }
    return TRM_OK;
}

/* Options that say something of one model. */
static trm_status check_options(const settings *all)
{
    static const setting_id single[] = {SETTING_SERVED_NAME, SETTING_CHAT_TEMPLATE, SETTING_DRAFT};
    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++) {
        if (settings_text(all, single[i]) != NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s (%s) is for a server of one model, found %d",
                     settings_table[single[i]].name, all->origins[single[i]], all->n_operands);
        }
    }
    return TRM_OK;
}

trm_status serve_models_name(const settings *all, serve_model *models, int32_t n)
{
    if (n > 1) {
        TRM_TRY(check_options(all));
    }
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(take_operand(all, all->operands[i], &models[i]));
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(models[i].name, models[k].name) == 0) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "models %s and %s are both named %s, expected NAME=MODEL",
                         all->operands[k], all->operands[i], models[i].name);
            }
        }
    }
    for (int32_t i = 0; i < all->list_counts[SETTING_ADAPTER]; i++) {
        TRM_TRY(give_adapter(models, n, all->lists[SETTING_ADAPTER][i]));
    }
    for (int32_t i = 0; i < n && n > 1; i++) {
        for (int32_t k = 0; k < models[i].n_adapters; k++) {
            TRM_TRY(check_adapter(models, n, i, models[i].adapters[k]));
        }
    }
    return TRM_OK;
}

/* ---- commands of jobs ------------------------------------------------------------------------------------ */

static trm_status add_word(command_line *line, const char *prefix, const char *word)
{
    size_t size = strlen(prefix) + strlen(word) + 1;
    if (line->n + 1 >= line->capacity) {
        int32_t capacity = line->capacity == 0 ? 32 : 2 * line->capacity;
        char **grown = realloc(line->words, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the command of the job");
        }
        line->words = grown;
        line->capacity = capacity;
    }
    char *copy = malloc(size);
    if (copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the command of the job");
    }
    snprintf(copy, size, "%s%s", prefix, word);
    line->words[line->n++] = copy;
    line->words[line->n] = NULL;
    return TRM_OK;
}

int32_t serve_model_adapters(const serve_model *m, const settings *all)
{
    const int32_t most = (int32_t)settings_integer(all, SETTING_MAX_ADAPTERS);
    return m->n_adapters > most ? m->n_adapters : most;
}

/* Adds the settings of the ranks, as they are in force here. */
static trm_status add_settings(command_line *line, const settings *all)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        const setting *row = &settings_table[id];
        if ((row->commands & COMMAND_SERVE_WORKER) == 0 || all->values[id] == NULL || id == SETTING_CONFIG ||
            id == SETTING_HELP || id == SETTING_REPLICA || id == SETTING_MAX_ADAPTERS || id == SETTING_TIMELINE) {
            continue;
        }
        char option[64];
        snprintf(option, sizeof(option), "--%s=", row->name);
        TRM_TRY(add_word(line, option, all->values[id]));
    }
    return TRM_OK;
}

/* Every job writes a file of its own: FILE, with .NAME if there are several models, and .replicaN from the second on.
 */
static trm_status add_timeline(command_line *line, const serve_model *m, const settings *all, int32_t replica)
{
    const char *path = settings_text(all, SETTING_TIMELINE);
    char name[sizeof(m->name) + 1] = "", number[24] = "", word[4096];
    if (path == NULL) {
        return TRM_OK;
    }
    if (all->n_operands > 1) {
        snprintf(name, sizeof(name), ".%s", m->name);
        for (char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash, '/')) {
            *slash = '_'; /* of "org/name" */
        }
    }
    if (replica > 0) {
        snprintf(number, sizeof(number), ".replica%d", (int)replica);
    }
    if (snprintf(word, sizeof(word), "%s%s%s", path, name, number) >= (int)sizeof(word)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "timeline has a path of %zu bytes, expected less than %zu", strlen(path),
                 sizeof(word) - sizeof(name) - sizeof(number));
    }
    return add_word(line, "--timeline=", word);
}

/* Makes `trireme serve-worker MODEL ...`, under mpirun if there are several ranks. */
static trm_status make_command(const serve_model *m, const settings *all, int32_t ranks, int32_t replica,
                               command_line *line)
{
    char program[4096], number[16];
    ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (size < 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot find the path of this program: %s", strerror(errno));
    }
    program[size] = '\0';
    snprintf(number, sizeof(number), "%d", ranks);
    if (ranks > 1) {
        const char *const words[] = {
            settings_text(all, SETTING_MPIRUN), "-np", number, "--bind-to", "none", "--oversubscribe"};
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            TRM_TRY(add_word(line, "", words[i]));
        }
    }
    snprintf(number, sizeof(number), "%d", replica);
    TRM_TRY(add_word(line, "", program));
    TRM_TRY(add_word(line, "", "serve-worker"));
    TRM_TRY(add_word(line, "", m->info.path));
    TRM_TRY(add_word(line, "--replica=", number));
    snprintf(number, sizeof(number), "%d", serve_model_adapters(m, all));
    TRM_TRY(add_word(line, "--max-adapters=", number));
    TRM_TRY(add_timeline(line, m, all, replica));
    return add_settings(line, all);
}

static trm_status make_commands(serve_model *m, const settings *all, int32_t ranks)
{
    m->n_replicas = (int32_t)settings_integer(all, SETTING_REPLICAS);
    if (m->n_replicas > 1 && settings_integer(all, SETTING_DEVICE) >= 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "device is %s (%s), but each of %d replicas needs its own GPUs",
                 settings_text(all, SETTING_DEVICE), all->origins[SETTING_DEVICE], m->n_replicas);
    }
    for (int32_t i = 0; i < m->n_replicas; i++) {
        TRM_TRY(make_command(m, all, ranks, i, &m->jobs[i]));
    }
    return TRM_OK;
}

/* ---- models ---------------------------------------------------------------------------------------------- */

/* Opens the given template, which must be valid, or the model's, which may be missing. */
static trm_status open_chat(serve_model *m, const settings *all, log_writer *log)
{
    const char *given = settings_text(all, SETTING_CHAT_TEMPLATE);
    trm_status status = trm_chat_template_open(given != NULL ? given : m->info.path, NULL, &m->chat);
    if (status != TRM_OK && given == NULL) {
        log_print(log, "chat%s%s is disabled: %s", all->n_operands > 1 ? " with " : "",
                  all->n_operands > 1 ? m->name : "", trm_last_error());
        return TRM_OK;
    }
    return status;
}

trm_status serve_model_open(serve_model *m, const settings *all, int32_t ranks, log_writer *log)
{
    if (names_network(m->operand)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%s is a network, which is served alone; several arguments are language models", m->operand);
    }
    if (names_shape(m->operand)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%s is a named shape, which has no tokenizer; expected a model folder (bench and inspect take shapes)",
                 m->operand);
    }
    TRM_TRY(open_model(all, m->operand, &m->model));
    trm_model_get_info(m->model, &m->info);
    trm_status status = trm_tokenizer_open(m->info.path, &m->tokenizer);
    if (status != TRM_OK) {
        return status == TRM_ERROR_IO ? TRM_ERROR_INVALID_MODEL : status;
    }
    TRM_TRY(grammar_cache_create(m->tokenizer, m->info.eos_tokens, m->info.n_eos_tokens, m->info.vocab, &m->grammars));
    TRM_TRY(embedding_pooling(m->info.path, &m->pooling));
    TRM_TRY(open_chat(m, all, log));
    return make_commands(m, all, ranks);
}

void serve_model_close(serve_model *m)
{
    grammar_cache_destroy(m->grammars);
    trm_chat_template_close(m->chat);
    trm_tokenizer_close(m->tokenizer);
    trm_model_close(m->model);
    for (int32_t i = 0; i < m->n_replicas; i++) {
        for (int32_t k = 0; k < m->jobs[i].n; k++) {
            free(m->jobs[i].words[k]);
        }
        free(m->jobs[i].words);
    }
}
