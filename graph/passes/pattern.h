/*
 * Helpers for pattern passes: constants of one element, products and sums in any order, and rewriting a pattern's last
 * layer.
 *
 * A tensor inside a pattern may vanish: it has one reader, is not an output of the network and not pinned.
 */
#ifndef TRM_GRAPH_PASSES_PATTERN_H
#define TRM_GRAPH_PASSES_PATTERN_H

#include "graph/passes/analysis.h"

/* The one value of a constant of one element, in *value. */
bool trm_pattern_scalar(const trm_tensor *tensor, double *value);
/* Whether a number equals the pattern's, within the precision of the constant's type. */
bool trm_pattern_near(double value, double expected, trm_dtype dtype);

bool trm_pattern_is_elementwise(const trm_layer *layer, trm_elementwise_op op);
/* The layer of an operation that makes a tensor inside a pattern, or NULL. */
trm_layer *trm_pattern_elementwise(const trm_analysis *analysis, const trm_tensor *tensor, trm_elementwise_op op);
trm_layer *trm_pattern_unary(const trm_analysis *analysis, const trm_tensor *tensor, trm_unary_op op);
trm_layer *trm_pattern_activation(const trm_analysis *analysis, const trm_tensor *tensor, trm_activation activation);

/* x where `tensor`, inside a pattern, is x plus a constant of one element, put into *added; else NULL. */
trm_tensor *trm_pattern_add_scalar(const trm_analysis *analysis, const trm_tensor *tensor, double *added);

/* factor * terms[0] * terms[1] * ...; n is -1 where there are more than fit. */
#define TRM_PATTERN_TERMS 4
typedef struct trm_pattern_product {
    double factor;
    int32_t n;
    trm_tensor *terms[TRM_PATTERN_TERMS];
} trm_pattern_product;

/* What a tensor inside a pattern, or a layer, multiplies; a tensor that no product makes is one term. */
void trm_pattern_product_of(const trm_analysis *analysis, trm_tensor *tensor, trm_pattern_product *product);
void trm_pattern_product_of_layer(const trm_analysis *analysis, const trm_layer *layer, trm_pattern_product *product);
/* Whether the product is that of n times x and a factor like this. */
bool trm_pattern_is_power(const trm_pattern_product *product, const trm_tensor *x, int32_t n, double factor);

/* Rewrites the last layer of a pattern. */
void trm_pattern_rewrite(trm_analysis *analysis, trm_layer *layer, const trm_layer_desc *desc, int32_t n_inputs,
                         trm_tensor *const *inputs);

/* Tries to end a pattern at `layer`; returns whether it did. */
typedef bool (*trm_fusion)(trm_analysis *analysis, trm_layer *layer);
/* Tries a pattern at every layer until none is left; then sorts the layers and removes dead code. */
trm_status trm_pattern_apply(trm_network *network, trm_fusion fuse, int32_t *changes);

bool trm_fuse_decomposed_activation(trm_analysis *analysis, trm_layer *layer); /* fuse/activations.c */
bool trm_fuse_decomposed_norm(trm_analysis *analysis, trm_layer *layer);       /* fuse/norms.c */
bool trm_fuse_norm_constants(trm_analysis *analysis, trm_layer *layer);
bool trm_fuse_norm_casts(trm_analysis *analysis, trm_layer *layer);
bool trm_fuse_decomposed_rotation(trm_analysis *analysis, trm_layer *layer);  /* fuse/rotation.c */
bool trm_fuse_decomposed_attention(trm_analysis *analysis, trm_layer *layer); /* fuse/attention.c */

#endif
