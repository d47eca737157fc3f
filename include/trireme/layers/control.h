/* Conditions and loops. */
#ifndef TRIREME_LAYERS_CONTROL_H
#define TRIREME_LAYERS_CONTROL_H

#include <trireme/layers/common.h>

/*
 * Control flow (docs/internals/graph.md): layers between IF and END_IF, and between LOOP and END_LOOP, are a region.
 * Conditions that only a run knows decide whether it runs, and how often. Conditions are bool scalars and value inputs.
 * Regions lie within each other. What a layer of a region reads is a constant, made in the region, or comes in by an
 * ENTER of the region; of a loop it may be a RECURRENCE, too. What is made in a region is read outside by MERGE alone.
 *
 * IF (condition) -> the condition: the region runs where it holds, or with `negated` where it does not.
 * END_IF (output of the IF) -> the same.
 * MERGE (condition, a, b, outputs of END_IFs, optional) -> a where the condition holds, else b: of one type and as many
 * dimensions. The result has the dims of the one taken; the other need not exist.
 *
 * RECURRENCE (initial), before the LOOP -> what a loop carries from pass to pass: in the first pass `initial`.
 * LOOP (condition) -> the condition: whether the region runs at all.
 * NEXT (value, output of a RECURRENCE), in the loop's region -> value: the RECURRENCE's value after the pass.
 * END_LOOP (condition, output of the LOOP) -> the condition: whether the region runs again.
 * LOOP_OUTPUT (output of a RECURRENCE, of the END_LOOP) -> the RECURRENCE's last value.
 * ENTER (x) -> x.
 */
typedef struct trm_if_params {
    bool negated;
} trm_if_params;

/* Of RECURRENCE and NEXT. */
typedef struct trm_recurrence_params {
    int32_t open; /* bit i: axis i may have another size in every pass */
} trm_recurrence_params;

#endif
