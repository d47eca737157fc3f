/* Named dimensions: those given by --dim, and those shared by several inputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/onnx/job.h"

/* Whether a list of names such as "a, b" contains one. */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == list || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Succeeds if an input has a dimension of this name, or dimensions without names. */
static trm_status check_dim(const onnx_job *j, const char *name)
{
    char known[256] = "";
    size_t used = 0;
    for (int32_t i = 0; i < j->n_inputs; i++) {
        const trm_onnx_port *port = &j->inputs[i].port;
        if (!port->has_dims) {
            return TRM_OK;
        }
        for (int32_t k = 0; k < port->dims.n; k++) {
            const char *named = port->dim_names[k];
            if (named != NULL && strcmp(named, name) == 0) {
                return TRM_OK;
            }
            if (named != NULL && used < sizeof(known) && !is_listed(known, named)) {
                used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ", ", named);
            }
        }
    }
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT, "--dim: no input has a dimension \"%s\", the named dimensions are: %s",
                    name, used == 0 ? "none" : known);
}

trm_status onnx_named_dims(const onnx_job *j, trm_onnx_named_dim *dims, char (*names)[64], int32_t *n)
{
    for (int32_t i = 0; i < j->all->list_counts[SETTING_DIM]; i++) {
        const char *text = j->all->lists[SETTING_DIM][i], *equals = strchr(text, '=');
        char *end = NULL;
        long long value = equals == NULL ? -1 : strtoll(equals + 1, &end, 10);
        size_t length = equals == NULL ? 0 : (size_t)(equals - text);
        if (length == 0 || length >= sizeof(names[0]) || end == equals + 1 || *end != '\0' || value < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--dim is \"%s\", expected NAME=N", text);
        }
        memcpy(names[i], text, length);
        names[i][length] = '\0';
        if (strncmp(j->all->origins[SETTING_DIM], "--", 2) == 0) { /* a settings file may serve several models */
            TRM_TRY(check_dim(j, names[i]));
        }
        dims[i] = (trm_onnx_named_dim){names[i], value};
        (*n)++;
    }
    return TRM_OK;
}

/* ---- shared by inputs ---------------------------------------------------------------------------------- */

enum { USUAL, LEAST, MOST, POINTS };

/* An input with given dims that has a dimension of this name, and the index of that dimension; NULL if there is none.
 */
static const onnx_input *find_named(const onnx_job *j, const char *name, int32_t *axis)
{
    for (int32_t i = 0; i < j->n_inputs; i++) {
        const onnx_input *input = &j->inputs[i];
        const bool is_given = input->dims.n >= 0 && input->port.has_dims && input->dims.n == input->port.dims.n;
        for (int32_t k = 0; is_given && k < input->dims.n; k++) {
            if (input->port.dim_names[k] != NULL && strcmp(input->port.dim_names[k], name) == 0) {
                *axis = k;
                return input;
            }
        }
    }
    return NULL;
}

/* The dims of a profile; an input without profiles has the same dims in all. */
static const trm_dims *dims_of(const onnx_input *input, int32_t profile, int32_t point)
{
    if (input->max.n < 0) {
        return &input->dims;
    }
    return profile > 0 && profile < input->n_profiles ? &input->more[profile][point]
           : point == USUAL                           ? &input->dims
           : point == LEAST                           ? &input->min
                                                      : &input->max;
}

/* Sets a dimension in all profiles. */
static void set_size(onnx_input *input, int32_t axis, const onnx_input *from, int32_t from_axis, int64_t size)
{
    for (int32_t p = 0; p < TRM_MAX_PROFILES; p++) {
        for (int32_t point = 0; point < POINTS; point++) {
            trm_dims *to = p > 0            ? &input->more[p][point]
                           : point == USUAL ? &input->dims
                           : point == LEAST ? &input->min
                                            : &input->max;
            to->n = input->port.dims.n;
            to->d[axis] = from == NULL ? size : dims_of(from, p, point)->d[from_axis];
        }
    }
}

void onnx_settle_dims(const onnx_job *j, onnx_input *input, const trm_onnx_named_dim *dims, int32_t n_dims)
{
    if (input->dims.n >= 0 || !input->port.has_dims) {
        return;
    }
    onnx_input made = *input;
    bool guessed = false, differs = false;
    made.dims = input->port.dims;
    for (int32_t i = 0; i < input->port.dims.n; i++) {
        const char *name = input->port.dim_names[i];
        int64_t size = input->port.dims.d[i];
        int32_t axis = 0;
        for (int32_t k = 0; k < n_dims && name != NULL; k++) {
            size = size < 0 && strcmp(dims[k].name, name) == 0 ? dims[k].value : size;
        }
        const onnx_input *other = size < 0 && name != NULL ? find_named(j, name, &axis) : NULL;
        guessed = guessed || (size < 0 && other == NULL);
        differs = differs || (other != NULL && other->max.n >= 0);
        made.n_profiles = other != NULL && other->n_profiles > made.n_profiles ? other->n_profiles : made.n_profiles;
        set_size(&made, i, other, axis, size < 0 ? 1 : size);
    }
    made.min.n = made.max.n = differs ? made.dims.n : -1;
    *input = made;
    if (guessed && !settings_flag(j->all, SETTING_QUIET) && is_first_rank()) {
        char text[160];
        onnx_dims_text(&input->dims, text, sizeof(text));
        fprintf(stderr, "trireme: input %s has unknown dims, using %s (give --shapes %s:...)\n", input->port.name, text,
                input->port.name);
    }
}

void onnx_follow_names(const onnx_job *j, onnx_input *input)
{
    trm_dims dims = input->dims;
    input->dims.n = -1; /* it follows other inputs */
    for (int32_t i = 0; i < dims.n; i++) {
        const char *name = input->port.dim_names[i];
        int32_t axis = 0;
        const onnx_input *other = name == NULL ? NULL : find_named(j, name, &axis);
        dims.d[i] = other == NULL ? dims.d[i] : other->dims.d[axis];
    }
    input->dims = dims;
}
