/*
 * What a Hugging Face config.json says about a decoder, in one struct for all families.
 *
 * A family (families/) reads its own keys into the switches of trm_hf_config; decoder.c builds
 * the network from the switches and the family's weight names and knows no family. Key spellings of
 * transformers 4 and 5 are both read.
 */
#ifndef TRM_GRAPH_IMPORT_HF_CONFIG_H
#define TRM_GRAPH_IMPORT_HF_CONFIG_H

#include <trireme/layers.h>
#include <trireme/model.h>

#include "base/arena.h"
#include "base/json.h"
#include "graph/import/hf/quantization/quantization.h"

typedef enum trm_hf_rope_type {
    TRM_HF_ROPE_DEFAULT = 0,
    TRM_HF_ROPE_LINEAR,
    TRM_HF_ROPE_DYNAMIC,
    TRM_HF_ROPE_YARN,
    TRM_HF_ROPE_LLAMA3,
    TRM_HF_ROPE_LONGROPE,
    TRM_HF_ROPE_PROPORTIONAL /* the whole head turns, but only the first pairs by an angle */
} trm_hf_rope_type;

/* One set of rotary position parameters. */
typedef struct trm_hf_rope {
    trm_hf_rope_type type;
    double theta;
    double partial;          /* part of a head that is rotated */
    int32_t dim;             /* elements of a head that are rotated: even */
    int32_t pairs;           /* PROPORTIONAL: that turn */
    double factor;           /* all but DEFAULT */
    double attention_factor; /* YARN, LONGROPE: multiplies cos and sin; 1 otherwise */
    double beta_fast, beta_slow;
    bool truncate;                            /* YARN */
    double low_freq_factor, high_freq_factor; /* LLAMA3 */
    int64_t original_length;                  /* tokens the model was trained on before scaling */
    double *short_factor, *long_factor;       /* LONGROPE: [dim / 2] */
} trm_hf_rope;

/* How the projections to queries, keys and values are stored. */
typedef enum trm_hf_qkv_layout {
    TRM_HF_QKV_SEPARATE = 0, /* a weight each */
    TRM_HF_QKV_STACKED,      /* one weight: all of q, then k, then v */
    TRM_HF_QKV_PER_HEAD      /* one weight: q, k, v of head 0, then of head 1, ... */
} trm_hf_qkv_layout;

/* Names of weights, without ".weight" and ".bias". NULL: the family has no such weight. */
typedef struct trm_hf_names {
    const char *roots[6];             /* what the decoder's names begin with; the first one found in the files */
    const char *embedding;            /* after the root */
    const char *positions;            /* learned positions */
    const char *layers;               /* followed by ".<n>." */
    const char *q, *k, *v;            /* SEPARATE; after "<root><layers>.<n>.", as the rest up to `down` */
    const char *q_a, *q_a_norm, *q_b; /* of latent attention: queries through fewer dimensions, in place of q */
    const char *kv_a, *kv_a_norm, *kv_b;
    const char *qkv; /* STACKED, PER_HEAD */
    /* Of the gated delta rule: projections to q, k and v in turn, or to q, k, v and z by key head, and to
     * b and a likewise; then the rest. A_LOG and A_BIAS are whole names. */
    const char *delta_qkv, *delta_z, *delta_b, *delta_a;
    const char *delta_qkvz, *delta_ba;
    const char *delta_convolution, *delta_a_log, *delta_a_bias, *delta_norm, *delta_out;
    /* Of a selective scan, likewise. */
    const char *scan_in, *scan_convolution, *scan_a_log, *scan_step_bias, *scan_skip, *scan_norm, *scan_out;
    const char *q_norm, *k_norm;
    const char *sinks; /* of attention, a whole name */
    const char *o;
    const char *gate_up;   /* fused, gate first; then gate and up are NULL */
    const char *gate, *up; /* without a gate only `up` */
    const char *down;
    const char *xielu;               /* module of the parameters of xIELU, which is the activation then */
    const char *router, *correction; /* of a mixture of experts; the latter a whole name */
    const char *experts;             /* followed by ".<e>.", or by the two below */
    const char *expert_gate, *expert_up, *expert_down; /* of one expert */
    const char *experts_gate_up, *experts_down;        /* of all experts, whole names: [E, 2I, H] and [E, H, I]; with
                                                          "_bias", "_blocks", "_scales" where they have such */
    const char *shared_gate_up;                        /* experts that every token has; fused as gate_up is */
    const char *shared_gate, *shared_up, *shared_down;
    const char *shared_router;          /* their weight: sigmoid of one logit */
    const char *latent_in, *latent_out; /* linear layers before and behind the routed experts, to fewer dimensions */
    /* Of a mixture beside an MLP: whole names of what scales the router's input, and weights by expert; norms of the
     * MLP's output, of the experts' input and of their output. */
    const char *router_scale, *expert_scale;
    const char *beside_mlp_norm, *beside_norm, *beside_post_norm;
    const char *attention_norm, *attention_post_norm; /* before attention; on its output */
    const char *mlp_norm, *mlp_post_norm;
    const char *layer_scale; /* of what a block gives, a whole name: [1] */
    /* Embeddings by layer: their table, the projection of the usual ones and its norm, after the root; of a block, the
     * linear layers before and behind them, and the norm of their output. */
    const char *layer_embedding, *layer_projection, *layer_projection_norm;
    const char *layer_gate, *layer_out, *layer_out_norm;
    const char *final_norm; /* after the root */
    const char *heads[2];   /* whole name of the output projection; the first one found */
    /* A head that predicts the token after the next (MTP): what its names begin with, NULL if it is stored as the layer
     * behind the last; norms of the embedding and of the hidden state, the layer that joins them, the last norm. */
    const char *mtp_root, *mtp_embedding_norm, *mtp_hidden_norm, *mtp_join, *mtp_norm;
    bool transposed; /* linear weights are stored [in, out] */
} trm_hf_names;

