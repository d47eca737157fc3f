/* Converts layers of plugins to messages of plan files, and back. A plan names no file to load: plugins are looked up
 * among those that the process has loaded. */
#include "dist/plan/messages.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "graph/infer.h"
#include "kernels/plugin/plugin.h"

/* ---- put ----------------------------------------------------------------------------------------------- */

static trm_status put_setting(trm_arena *arena, const trm_plugin_setting *from, Trireme__Plan__Setting *to)
{
    const size_t n = from->type == TRM_PLUGIN_TENSOR ? 0 : (size_t)from->count;
    trireme__plan__setting__init(to);
    to->type = (int32_t)from->type;
    TRM_TRY(trm_plan_copy_text(arena, from->name, &to->name));
    to->integers = trm_arena_array(arena, n + 1, sizeof(*to->integers));
    to->floats = trm_arena_array(arena, n + 1, sizeof(*to->floats));
    to->words = trm_arena_array(arena, n + 1, sizeof(*to->words));
    to->dims = trm_arena_array(arena, TRM_MAX_DIMS, sizeof(*to->dims));
    if (to->integers == NULL || to->floats == NULL || to->words == NULL || to->dims == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        if (from->type == TRM_PLUGIN_INT || from->type == TRM_PLUGIN_INTS) {
            to->integers[to->n_integers++] = from->ints[i];
        } else if (from->type == TRM_PLUGIN_FLOAT || from->type == TRM_PLUGIN_FLOATS) {
            memcpy(&to->floats[to->n_floats++], &from->floats[i], sizeof(float));
        } else {
            TRM_TRY(trm_plan_copy_text(arena, from->strings[i], &to->words[to->n_words++]));
        }
    }
    if (from->type == TRM_PLUGIN_TENSOR) {
        TRM_TRY(trm_plan_copy_text(arena, trm_dtype_name(from->dtype), &to->dtype));
        to->n_dims = (size_t)from->dims.n;
        memcpy(to->dims, from->dims.d, to->n_dims * sizeof(*to->dims));
        to->elements.data = (uint8_t *)(uintptr_t)from->data;
        to->elements.len = trm_dims_bytes(&from->dims, from->dtype);
    }
    return TRM_OK;
}

trm_status trm_plan_put_plugin(trm_arena *arena, const trm_layer_desc *desc, Trireme__Plan__Plugin **message)
{
    const trm_plugin_layer *layer = trm_plugin_layer_of(desc);
    const size_t n = (size_t)layer->n_settings;
    Trireme__Plan__Plugin *made = trm_arena_alloc(arena, sizeof(*made));
    Trireme__Plan__Setting *settings = trm_arena_array(arena, n + 1, sizeof(*settings));
    if (made == NULL || settings == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__plugin__init(made);
    *message = made;
    const char *library = layer->plugin->library, *slash = strrchr(library, '/');
    TRM_TRY(trm_plan_copy_text(arena, layer->plugin->table.domain, &made->domain));
    TRM_TRY(trm_plan_copy_text(arena, layer->plugin->table.name, &made->name));
    TRM_TRY(trm_plan_copy_text(arena, slash == NULL ? library : slash + 1, &made->library));
    made->version = layer->plugin->table.version;
    made->checksum = layer->plugin->checksum;
    made->saved.data = (uint8_t *)(uintptr_t)layer->saved;
    made->saved.len = layer->saved_size;
    made->settings = trm_arena_array(arena, n + 1, sizeof(*made->settings));
    if (made->settings == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        made->settings[made->n_settings++] = &settings[i];
        TRM_TRY(put_setting(arena, &layer->settings[i], &settings[i]));
    }
    return TRM_OK;
}

/* ---- get ----------------------------------------------------------------------------------------------- */

/* Points into the message. The plugin's fields are compared with it where the layer is made. */
static trm_status get_setting(const char *file, const Trireme__Plan__Setting *from, trm_plugin_setting *to)
{
    const bool is_tensor = from->type == TRM_PLUGIN_TENSOR;
    const size_t n = from->n_integers + from->n_floats + from->n_words;
    const size_t wanted = from->type == TRM_PLUGIN_INT || from->type == TRM_PLUGIN_INTS       ? from->n_integers
                          : from->type == TRM_PLUGIN_FLOAT || from->type == TRM_PLUGIN_FLOATS ? from->n_floats
                          : is_tensor                                                         ? 0
                                                                                              : from->n_words;
    int32_t dtype = TRM_DTYPE_NONE;
    if (from->type < TRM_PLUGIN_INT || from->type > TRM_PLUGIN_TENSOR || n != wanted || n > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: setting \"%.40s\" of a plugin has other values than its type says", file,
                 from->name);
    }
    *to = (trm_plugin_setting){.name = from->name,
                               .type = (trm_plugin_type)from->type,
                               .count = (int32_t)n,
                               .ints = from->integers,
                               .floats = (const float *)(const void *)from->floats,
                               .strings = (const char *const *)from->words,
                               .data = from->elements.data};
    if (is_tensor) {
        TRM_TRY(trm_plan_get_dtype(file, from->dtype, false, &dtype));
        TRM_TRY(trm_plan_get_dims(file, from->dims, from->n_dims, &to->dims));
        to->dtype = (trm_dtype)dtype;
        trm_status status = trm_dims_check(&to->dims, to->dtype, false);
        if (status != TRM_OK || trm_dims_bytes(&to->dims, to->dtype) != from->elements.len) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: setting \"%.40s\" of a plugin has other elements than its dims say",
                     file, from->name);
        }
    }
    return TRM_OK;
}

trm_status trm_plan_get_plugin(const char *file, const char *layer, const Trireme__Plan__Plugin *from, int32_t *number)
{
    trm_plugin_setting settings[TRM_PLUGIN_MOST_FIELDS];
    if (from == NULL || from->n_settings > TRM_PLUGIN_MOST_FIELDS || from->saved.len > TRM_PLUGIN_MOST_SAVED) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: layer %s does not say which plugin it is of", file, layer);
    }
    const trm_plugin_entry *plugin = trm_plugin_find(from->domain, from->name, from->version, NULL);
    if (plugin == NULL || plugin->table.version != from->version) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: layer %s needs plugin %.*s.%.*s %d%s%.200s, which is not loaded", file,
                 layer, 256, from->domain, 256, from->name, (int)from->version, from->library[0] == '\0' ? "" : " of ",
                 from->library);
    }
    if (plugin->checksum != from->checksum && plugin->checksum != 0 && from->checksum != 0) {
        TRM_WARN("%s: the plan was made with another build of plugin %s", file, plugin->label);
    }
    for (size_t i = 0; i < from->n_settings; i++) {
        TRM_TRY(get_setting(file, from->settings[i], &settings[i]));
    }
    const void *saved = plugin->table.save == NULL ? NULL : (from->saved.len > 0 ? (const void *)from->saved.data : "");
    if (plugin->table.save == NULL && from->saved.len > 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: layer %s has saved bytes, and plugin %s saves none", file, layer,
                 plugin->label);
    }
    const trm_status status =
        trm_plugin_add_layer(plugin, settings, (int32_t)from->n_settings, saved, from->saved.len, number);
    return status == TRM_OK ? TRM_OK : trm_fail_in(TRM_ERROR_INVALID_MODEL, "%s: layer %s", file, layer);
}
