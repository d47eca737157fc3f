/* Names and sizes of element types, backends and layer kinds. */
#include <trireme/layers.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[TRM_DTYPE_COUNT] = {
    [TRM_DTYPE_NONE] = {"none", 0}, [TRM_F32] = {"f32", 4},
    [TRM_F16] = {"f16", 2},         [TRM_BF16] = {"bf16", 2},
    [TRM_F64] = {"f64", 8},         [TRM_I8] = {"i8", 1},
    [TRM_U8] = {"u8", 1},           [TRM_I16] = {"i16", 2},
    [TRM_U16] = {"u16", 2},         [TRM_I32] = {"i32", 4},
    [TRM_U32] = {"u32", 4},         [TRM_I64] = {"i64", 8},
    [TRM_U64] = {"u64", 8},         [TRM_BOOL] = {"bool", 1},
    [TRM_F8E4M3] = {"f8e4m3", 1},   [TRM_F8E4M3FNUZ] = {"f8e4m3fnuz", 1},
    [TRM_F8E5M2] = {"f8e5m2", 1},   [TRM_F8E5M2FNUZ] = {"f8e5m2fnuz", 1},
    [TRM_F8E8M0] = {"f8e8m0", 1},   [TRM_F4E2M1] = {"f4e2m1", 1},
    [TRM_I4] = {"i4", 1},           [TRM_U4] = {"u4", 1},
    [TRM_I2] = {"i2", 1},           [TRM_U2] = {"u2", 1},
    [TRM_F6E2M3] = {"f6e2m3", 1},   [TRM_F6E3M2] = {"f6e3m2", 1},
};

size_t trm_dtype_size(trm_dtype dtype)
{
    return (unsigned)dtype < TRM_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *trm_dtype_name(trm_dtype dtype)
{
    return (unsigned)dtype < TRM_DTYPE_COUNT ? dtypes[dtype].name : "invalid";
}

const char *trm_backend_name(trm_backend backend)
{
    return backend == TRM_BACKEND_CUDA ? "cuda" : "host";
}

const char *trm_layer_kind_name(trm_layer_kind kind)
{
    static const char *const names[TRM_LAYER_KIND_COUNT] = {
        [TRM_LAYER_CAST] = "cast",
        [TRM_LAYER_RESHAPE] = "reshape",
        [TRM_LAYER_TRANSPOSE] = "transpose",
        [TRM_LAYER_SLICE] = "slice",
        [TRM_LAYER_CONCAT] = "concat",
        [TRM_LAYER_GATHER] = "gather",
        [TRM_LAYER_EMBEDDING] = "embedding",
        [TRM_LAYER_MATMUL] = "matmul",
        [TRM_LAYER_ELEMENTWISE] = "elementwise",
        [TRM_LAYER_UNARY] = "unary",
        [TRM_LAYER_GLU] = "glu",
        [TRM_LAYER_NORM] = "norm",
        [TRM_LAYER_SOFTMAX] = "softmax",
        [TRM_LAYER_REDUCE] = "reduce",
        [TRM_LAYER_ROPE] = "rope",
        [TRM_LAYER_ATTENTION] = "attention",
        [TRM_LAYER_DIST_COLLECTIVE] = "dist_collective",
        [TRM_LAYER_SHAPE] = "shape",
        [TRM_LAYER_EXPAND] = "expand",
        [TRM_LAYER_TILE] = "tile",
        [TRM_LAYER_PAD] = "pad",
        [TRM_LAYER_RANGE] = "range",
        [TRM_LAYER_SELECT] = "select",
        [TRM_LAYER_FUSED_ELEMENTWISE] = "fused_elementwise",
        [TRM_LAYER_ROTATE] = "rotate",
        [TRM_LAYER_GATHER_ELEMENTS] = "gather_elements",
        [TRM_LAYER_GATHER_ND] = "gather_nd",
        [TRM_LAYER_SCATTER] = "scatter",
        [TRM_LAYER_ONE_HOT] = "one_hot",
        [TRM_LAYER_REVERSE_SEQUENCE] = "reverse_sequence",
        [TRM_LAYER_TOPK] = "topk",
        [TRM_LAYER_ARG_REDUCE] = "arg_reduce",
        [TRM_LAYER_CUMULATIVE] = "cumulative",
        [TRM_LAYER_NON_ZERO] = "non_zero",
        [TRM_LAYER_UNIQUE] = "unique",
        [TRM_LAYER_NON_MAX_SUPPRESSION] = "non_max_suppression",
        [TRM_LAYER_CONVOLUTION] = "convolution",
        [TRM_LAYER_DECONVOLUTION] = "deconvolution",
        [TRM_LAYER_DEFORMABLE_CONVOLUTION] = "deformable_convolution",
        [TRM_LAYER_POOL] = "pool",
        [TRM_LAYER_RESIZE] = "resize",
        [TRM_LAYER_GRID_SAMPLE] = "grid_sample",
        [TRM_LAYER_ROI_POOL] = "roi_pool",
        [TRM_LAYER_COL2IM] = "col2im",
        [TRM_LAYER_GROUP_NORM] = "group_norm",
        [TRM_LAYER_LRN] = "lrn",
        [TRM_LAYER_RECURRENT] = "recurrent",
        [TRM_LAYER_QUANTIZE] = "quantize",
        [TRM_LAYER_DEQUANTIZE] = "dequantize",
        [TRM_LAYER_DETERMINANT] = "determinant",
        [TRM_LAYER_FOURIER] = "fourier",
        [TRM_LAYER_RANDOM] = "random",
        [TRM_LAYER_ALL_REDUCE_NORM] = "all_reduce_norm",
        [TRM_LAYER_QKV_ATTENTION] = "qkv_attention",
        [TRM_LAYER_MATMUL_GLU] = "matmul_glu",
        [TRM_LAYER_IF] = "if",
        [TRM_LAYER_END_IF] = "end_if",
        [TRM_LAYER_LOOP] = "loop",
        [TRM_LAYER_END_LOOP] = "end_loop",
        [TRM_LAYER_ENTER] = "enter",
        [TRM_LAYER_RECURRENCE] = "recurrence",
        [TRM_LAYER_NEXT] = "next",
        [TRM_LAYER_LOOP_OUTPUT] = "loop_output",
        [TRM_LAYER_MERGE] = "merge",
        [TRM_LAYER_NORM_MATMUL] = "norm_matmul",
        [TRM_LAYER_DEQUANT_MATMUL] = "dequant_matmul",
    };
    return (unsigned)kind < TRM_LAYER_KIND_COUNT ? names[kind] : "invalid";
}