typedef struct trm_hf_family trm_hf_family;

/* The mixture of experts of a model; experts 0: there is none. */
typedef struct trm_hf_moe {
    int64_t experts, width;   /* of the routed ones */
    int64_t shared_width;     /* of the experts that every token has, as one MLP; 0: none */
    int64_t latent;           /* elements of the routed experts' rows; 0: as all rows have */
    bool *dense;              /* [layers] with an ordinary MLP; NULL: none */
    trm_router_params router; /* k, scoring, ... */
    bool router_f32;          /* its weight stays in f32 where it is stored so */
    bool router_bias, correction;
    trm_expert_activation activation;
    bool expert_bias;
    bool interleaved;    /* stacked rows are gate, up, gate, up, ... */
    bool turned;         /* stacked weights are [E, H, 2I] and [E, I, H] */
    double limit, alpha; /* trm_experts_params */
    bool weighted_input;
    bool beside; /* an ordinary MLP, with norms of its own */
} trm_hf_moe;

/* Latent attention; rank 0: it is not. A head's value is `head_dim` of the configuration. */
typedef struct trm_hf_latent {
    int64_t query_rank;     /* of queries that are made through fewer dimensions; 0: they are not */
    int64_t rank;           /* of a token's latent */
    int64_t plain, rotated; /* elements of a head of queries and keys: first those without positions */
} trm_hf_latent;

/* Layers with the gated delta rule in place of attention; layers NULL: there are none. */
typedef struct trm_hf_delta {
    bool *layers; /* [layers] */
    int64_t key_heads, value_heads, key_dim, value_dim;
    int64_t taps; /* of the convolutions */
} trm_hf_delta;

/* Layers with a selective scan (Mamba-2) in place of attention; layers NULL: there are none. */
typedef struct trm_hf_scan {
    bool *layers; /* [layers] */
    int64_t heads, head_dim, groups, columns;
    int64_t taps; /* of the convolutions */
    bool bias;    /* of the projections */
    bool convolution_bias;
    double step_min, step_max; /* trm_selective_scan_params */
} trm_hf_scan;

/* An EAGLE-3 head: one block that drafts for another model, from the hidden states before three of its layers. */
#define TRM_HF_EAGLE_TAPS 3
typedef struct trm_hf_eagle {
    bool is_head;
    int64_t target_hidden;           /* elements of those hidden states */
    int64_t target_vocab;            /* tokens of the model; those of the head are `vocab` */
    int64_t taps[TRM_HF_EAGLE_TAPS]; /* those layers; has_taps false: 2, the middle one, the last but two */
    bool has_taps;
    bool norm_before_residual; /* the residual begins behind the norm of the hidden state */
} trm_hf_eagle;

/* What a block has. */
typedef enum trm_hf_halves {
    TRM_HF_BOTH = 0,
    TRM_HF_ATTENTION_ONLY, /* or what stands in its place */
    TRM_HF_MLP_ONLY
} trm_hf_halves;

#define TRM_HF_MAX_EOS 8

