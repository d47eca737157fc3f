/* Elements of small inputs from the command line: --elements, and for plans --min-elements and --max-elements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "launcher/cli/onnx/job.h"

/* Parses "2x-1x64" up to `end`. */
static bool parse_elements(const char *text, const char *end, double *elements, int32_t *n)
{
    for (*n = 0; text < end; ++*n) {
        char *after;
        if (*n == ONNX_MAX_ELEMENTS) {
            return false;
        }
        elements[*n] = strtod(text, &after);
        if (after == text || after > end || (after < end && (*after != 'x' || after + 1 == end))) {
            return false;
        }
        text = after + (after < end);
    }
    return *n > 0;
}

trm_status onnx_read_elements(onnx_job *j, setting_id id, const char *text)
{
    int32_t point = id == SETTING_ELEMENTS ? 0 : id == SETTING_MIN_ELEMENTS ? 1 : 2;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        const char *end = text + length, *colon = end;
        while (colon > text && *colon != ':') {
            colon--;
        }
        onnx_input *input = NULL;
        TRM_TRY(onnx_find_input(j, settings_table[id].name, text, (size_t)(colon - text), &input));
        if (!parse_elements(colon + 1, end, input->elements[point], &input->n_elements[point])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s has \"%.*s\", expected NAME:2x3 with at most %d numbers",
                     settings_table[id].name, (int)length, text, ONNX_MAX_ELEMENTS);
        }
        text = end + (*end == ',');
    }
    return TRM_OK;
}

/* Whether the type can represent the element: integers exactly, floats after rounding. */
static bool store(trm_dtype dtype, void *data, int32_t i, double value)
{
    bool is_float = dtype == TRM_F32 || dtype == TRM_F64 || dtype == TRM_F16 || dtype == TRM_BF16;
    bool stored = trm_element_set_double(dtype, data, i, value);
    return stored && (is_float ? isfinite(value) : trm_element_as_double(dtype, data, i) == value);
}

/* Converts the elements of a point to the input's type; to be freed. */
static trm_status convert(const onnx_input *input, const double *elements, int32_t n, void **data)
{
    *data = calloc((size_t)n, 8);
    if (*data == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d elements of input %s", n, input->port.name);
    }
    for (int32_t i = 0; i < n; i++) {
        if (!store(input->port.dtype, *data, i, elements[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "element %.17g of input %s cannot be represented as %s", elements[i],
                     input->port.name, input->port.type);
        }
    }
    return TRM_OK;
}

/* Dims for this number of elements if none are given: the model's, otherwise a scalar or a row. */
static trm_status settle_dims(onnx_input *input, int32_t n)
{
    if (input->dims.n < 0) {
        bool is_scalar = n == 1 && input->port.has_dims && input->port.dims.n == 0;
        bool is_row = !input->port.has_dims || input->port.dims.n == 1;
        input->dims = is_scalar ? (trm_dims){0, {0}} : is_row ? (trm_dims){1, {n}} : input->port.dims;
    }
    int64_t count = 1;
    for (int32_t i = 0; i < input->dims.n; i++) {
        count *= input->dims.d[i] < 0 ? -1 : input->dims.d[i];
    }
    if (count != n) {
        char text[160];
        onnx_dims_text(&input->dims, text, sizeof(text));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has %s elements, but %d are given", input->port.name, text, n);
    }
    return TRM_OK;
}

trm_status onnx_settle_elements(onnx_input *input)
{
    int32_t given = input->n_elements[0] > 0 ? 0 : input->n_elements[2] > 0 ? 2 : 1, n = input->n_elements[given];
    if (n == 0) {
        return TRM_OK;
    }
    if (input->dims.n >= 0 && input->max.n >= 0 && memcmp(&input->min, &input->max, sizeof(input->max)) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has given elements and dynamic dims, expected only one of them",
                 input->port.name);
    }
    for (int32_t point = 0; point < 3; point++) {
        if (input->n_elements[point] == 0) {
            memcpy(input->elements[point], input->elements[given], sizeof(input->elements[point]));
        } else if (input->n_elements[point] != n) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has %d elements given once and %d another time",
                     input->port.name, n, input->n_elements[point]);
        }
        TRM_TRY(convert(input, input->elements[point], n, &input->typed[point]));
    }
    TRM_TRY(settle_dims(input, n));
    input->min = input->max = input->dims;
    input->dtype = input->port.dtype;
    input->data = input->typed[0];
    return TRM_OK;
}
