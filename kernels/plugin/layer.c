/*
 * Layers of plugins: settings, checked against the plugin's fields and copied, and the table of layers, in which equal
 * ones are one.
 */
#include "kernels/plugin/plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/recorder.h"

#define MOST_LAYERS 65536

static struct {
    pthread_mutex_t mutex;
    trm_arena arena;
    trm_plugin_layer *layers[MOST_LAYERS]; /* number 1 first */
    const void *given[MOST_LAYERS];        /* bytes that a plan gave, of layers[i]->saved_size, or NULL */
    atomic_int n;
} made = {.mutex = PTHREAD_MUTEX_INITIALIZER};

const trm_plugin_layer *trm_plugin_layer_of(const trm_layer_desc *desc)
{
    const int32_t number = desc->plugin.layer;
    return number < 1 || number > atomic_load(&made.n) ? NULL : made.layers[number - 1];
}

/* ---- settings ---------------------------------------------------------------------------------- */

static bool is_text(const char *text)
{
    size_t n = 0;
    while (text != NULL && n < TRM_PLUGIN_MOST_SETTINGS && (unsigned char)text[n] >= ' ' && text[n] != 0x7f) {
        n++;
    }
    return text != NULL && text[n] == '\0';
}

/* Bytes of a tensor's elements; false if it has none that can be. */
static bool tensor_bytes(const trm_plugin_setting *setting, size_t *bytes)
{
    *bytes = trm_dtype_size(setting->dtype);
    bool good = *bytes > 0 && setting->dims.n >= 0 && setting->dims.n <= TRM_MAX_DIMS;
    for (int32_t i = 0; good && i < setting->dims.n; i++) {
        good = setting->dims.d[i] >= 0 && trm_checked_mul(*bytes, (size_t)setting->dims.d[i], bytes);
    }
    return good && (*bytes == 0 || setting->data != NULL);
}

/* Adds the bytes of a setting's values; false if they are malformed. */
static bool measure(const trm_plugin_setting *setting, size_t *total)
{
    const bool is_list = setting->type >= TRM_PLUGIN_INTS && setting->type <= TRM_PLUGIN_STRINGS;
    const bool ints = setting->type == TRM_PLUGIN_INT || setting->type == TRM_PLUGIN_INTS;
    const bool floats = setting->type == TRM_PLUGIN_FLOAT || setting->type == TRM_PLUGIN_FLOATS;
    size_t bytes = 0;
    if (setting->type == TRM_PLUGIN_TENSOR) {
        return tensor_bytes(setting, &bytes) && trm_checked_add(*total, bytes, total);
    }
    if (setting->count < 0 || (!is_list && setting->count != 1)) {
        return false;
    }
    if (ints || floats) {
        bytes = (size_t)setting->count * (ints ? sizeof(int64_t) : sizeof(float));
        const void *values = ints ? (const void *)setting->ints : (const void *)setting->floats;
        return (setting->count == 0 || values != NULL) && trm_checked_add(*total, bytes, total);
    }
    for (int32_t i = 0; i < setting->count; i++) {
        if (setting->strings == NULL || !is_text(setting->strings[i]) ||
            !trm_checked_add(*total, strlen(setting->strings[i]) + 1 + sizeof(char *), total)) {
            return false;
        }
    }
    return true;
}

/* Puts the settings into the order of the plugin's fields: sorted [n_settings]. */
static trm_status sort_settings(const trm_plugin_entry *plugin, const trm_plugin_setting *settings, int32_t n_settings,
                                trm_plugin_setting *sorted)
{
    size_t total = 0;
    int32_t n = 0;
    if (n_settings < 0 || n_settings > TRM_PLUGIN_MOST_FIELDS || (n_settings > 0 && settings == NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s got %d settings, expected at most %d", plugin->label,
                 (int)n_settings, TRM_PLUGIN_MOST_FIELDS);
    }
    for (int32_t i = 0; i < plugin->table.n_fields; i++) {
        const trm_plugin_field *field = &plugin->table.fields[i];
        const trm_plugin_setting *found = NULL;
        for (int32_t k = 0; k < n_settings; k++) {
            if (settings[k].name == NULL || strcmp(settings[k].name, field->name) != 0) {
                continue;
            }
            if (found != NULL || settings[k].type != field->type || !measure(&settings[k], &total)) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "setting %s of plugin %s is %s", field->name, plugin->label,
                         found != NULL                     ? "given twice"
                         : settings[k].type != field->type ? "of another type than the plugin's field"
                                                           : "malformed");
            }
            found = &settings[k];
        }
        if (found == NULL && field->required) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s needs setting %s", plugin->label, field->name);
        }
        if (found != NULL) {
            sorted[n] = *found;
            sorted[n++].name = field->name;
        }
    }
    for (int32_t k = 0; n < n_settings && k < n_settings; k++) {
        int32_t i = 0;
        while (i < n && settings[k].name != NULL && strcmp(sorted[i].name, settings[k].name) != 0) {
            i++;
        }
        if (i == n || settings[k].name == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s has no setting %.64s", plugin->label,
                     settings[k].name == NULL ? "NULL" : settings[k].name);
        }
    }
    if (total > TRM_PLUGIN_MOST_SETTINGS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "the settings of plugin %s have %zu bytes, at most %zu are supported: give large ones as inputs",
                 plugin->label, total, TRM_PLUGIN_MOST_SETTINGS);
    }
    return TRM_OK;
}

