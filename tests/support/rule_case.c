/* Cases of shape and type rules: tensors from text, and the comparison. */
#include "support/rule_case.h"

#include <stdio.h>

#include "support/support.h"

static trm_dtype dtype_named(const char *name, size_t length)
{
    for (int i = 1; i < TRM_DTYPE_COUNT; i++) {
        const char *candidate = trm_dtype_name((trm_dtype)i);
        if (strlen(candidate) == length && strncmp(candidate, name, length) == 0) {
            return (trm_dtype)i;
        }
    }
    fail_msg("no type is named %s", name);
    return TRM_DTYPE_NONE;
}

static void parse_tensor(const char *text, trm_dtype *dtype, trm_dims *dims)
{
    const char *at = strchr(text, '[');
    assert_non_null(at);
    *dtype = dtype_named(text, (size_t)(at - text));
    *dims = (trm_dims){0};
    for (at++; *at != ']';) {
        char *end = NULL;
        dims->d[dims->n++] = *at == '?' ? -1 : strtoll(at, &end, 10);
        at = *at == '?' ? at + 1 : end;
        at += *at == ',';
    }
}

static void format_tensor(char *text, size_t size, trm_dtype dtype, const trm_dims *dims)
{
    size_t at = (size_t)snprintf(text, size, "%s[", trm_dtype_name(dtype));
    for (int32_t i = 0; i < dims->n; i++) {
        at += (size_t)snprintf(text + at, size - at, dims->d[i] == -1 ? "%s?" : "%s%lld", i == 0 ? "" : ",",
                               (long long)dims->d[i]);
    }
    snprintf(text + at, size - at, "]");
}

void rule_case_run_with(const rule_case *test, const void *const *values)
{
    trm_dims dims[RULE_CASE_INPUTS], out_dims[TRM_MAX_LAYER_OUTPUTS];
    trm_dtype types[RULE_CASE_INPUTS], out_types[TRM_MAX_LAYER_OUTPUTS];
    const trm_dims *given[RULE_CASE_INPUTS];
    int32_t n = 0;
    for (; n < RULE_CASE_INPUTS && test->inputs[n] != NULL; n++) {
        given[n] = strcmp(test->inputs[n], "-") == 0 ? NULL : &dims[n];
        types[n] = TRM_DTYPE_NONE;
        if (given[n] != NULL) {
            parse_tensor(test->inputs[n], &types[n], &dims[n]);
        }
    }
    int32_t n_outputs = trm_layer_output_count(&test->desc);
    trm_status status = trm_infer_layer(&test->desc, n, given, types, values, n_outputs, out_dims, out_types);
    char found[600] = "";
    if (status != TRM_OK) {
        snprintf(found, sizeof(found), "!%s", trm_last_error());
    }
    for (int32_t i = 0; status == TRM_OK && i < n_outputs; i++) {
        size_t used = strlen(found);
        used += (size_t)snprintf(found + used, sizeof(found) - used, i == 0 ? "" : " ");
        format_tensor(found + used, sizeof(found) - used, out_types[i], &out_dims[i]);
    }
    bool fits = test->expected[0] == '!' ? found[0] == '!' && strstr(found, test->expected + 1) != NULL
                                         : strcmp(found, test->expected) == 0;
    if (!fits) {
        fail_msg("%s(%s, %s, ...) gave \"%s\", expected \"%s\"", trm_layer_kind_name(test->desc.kind),
                 test->inputs[0] ? test->inputs[0] : "", test->inputs[0] && test->inputs[1] ? test->inputs[1] : "",
                 found, test->expected);
    }
    if (status != TRM_OK) {
        assert_int_equal(status, TRM_ERROR_INVALID_ARGUMENT);
    }
}

void rule_case_run(const rule_case *test)
{
    rule_case_run_with(test, NULL);
}
