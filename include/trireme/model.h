/*
 * Language models: a Hugging Face model folder, or a named shape with random weights.
 */
#ifndef TRIREME_MODEL_H
#define TRIREME_MODEL_H

#include <trireme/network.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_model trm_model;

/*
 * Opens a model: a folder with config.json and safetensors, or "org/name" in the local Hugging Face cache
 * ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub). Reads the configuration and the headers of the weight files;
 * the weights are mapped, not read. Errors: IO, INVALID_MODEL, UNSUPPORTED (architecture, rope type), each with the
 * file, what was found and what was expected.
 */
TRM_API trm_status trm_model_open(const char *path, trm_model **model);
/* The same with linear layers quantized as they are read, as trm_model_quantize does: "fp8", "fp8-weights",
 * "fp8-block", "fp8-block-weights", "int8", "int8-weights", "int4", "int4-128", "nvfp4", "mxfp4"; NULL or "bf16": as
 * they are stored. Errors also: INVALID_ARGUMENT (no such weights), UNSUPPORTED (the model is quantized already,
 * GPT-2). */
TRM_API trm_status trm_model_open_quantized(const char *path, const char *weights, trm_model **model);
/* The same, except layers whose names match one of `keep` [n_keep], patterns with * and ?, which must outlive the
 * model. INVALID_ARGUMENT also for a pattern that matches no layer. */
TRM_API trm_status trm_model_open_quantized_except(const char *path, const char *weights, const char *const *keep,
                                                   int32_t n_keep, trm_model **model);

/* A linear layer that was quantized. */
typedef struct trm_quantized_layer {
    const char *name; /* "model.layers.3.self_attn.q_proj"; valid during the call */
    int64_t rows, columns;
    int64_t bytes_before, bytes_after;   /* of numbers and scales */
    double error;                        /* the root of the squares of all differences over those of the weight */
    int64_t done, total;                 /* bytes of the model so far, and of all of it */
    const double *differences, *squares; /* [columns] of each column: the sums of the squares of the differences, and of
                                            the weight */
} trm_quantized_layer;

/* Called for each layer; false ends the call with CANCELLED. */
typedef bool (*trm_quantize_fn)(void *user, const trm_quantized_layer *layer);

/* A layer whose integers are to be chosen: weight [rows, columns], and scales [rows, columns / group]. */
typedef struct trm_quantize_choice {
    const char *name;
    int64_t rows, columns, group;
    int32_t low, high; /* of the numbers */
    const float *weight;
    float *scales;   /* with choose_scales: may be changed to others above 0, which `scale_type` holds */
    int8_t *numbers; /* [rows, columns] to fill in; the nearest are there; NULL: scales alone are wanted */
    trm_dtype scale_type;
} trm_quantize_choice;
/* Called for each layer of integers; with choose_scales twice, in any order, for the same answer. A failure ends the
 * call with its status. */
typedef trm_status (*trm_quantize_choose_fn)(void *user, const trm_quantize_choice *choice);

typedef struct trm_quantize_options {
    size_t size; /* sizeof(trm_quantize_options) */
    /* Patterns with * and ? for the names of layers that stay as they are. [n_keep] */
    const char *const *keep;
    int32_t n_keep;
    trm_quantize_fn on_layer;      /* may be NULL */
    trm_quantize_choose_fn choose; /* NULL: the nearest numbers are taken; not asked for f8e4m3 */
    void *user;
    bool choose_scales; /* `choose` may change scales */
} trm_quantize_options;
#define TRM_QUANTIZE_OPTIONS_INIT TRM_MAKE(trm_quantize_options, TRM_SET(size, sizeof(trm_quantize_options)))

/*
 * Writes the model in `path` to a new folder with its linear layers quantized to `weights` (trm_model_open_quantized
 * lists them), rounded to the nearest, in the format of compressed-tensors: "fp8" and "fp8-block" ask for activations
 * of e4m3, "int8" for those of int8. Embeddings, norms, routers, the output projection, layers of fewer than 64 rows
 * and experts that are stored as one tensor stay as they are. All other files but weights are copied. The folder
 * appears when it is complete. `options` may be NULL. Errors: those of trm_model_open_quantized, INVALID_ARGUMENT (the
 * folder exists, nothing to quantize), IO, CANCELLED, INVALID_MODEL (a weight is not finite).
 */
TRM_API trm_status trm_model_quantize(const char *path, const char *weights, const char *folder,
                                      const trm_quantize_options *options);

/* A stored weight of a model folder as the files name it, by position; NULL past the end and for presets. */
TRM_API const char *trm_model_weight_name(const trm_model *model, int32_t index);
/* Reads the dims of a stored weight. Returns false if the model has no weight of this name. */
TRM_API bool trm_model_weight_dims(const trm_model *model, const char *name, trm_dims *dims);
/* Reads elements first to first + count - 1 (row-major) of a stored weight of f32, f16 or bf16. INVALID_ARGUMENT (no
 * such weight or elements), UNSUPPORTED (another type). */
TRM_API trm_status trm_model_read_weight(const trm_model *model, const char *name, int64_t first, int64_t count,
                                         float *to);

/* Factors of a stored weight, for each element of an axis: (w + offset) * factor - offset takes the place of w. */
typedef struct trm_weight_factors {
    const char *weight;
    int32_t axis;
    int64_t n;
    const float *factors; /* [n] */
    float offset;         /* of norms that add it to their weight */
} trm_weight_factors;
/* Gets bytes done and all of them; false ends the call with CANCELLED. */
typedef bool (*trm_rescale_fn)(void *user, int64_t done, int64_t total);
/* Writes the model in `path` to a new folder with factors on some of its weights, in their types; a weight may have
 * several. All else is copied. `progress` may be NULL. The folder appears when it is complete. Errors: those of
 * trm_model_open, INVALID_ARGUMENT (the folder exists, no such weight or axis), UNSUPPORTED (a weight that is not f32,
 * f16 or bf16), IO, CANCELLED. */