static bool setting_equals(const trm_plugin_setting *a, const trm_plugin_setting *b)
{
    size_t bytes_a = 0, bytes_b = 0;
    if (a->name != b->name || (a->type != TRM_PLUGIN_TENSOR && a->count != b->count)) {
        return false; /* names are those of fields */
    }
    switch (a->type) {
    case TRM_PLUGIN_INT:
    case TRM_PLUGIN_INTS:
        return a->count == 0 || memcmp(a->ints, b->ints, (size_t)a->count * sizeof(*a->ints)) == 0;
    case TRM_PLUGIN_FLOAT:
    case TRM_PLUGIN_FLOATS:
        return a->count == 0 || memcmp(a->floats, b->floats, (size_t)a->count * sizeof(*a->floats)) == 0;
    case TRM_PLUGIN_STRING:
    case TRM_PLUGIN_STRINGS:
        for (int32_t i = 0; i < a->count; i++) {
            if (strcmp(a->strings[i], b->strings[i]) != 0) {
                return false;
            }
        }
        return true;
    case TRM_PLUGIN_TENSOR:
        break;
    }
    return tensor_bytes(a, &bytes_a) && tensor_bytes(b, &bytes_b) && a->dtype == b->dtype && a->dims.n == b->dims.n &&
           memcmp(a->dims.d, b->dims.d, (size_t)a->dims.n * sizeof(a->dims.d[0])) == 0 &&
           (bytes_a == 0 || memcmp(a->data, b->data, bytes_a) == 0);
}

static void *copy_bytes(const void *from, size_t size)
{
    void *copy = trm_arena_alloc(&made.arena, size + 1);
    if (copy != NULL && size > 0) {
        memcpy(copy, from, size);
    }
    return copy;
}

