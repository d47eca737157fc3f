/* NON_MAX_SUPPRESSION: the layout of a call, and whether one box hides another. */
#ifndef TRM_KERNELS_VISION_SUPPRESSION_H
#define TRM_KERNELS_VISION_SUPPRESSION_H

#include "kernels/element.h"
#include "kernels/kernel.h"

typedef struct trm_suppression_args {
    int64_t batches, classes, boxes;
    int64_t most;                               /* per class */
    const float *box, *score, *overlap, *least; /* thresholds: NULL where not given */
    int64_t *y, *count;
    bool center_point;
} trm_suppression_args;

/* False if the call is not one these kernels know. `most` is the number of boxes where its value is not there yet. */
static inline bool trm_suppression_args_of(const trm_kernel_call *call, trm_suppression_args *args)
{
    const trm_view *box = &call->inputs[0], *score = &call->inputs[1];
    if (call->n_inputs < 2 || call->n_inputs > 5 || call->n_outputs != 2 || box->dims.n != 3 || score->dims.n != 3 ||
        box->dims.d[2] != 4 || score->dims.d[0] != box->dims.d[0] || score->dims.d[2] != box->dims.d[1] ||
        box->dtype != TRM_F32 || score->dtype != TRM_F32 || call->outputs[0].dtype != TRM_I64 ||
        call->outputs[1].dtype != TRM_I64 || (trm_kernel_call_has(call, 2) && call->inputs[2].dtype != TRM_I64) ||
        (trm_kernel_call_has(call, 3) && call->inputs[3].dtype != TRM_F32) ||
        (trm_kernel_call_has(call, 4) && call->inputs[4].dtype != TRM_F32)) {
        return false;
    }
    args->batches = score->dims.d[0];
    args->classes = score->dims.d[1];
    args->boxes = score->dims.d[2];
    args->most = trm_kernel_call_has(call, 2) ? args->boxes : 0;
    if (call->values[2] != NULL) {
        const int64_t most = *(const int64_t *)call->values[2];
        args->most = most < 0 ? 0 : most < args->boxes ? most : args->boxes;
    }
    args->box = (const float *)box->data;
    args->score = (const float *)score->data;
    args->overlap = trm_kernel_call_has(call, 3) ? (const float *)call->inputs[3].data : NULL;
    args->least = trm_kernel_call_has(call, 4) ? (const float *)call->inputs[4].data : NULL;
    args->y = (int64_t *)call->outputs[0].data;
    args->count = (int64_t *)call->outputs[1].data;
    args->center_point = call->layer->non_max_suppression.center_point;
    return true;
}

/* Corners low y, low x, high y, high x. */
TRM_ELEMENT void trm_suppression_corners(bool center_point, const float *box, float *corner)
{
    if (center_point) {
        corner[0] = box[1] - box[3] / 2;
        corner[1] = box[0] - box[2] / 2;
        corner[2] = box[1] + box[3] / 2;
        corner[3] = box[0] + box[2] / 2;
    } else {
        corner[0] = box[0] < box[2] ? box[0] : box[2];
        corner[1] = box[1] < box[3] ? box[1] : box[3];
        corner[2] = box[0] < box[2] ? box[2] : box[0];
        corner[3] = box[1] < box[3] ? box[3] : box[1];
    }
}

/* Whether the overlap of two boxes over their union is more than `most`. */
TRM_ELEMENT bool trm_suppression_hides(bool center_point, const float *box, const float *other, float most)
{
    float a[4], b[4];
    trm_suppression_corners(center_point, box, a);
    trm_suppression_corners(center_point, other, b);
    const float top = a[0] > b[0] ? a[0] : b[0], left = a[1] > b[1] ? a[1] : b[1];
    const float bottom = a[2] < b[2] ? a[2] : b[2], right = a[3] < b[3] ? a[3] : b[3];
    if (!(bottom > top && right > left)) {
        return false;
    }
    const float both = (bottom - top) * (right - left);
    const float of_a = (a[2] - a[0]) * (a[3] - a[1]), of_b = (b[2] - b[0]) * (b[3] - b[1]);
    const float either = of_a + of_b - both;
    return both > 0 && of_a > 0 && of_b > 0 && either > 0 && both / either > most;
}

#endif