TRM_API trm_status trm_model_rescale(const char *path, const char *folder, const trm_weight_factors *factors,
                                     int32_t n_factors, trm_rescale_fn progress, void *user);

/* A model of a well-known shape ("llama-3-8b", ...; trm_model_preset_name lists them) with random weights from `seed`.
 * `layers` > 0 takes only the first layers. Error: INVALID_ARGUMENT (no such shape, layers < 0). */
TRM_API trm_status trm_model_open_preset(const char *name, int32_t layers, uint64_t seed, trm_model **model);
/* The same with the weights of linear layers quantized as in checkpoints: "fp8" (one scale per row) and "fp8-block"
 * (one per 128 x 128), both with activations quantized alike, "fp8-weights" and "fp8-block-weights" without, "int8"
 * and "int8-weights" alike, "int4" (one per row), "int4-128" (one per 128 elements of a row), "nvfp4" (16), "mxfp4"
 * (32); "bf16": not quantized; NULL: the same, or MXFP4 experts where the model is published so. Errors:
 * INVALID_ARGUMENT (no such shape or kind of weights, layers < 0), UNSUPPORTED (GPT-2). */
TRM_API trm_status trm_model_open_preset_quantized(const char *name, const char *weights, int32_t layers, uint64_t seed,
                                                   trm_model **model);
TRM_API const char *trm_model_preset_name(int32_t index); /* NULL past the end */
TRM_API void trm_model_close(trm_model *model);
/* Whether the model is an EAGLE-3 head, which drafts for another one (trm_generator_options.draft_head) and has no
 * network of its own. */
TRM_API bool trm_model_is_draft_head(const trm_model *model);

/* How a model wants to be sampled, by generation_config.json. Negative: it does not say. */
typedef struct trm_model_sampling {
    float temperature; /* of do_sample alone: 1 if true, 0 if false */
    float top_p, min_p, repetition_penalty;
    int32_t top_k; /* 0: off */
} trm_model_sampling;

typedef struct trm_model_info {
    const char *path;         /* resolved folder; the preset's name for presets */
    const char *architecture; /* "LlamaForCausalLM" */
    const char *model_type;   /* "llama" */
    trm_dtype weight_dtype;   /* as stored */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, context_length;
    int64_t parameters, weight_bytes;
    int32_t bos_token;                   /* -1: none */
    int32_t n_eos_tokens, eos_tokens[8]; /* from generation_config.json, else config.json */
    trm_model_sampling sampling;
} trm_model_info;
TRM_API void trm_model_get_info(const trm_model *model, trm_model_info *info); /* strings live with the model */

/* The mixture of experts of a model, and what a step reads of the weights. Without experts: 0 up to expert_layers. */
typedef struct trm_model_experts {
    size_t size;               /* sizeof(trm_model_experts) */
    int64_t n_experts;         /* of a layer */
    int64_t experts_per_token; /* that the router chooses */
    int64_t expert_width;      /* of the inner activations of one */
    int64_t shared_width;      /* of the experts that every token has, as one MLP; 0: none */
    int64_t expert_layers;     /* layers that have experts */
    int64_t active_parameters; /* all but those of experts that are not chosen for a token */
    int64_t active_bytes;      /* of the weights that a step of one token reads; of embeddings, one row */
    int64_t expert_bytes;      /* of the experts of all layers, without shared ones */
} trm_model_experts;
#define TRM_MODEL_EXPERTS_INIT TRM_MAKE(trm_model_experts, TRM_SET(size, sizeof(trm_model_experts)))

/* A step that reads n experts of each layer reads active_bytes + expert_bytes * (n - experts_per_token) / n_experts
 * bytes of weights, and of embeddings a row for each further token. Error: INVALID_ARGUMENT (size). */
TRM_API trm_status trm_model_get_experts(const trm_model *model, trm_model_experts *experts);

/*
 * Builds the network of the model, computing in `dtype` (NONE: the type of the weights). Inputs, all i32:
 *   token_ids [T], positions [T], sequence_starts [S + 1], sequence_lengths [S], block_table [S, blocks],
 *   logit_rows [R] (tokens whose logits are wanted), and rope_lengths [T] if the rope type needs it.
 * States: layers.N.key_cache and layers.N.value_cache [cache blocks, TRM_KV_BLOCK_SIZE, kv_heads, head_dim], or with
 * latent attention layers.N.latent_cache [cache blocks, TRM_KV_BLOCK_SIZE, latent and rope key].
 * Output: logits f32 [R, vocab].
 */
#define TRM_KV_BLOCK_SIZE 16
TRM_API trm_status trm_model_build_network(trm_model *model, trm_dtype dtype, trm_network **network);
/* The same with states of `cache_dtype`: NONE or the computing type, or F8E4M3. F8E4M3 uses the checkpoint's scales
 * (self_attn.k_scale and .v_scale, k_proj.k_scale and v_proj.v_scale, or one kv_scale), else 1. Errors also:
 * INVALID_ARGUMENT (another cache_dtype), INVALID_MODEL (a scale is not positive), UNSUPPORTED (a scale is not a single
 * number). */
TRM_API trm_status trm_model_build_network_with_cache(trm_model *model, trm_dtype dtype, trm_dtype cache_dtype,
                                                      trm_network **network);

#ifdef __cplusplus
}
#endif
#endif