/* Replaces what a setting points to by copies. */
static trm_status keep_setting(trm_plugin_setting *setting)
{
    const size_t n = (size_t)setting->count;
    size_t bytes = 0;
    if (setting->type == TRM_PLUGIN_TENSOR) {
        (void)tensor_bytes(setting, &bytes);
        setting->data = copy_bytes(setting->data, bytes);
        return setting->data == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    }
    if (setting->type == TRM_PLUGIN_INT || setting->type == TRM_PLUGIN_INTS) {
        setting->ints = copy_bytes(setting->ints, n * sizeof(*setting->ints));
        return setting->ints == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    }
    if (setting->type == TRM_PLUGIN_FLOAT || setting->type == TRM_PLUGIN_FLOATS) {
        setting->floats = copy_bytes(setting->floats, n * sizeof(*setting->floats));
        return setting->floats == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    }
    const char **strings = trm_arena_array(&made.arena, n + 1, sizeof(*strings));
    for (size_t i = 0; strings != NULL && i < n; i++) {
        strings[i] = trm_arena_strdup(&made.arena, setting->strings[i]);
        if (strings[i] == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
    }
    setting->strings = strings;
    return strings == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

/* ---- layers ------------------------------------------------------------------------------------ */

/* The number of a layer with these sorted settings and these bytes of a plan; 0: none. */
static int32_t find_equal(const trm_plugin_layer *wanted)
{
    const int32_t n = atomic_load(&made.n);
    for (int32_t k = 0; k < n; k++) {
        const trm_plugin_layer *layer = made.layers[k];
        bool equal = layer->plugin == wanted->plugin && layer->n_settings == wanted->n_settings &&
                     (made.given[k] != NULL) == (wanted->saved != NULL);
        if (equal && wanted->saved != NULL) {
            equal = layer->saved_size == wanted->saved_size &&
                    memcmp(made.given[k], wanted->saved, wanted->saved_size) == 0;
        }
        for (int32_t i = 0; equal && i < layer->n_settings; i++) {
            equal = setting_equals(&layer->settings[i], &wanted->settings[i]);
        }
        if (equal) {
            return k + 1;
        }
    }
    return 0;
}

/* Calls `create`, and `save` of a layer that comes from no plan. */
static trm_status create(trm_plugin_layer *layer)
{
    const trm_plugin *table = &layer->plugin->table;
    trm_plugin_run run = {.layer = layer, .failure = TRM_ERROR_INVALID_ARGUMENT};
    run.call = (trm_plugin_call){.size = sizeof(run.call),
                                 .settings = layer->settings,
                                 .n_settings = layer->n_settings,
                                 .saved = layer->saved,
                                 .saved_size = layer->saved_size,
                                 .error = run.error,
                                 .error_size = sizeof(run.error)};
    if (table->create != NULL) {
        TRM_TRY(trm_plugin_do(&run, table->create, "take its settings"));
        layer->self = run.call.self;
    }
    if (table->save == NULL || layer->saved != NULL) {
        return TRM_OK;
    }
    run.call.saved = NULL;
    run.call.saved_size = 0;
    TRM_TRY(trm_plugin_do(&run, table->save, "save a layer"));
    if (run.call.saved_size > TRM_PLUGIN_MOST_SAVED || (run.call.saved == NULL && run.call.saved_size > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s saves %zu bytes of a layer, at most %zu are supported",
                 layer->plugin->label, run.call.saved_size, TRM_PLUGIN_MOST_SAVED);
    }
    layer->saved_size = run.call.saved_size;
    layer->saved = copy_bytes(run.call.saved, run.call.saved_size);
    return layer->saved == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

/* Makes the layer of a description, whose settings are the caller's. Under the mutex. */
static trm_status add(const trm_plugin_layer *wanted, int32_t *number)
{
    const int32_t n = atomic_load(&made.n);
    if (n == MOST_LAYERS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot make another layer of plugin %s: the process has %d of plugins",
                 wanted->plugin->label, MOST_LAYERS);
    }
    trm_plugin_layer *layer = copy_bytes(wanted, sizeof(*wanted));
    trm_plugin_setting *settings = trm_arena_array(&made.arena, (size_t)wanted->n_settings + 1, sizeof(*settings));
    if (layer == NULL || settings == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < wanted->n_settings; i++) {
        settings[i] = wanted->settings[i];
        TRM_TRY(keep_setting(&settings[i]));
    }
    layer->settings = settings;
    if (wanted->saved != NULL) {
        layer->saved = copy_bytes(wanted->saved, wanted->saved_size);
        if (layer->saved == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
    }
    TRM_TRY(create(layer));
    made.layers[n] = layer;
    made.given[n] = wanted->saved != NULL ? layer->saved : NULL;
    atomic_store(&made.n, n + 1);
    *number = n + 1;
    return TRM_OK;
}

trm_status trm_plugin_add_layer(const trm_plugin_entry *plugin, const trm_plugin_setting *settings, int32_t n_settings,
                                const void *saved, size_t saved_size, int32_t *layer)
{
    trm_plugin_setting sorted[TRM_PLUGIN_MOST_FIELDS];
    TRM_TRY(sort_settings(plugin, settings, n_settings, sorted));
    const trm_plugin_layer wanted = {
        .plugin = plugin, .settings = sorted, .n_settings = n_settings, .saved = saved, .saved_size = saved_size};
    pthread_mutex_lock(&made.mutex);
    int32_t number = find_equal(&wanted);
    const trm_status status = number == 0 ? add(&wanted, &number) : TRM_OK;
    pthread_mutex_unlock(&made.mutex);
    if (status == TRM_OK) {
        *layer = number;
    }
    return status;
}

TRM_CALL(NULL, trm_plugin_make_layer,
         (const char *domain, const char *name, int32_t version, const trm_plugin_setting *settings,
          int32_t n_settings, int32_t *layer),
         (domain, name, version, settings, n_settings, layer))
{
    bool known;
    if (domain == NULL || name == NULL || layer == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot make a layer of a plugin: domain, name or layer is NULL");
    }
    const trm_plugin_entry *plugin = trm_plugin_find(domain, name, version, &known);
    if (plugin == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "no plugin %s.%s %s", domain, name,
                 known ? "of this version or an earlier one is loaded" : "is loaded");
    }
    return trm_plugin_add_layer(plugin, settings, n_settings, NULL, 0, layer);
}
