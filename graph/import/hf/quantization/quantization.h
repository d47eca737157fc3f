/*
 * Quantized checkpoints: what config.json's quantization_config says, and the tensors of a linear layer as
 * DEQUANT_MATMUL reads them. Activations are quantized where a checkpoint of 8 bits asks for it.
 */
#ifndef TRM_GRAPH_IMPORT_HF_QUANTIZATION_QUANTIZATION_H
#define TRM_GRAPH_IMPORT_HF_QUANTIZATION_QUANTIZATION_H

#include <trireme/layers.h>

#include "base/json.h"
#include "graph/import/hf/checkpoint.h"

/* How the linear layers of a checkpoint are stored. */
typedef enum trm_hf_quant_format {
    TRM_HF_QUANT_NONE = 0,
    TRM_HF_QUANT_BYTES,  /* weight [out, in] f8e4m3 or i8, weight_scale or weight_scale_inv */
    TRM_HF_QUANT_PACKED, /* weight_packed i32 [out, in * bits / 32], weight_scale, weight_zero_point */
    TRM_HF_QUANT_GPTQ,   /* qweight i32 [in * bits / 32, out], qzeros, scales, g_idx */
    TRM_HF_QUANT_AWQ,    /* qweight i32 [in, out / 8], qzeros, scales */
    TRM_HF_QUANT_F4,     /* weight_packed u8 [out, in / 2], weight_scale e4m3 and weight_global_scale, or u8 */
    TRM_HF_QUANT_MXFP4   /* stacked experts alone: see trm_hf_mxfp4_take() */
} trm_hf_quant_format;

typedef struct trm_hf_quantization {
    trm_hf_quant_format format;
    const char *method; /* as config.json calls it */
    int32_t bits;       /* 8 or 4 */
    trm_dtype type;     /* of weights of 8 bits: F8E4M3 or I8; F4E2M1 */
    /* Of scales that are not one for all or one a row. */
    int32_t block_n, block_k;
    bool has_zero_points; /* GPTQ: unless all are the middle */
    bool zeros_less_one;  /* stored so */
    trm_x_quantization x; /* of activations; STATIC: by each layer's input_scale */
    float most_x_scale;   /* the largest that DYNAMIC takes; 0: any */
    bool online; /* weights are stored as floats, and quantized when they are read; the output projection is not */
    /* Of online: patterns of fnmatch(3) for the names of further layers that stay as they are. */
    const char *const *keep;
    int32_t n_keep;
} trm_hf_quantization;

/* Reads quantization_config of `object`, if it is there; UNSUPPORTED for methods and variants this library does not
 * know. */
trm_status trm_hf_quantization_read(const trm_json_document *document, const trm_json *object,
                                    trm_hf_quantization *quantization);
/* One of those that random weights can have, and those that are quantized here: "fp8" (a scale a row), "fp8-block" (128
 * x 128), both with activations that are quantized, "fp8-weights" and "fp8-block-weights" without, "int8" and
 * "int8-weights" alike, "int4" (a scale a row), "int4-128" (groups), "nvfp4" and "mxfp4". INVALID_ARGUMENT for others.
 */
trm_status trm_hf_quantization_named(const char *name, trm_hf_quantization *quantization);

/* INVALID_ARGUMENT unless each pattern of `keep` matches a stored layer. */
trm_status trm_hf_check_kept(const trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization);

/* What DEQUANT_MATMUL takes of a linear layer. */
typedef struct trm_hf_quantized {
    trm_weight *weight, *scale, *zero_point; /* [out, in] or [out, in / 2]; zero_point may be NULL */
    trm_weight *order, *middle; /* as stored: columns' groups and zero points that are left out as they are the usual
                                   ones, or NULL */
    trm_weight *input_scale;    /* as stored, of STATIC, or NULL */
    trm_weight *stored_scale, *global_scale; /* of F4E2M1 that is quantized here: as they are to be stored, or NULL */
    int32_t block_n, block_k;
    trm_x_quantization x;
    float x_scale;
} trm_hf_quantized;
void trm_hf_quantized_fini(trm_hf_quantized *quantized);

/* Whether the linear layer `part` is stored quantized; those that a checkpoint leaves as they are have a plain weight.
 */
bool trm_hf_is_quantized(const trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization,
                         const char *part);
/* The weight of linear layer `part` [out, in] as floats, `dtype` if it is stored quantized; the caller's. UNSUPPORTED
 * unless it is stored as floats or F8E4M3. */
trm_status trm_hf_take_dequantized(trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization,
                                   const char *part, int64_t out, int64_t in, trm_dtype dtype, trm_weight **weight);
/* The tensors of linear layer `part` [out, in], checked; the caller's. */
trm_status trm_hf_quantized_take(trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization,
                                 const char *part, int64_t out, int64_t in, trm_hf_quantized *quantized);

/* The weight `part` [experts, out, in] of MXFP4, in a multiple of 32: numbers u8 [experts, out, in / 2], stored as
 * <part>_blocks [experts, out, in / 32, 16], and scales u8 [experts, out, in / 32], <part>_scales; the caller's. */
trm_status trm_hf_mxfp4_take(trm_hf_checkpoint *checkpoint, const char *part, int64_t experts, int64_t out, int64_t in,
                             trm_weight **numbers, trm_weight **scales);

#endif
