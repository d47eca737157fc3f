/*
 * The table of loaded plugins: libraries, checks of what they export, and look-up. Settings and layers are in layer.c,
 * calls in call.c.
 *
 * Entries are added under a mutex and never change or go away, so that readers need only their number.
 */
#include "kernels/plugin/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/recorder.h"

#define MOST_PLUGINS 1024
#define MOST_NAME    256

static struct {
    pthread_mutex_t mutex;
    trm_arena arena;
    trm_plugin_entry entries[MOST_PLUGINS];
    atomic_int n;
} loaded = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- look-up ----------------------------------------------------------------------------------- */

const trm_plugin_entry *trm_plugin_find(const char *domain, const char *name, int32_t version, bool *known)
{
    const trm_plugin_entry *best = NULL;
    const int32_t n = atomic_load(&loaded.n);
    if (known != NULL) {
        *known = false;
    }
    for (int32_t i = 0; i < n; i++) {
        const trm_plugin_entry *entry = &loaded.entries[i];
        if (strcmp(entry->table.name, name) != 0 || strcmp(entry->table.domain, domain) != 0) {
            continue;
        }
        if (known != NULL) {
            *known = true;
        }
        if (entry->table.version <= version && (best == NULL || entry->table.version > best->table.version)) {
            best = entry;
        }
    }
    return best;
}

bool trm_plugin_get_info(int32_t index, trm_plugin_info *info)
{
    if (index < 0 || index >= atomic_load(&loaded.n)) {
        return false;
    }
    const trm_plugin_entry *entry = &loaded.entries[index];
    *info = (trm_plugin_info){.domain = entry->table.domain,
                              .name = entry->table.name,
                              .version = entry->table.version,
                              .library = entry->library,
                              .host = trm_plugin_has_kernel(entry, TRM_BACKEND_HOST),
                              .cuda = trm_plugin_has_kernel(entry, TRM_BACKEND_CUDA)};
    return true;
}

/* ---- checks of a table ------------------------------------------------------------------------- */

static bool is_text(const char *text, bool may_be_empty)
{
    size_t n = 0;
    while (text != NULL && n <= MOST_NAME && (unsigned char)text[n] > ' ' && text[n] != 0x7f) {
        n++;
    }
    return text != NULL && n <= MOST_NAME && text[n] == '\0' && (n > 0 || may_be_empty);
}

/* What is wrong with the fields, or NULL. */
static const char *check_fields(const trm_plugin *plugin)
{
    if (plugin->n_fields < 0 || plugin->n_fields > TRM_PLUGIN_MOST_FIELDS ||
        (plugin->n_fields > 0 && plugin->fields == NULL)) {
        return "it has an impossible number of fields";
    }
    for (int32_t i = 0; i < plugin->n_fields; i++) {
        const trm_plugin_field *field = &plugin->fields[i];
        if (!is_text(field->name, false)) {
            return "a field has no valid name";
        }
        if (field->type < TRM_PLUGIN_INT || field->type > TRM_PLUGIN_TENSOR) {
            return "a field has an unknown type";
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(plugin->fields[k].name, field->name) == 0) {
                return "two fields have one name";
            }
        }
    }
    return NULL;
}

static bool is_form(int8_t form)
{
    return (form >= -TRM_MAX_DIMS && form <= TRM_MAX_DIMS) || form == TRM_PLUGIN_SUM;
}

static const char *check_splits(const trm_plugin *plugin)
{
    if (plugin->n_splits < 0 || plugin->n_splits > TRM_PLUGIN_MOST_FIELDS ||
        (plugin->n_splits > 0 && plugin->splits == NULL)) {
        return "it has an impossible number of splits";
    }
    for (int32_t i = 0; i < plugin->n_splits; i++) {
        const trm_plugin_split *split = &plugin->splits[i];
        bool cuts = false;
        for (int32_t k = 0; k < TRM_MAX_LAYER_INPUTS; k++) {
            cuts = cuts || split->inputs[k] != TRM_PLUGIN_WHOLE;
            if (!is_form(split->inputs[k])) {
                return "a split has an input with an impossible axis";
            }
        }
        for (int32_t k = 0; k < TRM_MAX_LAYER_OUTPUTS; k++) {
            if (!is_form(split->outputs[k])) {
                return "a split has an output with an impossible axis";
            }
        }
        if (!cuts) {
            return "a split leaves all inputs whole";
        }
    }
    return NULL;
}

static const char *check_kernels(const trm_plugin *plugin)
{
    const bool has_code = plugin->cuda_source != NULL || plugin->cuda_image != NULL;
    if (plugin->infer == NULL) {
        return "it has no function infer";
    }
    if (plugin->run == NULL && plugin->enqueue == NULL && plugin->launch == NULL) {
        return "it has none of the functions run, enqueue and launch";
    }
    if (plugin->enqueue != NULL && plugin->launch != NULL) {
        return "it has both functions enqueue and launch";
    }
    if (has_code != (plugin->launch != NULL) || has_code != (plugin->cuda_kernel != NULL) ||
        (plugin->cuda_source != NULL && plugin->cuda_image != NULL)) {
        return "it needs all of a CUDA source or image, cuda_kernel and launch, or none of them";
    }
    return NULL;
}

static const char *check_table(const trm_plugin *plugin)
{
    if (plugin->version < 1) {
        return "its version is below 1";
    }
    if (plugin->least_inputs < 1 || plugin->most_inputs < plugin->least_inputs ||
        plugin->most_inputs > TRM_MAX_LAYER_INPUTS) {
        return "it has an impossible number of inputs";
    }
    if (plugin->n_outputs < 1 || plugin->n_outputs > TRM_MAX_LAYER_OUTPUTS) {
        return "it has an impossible number of outputs";
    }
    if (plugin->value_inputs >> plugin->most_inputs != 0) {
        return "a value input is none of its inputs";
    }
    const char *wrong = check_fields(plugin);
    wrong = wrong == NULL ? check_splits(plugin) : wrong;
    return wrong == NULL ? check_kernels(plugin) : wrong;
}

