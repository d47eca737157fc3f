/*
 * The models of a server: which one a request names, and the handlers of the paths that list them, show their state, or
 * change what is loaded.
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_MODEL_ROUTES_H
#define TRM_LAUNCHER_SERVE_HTTP_MODEL_ROUTES_H

#include "launcher/serve/http/server_internal.h"

/* Finds the model that the body names by `model`: by a name, a folder or an adapter. The only model need not be named.
 * A body that cannot be read goes to the first one, whose parser says why. 404 if no model has that name. */
bool call_choose_model(call *c, api_error *error);
/* The names that a request may call the model by, and those of its adapters, NULL-terminated; NULL, which is any, when
 * out of memory. */
const char *const *model_names(const served_model *model, trm_arena *arena);
/* Finds the adapter that a request names as its model. */
bool model_find_adapter(const served_model *model, api_request *request, api_error *error);

route_fn model_routes_models, model_routes_model, model_routes_health, model_routes_live, model_routes_metrics;
route_fn model_routes_sleep, model_routes_wake, model_routes_is_sleeping;
route_fn model_routes_load_adapter, model_routes_unload_adapter;

#endif