typedef struct trm_hf_config {
    const trm_hf_family *family;
    const char *architecture, *model_type;
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, context_length;
    int64_t full_kv_heads, full_head_dim; /* of layers that are not sliding; 0: as of the others */
    int64_t n_stored, n_predicting;       /* layers of the file; those behind them that predict further tokens (MTP) */

    bool tied; /* the output projection is the embedding */
    bool head_bias;
    double embedding_scale; /* 0: none, as of the next two; rounded to the compute type */
    double residual_scale;  /* multiplies what attention and MLP add */
    double logit_scale;     /* multiplies logits */

    trm_norm_op norm;
    double norm_eps;
    float norm_offset; /* 1: norms scale by 1 + weight */
    bool norm_bias;

    trm_hf_qkv_layout qkv_layout;
    bool qkv_bias, o_bias, mlp_bias;
    bool norm_all_heads;  /* q_norm and k_norm are over all heads at once */
    bool norm_after_rope; /* q_norm and k_norm */
    bool plain_heads;     /* there is no q_norm and k_norm, though the family names them */
    bool unit_values;     /* values have norms without a weight */
    bool keys_as_values;  /* in layers that are not sliding values are the keys before their norm */
    bool unit_heads;      /* q and k have norms without a weight behind their rope, if there is one */
    bool output_gate;     /* q's projection gives each head a gate behind its query: attention times its sigmoid */

    bool rotary;                      /* rotary positions; else learned ones */
    trm_hf_rope rope[2];              /* of full and of sliding layers */
    bool interleaved_rope;            /* pairs that turn are (0, 1), (2, 3), ...; without norms of q and k */
    bool sliding_rope;                /* rope[1] differs from rope[0] */
    bool *unrotated;                  /* [layers]: without positions, though others are rotary */
    int64_t layer_width, layer_vocab; /* of embeddings by layer; 0: none */
    int64_t borrowing;      /* the last `borrowing` layers have the keys and values of the last one before them that is
                               sliding or not, as they are */
    bool borrowing_doubled; /* their MLP is twice as wide */

    double attention_scale;                  /* 0: 1 / sqrt(head_dim) */
    bool scale_by_layer;                     /* the scale is divided by layer number + 1 */
    double attention_softcap, logit_softcap; /* 0: off */
    double query_scale; /* queries are multiplied by 1 + this * log(1 + (position + first) / length); 0: off */
    int64_t query_scale_first, query_scale_length;
    bool query_scale_unrotated; /* in layers without rope only */
    int64_t window;             /* of sliding layers */
    bool chunked;               /* sliding layers see chunks of `window` */
    bool *sliding;              /* [layers] */

    trm_activation activation;
    bool squared;           /* what the activation gives is squared */
    bool parallel_residual; /* x + attention(norm(x)) + mlp(norm'(x)) */
    trm_hf_halves *halves;  /* [layers]; NULL: both in all */

    trm_hf_latent latent;
    trm_hf_delta delta;
    trm_hf_scan scan;
    trm_hf_moe moe;
    trm_hf_eagle eagle;

    trm_hf_quantization quantization; /* of linear layers */

    int32_t bos_token; /* -1: none */
    int32_t n_eos, eos[TRM_HF_MAX_EOS];
    trm_model_sampling sampling;
} trm_hf_config;

/* Where a family reads its keys. */
typedef struct trm_hf_reader {
    const trm_json_document *document;
    const trm_json *root;   /* of config.json */
    const trm_json *object; /* the decoder's part: text_config if there is one */
    trm_arena *arena;       /* for what the config points to */
    int64_t layers;         /* > 0: take that many layers only */
} trm_hf_reader;

struct trm_hf_family {
    const char *architecture, *model_type;
    const char *other_architecture; /* as published files spell it, or NULL */
    const char *text_type;          /* what its text models in wrappers are called, if not model_type; or NULL */
    const char *models, *details;   /* for docs/reference/support-matrix.md: published ones; what sets it apart */
    trm_status (*read)(const trm_hf_reader *reader, trm_hf_config *config);
    trm_hf_names names;
};

extern const trm_hf_family *const trm_hf_families[]; /* ends with NULL */
extern const trm_hf_family trm_hf_eagle3;            /* EAGLE-3 heads, which are in no list */
bool trm_hf_is_eagle(const char *architecture);

/* A model with images: its text part, of the family that text_config's model_type names, is opened. */
typedef struct trm_hf_wrapper {
    const char *architecture, *model_type, *models;
    bool tied;             /* where the file does not have tie_word_embeddings */
    const char *flat_type; /* of the text part, where its keys stand beside the others and there is no text_config */
} trm_hf_wrapper;

