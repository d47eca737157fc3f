/*
 * How a tensor is distributed over ranks, and how a layer can run on them: what the rows of layer kinds tell the
 * partitioner.
 */
#ifndef TRM_GRAPH_SHARDING_H
#define TRM_GRAPH_SHARDING_H

#include "graph/network.h"

/* How one tensor is distributed over the n ranks of an axis. */
typedef enum trm_sharding_kind {
    TRM_REPLICATED = 0, /* whole on every rank */
    TRM_SPLIT,  /* rank r holds part r * parts / n of `parts` parts along `axis`, each ceil(d / parts) long; if that is
                   more than d in total, zeros fill the rest */
    TRM_PARTIAL /* rank r holds summand r * parts / n of `parts` summands */
} trm_sharding_kind;

typedef struct trm_sharding {
    trm_sharding_kind kind;
    int32_t axis;  /* SPLIT */
    int32_t parts; /* divides n; if less than n, groups of n / parts ranks hold the same part (few kv heads) */
} trm_sharding;

static inline trm_sharding trm_replicated(void)
{
    return (trm_sharding){TRM_REPLICATED, 0, 1};
}

static inline trm_sharding trm_split(int32_t axis, int32_t parts)
{
    return parts == 1 ? trm_replicated() : (trm_sharding){TRM_SPLIT, axis, parts};
}

static inline trm_sharding trm_partial(int32_t parts)
{
    return (trm_sharding){TRM_PARTIAL, 0, parts};
}

/* One way to run a layer: the distribution that each input needs, and that each output gets. */
typedef struct trm_way {
    trm_sharding in[TRM_MAX_LAYER_INPUTS], out[TRM_MAX_LAYER_OUTPUTS];
} trm_way;

/* The way in which every rank computes everything. */
trm_way trm_way_whole(void);

/* Collects the ways that a kind's rule finds. */
typedef struct trm_way_taker trm_way_taker;
struct trm_way_taker {
    trm_status (*take)(trm_way_taker *taker, const trm_layer *layer, const trm_way *way);
    bool shares_rows;   /* ranks along cp: attention splits rows, not heads */
    int32_t batch_axis; /* if ranks split the batch: axis of the layer's first input to split, or -1 */
};

/* Of sizes that are known. */
static inline int64_t trm_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Dims of one rank's part of a tensor of these dims. */
trm_dims trm_sharding_local_dims(const trm_dims *dims, const trm_sharding *sharding);

/* Number of parts into which n ranks can split an attention layer's heads, and then its kv heads; 1 if they cannot, and
 * of other layers. Of the gated delta rule: value heads, and then key heads; of a selective scan: heads, and then
 * groups. */
int32_t trm_attention_head_parts(const trm_layer *attention, int32_t n, int32_t *kv_parts);
/* Whether the rows of a padded attention layer can be split into n parts, with known keys for each part. */
bool trm_attention_rows_divide(const trm_layer *attention, int32_t n);

#endif