/* Copies a table of the size that the plugin knows, and checks it. `where` is the library. */
static trm_status take_table(const trm_plugin *from, const char *where, trm_plugin *to)
{
    if (from == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s: a plugin of the list is NULL", where);
    }
    if (from->size < sizeof(*to)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s: a plugin's table has %zu bytes, expected at least %zu", where,
                 from->size, sizeof(*to));
    }
    memcpy(to, from, sizeof(*to));
    if (!is_text(to->name, false) || !is_text(to->domain, true)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%s: a plugin has no valid name or domain: expected at most %d characters without spaces", where,
                 MOST_NAME);
    }
    const char *wrong = check_table(to);
    if (wrong != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s: cannot take plugin %s.%s: %s", where, to->domain, to->name, wrong);
    }
    return TRM_OK;
}

/* ---- registration ------------------------------------------------------------------------------ */

static trm_status check_list(const trm_plugin_list *list, const char *where)
{
    if (list->size < sizeof(*list) || list->abi != TRM_PLUGIN_ABI) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "%s: its plugins have ABI %d and a list of %zu bytes, expected ABI %d and at least %zu: build it with "
                 "this version's trireme/plugin.h",
                 where, (int)list->abi, list->size, TRM_PLUGIN_ABI, sizeof(*list));
    }
    if (list->n_plugins < 1 || list->n_plugins > MOST_PLUGINS || list->plugins == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s: it lists %d plugins, expected 1 to %d", where, (int)list->n_plugins,
                 MOST_PLUGINS);
    }
    return TRM_OK;
}

/* Adds a table behind the `n` that are there, which become visible together. */
static trm_status add_entry(const trm_plugin *table, const char *where, const char *library, uint64_t checksum,
                            int32_t n)
{
    if (n == MOST_PLUGINS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: more than %d plugins are loaded", where, MOST_PLUGINS);
    }
    for (int32_t i = 0; i < n; i++) {
        const trm_plugin *other = &loaded.entries[i].table;
        if (other->version == table->version && strcmp(other->name, table->name) == 0 &&
            strcmp(other->domain, table->domain) == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s: plugin %s is loaded already%s%s", where, loaded.entries[i].label,
                     loaded.entries[i].library[0] == '\0' ? "" : ", from ", loaded.entries[i].library);
        }
    }
    const char *label = trm_arena_printf(&loaded.arena, "%s%s%s %d", table->domain, table->domain[0] == '\0' ? "" : ".",
                                         table->name, (int)table->version);
    loaded.entries[n] = (trm_plugin_entry){*table, label, library, checksum};
    return label == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

/* All plugins of a list or none. Under the mutex. */
static trm_status add_list(const trm_plugin_list *list, const char *path, uint64_t checksum)
{
    const char *where = path == NULL ? "this program" : path;
    int32_t n = atomic_load(&loaded.n);
    TRM_TRY(check_list(list, where));
    const char *library = path == NULL ? "" : trm_arena_strdup(&loaded.arena, path);
    if (library == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < list->n_plugins; i++, n++) {
        trm_plugin table;
        TRM_TRY(take_table(list->plugins[i], where, &table));
        TRM_TRY(add_entry(&table, where, library, checksum, n));
    }
    atomic_store(&loaded.n, n);
    return TRM_OK;
}

TRM_CALL(NULL, trm_plugin_register, (const trm_plugin_list *list), (list))
{
    if (list == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot register plugins: list is NULL");
    }
    pthread_mutex_lock(&loaded.mutex);
    const trm_status status = add_list(list, NULL, 0);
    pthread_mutex_unlock(&loaded.mutex);
    return status;
}

static trm_status checksum_of(const char *path, uint64_t *checksum)
{
    trm_mapping file;
    TRM_TRY(trm_file_map(path, &file));
    *checksum = trm_hash_bytes(TRM_HASH_START, file.bytes, file.size);
    trm_file_unmap(&file);
    return TRM_OK;
}

static bool is_loaded(const char *path)
{
    const int32_t n = atomic_load(&loaded.n);
    int32_t i = 0;
    while (i < n && strcmp(loaded.entries[i].library, path) != 0) {
        i++;
    }
    return i < n;
}

static trm_status load(const char *path)
{
    uint64_t checksum;
    if (is_loaded(path)) {
        return TRM_OK;
    }
    TRM_TRY(checksum_of(path, &checksum));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        TRM_FAIL(TRM_ERROR_IO, "cannot load plugins from %s: %s", path, reason == NULL ? "unknown reason" : reason);
    }
    const trm_plugin_list *list = dlsym(library, "trm_plugins");
    trm_status status = list == NULL ? trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                                                "%s exports no trm_plugins: it is no library of plugins", path)
                                     : add_list(list, path, checksum);
    if (status != TRM_OK) {
        dlclose(library);
    }
    return status;
}

TRM_CALL(NULL, trm_plugin_load, (const char *path), (path))
{
    char resolved[PATH_MAX];
    if (path == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot load plugins: path is NULL");
    }
    if (realpath(path, resolved) == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot load plugins from %s: %s", path, strerror(errno));
    }
    pthread_mutex_lock(&loaded.mutex);
    const trm_status status = load(resolved);
    pthread_mutex_unlock(&loaded.mutex);
    return status;
}
