/*
 * Groups of linear layers that share an input, and what makes that input: factors on its columns can be taken into the
 * layers' weights and out of the norm or the linear layer before.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_GROUPS_H
#define TRM_LAUNCHER_CLI_QUANTIZE_GROUPS_H

#include <trireme/trireme.h>

typedef enum group_source {
    GROUP_SOURCE_NONE = 0, /* or one that others read, too */
    GROUP_SOURCE_NORM,
    GROUP_SOURCE_LINEAR, /* up of a GLU, v of attention */
} group_source;

/* One of the layers: a stored weight [rows, columns]. */
typedef struct group_layer {
    char *weight;
    int64_t rows;
    bool is_quantized;
} group_layer;

typedef struct group {
    char *tensor; /* the input [T, columns]; of experts, that of their inner activations: "<prefix>.<e>" */
    int64_t columns;
    group_layer *layers; /* [n_layers] */
    int32_t n_layers;
    group_source source;
    char *weight, *bias; /* stored, of the source; bias may be NULL */
    float offset;        /* of the norm's weight */
    /* Column c takes the factor of the source's row c / (repeat * width) * width + c % width. */
    int64_t repeat, width;
} group;

typedef struct groups {
    group *list;
    int32_t n;
} groups;

/* Those of a network of the model's; layers of `quantized`, the network of the same model opened quantized, which are
 * quantized there, are marked. Groups without such a layer are left out. groups_fini also after a failure. */
trm_status groups_find(const trm_model *model, const trm_network *network, const trm_network *quantized, groups *found);
void groups_fini(groups *found);
/* The group of a stored weight; NULL if it is in none. */
const group *groups_of(const groups *all, const char *weight);

#endif