extern const trm_hf_wrapper trm_hf_wrappers[]; /* ends with architecture NULL */

/*
 * Reads a parsed config.json; what the config points to lives in `arena` and the document.
 * UNSUPPORTED: architecture, rope type, activation or quantization this library does not know.
 * INVALID_MODEL: keys missing, of the wrong type, or that do not fit together.
 */
trm_status trm_hf_config_read(const trm_json_document *document, trm_arena *arena, int64_t layers,
                              trm_hf_config *config);
/* Begin and end tokens of generation_config.json replace those of config.json; it says how to sample. */
trm_status trm_hf_config_read_generation(const trm_json_document *document, trm_hf_config *config);

/* ---- for the families ---------------------------------------------------------------------------- */

/* Each leaves *value as it is where the key is absent. A JSON null counts as absent, except for real numbers and
 * windows, where it is "off": 0. */

/* A positive integer; the key is required where *value is 0. */
trm_status trm_hf_read_size(const trm_hf_reader *reader, const char *key, int64_t *value);
/* An integer of 0 or more. */
trm_status trm_hf_read_count(const trm_hf_reader *reader, const char *key, int64_t *value);
trm_status trm_hf_read_real(const trm_hf_reader *reader, const char *key, double *value);
trm_status trm_hf_read_bool(const trm_hf_reader *reader, const char *key, bool *value);
/* Sets activation and squared. */
trm_status trm_hf_read_activation(const trm_hf_reader *reader, const char *key, trm_hf_config *config);

/* The keys that all families but GPT-2 spell alike: sizes, vocabulary, context, tie_word_embeddings. Sizes that are
 * not 0 beforehand are defaults. num_key_value_heads and head_dim follow from the heads where absent. */
trm_status trm_hf_read_sizes(const trm_hf_reader *reader, trm_hf_config *config);
/* Checks the sizes and cuts the layers; trm_hf_read_sizes calls it. */
trm_status trm_hf_check_sizes(const trm_hf_reader *reader, trm_hf_config *config);

/* sliding_window, and the layers it is for: those where (i + 1) % pattern != 0; pattern 1 is none, 0 all. */
trm_status trm_hf_read_windows(const trm_hf_reader *reader, trm_hf_config *config, int64_t pattern);
/* Layers without rope: no_rope_layers[i] is 0, or without the list every no_rope_layer_interval-th, by default 4. */
trm_status trm_hf_read_unrotated_layers(const trm_hf_reader *reader, trm_hf_config *config);
/* layer_types, which go before that; then checks that there is a window where a layer wants one. */
trm_status trm_hf_read_layer_types(const trm_hf_reader *reader, trm_hf_config *config);

/* Layers with an ordinary MLP, of a mixture of experts: those that `is_dense` says. */
trm_status trm_hf_set_dense_layers(const trm_hf_reader *reader, trm_hf_config *config,
                                   bool (*is_dense)(int64_t layer, const void *user), const void *user);

/* Refuses a key whose value is true: features this library does not have. */
trm_status trm_hf_refuse(const trm_hf_reader *reader, const char *key);

/* ---- rope.c ------------------------------------------------------------------------------------------ */

/* Reads rope_parameters, or rope_theta and rope_scaling; config->rope[0].theta and .partial hold the defaults, as does
 * .original_length if it is not 0. Heads must be rotated whole. */
trm_status trm_hf_read_rope(const trm_hf_reader *reader, trm_hf_config *config);
/* The same from keys with a family's own names. */
typedef struct trm_hf_rope_keys {
    const char *theta;
    const char *partial;       /* NULL: heads are rotated whole */
    const char *sliding_theta; /* NULL: one rope for all layers */
    bool is_mrope;             /* mrope is known: one position a token, as text has, is the default rope */
    bool is_longrope;          /* so is all that is scaled, whatever its type is called */
    bool is_proportional;      /* that type is known */
} trm_hf_rope_keys;
trm_status trm_hf_read_rope_keys(const trm_hf_reader *reader, const trm_hf_rope_keys *keys, trm_hf_config *config);

/* Rows of the table of inverse frequencies: 2 for LONGROPE, else 1. */
int32_t trm_hf_rope_rows(const trm_hf_rope *rope);
/* inv_freq [rows, dim / 2], in f32 arithmetic in the order of transformers' modeling_rope_utils. */
void trm_hf_rope_frequencies(const trm_hf_rope *rope, float *inv_freq);

#endif
