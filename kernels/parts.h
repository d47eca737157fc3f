/*
 * A layer that other layers' kernels do in turn. What they hand each other lies at the beginning of the workspace; what
 * each needs as workspace of its own lies behind that, the same for all.
 */
#ifndef TRM_KERNELS_PARTS_H
#define TRM_KERNELS_PARTS_H

#include "kernels/kernel.h"
#include "kernels/program.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_MOST_PARTS 12

typedef struct trm_kernel_parts {
    const trm_kernel_table *const *tables; /* [n_tables] of their kernels */
    int32_t n_tables;
    int32_t n;
    trm_layer_desc layers[TRM_MOST_PARTS];
    trm_kernel_call calls[TRM_MOST_PARTS]; /* [n] in their order, of `layers` */
    size_t between;                        /* bytes of what they hand each other */
} trm_kernel_parts;

/* Fills in tables, layers, calls and `between`; addresses from the call's workspace on if it has one. False: the
 * call is not of that kind. */
typedef bool (*trm_kernel_parts_fn)(const trm_kernel_call *call, trm_kernel_parts *parts);

/* The next part: `call` with another layer, inputs and outputs. */
trm_kernel_call *trm_kernel_parts_add(trm_kernel_parts *parts, const trm_kernel_call *call, trm_layer_kind kind);
/* An input of a part that is input `input` of the call. */
void trm_kernel_parts_pass(trm_kernel_call *part, const trm_kernel_call *call, int32_t input);
/* Bytes that a tensor takes of `between`. */
size_t trm_kernel_parts_room(const trm_view *view);

/* What a kernel of the layer needs (kernels/kernel.h). */
bool trm_kernel_parts_accepts(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe);
size_t trm_kernel_parts_workspace(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe);
trm_status trm_kernel_parts_prepare(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe,
                                    trm_program *program);
trm_status trm_kernel_parts_tune(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe,
                                 struct trm_tuner *tuner);

/* NAME_accepts, NAME_workspace and NAME_prepare of a kernel that is nothing but its parts; SCOPE: static, or empty. */
#define TRM_KERNEL_OF_PARTS(SCOPE, NAME, BACKEND, DESCRIBE)                                                            \
    SCOPE bool NAME##_accepts(const trm_kernel_call *call)                                                             \
    {                                                                                                                  \
        return trm_kernel_parts_accepts(call, BACKEND, DESCRIBE);                                                      \
    }                                                                                                                  \
    SCOPE size_t NAME##_workspace(const trm_kernel_call *call)                                                         \
    {                                                                                                                  \
        return trm_kernel_parts_workspace(call, BACKEND, DESCRIBE);                                                    \
    }                                                                                                                  \
    SCOPE trm_status NAME##_prepare(const trm_kernel_call *call, trm_program *program)                                 \
    {                                                                                                                  \
        return trm_kernel_parts_prepare(call, BACKEND, DESCRIBE, program);                                             \
    }

#ifdef __cplusplus
}
#endif
#endif
