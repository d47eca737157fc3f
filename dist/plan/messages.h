/*
 * Messages of plan files, written and read side by side: texts, types, dims, and layers with every field of their kind
 * by name.
 */
#ifndef TRM_DIST_PLAN_MESSAGES_H
#define TRM_DIST_PLAN_MESSAGES_H

#include <plan_file.pb-c.h>

#include "base/arena.h"
#include "dist/plan/file.h"

/* Messages of the arena. INVALID_ARGUMENT for text with control characters. */
trm_status trm_plan_copy_text(trm_arena *arena, const char *text, char **copy);
trm_status trm_plan_put_layer(trm_arena *arena, const trm_layer *layer, Trireme__Plan__Layer **message);

/* INVALID_MODEL, with the file's name, for invalid values. `none`: whether NONE is allowed. */
trm_status trm_plan_get_dims(const char *file, const int64_t *values, size_t n, trm_dims *dims);
trm_status trm_plan_get_dtype(const char *file, const char *name, bool none, int32_t *dtype);
/* The kind and its parameters, each field once; first_input (may be NULL) gives the length of permutations. */
trm_status trm_plan_get_desc(const char *file, const Trireme__Plan__Layer *message, const trm_tensor *first_input,
                             trm_layer_desc *desc);

/* plugins.c: a layer of a plugin, and back. UNSUPPORTED if the plugin is not loaded. */
trm_status trm_plan_put_plugin(trm_arena *arena, const trm_layer_desc *desc, Trireme__Plan__Plugin **message);
trm_status trm_plan_get_plugin(const char *file, const char *layer, const Trireme__Plan__Plugin *message,
                               int32_t *number);

#endif
