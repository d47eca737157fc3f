/* A weight's source in a few words. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "weight_stream/weight_internal.h"

typedef struct writer {
    char *text;
    size_t size, used; /* used < size */
} writer;

static void TRM_PRINTF(2, 3) put(writer *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(to->text + to->used, to->size - to->used, format, args);
    va_end(args);
    if (length > 0) {
        size_t left = to->size - to->used - 1;
        to->used += (size_t)length < left ? (size_t)length : left;
    }
}

/* Where the view starts in each dimension if it is a box of the base's dims. */
static bool find_box(const trm_weight *weight, int64_t starts[TRM_MAX_DIMS])
{
    const trm_weight_view *view = &weight->view;
    const trm_dims *dims = &weight->base->dims;
    if (view->dims.n != dims->n) {
        return false;
    }
    int64_t stride = 1, rest = view->offset;
    int64_t strides[TRM_MAX_DIMS];
    for (int32_t i = dims->n - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims->d[i];
    }
    for (int32_t i = 0; i < dims->n; i++) {
        int32_t first = view->first[i], steps = view->first[i + 1] - first;
        if (steps > 1 || (steps == 1 && view->steps[first].stride != strides[i])) {
            return false;
        }
        starts[i] = rest / strides[i];
        rest %= strides[i];
    }
    return true;
}

static void put_view(writer *to, const trm_weight *weight)
{
    const trm_weight_view *view = &weight->view;
    int64_t starts[TRM_MAX_DIMS];
    if (find_box(weight, starts)) {
        int32_t last = view->dims.n; /* dimensions taken whole at the end are not shown */
        while (last > 0 && view->dims.d[last - 1] == weight->base->dims.d[last - 1]) {
            last--;
        }
        for (int32_t i = 0; i < last; i++) {
            put(to, "%s", i == 0 ? "[" : ", ");
            if (view->dims.d[i] == weight->base->dims.d[i]) {
                put(to, ":");
            } else {
                put(to, "%lld:%lld", (long long)starts[i], (long long)(starts[i] + view->dims.d[i]));
            }
        }
        put(to, "%s", last > 0 ? "]" : "");
        return;
    }
    put(to, "{from %lld", (long long)view->offset);
    for (int32_t i = 0; i < weight->runs.n; i++) {
        put(to, ", %lld by %lld", (long long)weight->runs.steps[i].size, (long long)weight->runs.steps[i].stride);
    }
    put(to, "}");
}

static void put_weight(writer *to, const trm_weight *weight)
{
    const trm_weight_base *base = weight->base;
    switch (base->kind) {
    case TRM_WEIGHT_STORED:
        put(to, "%s:%s", base->file->name, base->name);
        break;
    case TRM_WEIGHT_RANDOM:
        put(to, "random(seed %llu, mean %g, spread %g)", (unsigned long long)base->seed, (double)base->mean,
            (double)base->spread);
        break;
    case TRM_WEIGHT_ZEROS:
        put(to, "zeros");
        return;
    case TRM_WEIGHT_RECODED:
        put(to, "%s(", trm_weight_code_name(base->code));
        put_weight(to, base->parts[0]);
        put(to, ")");
        break;
    case TRM_WEIGHT_COMPUTED:
        put(to, "%s(", trm_weight_op_name(base->op));
        for (int32_t i = 0; i < base->n_parts && to->used + 1 < to->size; i++) {
            put(to, "%s", i == 0 ? "" : ", ");
            put_weight(to, base->parts[i]);
        }
        put(to, ")");
        break;
    case TRM_WEIGHT_JOINED:
        if (base->n_parts > 1) {
            put(to, "join along %d ", base->axis);
        }
        for (int32_t i = 0; i < base->n_parts && to->used + 1 < to->size; i++) {
            put(to, "%s", i == 0 ? "(" : ", ");
            put_weight(to, base->parts[i]);
        }
        put(to, ")");
        break;
    }
    put_view(to, weight);
}

void trm_weight_describe(const trm_weight *weight, char *text, size_t size)
{
    if (size > 0) {
        writer to = {.text = text, .size = size};
        text[0] = '\0';
        put_weight(&to, weight);
    }
}
