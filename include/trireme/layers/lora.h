/* Low-rank adapters beside a product. */
#ifndef TRIREME_LAYERS_LORA_H
#define TRIREME_LAYERS_LORA_H

#include <trireme/layers/common.h>

/* Positions of a LORA's inputs. */
enum {
    TRM_LORA_X = 0, /* [T, K] f32|f16|bf16 */
    TRM_LORA_SLOTS, /* i32 [T]: the adapter of a token; negative, or none of them: the token has none */
    TRM_LORA_Y,     /* [T, N] of x's type: the product that adapters are beside */
    TRM_LORA_A,     /* [adapters, R, K] of x's type */
    TRM_LORA_B,     /* [adapters, N, R] of x's type */
    TRM_LORA_INPUT_COUNT
};
/* Adapters of several products of one x that lie side by side in y: further pairs of A and B follow, whose N add up to
 * that of y. */
#define TRM_LORA_MAX_PAIRS 6

/* Low-rank adapters (LoRA, arXiv 2106.09685), without parameters: the inputs above -> [T, N], y + B (A x) with the
 * matrices of a token's adapter; tokens without one keep y. Accumulates in f32 and rounds once. Scales are part of B.
 */

#endif
