/* What a decoder's steps read of its weights. */
#ifndef TRM_GRAPH_IMPORT_HF_COUNT_H
#define TRM_GRAPH_IMPORT_HF_COUNT_H

#include "graph/network.h"

typedef struct trm_hf_counts {
    int64_t expert_layers;
    int64_t expert_parameters, expert_bytes; /* of the routed experts of all layers */
    int64_t table_bytes;                     /* of tables that are read by rows alone: embeddings */
    int64_t row_bytes;                       /* of one row of each */
} trm_hf_counts;

void trm_hf_count(const trm_network *network, trm_hf_counts *counts);

#endif
