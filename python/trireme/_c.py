"""The C API of libtrireme for ctypes. Written by python/generate.py from include/trireme/*.h: do not edit."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import Any

# fmt: off

TRM_MAX_PROFILES = 16
TRM_MAX_AUX_STREAMS = 8
TRM_AUX_STREAMS_AUTO = -1
TRM_HOST_COMPUTE_ROWS = 8
TRM_TUNE_OFF = -1
TRM_KERNEL_WAIT = "weight_stream.wait"
TRM_MAX_DRAFT = 15
TRM_NO_TOKENS = -1
TRM_MAX_LAYER_INPUTS = 16
TRM_MAX_LAYER_OUTPUTS = 5
TRM_MAX_RANKS = 64
TRM_MAX_SPATIAL = 3
TRM_LORA_MAX_PAIRS = 6
TRM_MEMORY_HANDLE_BYTES = 64
TRM_KV_BLOCK_SIZE = 16
TRM_ONNX_NEWEST_OPSET = 28
TRM_PLUGIN_MAX_ARGUMENTS = 64
TRM_PLUGIN_WHOLE = 0
TRM_PLUGIN_SUM = 100
TRM_PLUGIN_ABI = 1
TRM_MAX_RECORDED_ERRORS = 65536
TRM_MAX_TOP_LOGPROBS = 20
TRM_MAX_LOGIT_BIAS = 512
TRM_MAX_STOP_TOKENS = 16
TRM_LOGPROBS_CHOSEN = -1
TRM_CAUSE_SIZE = 2048
TRM_TIMELINE_SPANS = 524288
TRM_MAX_DIMS = 8
TRM_VERSION_MAJOR = 0
TRM_VERSION_MINOR = 1
TRM_VERSION_PATCH = 0
TRM_VERSION = "0.1.0"
TRM_ATTENTION_Q = 0
TRM_ATTENTION_K = 1
TRM_ATTENTION_V = 2
TRM_ATTENTION_SEQUENCE_STARTS = 3
TRM_ATTENTION_SEQUENCE_LENGTHS = 4
TRM_ATTENTION_BLOCK_TABLE = 5
TRM_ATTENTION_KEY_CACHE = 6
TRM_ATTENTION_VALUE_CACHE = 7
TRM_ATTENTION_MASK = 8
TRM_ATTENTION_SINKS = 9
TRM_ATTENTION_INPUT_COUNT = 10
TRM_LATENT_ATTENTION_Q = 0
TRM_LATENT_ATTENTION_LATENT = 1
TRM_LATENT_ATTENTION_ROPE_KEY = 2
TRM_LATENT_ATTENTION_WEIGHT = 3
TRM_LATENT_ATTENTION_SEQUENCE_STARTS = 4
TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS = 5
TRM_LATENT_ATTENTION_BLOCK_TABLE = 6
TRM_LATENT_ATTENTION_CACHE = 7
TRM_LATENT_ATTENTION_INPUT_COUNT = 8
TRM_SHORT_CONVOLUTION_X = 0
TRM_SHORT_CONVOLUTION_WEIGHT = 1
TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS = 2
TRM_SHORT_CONVOLUTION_SEQUENCE_LENGTHS = 3
TRM_SHORT_CONVOLUTION_SEQUENCE_SLOTS = 4
TRM_SHORT_CONVOLUTION_CACHE = 5
TRM_SHORT_CONVOLUTION_BIAS = 6
TRM_SHORT_CONVOLUTION_INPUT_COUNT = 7
TRM_GATED_DELTA_Q = 0
TRM_GATED_DELTA_K = 1
TRM_GATED_DELTA_V = 2
TRM_GATED_DELTA_A = 3
TRM_GATED_DELTA_B = 4
TRM_GATED_DELTA_A_LOG = 5
TRM_GATED_DELTA_A_BIAS = 6
TRM_GATED_DELTA_SEQUENCE_STARTS = 7
TRM_GATED_DELTA_SEQUENCE_LENGTHS = 8
TRM_GATED_DELTA_SEQUENCE_SLOTS = 9
TRM_GATED_DELTA_STATE = 10
TRM_GATED_DELTA_INPUT_COUNT = 11
TRM_SELECTIVE_SCAN_X = 0
TRM_SELECTIVE_SCAN_B = 1
TRM_SELECTIVE_SCAN_C = 2
TRM_SELECTIVE_SCAN_STEP = 3
TRM_SELECTIVE_SCAN_A_LOG = 4
TRM_SELECTIVE_SCAN_STEP_BIAS = 5
TRM_SELECTIVE_SCAN_SKIP = 6
TRM_SELECTIVE_SCAN_SEQUENCE_STARTS = 7
TRM_SELECTIVE_SCAN_SEQUENCE_LENGTHS = 8
TRM_SELECTIVE_SCAN_SEQUENCE_SLOTS = 9
TRM_SELECTIVE_SCAN_STATE = 10
TRM_SELECTIVE_SCAN_INPUT_COUNT = 11
TRM_LORA_X = 0
TRM_LORA_SLOTS = 1
TRM_LORA_Y = 2
TRM_LORA_A = 3
TRM_LORA_B = 4
TRM_LORA_INPUT_COUNT = 5
TRM_DEQUANT_MATMUL_X = 0
TRM_DEQUANT_MATMUL_WEIGHT = 1
TRM_DEQUANT_MATMUL_SCALE = 2
TRM_DEQUANT_MATMUL_BIAS = 3
TRM_DEQUANT_MATMUL_ZERO_POINT = 4
TRM_DEQUANT_MATMUL_INPUT_COUNT = 5
TRM_ROUTER_X = 0
TRM_ROUTER_WEIGHT = 1
TRM_ROUTER_BIAS = 2
TRM_ROUTER_CORRECTION = 3
TRM_ROUTER_EXPERT_SCALE = 4
TRM_ROUTER_INPUT_COUNT = 5
TRM_EXPERTS_X = 0
TRM_EXPERTS_IDS = 1
TRM_EXPERTS_WEIGHTS = 2
TRM_EXPERTS_GATE_UP = 3
TRM_EXPERTS_DOWN = 4
TRM_EXPERTS_GATE_UP_SCALE = 5
TRM_EXPERTS_DOWN_SCALE = 6
TRM_EXPERTS_GATE_UP_BIAS = 7
TRM_EXPERTS_DOWN_BIAS = 8
TRM_EXPERTS_GATE_UP_ZERO_POINT = 9
TRM_EXPERTS_DOWN_ZERO_POINT = 10
TRM_EXPERTS_INPUT_COUNT = 11

class trm_status(IntEnum):
    OK = 0
    INTERNAL = 1
    INVALID_ARGUMENT = 2
    INVALID_MODEL = 3
    UNSUPPORTED = 4
    IO = 5
    NO_DEVICE = 6
    OUT_OF_MEMORY = 7
    LOST_RANK = 8
    CANCELLED = 9
    BUSY = 10

class trm_log_level(IntEnum):
    ERROR = 0
    WARNING = 1
    INFO = 2
    DEBUG = 3

trm_log_fn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
class trm_dtype(IntEnum):
    NONE = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    F64 = 4
    I8 = 5
    U8 = 6
    I16 = 7
    U16 = 8
    I32 = 9
    U32 = 10
    I64 = 11
    U64 = 12
    BOOL = 13
    F8E4M3 = 14
    F8E4M3FNUZ = 15
    F8E5M2 = 16
    F8E5M2FNUZ = 17
    F8E8M0 = 18
    F4E2M1 = 19
    I4 = 20
    U4 = 21
    I2 = 22
    U2 = 23
    F6E2M3 = 24
    F6E3M2 = 25

class trm_dims(Structure):
    n: int
    d: Any
    _fields_ = [
        ("n", c_int32),
        ("d", c_int64 * 8),
    ]

class trm_backend(IntEnum):
    AUTO = 0
    HOST = 1
    CUDA = 2

class trm_chat_input(Structure):
    size: int
    messages: bytes | None
    tools: bytes | None
    extra: bytes | None
    no_generation_prompt: bool
    now: int
    _fields_ = [
        ("size", c_size_t),
        ("messages", c_char_p),
        ("tools", c_char_p),
        ("extra", c_char_p),
        ("no_generation_prompt", c_bool),
        ("now", c_int64),
    ]

class trm_reply_kind(IntEnum):
    ANSWER = 1
    REASONING = 2
    CALL = 3

class trm_reply_piece(Structure):
    kind: int
    begins: bool
    name: bytes | None
    name_size: int
    text: bytes | None
    size: int
    enums = {"kind": trm_reply_kind}
    _fields_ = [
        ("kind", c_int),
        ("begins", c_bool),
        ("name", c_char_p),
        ("name_size", c_size_t),
        ("text", c_char_p),
        ("size", c_size_t),
    ]

class trm_activation(IntEnum):
    NONE = 0
    RELU = 1
    SILU = 2
    GELU = 3
    GELU_TANH = 4
    SIGMOID = 5
    TANH = 6
    QUICK_GELU = 7
    HARD_SWISH = 8
    MISH = 9
    SOFTPLUS = 10
    SOFTSIGN = 11

class trm_reduce_op(IntEnum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5

class trm_collective_op(IntEnum):
    ALL_REDUCE = 0
    ALL_GATHER = 1
    BROADCAST = 2
    REDUCE = 3
    REDUCE_SCATTER = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7
    SEND = 8
    RECV = 9

class trm_collective_params(Structure):
    op: int
    reduce: int
    axis: int
    root: int
    n_ranks: int
    n_groups: int
    group_size: int
    groups: Any
    dtype: int
    dims: trm_dims
    enums = {"op": trm_collective_op, "reduce": trm_reduce_op, "dtype": trm_dtype}
    _fields_ = [
        ("op", c_int),
        ("reduce", c_int),
        ("axis", c_int32),
        ("root", c_int32),
        ("n_ranks", c_int32),
        ("n_groups", c_int32),
        ("group_size", c_int32),
        ("groups", c_int32 * 64),
        ("dtype", c_int),
        ("dims", trm_dims),
    ]

class trm_recorded_error(Structure):
    status: int
    index: int
    call: bytes | None
    message: Any
    enums = {"status": trm_status}
    _fields_ = [
        ("status", c_int),
        ("index", c_int64),
        ("call", c_char_p),
        ("message", c_char * 2048),
    ]

trm_recorder_fn = CFUNCTYPE(None, c_void_p, POINTER(trm_recorded_error))
class trm_axis(IntEnum):
    TP = 0
    PP = 1
    CP = 2
    EP = 3
    DP = 4

class trm_mesh(Structure):
    size: Any
    _fields_ = [
        ("size", c_int32 * 5),
    ]

class trm_world_options(Structure):
    size: int
    backend: int
    gpu: int
    threads: int
    deadline_seconds: float
    no_bind: bool
    replica: int
    replicas: int
    starting: int
    enums = {"backend": trm_backend}
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("gpu", c_int32),
        ("threads", c_int32),
        ("deadline_seconds", c_double),
        ("no_bind", c_bool),
        ("replica", c_int32),
        ("replicas", c_int32),
        ("starting", c_int32),
    ]

class trm_memory_copy(Structure):
    to: Any
    data: Any
    bytes: int
    _fields_ = [
        ("to", c_void_p),
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]

class trm_rope_scaling(IntEnum):
    PLAIN = 0
    DYNAMIC = 1
    LONG = 2

class trm_rope_params(Structure):
    scaling: int
    rotary_dim: int
    interleaved: bool
    magnitude: float
    base: float
    factor: float
    original_length: int
    first: int
    enums = {"scaling": trm_rope_scaling}
    _fields_ = [
        ("scaling", c_int),
        ("rotary_dim", c_int32),
        ("interleaved", c_bool),
        ("magnitude", c_float),
        ("base", c_float),
        ("factor", c_float),
        ("original_length", c_int64),
        ("first", c_int32),
    ]

class trm_causal(IntEnum):
    NONE = 0
    UPPER_LEFT = 1
    LOWER_RIGHT = 2

class trm_attention_form(IntEnum):
    PACKED_NHD = 0
    PADDED_BHND = 1
    PADDED_BNHD = 2

class trm_attention_params(Structure):
    form: int
    causal: int
    window: int
    chunked: bool
    scale: float
    softcap: float
    n_ranks: int
    k_scale: float
    v_scale: float
    cache_ranks: int
    cache_rank: int
    enums = {"form": trm_attention_form, "causal": trm_causal}
    _fields_ = [
        ("form", c_int),
        ("causal", c_int),
        ("window", c_int32),
        ("chunked", c_bool),
        ("scale", c_float),
        ("softcap", c_float),
        ("n_ranks", c_int32),
        ("k_scale", c_float),
        ("v_scale", c_float),
        ("cache_ranks", c_int32),
        ("cache_rank", c_int32),
    ]

class trm_latent_attention_params(Structure):
    scale: float
    _fields_ = [
        ("scale", c_float),
    ]

class trm_if_params(Structure):
    negated: bool
    _fields_ = [
        ("negated", c_bool),
    ]

class trm_recurrence_params(Structure):
    open: int
    _fields_ = [
        ("open", c_int32),
    ]

class trm_auto_pad(IntEnum):
    NONE = 0
    SAME_UPPER = 1
    SAME_LOWER = 2

class trm_convolution_params(Structure):
    groups: int
    stride: Any
    dilation: Any
    before: Any
    after: Any
    output_padding: Any
    auto_pad: int
    activation: int
    channels_last: bool
    whole_numbers: bool
    enums = {"auto_pad": trm_auto_pad, "activation": trm_activation}
    _fields_ = [
        ("groups", c_int32),
        ("stride", c_int32 * 3),
        ("dilation", c_int32 * 3),
        ("before", c_int32 * 3),
        ("after", c_int32 * 3),
        ("output_padding", c_int32 * 3),
        ("auto_pad", c_int),
        ("activation", c_int),
        ("channels_last", c_bool),
        ("whole_numbers", c_bool),
    ]

class trm_deformable_convolution_params(Structure):
    groups: int
    offset_groups: int
    stride: Any
    dilation: Any
    before: Any
    after: Any
    _fields_ = [
        ("groups", c_int32),
        ("offset_groups", c_int32),
        ("stride", c_int32 * 2),
        ("dilation", c_int32 * 2),
        ("before", c_int32 * 2),
        ("after", c_int32 * 2),
    ]

class trm_pool_op(IntEnum):
    MAX = 0
    AVERAGE = 1
    LP = 2

class trm_pool_params(Structure):
    op: int
    kernel: Any
    stride: Any
    dilation: Any
    before: Any
    after: Any
    auto_pad: int
    ceil: bool
    count_padding: bool
    indices: bool
    indices_by_column: bool
    p: float
    channels_last: bool
    enums = {"op": trm_pool_op, "auto_pad": trm_auto_pad}
    _fields_ = [
        ("op", c_int),
        ("kernel", c_int32 * 3),
        ("stride", c_int32 * 3),
        ("dilation", c_int32 * 3),
        ("before", c_int32 * 3),
        ("after", c_int32 * 3),
        ("auto_pad", c_int),
        ("ceil", c_bool),
        ("count_padding", c_bool),
        ("indices", c_bool),
        ("indices_by_column", c_bool),
        ("p", c_float),
        ("channels_last", c_bool),
    ]

class trm_col2im_params(Structure):
    image: trm_dims
    kernel: Any
    stride: Any
    dilation: Any
    before: Any
    after: Any
    _fields_ = [
        ("image", trm_dims),
        ("kernel", c_int32 * 3),
        ("stride", c_int32 * 3),
        ("dilation", c_int32 * 3),
        ("before", c_int32 * 3),
        ("after", c_int32 * 3),
    ]

class trm_short_convolution_params(Structure):
    activation: int
    enums = {"activation": trm_activation}
    _fields_ = [
        ("activation", c_int),
    ]

class trm_gated_delta_params(Structure):
    eps: float
    _fields_ = [
        ("eps", c_float),
    ]

class trm_selective_scan_params(Structure):
    step_min: float
    step_max: float
    _fields_ = [
        ("step_min", c_float),
        ("step_max", c_float),
    ]

class trm_pad_mode(IntEnum):
    CONSTANT = 0
    REFLECT = 1
    EDGE = 2
    WRAP = 3

class trm_pad_params(Structure):
    mode: int
    before: Any
    after: Any
    enums = {"mode": trm_pad_mode}
    _fields_ = [
        ("mode", c_int),
        ("before", c_int32 * 8),
        ("after", c_int32 * 8),
    ]

class trm_gather_elements_params(Structure):
    axis: int
    _fields_ = [
        ("axis", c_int32),
    ]

class trm_gather_nd_params(Structure):
    batch_dims: int
    _fields_ = [
        ("batch_dims", c_int32),
    ]

class trm_scatter_form(IntEnum):
    ELEMENTS = 0
    ND = 1

class trm_scatter_reduction(IntEnum):
    REPLACE = 0
    ADD = 1
    MUL = 2
    MIN = 3
    MAX = 4

class trm_scatter_params(Structure):
    form: int
    reduction: int
    axis: int
    enums = {"form": trm_scatter_form, "reduction": trm_scatter_reduction}
    _fields_ = [
        ("form", c_int),
        ("reduction", c_int),
        ("axis", c_int32),
    ]

class trm_one_hot_params(Structure):
    axis: int
    _fields_ = [
        ("axis", c_int32),
    ]

class trm_reverse_sequence_params(Structure):
    batch_axis: int
    time_axis: int
    _fields_ = [
        ("batch_axis", c_int32),
        ("time_axis", c_int32),
    ]

class trm_topk_params(Structure):
    axis: int
    smallest: bool
    sorted: bool
    _fields_ = [
        ("axis", c_int32),
        ("smallest", c_bool),
        ("sorted", c_bool),
    ]

class trm_arg_reduce_params(Structure):
    axis: int
    smallest: bool
    last: bool
    keep_dims: bool
    _fields_ = [
        ("axis", c_int32),
        ("smallest", c_bool),
        ("last", c_bool),
        ("keep_dims", c_bool),
    ]

class trm_matmul_params(Structure):
    transpose_a: bool
    transpose_b: bool
    activation: int
    out: int
    enums = {"activation": trm_activation, "out": trm_dtype}
    _fields_ = [
        ("transpose_a", c_bool),
        ("transpose_b", c_bool),
        ("activation", c_int),
        ("out", c_int),
    ]

class trm_glu_params(Structure):
    activation: int
    enums = {"activation": trm_activation}
    _fields_ = [
        ("activation", c_int),
    ]

class trm_x_quantization(IntEnum):
    NONE = 0
    STATIC = 1
    DYNAMIC = 2

class trm_dequant_matmul_params(Structure):
    block_n: int
    block_k: int
    out: int
    x_quantization: int
    x_scale: float
    enums = {"out": trm_dtype, "x_quantization": trm_x_quantization}
    _fields_ = [
        ("block_n", c_int32),
        ("block_k", c_int32),
        ("out", c_int),
        ("x_quantization", c_int),
        ("x_scale", c_float),
    ]

class trm_router_scoring(IntEnum):
    SOFTMAX = 0
    SOFTMAX_CHOSEN = 1
    SIGMOID = 2
    SQRT_SOFTPLUS = 3
    SPARSE_MIXER = 4

class trm_router_params(Structure):
    k: int
    scoring: int
    groups: int
    top_groups: int
    group_sum: bool
    renormalize: bool
    epsilon: float
    scale: float
    enums = {"scoring": trm_router_scoring}
    _fields_ = [
        ("k", c_int32),
        ("scoring", c_int),
        ("groups", c_int32),
        ("top_groups", c_int32),
        ("group_sum", c_bool),
        ("renormalize", c_bool),
        ("epsilon", c_float),
        ("scale", c_float),
    ]

class trm_expert_activation(IntEnum):
    SILU = 0
    GELU = 1
    GELU_TANH = 2
    SWIGLU_OAI = 3
    RELU2 = 4

class trm_experts_params(Structure):
    activation: int
    interleaved: bool
    weighted_input: bool
    limit: float
    alpha: float
    first: int
    enums = {"activation": trm_expert_activation}
    _fields_ = [
        ("activation", c_int),
        ("interleaved", c_bool),
        ("weighted_input", c_bool),
        ("limit", c_float),
        ("alpha", c_float),
        ("first", c_int64),
    ]

class trm_norm_op(IntEnum):
    RMS = 0
    LAYER = 1

class trm_norm_params(Structure):
    op: int
    residual: bool
    eps: float
    weight_offset: float
    enums = {"op": trm_norm_op}
    _fields_ = [
        ("op", c_int),
        ("residual", c_bool),
        ("eps", c_float),
        ("weight_offset", c_float),
    ]

class trm_group_norm_params(Structure):
    groups: int
    eps: float
    activation: int
    enums = {"activation": trm_activation}
    _fields_ = [
        ("groups", c_int32),
        ("eps", c_float),
        ("activation", c_int),
    ]

class trm_lrn_params(Structure):
    size: int
    alpha: float
    beta: float
    bias: float
    _fields_ = [
        ("size", c_int32),
        ("alpha", c_float),
        ("beta", c_float),
        ("bias", c_float),
    ]

class trm_plugin_params(Structure):
    layer: int
    _fields_ = [
        ("layer", c_int32),
    ]

class trm_elementwise_op(IntEnum):
    ADD = 0
    SUB = 1
    MUL = 2
    DIV = 3
    MIN = 4
    MAX = 5
    POW = 6
    MOD = 7
    FMOD = 8
    EQUAL = 9
    LESS = 10
    LESS_EQUAL = 11
    GREATER = 12
    GREATER_EQUAL = 13
    AND = 14
    OR = 15
    XOR = 16
    SHIFT_LEFT = 17
    SHIFT_RIGHT = 18
    PRELU = 19

class trm_elementwise_params(Structure):
    op: int
    enums = {"op": trm_elementwise_op}
    _fields_ = [
        ("op", c_int),
    ]

class trm_unary_op(IntEnum):
    ACTIVATION = 0
    NEG = 1
    ABS = 2
    EXP = 3
    LOG = 4
    SQRT = 5
    RECIPROCAL = 6
    ERF = 7
    LINEAR = 8
    SOFTCAP = 9
    SIGN = 10
    CEIL = 11
    FLOOR = 12
    ROUND = 13
    SIN = 14
    COS = 15
    TAN = 16
    ASIN = 17
    ACOS = 18
    ATAN = 19
    SINH = 20
    COSH = 21
    ASINH = 22
    ACOSH = 23
    ATANH = 24
    NOT = 25
    IS_NAN = 26
    IS_INF = 27
    CLIP = 28
    ELU = 29
    SELU = 30
    CELU = 31
    LEAKY_RELU = 32
    HARD_SIGMOID = 33
    THRESHOLDED_RELU = 34
    SHRINK = 35
    SWISH = 36

class trm_unary_params(Structure):
    op: int
    activation: int
    alpha: float
    beta: float
    enums = {"op": trm_unary_op, "activation": trm_activation}
    _fields_ = [
        ("op", c_int),
        ("activation", c_int),
        ("alpha", c_float),
        ("beta", c_float),
    ]

class trm_cumulative_op(IntEnum):
    SUM = 0
    PROD = 1

class trm_cumulative_params(Structure):
    op: int
    axis: int
    exclusive: bool
    reverse: bool
    enums = {"op": trm_cumulative_op}
    _fields_ = [
        ("op", c_int),
        ("axis", c_int32),
        ("exclusive", c_bool),
        ("reverse", c_bool),
    ]

class trm_quantize_params(Structure):
    axis: int
    block_size: int
    to: int
    unsaturated: bool
    enums = {"to": trm_dtype}
    _fields_ = [
        ("axis", c_int32),
        ("block_size", c_int32),
        ("to", c_int),
        ("unsaturated", c_bool),
    ]

class trm_fourier_params(Structure):
    axis: int
    inverse: bool
    onesided: bool
    length: int
    _fields_ = [
        ("axis", c_int32),
        ("inverse", c_bool),
        ("onesided", c_bool),
        ("length", c_int64),
    ]

class trm_random_op(IntEnum):
    UNIFORM = 0
    NORMAL = 1
    BERNOULLI = 2
    MULTINOMIAL = 3

class trm_random_params(Structure):
    op: int
    to: int
    a: float
    b: float
    seed: int
    samples: int
    enums = {"op": trm_random_op, "to": trm_dtype}
    _fields_ = [
        ("op", c_int),
        ("to", c_int),
        ("a", c_float),
        ("b", c_float),
        ("seed", c_uint64),
        ("samples", c_int64),
    ]

class trm_shape_params(Structure):
    start: int
    end: int
    _fields_ = [
        ("start", c_int32),
        ("end", c_int32),
    ]

class trm_expand_params(Structure):
    dims: trm_dims
    _fields_ = [
        ("dims", trm_dims),
    ]

class trm_unique_params(Structure):
    flatten: bool
    sorted: bool
    axis: int
    _fields_ = [
        ("flatten", c_bool),
        ("sorted", c_bool),
        ("axis", c_int32),
    ]

class trm_cast_round(IntEnum):
    UP = 0
    DOWN = 1
    NEAREST = 2

class trm_cast_params(Structure):
    to: int
    unsaturated: bool
    round: int
    bits: bool
    enums = {"to": trm_dtype, "round": trm_cast_round}
    _fields_ = [
        ("to", c_int),
        ("unsaturated", c_bool),
        ("round", c_int),
        ("bits", c_bool),
    ]

class trm_reshape_params(Structure):
    dims: trm_dims
    zero_is_zero: bool
    _fields_ = [
        ("dims", trm_dims),
        ("zero_is_zero", c_bool),
    ]

class trm_transpose_params(Structure):
    perm: Any
    _fields_ = [
        ("perm", c_int32 * 8),
    ]

class trm_slice_params(Structure):
    axis: int
    start: int
    end: int
    step: int
    _fields_ = [
        ("axis", c_int32),
        ("start", c_int64),
        ("end", c_int64),
        ("step", c_int64),
    ]

class trm_concat_params(Structure):
    axis: int
    _fields_ = [
        ("axis", c_int32),
    ]

class trm_gather_params(Structure):
    axis: int
    _fields_ = [
        ("axis", c_int32),
    ]

class trm_embedding_params(Structure):
    first_row: int
    _fields_ = [
        ("first_row", c_int64),
    ]

class trm_softmax_params(Structure):
    axis: int
    _fields_ = [
        ("axis", c_int32),
    ]

class trm_reduce_params(Structure):
    op: int
    axis: int
    keep_dims: bool
    enums = {"op": trm_reduce_op}
    _fields_ = [
        ("op", c_int),
        ("axis", c_int32),
        ("keep_dims", c_bool),
    ]

class trm_resize_mode(IntEnum):
    NEAREST = 0
    LINEAR = 1
    CUBIC = 2

class trm_resize_coordinates(IntEnum):
    HALF_PIXEL = 0
    HALF_PIXEL_SYMMETRIC = 1
    PYTORCH_HALF_PIXEL = 2
    ALIGN_CORNERS = 3
    ASYMMETRIC = 4
    HALF_PIXEL_FOR_NN = 5
    CROP = 6

class trm_resize_nearest(IntEnum):
    ROUND_PREFER_FLOOR = 0
    ROUND_PREFER_CEIL = 1
    FLOOR = 2
    CEIL = 3

class trm_resize_aspect(IntEnum):
    STRETCH = 0
    NOT_LARGER = 1
    NOT_SMALLER = 2

class trm_resize_params(Structure):
    mode: int
    coordinates: int
    nearest: int
    aspect: int
    axes: int
    antialias: bool
    exclude_outside: bool
    cubic_a: float
    extrapolation: float
    enums = {"mode": trm_resize_mode, "coordinates": trm_resize_coordinates, "nearest": trm_resize_nearest, "aspect": trm_resize_aspect}
    _fields_ = [
        ("mode", c_int),
        ("coordinates", c_int),
        ("nearest", c_int),
        ("aspect", c_int),
        ("axes", c_uint32),
        ("antialias", c_bool),
        ("exclude_outside", c_bool),
        ("cubic_a", c_float),
        ("extrapolation", c_float),
    ]

class trm_grid_padding(IntEnum):
    ZEROS = 0
    BORDER = 1
    REFLECTION = 2

class trm_grid_sample_params(Structure):
    mode: int
    padding: int
    align_corners: bool
    enums = {"mode": trm_resize_mode, "padding": trm_grid_padding}
    _fields_ = [
        ("mode", c_int),
        ("padding", c_int),
        ("align_corners", c_bool),
    ]

class trm_roi_op(IntEnum):
    ALIGN_AVERAGE = 0
    ALIGN_MAX = 1
    POOL_MAX = 2

class trm_roi_pool_params(Structure):
    op: int
    height: int
    width: int
    sampling_ratio: int
    spatial_scale: float
    half_pixel: bool
    enums = {"op": trm_roi_op}
    _fields_ = [
        ("op", c_int),
        ("height", c_int32),
        ("width", c_int32),
        ("sampling_ratio", c_int32),
        ("spatial_scale", c_float),
        ("half_pixel", c_bool),
    ]

class trm_non_max_suppression_params(Structure):
    center_point: bool
    _fields_ = [
        ("center_point", c_bool),
    ]

class trm_recurrent_cell(IntEnum):
    RNN = 0
    GRU = 1
    LSTM = 2

class trm_recurrent_direction(IntEnum):
    FORWARD = 0
    REVERSE = 1
    BIDIRECTIONAL = 2

class trm_recurrent_activation(IntEnum):
    SIGMOID = 0
    TANH = 1
    RELU = 2
    AFFINE = 3
    LEAKY_RELU = 4
    THRESHOLDED_RELU = 5
    SCALED_TANH = 6
    HARD_SIGMOID = 7
    ELU = 8
    SOFTSIGN = 9
    SOFTPLUS = 10

class trm_recurrent_params(Structure):
    cell: int
    direction: int
    hidden: int
    linear_before_reset: bool
    input_forget: bool
    clip: float
    activations: Any
    alpha: Any
    beta: Any
    enums = {"cell": trm_recurrent_cell, "direction": trm_recurrent_direction, "activations": trm_recurrent_activation}
    _fields_ = [
        ("cell", c_int),
        ("direction", c_int),
        ("hidden", c_int32),
        ("linear_before_reset", c_bool),
        ("input_forget", c_bool),
        ("clip", c_float),
        ("activations", c_int * 6),
        ("alpha", c_float * 6),
        ("beta", c_float * 6),
    ]

class trm_layer_kind(IntEnum):
    CAST = 0
    RESHAPE = 1
    TRANSPOSE = 2
    SLICE = 3
    CONCAT = 4
    GATHER = 5
    EMBEDDING = 6
    MATMUL = 7
    ELEMENTWISE = 8
    UNARY = 9
    GLU = 10
    NORM = 11
    SOFTMAX = 12
    REDUCE = 13
    ROPE = 14
    ATTENTION = 15
    DIST_COLLECTIVE = 16
    SHAPE = 17
    EXPAND = 18
    TILE = 19
    PAD = 20
    RANGE = 21
    SELECT = 22
    GATHER_ELEMENTS = 23
    GATHER_ND = 24
    SCATTER = 25
    ONE_HOT = 26
    REVERSE_SEQUENCE = 27
    TOPK = 28
    ARG_REDUCE = 29
    CUMULATIVE = 30
    NON_ZERO = 31
    UNIQUE = 32
    NON_MAX_SUPPRESSION = 33
    CONVOLUTION = 34
    DECONVOLUTION = 35
    DEFORMABLE_CONVOLUTION = 36
    POOL = 37
    RESIZE = 38
    GRID_SAMPLE = 39
    ROI_POOL = 40
    COL2IM = 41
    GROUP_NORM = 42
    LRN = 43
    RECURRENT = 44
    QUANTIZE = 45
    DEQUANTIZE = 46
    DETERMINANT = 47
    FOURIER = 48
    RANDOM = 49
    IF = 50
    END_IF = 51
    LOOP = 52
    END_LOOP = 53
    ENTER = 54
    RECURRENCE = 55
    NEXT = 56
    LOOP_OUTPUT = 57
    MERGE = 58
    DEQUANT_MATMUL = 59
    ROUTER = 60
    EXPERTS = 61
    LATENT_ATTENTION = 62
    SHORT_CONVOLUTION = 63
    GATED_DELTA = 64
    SELECTIVE_SCAN = 65
    LORA = 66
    PLUGIN = 67

class trm_layer_desc_union(Union):
    cast: trm_cast_params
    reshape: trm_reshape_params
    transpose: trm_transpose_params
    slice: trm_slice_params
    concat: trm_concat_params
    gather: trm_gather_params
    embedding: trm_embedding_params
    matmul: trm_matmul_params
    elementwise: trm_elementwise_params
    unary: trm_unary_params
    glu: trm_glu_params
    norm: trm_norm_params
    dequant_matmul: trm_dequant_matmul_params
    router: trm_router_params
    experts: trm_experts_params
    softmax: trm_softmax_params
    reduce: trm_reduce_params
    rope: trm_rope_params
    attention: trm_attention_params
    latent_attention: trm_latent_attention_params
    short_convolution: trm_short_convolution_params
    gated_delta: trm_gated_delta_params
    selective_scan: trm_selective_scan_params
    collective: trm_collective_params
    shape: trm_shape_params
    expand: trm_expand_params
    pad: trm_pad_params
    gather_elements: trm_gather_elements_params
    gather_nd: trm_gather_nd_params
    scatter: trm_scatter_params
    one_hot: trm_one_hot_params
    reverse_sequence: trm_reverse_sequence_params
    topk: trm_topk_params
    arg_reduce: trm_arg_reduce_params
    cumulative: trm_cumulative_params
    unique: trm_unique_params
    non_max_suppression: trm_non_max_suppression_params
    convolution: trm_convolution_params
    deformable_convolution: trm_deformable_convolution_params
    pool: trm_pool_params
    resize: trm_resize_params
    grid_sample: trm_grid_sample_params
    roi_pool: trm_roi_pool_params
    col2im: trm_col2im_params
    group_norm: trm_group_norm_params
    lrn: trm_lrn_params
    recurrent: trm_recurrent_params
    quantize: trm_quantize_params
    fourier: trm_fourier_params
    random: trm_random_params
    branch: trm_if_params
    recurrence: trm_recurrence_params
    plugin: trm_plugin_params
    reserved: Any
    _fields_ = [
        ("cast", trm_cast_params),
        ("reshape", trm_reshape_params),
        ("transpose", trm_transpose_params),
        ("slice", trm_slice_params),
        ("concat", trm_concat_params),
        ("gather", trm_gather_params),
        ("embedding", trm_embedding_params),
        ("matmul", trm_matmul_params),
        ("elementwise", trm_elementwise_params),
        ("unary", trm_unary_params),
        ("glu", trm_glu_params),
        ("norm", trm_norm_params),
        ("dequant_matmul", trm_dequant_matmul_params),
        ("router", trm_router_params),
        ("experts", trm_experts_params),
        ("softmax", trm_softmax_params),
        ("reduce", trm_reduce_params),
        ("rope", trm_rope_params),
        ("attention", trm_attention_params),
        ("latent_attention", trm_latent_attention_params),
        ("short_convolution", trm_short_convolution_params),
        ("gated_delta", trm_gated_delta_params),
        ("selective_scan", trm_selective_scan_params),
        ("collective", trm_collective_params),
        ("shape", trm_shape_params),
        ("expand", trm_expand_params),
        ("pad", trm_pad_params),
        ("gather_elements", trm_gather_elements_params),
        ("gather_nd", trm_gather_nd_params),
        ("scatter", trm_scatter_params),
        ("one_hot", trm_one_hot_params),
        ("reverse_sequence", trm_reverse_sequence_params),
        ("topk", trm_topk_params),
        ("arg_reduce", trm_arg_reduce_params),
        ("cumulative", trm_cumulative_params),
        ("unique", trm_unique_params),
        ("non_max_suppression", trm_non_max_suppression_params),
        ("convolution", trm_convolution_params),
        ("deformable_convolution", trm_deformable_convolution_params),
        ("pool", trm_pool_params),
        ("resize", trm_resize_params),
        ("grid_sample", trm_grid_sample_params),
        ("roi_pool", trm_roi_pool_params),
        ("col2im", trm_col2im_params),
        ("group_norm", trm_group_norm_params),
        ("lrn", trm_lrn_params),
        ("recurrent", trm_recurrent_params),
        ("quantize", trm_quantize_params),
        ("fourier", trm_fourier_params),
        ("random", trm_random_params),
        ("branch", trm_if_params),
        ("recurrence", trm_recurrence_params),
        ("plugin", trm_plugin_params),
        ("reserved", c_uint64 * 88),
    ]

class trm_layer_desc(Structure):
    kind: int
    params: trm_layer_desc_union
    enums = {"kind": trm_layer_kind}
    _fields_ = [
        ("kind", c_int),
        ("params", trm_layer_desc_union),
    ]

class trm_layer_info(Structure):
    name: bytes | None
    desc: Any
    n_inputs: int
    n_outputs: int
    inputs: Any
    outputs: Any
    _fields_ = [
        ("name", c_char_p),
        ("desc", POINTER(trm_layer_desc)),
        ("n_inputs", c_int32),
        ("n_outputs", c_int32),
        ("inputs", c_void_p * 16),
        ("outputs", c_void_p * 5),
    ]

class trm_part_kind(IntEnum):
    UNKNOWN = 0
    WHOLE = 1
    SPLIT = 2
    SUMMAND = 3

class trm_tensor_part(Structure):
    kind: int
    axis: int
    parts: int
    of: bytes | None
    whole: int
    enums = {"kind": trm_part_kind}
    _fields_ = [
        ("kind", c_int),
        ("axis", c_int32),
        ("parts", c_int32),
        ("of", c_char_p),
        ("whole", c_int64),
    ]

class trm_shape_bound(Structure):
    tensor: bytes | None
    max: trm_dims
    min: trm_dims
    opt: trm_dims
    max_values: Any
    min_values: Any
    opt_values: Any
    profile: int
    _fields_ = [
        ("tensor", c_char_p),
        ("max", trm_dims),
        ("min", trm_dims),
        ("opt", trm_dims),
        ("max_values", c_void_p),
        ("min_values", c_void_p),
        ("opt_values", c_void_p),
        ("profile", c_int32),
    ]

trm_stage_fn = CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)
class trm_build_options(Structure):
    size: int
    backend: int
    mesh: trm_mesh
    rank: int
    bounds: Any
    n_bounds: int
    on_stage: Any
    stage_user: Any
    allow_tf32: bool
    max_aux_streams: int
    batch_invariant: bool
    max_workspace: int
    enums = {"backend": trm_backend}
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("mesh", trm_mesh),
        ("rank", c_int32),
        ("bounds", POINTER(trm_shape_bound)),
        ("n_bounds", c_int32),
        ("on_stage", trm_stage_fn),
        ("stage_user", c_void_p),
        ("allow_tf32", c_bool),
        ("max_aux_streams", c_int32),
        ("batch_invariant", c_bool),
        ("max_workspace", c_size_t),
    ]

class trm_memory_plan(Structure):
    weights: int
    staging: int
    state: int
    activations: int
    workspace: int
    total: int
    _fields_ = [
        ("weights", c_size_t),
        ("staging", c_size_t),
        ("state", c_size_t),
        ("activations", c_size_t),
        ("workspace", c_size_t),
        ("total", c_size_t),
    ]

class trm_weight_budget_kind(IntEnum):
    OFF = 0
    AUTO = 1
    PERCENT = 2
    BYTES = 3

class trm_weight_compression(IntEnum):
    AUTO = 0
    OFF = 1
    LOSSLESS = 2

class trm_weight_sharing(IntEnum):
    AUTO = 0
    OFF = 1
    ON = 2

class trm_host_compute(IntEnum):
    OFF = 0
    AUTO = 1
    PERCENT = 2

class trm_weight_budget(Structure):
    kind: int
    percent: float
    bytes: int
    host_bytes: int
    compression: int
    sharing: int
    host_compute: int
    host_percent: float
    enums = {"kind": trm_weight_budget_kind, "compression": trm_weight_compression, "sharing": trm_weight_sharing, "host_compute": trm_host_compute}
    _fields_ = [
        ("kind", c_int),
        ("percent", c_double),
        ("bytes", c_size_t),
        ("host_bytes", c_size_t),
        ("compression", c_int),
        ("sharing", c_int),
        ("host_compute", c_int),
        ("host_percent", c_double),
    ]

class trm_streaming_info(Structure):
    on: bool
    pinned: bool
    measured: bool
    streamable: int
    budget: int
    resident: int
    streamed: int
    unpacked: int
    offloaded: int
    offloaded_layers: int
    host_rate: float
    host_seconds: float
    large_streamed: int
    large_run_seconds: float
    host_run_seconds: float
    staging: int
    host: int
    files: int
    file_buffers: int
    copies: int
    loop_passes: int
    sharers: int
    gathered: int
    link_rate: float
    unpack_rate: float
    run_seconds: float
    link_seconds: float
    largest_run_seconds: float
    expert_cache: int
    expert_slots: int
    experts: int
    cached_layers: int
    expert_hit_rate: float
    expert_hits: int
    expert_misses: int
    expert_hosted: int
    host_experts: int
    host_expert_hit_rate: float
    expert_profile: bool
    expert_read: int
    expert_reads: int
    file_rate: float
    _fields_ = [
        ("on", c_bool),
        ("pinned", c_bool),
        ("measured", c_bool),
        ("streamable", c_size_t),
        ("budget", c_size_t),
        ("resident", c_size_t),
        ("streamed", c_size_t),
        ("unpacked", c_size_t),
        ("offloaded", c_size_t),
        ("offloaded_layers", c_int32),
        ("host_rate", c_double),
        ("host_seconds", c_double),
        ("large_streamed", c_size_t),
        ("large_run_seconds", c_double),
        ("host_run_seconds", c_double),
        ("staging", c_size_t),
        ("host", c_size_t),
        ("files", c_size_t),
        ("file_buffers", c_size_t),
        ("copies", c_int32),
        ("loop_passes", c_int32),
        ("sharers", c_int32),
        ("gathered", c_size_t),
        ("link_rate", c_double),
        ("unpack_rate", c_double),
        ("run_seconds", c_double),
        ("link_seconds", c_double),
        ("largest_run_seconds", c_double),
        ("expert_cache", c_size_t),
        ("expert_slots", c_int32),
        ("experts", c_int32),
        ("cached_layers", c_int32),
        ("expert_hit_rate", c_double),
        ("expert_hits", c_int64),
        ("expert_misses", c_int64),
        ("expert_hosted", c_int64),
        ("host_experts", c_int32),
        ("host_expert_hit_rate", c_double),
        ("expert_profile", c_bool),
        ("expert_read", c_size_t),
        ("expert_reads", c_int64),
        ("file_rate", c_double),
    ]

trm_stall_fn = CFUNCTYPE(None, c_void_p, c_char_p, c_double)
class trm_plan_info(Structure):
    backend: int
    mesh: trm_mesh
    rank: int
    n_ranks: int
    n_profiles: int
    n_collectives: int
    refittable: bool
    n_aux_streams: int
    n_tactics: int
    device: bytes | None
    multiprocessors: int
    cc_major: int
    cc_minor: int
    library: bytes | None
    format: int
    n_weights: Any
    enums = {"backend": trm_backend}
    _fields_ = [
        ("backend", c_int),
        ("mesh", trm_mesh),
        ("rank", c_int32),
        ("n_ranks", c_int32),
        ("n_profiles", c_int32),
        ("n_collectives", c_int32),
        ("refittable", c_bool),
        ("n_aux_streams", c_int32),
        ("n_tactics", c_int32),
        ("device", c_char_p),
        ("multiprocessors", c_int32),
        ("cc_major", c_int32),
        ("cc_minor", c_int32),
        ("library", c_char_p),
        ("format", c_int32),
        ("n_weights", c_int32 * 3),
    ]

class trm_plan_weights(IntEnum):
    REFERENCED = 0
    EMBEDDED = 1
    STRIPPED = 2

trm_weight_fn = CFUNCTYPE(None, c_void_p, c_char_p, c_int, POINTER(trm_dims))
trm_progress_fn = CFUNCTYPE(None, c_void_p, c_size_t, c_size_t)
trm_tune_progress_fn = CFUNCTYPE(c_bool, c_void_p, c_int32, c_int32, c_double)
class trm_tune_options(Structure):
    size: int
    level: int
    cache: bytes | None
    progress: Any
    progress_user: Any
    _fields_ = [
        ("size", c_size_t),
        ("level", c_int32),
        ("cache", c_char_p),
        ("progress", trm_tune_progress_fn),
        ("progress_user", c_void_p),
    ]

trm_output_allocate_fn = CFUNCTYPE(c_void_p, c_void_p, c_char_p, POINTER(trm_dims), c_size_t)
trm_tactic_fn = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_char_p, c_double, c_bool)
class trm_debug_tensor(Structure):
    name: bytes | None
    layer: bytes | None
    kernel: bytes | None
    kind: int
    dtype: int
    dims: trm_dims
    data: Any
    part: trm_tensor_part
    enums = {"kind": trm_layer_kind, "dtype": trm_dtype}
    _fields_ = [
        ("name", c_char_p),
        ("layer", c_char_p),
        ("kernel", c_char_p),
        ("kind", c_int),
        ("dtype", c_int),
        ("dims", trm_dims),
        ("data", c_void_p),
        ("part", trm_tensor_part),
    ]

trm_debug_fn = CFUNCTYPE(c_bool, c_void_p, POINTER(trm_debug_tensor))
class trm_run_times(Structure):
    upload_milliseconds: float
    compute_milliseconds: float
    download_milliseconds: float
    enqueue_milliseconds: float
    _fields_ = [
        ("upload_milliseconds", c_double),
        ("compute_milliseconds", c_double),
        ("download_milliseconds", c_double),
        ("enqueue_milliseconds", c_double),
    ]

trm_layer_time_fn = CFUNCTYPE(None, c_void_p, c_char_p, c_int, c_char_p, c_double, c_int64)
class trm_quantized_layer(Structure):
    name: bytes | None
    rows: int
    columns: int
    bytes_before: int
    bytes_after: int
    error: float
    done: int
    total: int
    differences: Any
    squares: Any
    _fields_ = [
        ("name", c_char_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("bytes_before", c_int64),
        ("bytes_after", c_int64),
        ("error", c_double),
        ("done", c_int64),
        ("total", c_int64),
        ("differences", POINTER(c_double)),
        ("squares", POINTER(c_double)),
    ]

trm_quantize_fn = CFUNCTYPE(c_bool, c_void_p, POINTER(trm_quantized_layer))
class trm_quantize_choice(Structure):
    name: bytes | None
    rows: int
    columns: int
    group: int
    low: int
    high: int
    weight: Any
    scales: Any
    numbers: Any
    scale_type: int
    enums = {"scale_type": trm_dtype}
    _fields_ = [
        ("name", c_char_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("group", c_int64),
        ("low", c_int32),
        ("high", c_int32),
        ("weight", POINTER(c_float)),
        ("scales", POINTER(c_float)),
        ("numbers", POINTER(c_int8)),
        ("scale_type", c_int),
    ]

trm_quantize_choose_fn = CFUNCTYPE(c_int, c_void_p, POINTER(trm_quantize_choice))
class trm_quantize_options(Structure):
    size: int
    keep: Any
    n_keep: int
    on_layer: Any
    choose: Any
    user: Any
    choose_scales: bool
    _fields_ = [
        ("size", c_size_t),
        ("keep", POINTER(c_char_p)),
        ("n_keep", c_int32),
        ("on_layer", trm_quantize_fn),
        ("choose", trm_quantize_choose_fn),
        ("user", c_void_p),
        ("choose_scales", c_bool),
    ]

class trm_weight_factors(Structure):
    weight: bytes | None
    axis: int
    n: int
    factors: Any
    offset: float
    _fields_ = [
        ("weight", c_char_p),
        ("axis", c_int32),
        ("n", c_int64),
        ("factors", POINTER(c_float)),
        ("offset", c_float),
    ]

trm_rescale_fn = CFUNCTYPE(c_bool, c_void_p, c_int64, c_int64)
class trm_model_sampling(Structure):
    temperature: float
    top_p: float
    min_p: float
    repetition_penalty: float
    top_k: int
    _fields_ = [
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("top_k", c_int32),
    ]

class trm_model_info(Structure):
    path: bytes | None
    architecture: bytes | None
    model_type: bytes | None
    weight_dtype: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    context_length: int
    parameters: int
    weight_bytes: int
    bos_token: int
    n_eos_tokens: int
    eos_tokens: Any
    sampling: trm_model_sampling
    enums = {"weight_dtype": trm_dtype}
    _fields_ = [
        ("path", c_char_p),
        ("architecture", c_char_p),
        ("model_type", c_char_p),
        ("weight_dtype", c_int),
        ("layers", c_int64),
        ("hidden", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("intermediate", c_int64),
        ("vocab", c_int64),
        ("context_length", c_int64),
        ("parameters", c_int64),
        ("weight_bytes", c_int64),
        ("bos_token", c_int32),
        ("n_eos_tokens", c_int32),
        ("eos_tokens", c_int32 * 8),
        ("sampling", trm_model_sampling),
    ]

class trm_model_experts(Structure):
    size: int
    n_experts: int
    experts_per_token: int
    expert_width: int
    shared_width: int
    expert_layers: int
    active_parameters: int
    active_bytes: int
    expert_bytes: int
    _fields_ = [
        ("size", c_size_t),
        ("n_experts", c_int64),
        ("experts_per_token", c_int64),
        ("expert_width", c_int64),
        ("shared_width", c_int64),
        ("expert_layers", c_int64),
        ("active_parameters", c_int64),
        ("active_bytes", c_int64),
        ("expert_bytes", c_int64),
    ]

class trm_speculation_kind(IntEnum):
    OFF = 0
    NGRAM = 1
    AUTO = 2
    MTP = 3

class trm_speculation(Structure):
    kind: int
    tokens: int
    enums = {"kind": trm_speculation_kind}
    _fields_ = [
        ("kind", c_int),
        ("tokens", c_int32),
    ]

class trm_generator_options(Structure):
    size: int
    dtype: int
    mesh: trm_mesh
    max_context: int
    max_sequences: int
    max_step_tokens: int
    progress: Any
    progress_user: Any
    no_tune: bool
    cache_tokens: int
    timing_cache: bytes | None
    weight_budget: trm_weight_budget
    speculation: trm_speculation
    embeddings: bool
    batch_invariant: bool
    cache_dtype: int
    pad_steps: bool
    reserved: int
    max_adapters: int
    max_adapter_rank: int
    draft_head: Any
    expert_profile: bytes | None
    enums = {"dtype": trm_dtype, "cache_dtype": trm_dtype}
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("mesh", trm_mesh),
        ("max_context", c_int64),
        ("max_sequences", c_int32),
        ("max_step_tokens", c_int32),
        ("progress", trm_progress_fn),
        ("progress_user", c_void_p),
        ("no_tune", c_bool),
        ("cache_tokens", c_int64),
        ("timing_cache", c_char_p),
        ("weight_budget", trm_weight_budget),
        ("speculation", trm_speculation),
        ("embeddings", c_bool),
        ("batch_invariant", c_bool),
        ("cache_dtype", c_int),
        ("pad_steps", c_bool),
        ("reserved", c_int32),
        ("max_adapters", c_int32),
        ("max_adapter_rank", c_int32),
        ("draft_head", c_void_p),
        ("expert_profile", c_char_p),
    ]

class trm_generator_limits(Structure):
    max_context: int
    cache_tokens: int
    max_sequences: int
    max_step_tokens: int
    memory: trm_memory_plan
    streaming: trm_streaming_info
    _fields_ = [
        ("max_context", c_int64),
        ("cache_tokens", c_int64),
        ("max_sequences", c_int32),
        ("max_step_tokens", c_int32),
        ("memory", trm_memory_plan),
        ("streaming", trm_streaming_info),
    ]

class trm_startup(Structure):
    join_seconds: float
    device_seconds: float
    communicator_seconds: float
    plan_seconds: float
    engine_seconds: float
    context_seconds: float
    tune_seconds: float
    capture_seconds: float
    wait_seconds: float
    weights_seconds: float
    weight_bytes: int
    _fields_ = [
        ("join_seconds", c_double),
        ("device_seconds", c_double),
        ("communicator_seconds", c_double),
        ("plan_seconds", c_double),
        ("engine_seconds", c_double),
        ("context_seconds", c_double),
        ("tune_seconds", c_double),
        ("capture_seconds", c_double),
        ("wait_seconds", c_double),
        ("weights_seconds", c_double),
        ("weight_bytes", c_int64),
    ]

class trm_sampling(Structure):
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    _fields_ = [
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("seed", c_uint64),
    ]

class trm_finish(IntEnum):
    NONE = 0
    STOP = 1
    LENGTH = 2
    CALLBACK = 3
    CANCELLED = 4
    ERROR = 5

class trm_request(Structure):
    prompt: Any
    n_prompt: int
    max_tokens: int
    sampling: trm_sampling
    ignore_eos: bool
    adapter: int
    n_generated: int
    finish: int
    enums = {"finish": trm_finish}
    _fields_ = [
        ("prompt", POINTER(c_int32)),
        ("n_prompt", c_int64),
        ("max_tokens", c_int64),
        ("sampling", trm_sampling),
        ("ignore_eos", c_bool),
        ("adapter", c_int32),
        ("n_generated", c_int64),
        ("finish", c_int),
    ]

trm_token_fn = CFUNCTYPE(c_bool, c_void_p, c_int32, c_int32)
class trm_generate_stats(Structure):
    prompt_tokens: int
    generated_tokens: int
    steps: int
    decode_tokens: int
    prefill_seconds: float
    decode_seconds: float
    first_token_seconds: float
    drafted_tokens: int
    accepted_tokens: int
    _fields_ = [
        ("prompt_tokens", c_int64),
        ("generated_tokens", c_int64),
        ("steps", c_int64),
        ("decode_tokens", c_int64),
        ("prefill_seconds", c_double),
        ("decode_seconds", c_double),
        ("first_token_seconds", c_double),
        ("drafted_tokens", c_int64),
        ("accepted_tokens", c_int64),
    ]

class trm_tokens(Structure):
    ids: Any
    count: int
    _fields_ = [
        ("ids", POINTER(c_int32)),
        ("count", c_size_t),
    ]

class trm_grammar_kind(IntEnum):
    JSON = 1
    JSON_SCHEMA = 2
    REGEX = 3
    EBNF = 4
    CHOICE = 5

class trm_llm_options(Structure):
    size: int
    backend: int
    mesh: trm_mesh
    max_context: int
    dtype: int
    progress: Any
    progress_user: Any
    weight_budget: bytes | None
    timeline: bytes | None
    enums = {"backend": trm_backend, "dtype": trm_dtype}
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("mesh", trm_mesh),
        ("max_context", c_int64),
        ("dtype", c_int),
        ("progress", trm_progress_fn),
        ("progress_user", c_void_p),
        ("weight_budget", c_char_p),
        ("timeline", c_char_p),
    ]

class trm_llm_params(Structure):
    size: int
    max_tokens: int
    sampling: trm_sampling
    _fields_ = [
        ("size", c_size_t),
        ("max_tokens", c_int64),
        ("sampling", trm_sampling),
    ]

trm_text_fn = CFUNCTYPE(c_bool, c_void_p, c_char_p, c_size_t)
class trm_llm_message(Structure):
    role: bytes | None
    content: bytes | None
    _fields_ = [
        ("role", c_char_p),
        ("content", c_char_p),
    ]

class trm_onnx_info(Structure):
    path: bytes | None
    producer: bytes | None
    ir_version: int
    opset: int
    newer_opset: int
    nodes: int
    functions: int
    parameters: int
    weight_bytes: int
    _fields_ = [
        ("path", c_char_p),
        ("producer", c_char_p),
        ("ir_version", c_int64),
        ("opset", c_int64),
        ("newer_opset", c_int64),
        ("nodes", c_int32),
        ("functions", c_int32),
        ("parameters", c_int64),
        ("weight_bytes", c_size_t),
    ]

class trm_onnx_port(Structure):
    name: bytes | None
    type: bytes | None
    dtype: int
    has_dims: bool
    dims: trm_dims
    dim_names: Any
    enums = {"dtype": trm_dtype}
    _fields_ = [
        ("name", c_char_p),
        ("type", c_char_p),
        ("dtype", c_int),
        ("has_dims", c_bool),
        ("dims", trm_dims),
        ("dim_names", c_char_p * 8),
    ]

class trm_onnx_fixed_value(Structure):
    input: bytes | None
    dtype: int
    dims: trm_dims
    data: Any
    enums = {"dtype": trm_dtype}
    _fields_ = [
        ("input", c_char_p),
        ("dtype", c_int),
        ("dims", trm_dims),
        ("data", c_void_p),
    ]

class trm_onnx_named_dim(Structure):
    name: bytes | None
    value: int
    _fields_ = [
        ("name", c_char_p),
        ("value", c_int64),
    ]

class trm_onnx_input_dims(Structure):
    input: bytes | None
    dims: trm_dims
    _fields_ = [
        ("input", c_char_p),
        ("dims", trm_dims),
    ]

class trm_onnx_port_type(Structure):
    port: bytes | None
    dtype: int
    enums = {"dtype": trm_dtype}
    _fields_ = [
        ("port", c_char_p),
        ("dtype", c_int),
    ]

class trm_onnx_options(Structure):
    size: int
    values: Any
    n_values: int
    dims: Any
    n_dims: int
    inputs: Any
    n_inputs: int
    n_ranks: int
    refittable: bool
    max_trips: int
    types: Any
    n_types: int
    _fields_ = [
        ("size", c_size_t),
        ("values", POINTER(trm_onnx_fixed_value)),
        ("n_values", c_int32),
        ("dims", POINTER(trm_onnx_named_dim)),
        ("n_dims", c_int32),
        ("inputs", POINTER(trm_onnx_input_dims)),
        ("n_inputs", c_int32),
        ("n_ranks", c_int32),
        ("refittable", c_bool),
        ("max_trips", c_int64),
        ("types", POINTER(trm_onnx_port_type)),
        ("n_types", c_int32),
    ]

class trm_onnx_issue(Structure):
    status: int
    place: bytes | None
    node: int
    name: bytes | None
    domain: bytes | None
    op: bytes | None
    opset: int
    cause: bytes | None
    text: bytes | None
    enums = {"status": trm_status}
    _fields_ = [
        ("status", c_int),
        ("place", c_char_p),
        ("node", c_int32),
        ("name", c_char_p),
        ("domain", c_char_p),
        ("op", c_char_p),
        ("opset", c_int64),
        ("cause", c_char_p),
        ("text", c_char_p),
    ]

class trm_onnx_use(Structure):
    domain: bytes | None
    op: bytes | None
    opset: int
    nodes: int
    known: bool
    _fields_ = [
        ("domain", c_char_p),
        ("op", c_char_p),
        ("opset", c_int64),
        ("nodes", c_int32),
        ("known", c_bool),
    ]

class trm_onnx_product(Structure):
    output: bytes | None
    input: bytes | None
    weight: bytes | None
    axis: int
    _fields_ = [
        ("output", c_char_p),
        ("input", c_char_p),
        ("weight", c_char_p),
        ("axis", c_int32),
    ]

class trm_onnx_scale(Structure):
    output: bytes | None
    scale: float
    _fields_ = [
        ("output", c_char_p),
        ("scale", c_float),
    ]

class trm_plugin_type(IntEnum):
    INT = 1
    FLOAT = 2
    STRING = 3
    INTS = 4
    FLOATS = 5
    STRINGS = 6
    TENSOR = 7

class trm_plugin_field(Structure):
    name: bytes | None
    type: int
    required: bool
    enums = {"type": trm_plugin_type}
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int),
        ("required", c_bool),
    ]

class trm_plugin_setting(Structure):
    name: bytes | None
    type: int
    count: int
    ints: Any
    floats: Any
    strings: Any
    dtype: int
    dims: trm_dims
    data: Any
    enums = {"type": trm_plugin_type, "dtype": trm_dtype}
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int),
        ("count", c_int32),
        ("ints", POINTER(c_int64)),
        ("floats", POINTER(c_float)),
        ("strings", POINTER(c_char_p)),
        ("dtype", c_int),
        ("dims", trm_dims),
        ("data", c_void_p),
    ]

class trm_plugin_tensor(Structure):
    dtype: int
    dims: trm_dims
    data: Any
    values: Any
    enums = {"dtype": trm_dtype}
    _fields_ = [
        ("dtype", c_int),
        ("dims", trm_dims),
        ("data", c_void_p),
        ("values", c_void_p),
    ]

class trm_plugin_call(Structure):
    size: int
    self: Any
    settings: Any
    n_settings: int
    n_inputs: int
    n_outputs: int
    inputs: Any
    outputs: Any
    backend: int
    workspace: Any
    workspace_size: int
    stream: Any
    saved: Any
    saved_size: int
    error: bytes | None
    error_size: int
    enums = {"backend": trm_backend}
    _fields_ = [
        ("size", c_size_t),
        ("self", c_void_p),
        ("settings", POINTER(trm_plugin_setting)),
        ("n_settings", c_int32),
        ("n_inputs", c_int32),
        ("n_outputs", c_int32),
        ("inputs", POINTER(trm_plugin_tensor)),
        ("outputs", POINTER(trm_plugin_tensor)),
        ("backend", c_int),
        ("workspace", c_void_p),
        ("workspace_size", c_size_t),
        ("stream", c_void_p),
        ("saved", c_void_p),
        ("saved_size", c_size_t),
        ("error", c_char_p),
        ("error_size", c_size_t),
    ]

trm_plugin_function = CFUNCTYPE(c_bool, POINTER(trm_plugin_call))
class trm_plugin_launch(Structure):
    size: int
    grid: Any
    block: Any
    shared_memory: int
    n_arguments: int
    arguments: Any
    _fields_ = [
        ("size", c_size_t),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_memory", c_uint32),
        ("n_arguments", c_int32),
        ("arguments", c_uint64 * 64),
    ]

trm_plugin_launch_function = CFUNCTYPE(c_bool, POINTER(trm_plugin_call), POINTER(trm_plugin_launch))
class trm_plugin_split(Structure):
    inputs: Any
    outputs: Any
    _fields_ = [
        ("inputs", c_int8 * 16),
        ("outputs", c_int8 * 5),
    ]

class trm_plugin(Structure):
    size: int
    domain: bytes | None
    name: bytes | None
    version: int
    least_inputs: int
    most_inputs: int
    n_outputs: int
    value_inputs: int
    fields: Any
    n_fields: int
    splits: Any
    n_splits: int
    create: Any
    save: Any
    infer: Any
    workspace: Any
    run: Any
    enqueue: Any
    cuda_source: bytes | None
    cuda_image: Any
    cuda_kernel: bytes | None
    launch: Any
    _fields_ = [
        ("size", c_size_t),
        ("domain", c_char_p),
        ("name", c_char_p),
        ("version", c_int32),
        ("least_inputs", c_int32),
        ("most_inputs", c_int32),
        ("n_outputs", c_int32),
        ("value_inputs", c_uint32),
        ("fields", POINTER(trm_plugin_field)),
        ("n_fields", c_int32),
        ("splits", POINTER(trm_plugin_split)),
        ("n_splits", c_int32),
        ("create", trm_plugin_function),
        ("save", trm_plugin_function),
        ("infer", trm_plugin_function),
        ("workspace", trm_plugin_function),
        ("run", trm_plugin_function),
        ("enqueue", trm_plugin_function),
        ("cuda_source", c_char_p),
        ("cuda_image", c_void_p),
        ("cuda_kernel", c_char_p),
        ("launch", trm_plugin_launch_function),
    ]

class trm_plugin_list(Structure):
    size: int
    abi: int
    n_plugins: int
    plugins: Any
    _fields_ = [
        ("size", c_size_t),
        ("abi", c_int32),
        ("n_plugins", c_int32),
        ("plugins", POINTER(POINTER(trm_plugin))),
    ]

class trm_plugin_info(Structure):
    domain: bytes | None
    name: bytes | None
    version: int
    library: bytes | None
    host: bool
    cuda: bool
    _fields_ = [
        ("domain", c_char_p),
        ("name", c_char_p),
        ("version", c_int32),
        ("library", c_char_p),
        ("host", c_bool),
        ("cuda", c_bool),
    ]

class trm_step_times(Structure):
    seconds: float
    device_seconds: float
    layer_seconds: float
    collective_seconds: float
    _fields_ = [
        ("seconds", c_double),
        ("device_seconds", c_double),
        ("layer_seconds", c_double),
        ("collective_seconds", c_double),
    ]

trm_step_fn = CFUNCTYPE(None, c_void_p, POINTER(trm_step_times))
trm_heard_fn = CFUNCTYPE(None, c_void_p, c_bool)
class trm_scheduler_options(Structure):
    size: int
    no_prefix_cache: bool
    step_tokens: int
    max_waiting: int
    prefill_chunk: int
    on_step: Any
    on_heard: Any
    user: Any
    _fields_ = [
        ("size", c_size_t),
        ("no_prefix_cache", c_bool),
        ("step_tokens", c_int32),
        ("max_waiting", c_int32),
        ("prefill_chunk", c_int32),
        ("on_step", trm_step_fn),
        ("on_heard", trm_heard_fn),
        ("user", c_void_p),
    ]

class trm_logit_bias(Structure):
    token: int
    bias: float
    _fields_ = [
        ("token", c_int32),
        ("bias", c_float),
    ]

class trm_serving_sampling(Structure):
    base: trm_sampling
    typical_p: float
    presence_penalty: float
    frequency_penalty: float
    bias: Any
    n_bias: int
    _fields_ = [
        ("base", trm_sampling),
        ("typical_p", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("bias", POINTER(trm_logit_bias)),
        ("n_bias", c_int32),
    ]

trm_mask_fn = CFUNCTYPE(c_int, c_void_p, c_uint64, POINTER(c_int32), c_int64, POINTER(c_uint32))
class trm_embedding(IntEnum):
    NONE = 0
    LAST = 1
    MEAN = 2

class trm_serving_request(Structure):
    size: int
    id: int
    prompt: Any
    n_prompt: int
    n_resumed: int
    max_tokens: int
    priority: int
    sampling: trm_serving_sampling
    ignore_eos: bool
    stop_tokens: Any
    n_stop_tokens: int
    min_tokens: int
    logprobs: int
    prompt_logprobs: int
    mask: Any
    mask_user: Any
    embedding: int
    client: int
    adapter: int
    traceparent: bytes | None
    tracestate: bytes | None
    enums = {"embedding": trm_embedding}
    _fields_ = [
        ("size", c_size_t),
        ("id", c_uint64),
        ("prompt", POINTER(c_int32)),
        ("n_prompt", c_int64),
        ("n_resumed", c_int64),
        ("max_tokens", c_int64),
        ("priority", c_int32),
        ("sampling", trm_serving_sampling),
        ("ignore_eos", c_bool),
        ("stop_tokens", POINTER(c_int32)),
        ("n_stop_tokens", c_int32),
        ("min_tokens", c_int32),
        ("logprobs", c_int32),
        ("prompt_logprobs", c_int32),
        ("mask", trm_mask_fn),
        ("mask_user", c_void_p),
        ("embedding", c_int),
        ("client", c_uint64),
        ("adapter", c_int32),
        ("traceparent", c_char_p),
        ("tracestate", c_char_p),
    ]

class trm_token_logprob(Structure):
    token: int
    logprob: float
    _fields_ = [
        ("token", c_int32),
        ("logprob", c_float),
    ]

class trm_serving_event_kind(IntEnum):
    TOKEN = 1
    PROMPT_TOKEN = 2
    FINISHED = 3

class trm_serving_event(Structure):
    kind: int
    id: int
    token: int
    index: int
    logprob: float
    n_top: int
    top: Any
    finish: int
    error: bytes | None
    n_prompt: int
    n_cached: int
    n_output: int
    embedding: Any
    n_embedding: int
    queue_seconds: float
    enums = {"kind": trm_serving_event_kind, "finish": trm_finish}
    _fields_ = [
        ("kind", c_int),
        ("id", c_uint64),
        ("token", c_int32),
        ("index", c_int64),
        ("logprob", c_float),
        ("n_top", c_int32),
        ("top", POINTER(trm_token_logprob)),
        ("finish", c_int),
        ("error", c_char_p),
        ("n_prompt", c_int64),
        ("n_cached", c_int64),
        ("n_output", c_int64),
        ("embedding", POINTER(c_float)),
        ("n_embedding", c_int64),
        ("queue_seconds", c_double),
    ]

class trm_scheduler_stats(Structure):
    running: int
    waiting: int
    max_running: int
    max_waiting: int
    block_tokens: int
    blocks: int
    blocks_used: int
    blocks_cached: int
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    steps: int
    decode_steps: int
    prompt_tokens: int
    generated_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    finished: Any
    step_seconds: float
    wait_seconds: float
    device_seconds: float
    last_step_seconds: float
    last_device_seconds: float
    streamed_bytes: int
    unpacked_bytes: int
    hosted_bytes: int
    expert_hits: int
    expert_misses: int
    expert_hosted: int
    link_rate: float
    last_step_sequences: int
    last_step_tokens: int
    last_step_captured: bool
    _fields_ = [
        ("running", c_int32),
        ("waiting", c_int32),
        ("max_running", c_int32),
        ("max_waiting", c_int32),
        ("block_tokens", c_int32),
        ("blocks", c_int32),
        ("blocks_used", c_int32),
        ("blocks_cached", c_int32),
        ("prefix_queries", c_int64),
        ("prefix_hits", c_int64),
        ("preemptions", c_int64),
        ("steps", c_int64),
        ("decode_steps", c_int64),
        ("prompt_tokens", c_int64),
        ("generated_tokens", c_int64),
        ("drafted_tokens", c_int64),
        ("accepted_tokens", c_int64),
        ("finished", c_int64 * 8),
        ("step_seconds", c_double),
        ("wait_seconds", c_double),
        ("device_seconds", c_double),
        ("last_step_seconds", c_double),
        ("last_device_seconds", c_double),
        ("streamed_bytes", c_int64),
        ("unpacked_bytes", c_int64),
        ("hosted_bytes", c_int64),
        ("expert_hits", c_int64),
        ("expert_misses", c_int64),
        ("expert_hosted", c_int64),
        ("link_rate", c_double),
        ("last_step_sequences", c_int32),
        ("last_step_tokens", c_int32),
        ("last_step_captured", c_bool),
    ]

class trm_system_fact(Structure):
    group: bytes | None
    item: int
    name: bytes | None
    is_number: bool
    number: int
    text: bytes | None
    _fields_ = [
        ("group", c_char_p),
        ("item", c_int32),
        ("name", c_char_p),
        ("is_number", c_bool),
        ("number", c_int64),
        ("text", c_char_p),
    ]

trm_system_fn = CFUNCTYPE(None, c_void_p, POINTER(trm_system_fact))
class Library:
    """The functions of libtrireme. What returns a trm_status gives it to `check`."""

    trm_status_name: Callable[..., Any]
    trm_last_error: Callable[..., Any]
    trm_status_exit_code: Callable[..., Any]
    trm_log_set: Callable[..., Any]
    trm_dtype_size: Callable[..., Any]
    trm_dtype_name: Callable[..., Any]
    trm_backend_name: Callable[..., Any]
    trm_chat_template_open: Callable[..., Any]
    trm_chat_template_parse: Callable[..., Any]
    trm_chat_template_close: Callable[..., Any]
    trm_chat_template_mentions: Callable[..., Any]
    trm_chat_template_render: Callable[..., Any]
    trm_reply_create: Callable[..., Any]
    trm_reply_destroy: Callable[..., Any]
    trm_reply_has_special: Callable[..., Any]
    trm_reply_push: Callable[..., Any]
    trm_reply_next: Callable[..., Any]
    trm_collective_op_name: Callable[..., Any]
    trm_reduce_op_name: Callable[..., Any]
    trm_recorder_create: Callable[..., Any]
    trm_recorder_destroy: Callable[..., Any]
    trm_recorder_count: Callable[..., Any]
    trm_recorder_lost: Callable[..., Any]
    trm_recorder_get: Callable[..., Any]
    trm_recorder_take: Callable[..., Any]
    trm_recorder_clear: Callable[..., Any]
    trm_thread_set_recorder: Callable[..., Any]
    trm_mesh_parse: Callable[..., Any]
    trm_mesh_format: Callable[..., Any]
    trm_mesh_coordinate: Callable[..., Any]
    trm_mesh_group: Callable[..., Any]
    trm_world_open: Callable[..., Any]
    trm_world_close: Callable[..., Any]
    trm_world_abort: Callable[..., Any]
    trm_world_all_ok: Callable[..., Any]
    trm_world_set_recorder: Callable[..., Any]
    trm_world_backend: Callable[..., Any]
    trm_world_rank: Callable[..., Any]
    trm_world_size: Callable[..., Any]
    trm_world_local_rank: Callable[..., Any]
    trm_world_gpu: Callable[..., Any]
    trm_memory_allocate: Callable[..., Any]
    trm_memory_free: Callable[..., Any]
    trm_memory_open: Callable[..., Any]
    trm_memory_close: Callable[..., Any]
    trm_memory_pin: Callable[..., Any]
    trm_memory_unpin: Callable[..., Any]
    trm_memory_move: Callable[..., Any]
    trm_world_broadcast: Callable[..., Any]
    trm_world_collective: Callable[..., Any]
    trm_layer_kind_name: Callable[..., Any]
    trm_network_create: Callable[..., Any]
    trm_network_destroy: Callable[..., Any]
    trm_network_add_input: Callable[..., Any]
    trm_network_name_dim: Callable[..., Any]
    trm_network_add_constant: Callable[..., Any]
    trm_network_add_state: Callable[..., Any]
    trm_network_add_layer: Callable[..., Any]
    trm_network_add_matmul: Callable[..., Any]
    trm_network_add_elementwise: Callable[..., Any]
    trm_network_add_activation: Callable[..., Any]
    trm_network_add_reshape: Callable[..., Any]
    trm_network_add_collective: Callable[..., Any]
    trm_network_mark_output: Callable[..., Any]
    trm_network_pin: Callable[..., Any]
    trm_network_find_tensor: Callable[..., Any]
    trm_network_input_count: Callable[..., Any]
    trm_network_input: Callable[..., Any]
    trm_network_output_count: Callable[..., Any]
    trm_network_output: Callable[..., Any]
    trm_network_layer_count: Callable[..., Any]
    trm_network_get_layer: Callable[..., Any]
    trm_part_kind_name: Callable[..., Any]
    trm_tensor_name: Callable[..., Any]
    trm_tensor_dtype: Callable[..., Any]
    trm_tensor_dims: Callable[..., Any]
    trm_tensor_dim_name: Callable[..., Any]
    trm_network_to_text: Callable[..., Any]
    trm_free: Callable[..., Any]
    trm_build: Callable[..., Any]
    trm_plan_destroy: Callable[..., Any]
    trm_plan_to_text: Callable[..., Any]
    trm_plan_to_json: Callable[..., Any]
    trm_plan_memory: Callable[..., Any]
    trm_weight_compression_parse: Callable[..., Any]
    trm_weight_sharing_parse: Callable[..., Any]
    trm_host_compute_parse: Callable[..., Any]
    trm_weight_budget_parse: Callable[..., Any]
    trm_plan_set_weight_budget: Callable[..., Any]
    trm_plan_streaming: Callable[..., Any]
    trm_plan_stalls: Callable[..., Any]
    trm_plan_network: Callable[..., Any]
    trm_plan_get_info: Callable[..., Any]
    trm_plan_get_bound: Callable[..., Any]
    trm_plan_save: Callable[..., Any]
    trm_plan_load: Callable[..., Any]
    trm_plan_refit: Callable[..., Any]
    trm_plan_for_weights: Callable[..., Any]
    trm_plan_tune: Callable[..., Any]
    trm_plan_check_device: Callable[..., Any]
    trm_plan_drop_tactics: Callable[..., Any]
    trm_plan_get_tactic: Callable[..., Any]
    trm_engine_create: Callable[..., Any]
    trm_engine_destroy: Callable[..., Any]
    trm_engine_set_recorder: Callable[..., Any]
    trm_engine_refit: Callable[..., Any]
    trm_engine_refit_from: Callable[..., Any]
    trm_engine_set_weight_budget: Callable[..., Any]
    trm_engine_streaming: Callable[..., Any]
    trm_context_create: Callable[..., Any]
    trm_engine_context_bytes: Callable[..., Any]
    trm_context_create_in: Callable[..., Any]
    trm_context_destroy: Callable[..., Any]
    trm_context_set_recorder: Callable[..., Any]
    trm_context_set_input: Callable[..., Any]
    trm_context_map_input: Callable[..., Any]
    trm_context_run: Callable[..., Any]
    trm_context_output: Callable[..., Any]
    trm_context_start: Callable[..., Any]
    trm_context_finish: Callable[..., Any]
    trm_context_stream: Callable[..., Any]
    trm_context_bind_input: Callable[..., Any]
    trm_context_bind_output: Callable[..., Any]
    trm_context_set_output_allocator: Callable[..., Any]
    trm_context_tune: Callable[..., Any]
    trm_timing_cache_path: Callable[..., Any]
    trm_expert_profile_path: Callable[..., Any]
    trm_context_tactics: Callable[..., Any]
    trm_context_to_json: Callable[..., Any]
    trm_context_set_capture: Callable[..., Any]
    trm_context_set_optimization_profile: Callable[..., Any]
    trm_context_warm_up: Callable[..., Any]
    trm_context_reset: Callable[..., Any]
    trm_context_set_debug: Callable[..., Any]
    trm_context_set_timing: Callable[..., Any]
    trm_context_times: Callable[..., Any]
    trm_context_set_layer_timing: Callable[..., Any]
    trm_context_streamed: Callable[..., Any]
    trm_context_layer_times: Callable[..., Any]
    trm_model_open: Callable[..., Any]
    trm_model_open_quantized: Callable[..., Any]
    trm_model_open_quantized_except: Callable[..., Any]
    trm_model_quantize: Callable[..., Any]
    trm_model_weight_name: Callable[..., Any]
    trm_model_weight_dims: Callable[..., Any]
    trm_model_read_weight: Callable[..., Any]
    trm_model_rescale: Callable[..., Any]
    trm_model_open_preset: Callable[..., Any]
    trm_model_open_preset_quantized: Callable[..., Any]
    trm_model_preset_name: Callable[..., Any]
    trm_model_close: Callable[..., Any]
    trm_model_is_draft_head: Callable[..., Any]
    trm_model_get_info: Callable[..., Any]
    trm_model_get_experts: Callable[..., Any]
    trm_model_build_network: Callable[..., Any]
    trm_model_build_network_with_cache: Callable[..., Any]
    trm_speculation_parse: Callable[..., Any]
    trm_generator_create: Callable[..., Any]
    trm_generator_destroy: Callable[..., Any]
    trm_generator_set_recorder: Callable[..., Any]
    trm_generator_plan: Callable[..., Any]
    trm_generator_set_draft: Callable[..., Any]
    trm_generator_load_adapter: Callable[..., Any]
    trm_generator_unload_adapter: Callable[..., Any]
    trm_generator_get_limits: Callable[..., Any]
    trm_generator_get_startup: Callable[..., Any]
    trm_generator_set_weight_budget: Callable[..., Any]
    trm_generator_context: Callable[..., Any]
    trm_generate: Callable[..., Any]
    trm_tokenizer_open: Callable[..., Any]
    trm_tokenizer_close: Callable[..., Any]
    trm_tokenizer_vocab_size: Callable[..., Any]
    trm_tokenizer_find: Callable[..., Any]
    trm_tokenizer_token: Callable[..., Any]
    trm_tokens_fini: Callable[..., Any]
    trm_tokenizer_encode: Callable[..., Any]
    trm_tokenizer_decode: Callable[..., Any]
    trm_decoder_create: Callable[..., Any]
    trm_decoder_destroy: Callable[..., Any]
    trm_decoder_push: Callable[..., Any]
    trm_decoder_finish: Callable[..., Any]
    trm_grammar_vocab_create: Callable[..., Any]
    trm_grammar_vocab_destroy: Callable[..., Any]
    trm_grammar_compile: Callable[..., Any]
    trm_grammar_destroy: Callable[..., Any]
    trm_grammar_state_create: Callable[..., Any]
    trm_grammar_state_copy: Callable[..., Any]
    trm_grammar_state_destroy: Callable[..., Any]
    trm_grammar_state_accept: Callable[..., Any]
    trm_grammar_state_mask: Callable[..., Any]
    trm_grammar_state_is_complete: Callable[..., Any]
    trm_grammar_state_is_final: Callable[..., Any]
    trm_llm_open: Callable[..., Any]
    trm_llm_close: Callable[..., Any]
    trm_llm_generate: Callable[..., Any]
    trm_llm_chat: Callable[..., Any]
    trm_onnx_open: Callable[..., Any]
    trm_onnx_close: Callable[..., Any]
    trm_onnx_get_info: Callable[..., Any]
    trm_onnx_input_count: Callable[..., Any]
    trm_onnx_output_count: Callable[..., Any]
    trm_onnx_get_input: Callable[..., Any]
    trm_onnx_get_output: Callable[..., Any]
    trm_onnx_get_default: Callable[..., Any]
    trm_onnx_build_network: Callable[..., Any]
    trm_onnx_issue_count: Callable[..., Any]
    trm_onnx_get_issue: Callable[..., Any]
    trm_onnx_get_use: Callable[..., Any]
    trm_onnx_read_value: Callable[..., Any]
    trm_onnx_get_product: Callable[..., Any]
    trm_onnx_quantize: Callable[..., Any]
    trm_plugin_load: Callable[..., Any]
    trm_plugin_register: Callable[..., Any]
    trm_plugin_get_info: Callable[..., Any]
    trm_plugin_make_layer: Callable[..., Any]
    trm_scheduler_create: Callable[..., Any]
    trm_scheduler_destroy: Callable[..., Any]
    trm_scheduler_submit: Callable[..., Any]
    trm_scheduler_cancel: Callable[..., Any]
    trm_scheduler_load_adapter: Callable[..., Any]
    trm_scheduler_unload_adapter: Callable[..., Any]
    trm_scheduler_step: Callable[..., Any]
    trm_scheduler_has_work: Callable[..., Any]
    trm_scheduler_follow: Callable[..., Any]
    trm_scheduler_end: Callable[..., Any]
    trm_scheduler_get_stats: Callable[..., Any]
    trm_scheduler_stalls: Callable[..., Any]
    trm_system_describe: Callable[..., Any]
    trm_system_gpu_count: Callable[..., Any]
    trm_system_memory_rate: Callable[..., Any]
    trm_system_backend: Callable[..., Any]
    trm_timeline_begin: Callable[..., Any]
    trm_timeline_end: Callable[..., Any]
    trm_timeline_save: Callable[..., Any]
    trm_version: Callable[..., Any]

    def __init__(self, library: CDLL, check: Callable[[int], None]) -> None:
        self.trm_status_name = _function(library, 'trm_status_name', c_char_p, [c_int])
        self.trm_last_error = _function(library, 'trm_last_error', c_char_p, [])
        self.trm_status_exit_code = _function(library, 'trm_status_exit_code', c_int, [c_int])
        self.trm_log_set = _function(library, 'trm_log_set', None, [trm_log_fn, c_void_p, c_int])
        self.trm_dtype_size = _function(library, 'trm_dtype_size', c_size_t, [c_int])
        self.trm_dtype_name = _function(library, 'trm_dtype_name', c_char_p, [c_int])
        self.trm_backend_name = _function(library, 'trm_backend_name', c_char_p, [c_int])
        self.trm_chat_template_open = _function(library, 'trm_chat_template_open', check, [c_char_p, c_char_p, POINTER(c_void_p)])
        self.trm_chat_template_parse = _function(library, 'trm_chat_template_parse', check, [c_char_p, c_char_p, c_size_t, POINTER(c_void_p)])
        self.trm_chat_template_close = _function(library, 'trm_chat_template_close', None, [c_void_p])
        self.trm_chat_template_mentions = _function(library, 'trm_chat_template_mentions', c_bool, [c_void_p, c_char_p])
        self.trm_chat_template_render = _function(library, 'trm_chat_template_render', check, [c_void_p, POINTER(trm_chat_input), POINTER(c_char_p), POINTER(c_size_t)])
        self.trm_reply_create = _function(library, 'trm_reply_create', check, [c_void_p, POINTER(c_void_p)])
        self.trm_reply_destroy = _function(library, 'trm_reply_destroy', None, [c_void_p])
        self.trm_reply_has_special = _function(library, 'trm_reply_has_special', c_bool, [c_void_p])
        self.trm_reply_push = _function(library, 'trm_reply_push', check, [c_void_p, c_char_p, c_size_t, c_bool])
        self.trm_reply_next = _function(library, 'trm_reply_next', c_bool, [c_void_p, POINTER(trm_reply_piece)])
        self.trm_collective_op_name = _function(library, 'trm_collective_op_name', c_char_p, [c_int])
        self.trm_reduce_op_name = _function(library, 'trm_reduce_op_name', c_char_p, [c_int])
        self.trm_recorder_create = _function(library, 'trm_recorder_create', check, [c_int32, trm_recorder_fn, c_void_p, POINTER(c_void_p)])
        self.trm_recorder_destroy = _function(library, 'trm_recorder_destroy', None, [c_void_p])
        self.trm_recorder_count = _function(library, 'trm_recorder_count', c_int32, [c_void_p])
        self.trm_recorder_lost = _function(library, 'trm_recorder_lost', c_int64, [c_void_p])
        self.trm_recorder_get = _function(library, 'trm_recorder_get', c_bool, [c_void_p, c_int32, POINTER(trm_recorded_error)])
        self.trm_recorder_take = _function(library, 'trm_recorder_take', c_bool, [c_void_p, POINTER(trm_recorded_error)])
        self.trm_recorder_clear = _function(library, 'trm_recorder_clear', None, [c_void_p])
        self.trm_thread_set_recorder = _function(library, 'trm_thread_set_recorder', None, [c_void_p])
        self.trm_mesh_parse = _function(library, 'trm_mesh_parse', check, [c_char_p, c_int32, POINTER(trm_mesh)])
        self.trm_mesh_format = _function(library, 'trm_mesh_format', None, [POINTER(trm_mesh), c_char_p, c_size_t])
        self.trm_mesh_coordinate = _function(library, 'trm_mesh_coordinate', c_int32, [POINTER(trm_mesh), c_int, c_int32])
        self.trm_mesh_group = _function(library, 'trm_mesh_group', None, [POINTER(trm_mesh), c_int, c_int32, POINTER(c_int32)])
        self.trm_world_open = _function(library, 'trm_world_open', check, [POINTER(trm_world_options), POINTER(c_void_p)])
        self.trm_world_close = _function(library, 'trm_world_close', None, [c_void_p])
        self.trm_world_abort = _function(library, 'trm_world_abort', None, [c_void_p, c_int])
        self.trm_world_all_ok = _function(library, 'trm_world_all_ok', check, [c_void_p, c_int])
        self.trm_world_set_recorder = _function(library, 'trm_world_set_recorder', None, [c_void_p, c_void_p])
        self.trm_world_backend = _function(library, 'trm_world_backend', c_int, [c_void_p])
        self.trm_world_rank = _function(library, 'trm_world_rank', c_int32, [c_void_p])
        self.trm_world_size = _function(library, 'trm_world_size', c_int32, [c_void_p])
        self.trm_world_local_rank = _function(library, 'trm_world_local_rank', c_int32, [c_void_p])
        self.trm_world_gpu = _function(library, 'trm_world_gpu', c_int32, [c_void_p])
        self.trm_memory_allocate = _function(library, 'trm_memory_allocate', check, [c_void_p, c_size_t, POINTER(c_void_p)])
        self.trm_memory_free = _function(library, 'trm_memory_free', None, [c_void_p, c_void_p])
        self.trm_memory_open = _function(library, 'trm_memory_open', check, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)])
        self.trm_memory_close = _function(library, 'trm_memory_close', None, [c_void_p, c_void_p])
        self.trm_memory_pin = _function(library, 'trm_memory_pin', check, [c_void_p, c_void_p, c_size_t])
        self.trm_memory_unpin = _function(library, 'trm_memory_unpin', None, [c_void_p, c_void_p])
        self.trm_memory_move = _function(library, 'trm_memory_move', check, [c_void_p, POINTER(trm_memory_copy), c_int32])
        self.trm_world_broadcast = _function(library, 'trm_world_broadcast', check, [c_void_p, c_void_p, c_size_t, c_int32])
        self.trm_world_collective = _function(library, 'trm_world_collective', check, [c_void_p, POINTER(trm_collective_params), c_int, c_void_p, c_void_p, c_size_t, c_bool])
        self.trm_layer_kind_name = _function(library, 'trm_layer_kind_name', c_char_p, [c_int])
        self.trm_network_create = _function(library, 'trm_network_create', check, [POINTER(c_void_p)])
        self.trm_network_destroy = _function(library, 'trm_network_destroy', None, [c_void_p])
        self.trm_network_add_input = _function(library, 'trm_network_add_input', check, [c_void_p, c_char_p, c_int, trm_dims, POINTER(c_void_p)])
        self.trm_network_name_dim = _function(library, 'trm_network_name_dim', check, [c_void_p, c_void_p, c_int32, c_char_p])
        self.trm_network_add_constant = _function(library, 'trm_network_add_constant', check, [c_void_p, c_char_p, c_int, trm_dims, c_void_p, POINTER(c_void_p)])
        self.trm_network_add_state = _function(library, 'trm_network_add_state', check, [c_void_p, c_char_p, c_int, trm_dims, POINTER(c_void_p)])
        self.trm_network_add_layer = _function(library, 'trm_network_add_layer', check, [c_void_p, c_char_p, POINTER(trm_layer_desc), POINTER(c_void_p), c_int32, POINTER(c_void_p)])
        self.trm_network_add_matmul = _function(library, 'trm_network_add_matmul', check, [c_void_p, c_char_p, c_void_p, c_void_p, c_void_p, c_bool, POINTER(c_void_p)])
        self.trm_network_add_elementwise = _function(library, 'trm_network_add_elementwise', check, [c_void_p, c_char_p, c_int, c_void_p, c_void_p, POINTER(c_void_p)])
        self.trm_network_add_activation = _function(library, 'trm_network_add_activation', check, [c_void_p, c_char_p, c_int, c_void_p, POINTER(c_void_p)])
        self.trm_network_add_reshape = _function(library, 'trm_network_add_reshape', check, [c_void_p, c_char_p, c_void_p, trm_dims, POINTER(c_void_p)])
        self.trm_network_add_collective = _function(library, 'trm_network_add_collective', check, [c_void_p, c_char_p, POINTER(trm_collective_params), c_void_p, POINTER(c_void_p)])
        self.trm_network_mark_output = _function(library, 'trm_network_mark_output', check, [c_void_p, c_void_p])
        self.trm_network_pin = _function(library, 'trm_network_pin', check, [c_void_p, c_void_p, c_char_p])
        self.trm_network_find_tensor = _function(library, 'trm_network_find_tensor', c_void_p, [c_void_p, c_char_p])
        self.trm_network_input_count = _function(library, 'trm_network_input_count', c_int32, [c_void_p])
        self.trm_network_input = _function(library, 'trm_network_input', c_void_p, [c_void_p, c_int32])
        self.trm_network_output_count = _function(library, 'trm_network_output_count', c_int32, [c_void_p])
        self.trm_network_output = _function(library, 'trm_network_output', c_void_p, [c_void_p, c_int32])
        self.trm_network_layer_count = _function(library, 'trm_network_layer_count', c_int32, [c_void_p])
        self.trm_network_get_layer = _function(library, 'trm_network_get_layer', c_bool, [c_void_p, c_int32, POINTER(trm_layer_info)])
        self.trm_part_kind_name = _function(library, 'trm_part_kind_name', c_char_p, [c_int])
        self.trm_tensor_name = _function(library, 'trm_tensor_name', c_char_p, [c_void_p])
        self.trm_tensor_dtype = _function(library, 'trm_tensor_dtype', c_int, [c_void_p])
        self.trm_tensor_dims = _function(library, 'trm_tensor_dims', trm_dims, [c_void_p])
        self.trm_tensor_dim_name = _function(library, 'trm_tensor_dim_name', c_char_p, [c_void_p, c_int32])
        self.trm_network_to_text = _function(library, 'trm_network_to_text', c_void_p, [c_void_p])
        self.trm_free = _function(library, 'trm_free', None, [c_void_p])
        self.trm_build = _function(library, 'trm_build', check, [c_void_p, POINTER(trm_build_options), POINTER(c_void_p)])
        self.trm_plan_destroy = _function(library, 'trm_plan_destroy', None, [c_void_p])
        self.trm_plan_to_text = _function(library, 'trm_plan_to_text', c_void_p, [c_void_p])
        self.trm_plan_to_json = _function(library, 'trm_plan_to_json', c_void_p, [c_void_p])
        self.trm_plan_memory = _function(library, 'trm_plan_memory', None, [c_void_p, POINTER(trm_memory_plan)])
        self.trm_weight_compression_parse = _function(library, 'trm_weight_compression_parse', check, [c_char_p, POINTER(c_int)])
        self.trm_weight_sharing_parse = _function(library, 'trm_weight_sharing_parse', check, [c_char_p, POINTER(c_int)])
        self.trm_host_compute_parse = _function(library, 'trm_host_compute_parse', check, [c_char_p, POINTER(trm_weight_budget)])
        self.trm_weight_budget_parse = _function(library, 'trm_weight_budget_parse', check, [c_char_p, POINTER(trm_weight_budget)])
        self.trm_plan_set_weight_budget = _function(library, 'trm_plan_set_weight_budget', check, [c_void_p, POINTER(trm_weight_budget)])
        self.trm_plan_streaming = _function(library, 'trm_plan_streaming', None, [c_void_p, POINTER(trm_streaming_info)])
        self.trm_plan_stalls = _function(library, 'trm_plan_stalls', None, [c_void_p, trm_stall_fn, c_void_p])
        self.trm_plan_network = _function(library, 'trm_plan_network', c_void_p, [c_void_p])
        self.trm_plan_get_info = _function(library, 'trm_plan_get_info', None, [c_void_p, POINTER(trm_plan_info)])
        self.trm_plan_get_bound = _function(library, 'trm_plan_get_bound', c_bool, [c_void_p, c_int32, POINTER(trm_shape_bound)])
        self.trm_plan_save = _function(library, 'trm_plan_save', check, [POINTER(c_void_p), c_int32, c_int, c_char_p])
        self.trm_plan_load = _function(library, 'trm_plan_load', check, [c_char_p, c_int32, POINTER(c_void_p)])
        self.trm_plan_refit = _function(library, 'trm_plan_refit', check, [c_char_p, c_int32, c_char_p, POINTER(c_void_p)])
        self.trm_plan_for_weights = _function(library, 'trm_plan_for_weights', check, [c_void_p, trm_weight_fn, c_void_p])
        self.trm_plan_tune = _function(library, 'trm_plan_tune', check, [c_void_p, c_void_p, POINTER(trm_tune_options)])
        self.trm_plan_check_device = _function(library, 'trm_plan_check_device', check, [c_void_p, c_void_p])
        self.trm_plan_drop_tactics = _function(library, 'trm_plan_drop_tactics', None, [c_void_p])
        self.trm_plan_get_tactic = _function(library, 'trm_plan_get_tactic', c_bool, [c_void_p, c_int32, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_double)])
        self.trm_engine_create = _function(library, 'trm_engine_create', check, [c_void_p, c_void_p, trm_progress_fn, c_void_p, POINTER(c_void_p)])
        self.trm_engine_destroy = _function(library, 'trm_engine_destroy', None, [c_void_p])
        self.trm_engine_set_recorder = _function(library, 'trm_engine_set_recorder', None, [c_void_p, c_void_p])
        self.trm_engine_refit = _function(library, 'trm_engine_refit', check, [c_void_p, c_char_p, c_int, trm_dims, c_void_p])
        self.trm_engine_refit_from = _function(library, 'trm_engine_refit_from', check, [c_void_p, c_char_p])
        self.trm_engine_set_weight_budget = _function(library, 'trm_engine_set_weight_budget', check, [c_void_p, c_size_t])
        self.trm_engine_streaming = _function(library, 'trm_engine_streaming', None, [c_void_p, POINTER(trm_streaming_info)])
        self.trm_context_create = _function(library, 'trm_context_create', check, [c_void_p, POINTER(c_void_p)])
        self.trm_engine_context_bytes = _function(library, 'trm_engine_context_bytes', c_size_t, [c_void_p])
        self.trm_context_create_in = _function(library, 'trm_context_create_in', check, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)])
        self.trm_context_destroy = _function(library, 'trm_context_destroy', None, [c_void_p])
        self.trm_context_set_recorder = _function(library, 'trm_context_set_recorder', None, [c_void_p, c_void_p])
        self.trm_context_set_input = _function(library, 'trm_context_set_input', check, [c_void_p, c_char_p, trm_dims, c_void_p])
        self.trm_context_map_input = _function(library, 'trm_context_map_input', check, [c_void_p, c_char_p, trm_dims, POINTER(c_bool), POINTER(c_void_p)])
        self.trm_context_run = _function(library, 'trm_context_run', check, [c_void_p])
        self.trm_context_output = _function(library, 'trm_context_output', check, [c_void_p, c_char_p, POINTER(trm_dims), POINTER(c_void_p)])
        self.trm_context_start = _function(library, 'trm_context_start', check, [c_void_p])
        self.trm_context_finish = _function(library, 'trm_context_finish', check, [c_void_p])
        self.trm_context_stream = _function(library, 'trm_context_stream', c_void_p, [c_void_p])
        self.trm_context_bind_input = _function(library, 'trm_context_bind_input', check, [c_void_p, c_char_p, trm_dims, c_void_p])
        self.trm_context_bind_output = _function(library, 'trm_context_bind_output', check, [c_void_p, c_char_p, c_void_p, c_size_t])
        self.trm_context_set_output_allocator = _function(library, 'trm_context_set_output_allocator', check, [c_void_p, trm_output_allocate_fn, c_void_p])
        self.trm_context_tune = _function(library, 'trm_context_tune', check, [c_void_p, POINTER(trm_tune_options)])
        self.trm_timing_cache_path = _function(library, 'trm_timing_cache_path', c_void_p, [c_void_p])
        self.trm_expert_profile_path = _function(library, 'trm_expert_profile_path', c_void_p, [])
        self.trm_context_tactics = _function(library, 'trm_context_tactics', None, [c_void_p, trm_tactic_fn, c_void_p])
        self.trm_context_to_json = _function(library, 'trm_context_to_json', c_void_p, [c_void_p])
        self.trm_context_set_capture = _function(library, 'trm_context_set_capture', check, [c_void_p, c_bool])
        self.trm_context_set_optimization_profile = _function(library, 'trm_context_set_optimization_profile', check, [c_void_p, c_int32])
        self.trm_context_warm_up = _function(library, 'trm_context_warm_up', check, [c_void_p])
        self.trm_context_reset = _function(library, 'trm_context_reset', check, [c_void_p])
        self.trm_context_set_debug = _function(library, 'trm_context_set_debug', check, [c_void_p, trm_debug_fn, c_void_p])
        self.trm_context_set_timing = _function(library, 'trm_context_set_timing', check, [c_void_p, c_bool])
        self.trm_context_times = _function(library, 'trm_context_times', check, [c_void_p, POINTER(trm_run_times)])
        self.trm_context_set_layer_timing = _function(library, 'trm_context_set_layer_timing', check, [c_void_p, c_bool])
        self.trm_context_streamed = _function(library, 'trm_context_streamed', c_size_t, [c_void_p])
        self.trm_context_layer_times = _function(library, 'trm_context_layer_times', None, [c_void_p, trm_layer_time_fn, c_void_p])
        self.trm_model_open = _function(library, 'trm_model_open', check, [c_char_p, POINTER(c_void_p)])
        self.trm_model_open_quantized = _function(library, 'trm_model_open_quantized', check, [c_char_p, c_char_p, POINTER(c_void_p)])
        self.trm_model_open_quantized_except = _function(library, 'trm_model_open_quantized_except', check, [c_char_p, c_char_p, POINTER(c_char_p), c_int32, POINTER(c_void_p)])
        self.trm_model_quantize = _function(library, 'trm_model_quantize', check, [c_char_p, c_char_p, c_char_p, POINTER(trm_quantize_options)])
        self.trm_model_weight_name = _function(library, 'trm_model_weight_name', c_char_p, [c_void_p, c_int32])
        self.trm_model_weight_dims = _function(library, 'trm_model_weight_dims', c_bool, [c_void_p, c_char_p, POINTER(trm_dims)])
        self.trm_model_read_weight = _function(library, 'trm_model_read_weight', check, [c_void_p, c_char_p, c_int64, c_int64, POINTER(c_float)])
        self.trm_model_rescale = _function(library, 'trm_model_rescale', check, [c_char_p, c_char_p, POINTER(trm_weight_factors), c_int32, trm_rescale_fn, c_void_p])
        self.trm_model_open_preset = _function(library, 'trm_model_open_preset', check, [c_char_p, c_int32, c_uint64, POINTER(c_void_p)])
        self.trm_model_open_preset_quantized = _function(library, 'trm_model_open_preset_quantized', check, [c_char_p, c_char_p, c_int32, c_uint64, POINTER(c_void_p)])
        self.trm_model_preset_name = _function(library, 'trm_model_preset_name', c_char_p, [c_int32])
        self.trm_model_close = _function(library, 'trm_model_close', None, [c_void_p])
        self.trm_model_is_draft_head = _function(library, 'trm_model_is_draft_head', c_bool, [c_void_p])
        self.trm_model_get_info = _function(library, 'trm_model_get_info', None, [c_void_p, POINTER(trm_model_info)])
        self.trm_model_get_experts = _function(library, 'trm_model_get_experts', check, [c_void_p, POINTER(trm_model_experts)])
        self.trm_model_build_network = _function(library, 'trm_model_build_network', check, [c_void_p, c_int, POINTER(c_void_p)])
        self.trm_model_build_network_with_cache = _function(library, 'trm_model_build_network_with_cache', check, [c_void_p, c_int, c_int, POINTER(c_void_p)])
        self.trm_speculation_parse = _function(library, 'trm_speculation_parse', check, [c_char_p, POINTER(trm_speculation)])
        self.trm_generator_create = _function(library, 'trm_generator_create', check, [c_void_p, c_void_p, POINTER(trm_generator_options), POINTER(c_void_p)])
        self.trm_generator_destroy = _function(library, 'trm_generator_destroy', None, [c_void_p])
        self.trm_generator_set_recorder = _function(library, 'trm_generator_set_recorder', None, [c_void_p, c_void_p])
        self.trm_generator_plan = _function(library, 'trm_generator_plan', check, [c_void_p, POINTER(trm_generator_options), POINTER(trm_build_options), POINTER(c_void_p), POINTER(c_int64)])
        self.trm_generator_set_draft = _function(library, 'trm_generator_set_draft', check, [c_void_p, c_void_p])
        self.trm_generator_load_adapter = _function(library, 'trm_generator_load_adapter', check, [c_void_p, c_char_p, POINTER(c_int32)])
        self.trm_generator_unload_adapter = _function(library, 'trm_generator_unload_adapter', check, [c_void_p, c_int32])
        self.trm_generator_get_limits = _function(library, 'trm_generator_get_limits', None, [c_void_p, POINTER(trm_generator_limits)])
        self.trm_generator_get_startup = _function(library, 'trm_generator_get_startup', None, [c_void_p, POINTER(trm_startup)])
        self.trm_generator_set_weight_budget = _function(library, 'trm_generator_set_weight_budget', check, [c_void_p, c_size_t])
        self.trm_generator_context = _function(library, 'trm_generator_context', c_void_p, [c_void_p])
        self.trm_generate = _function(library, 'trm_generate', check, [c_void_p, POINTER(trm_request), c_int32, trm_token_fn, c_void_p, POINTER(trm_generate_stats)])
        self.trm_tokenizer_open = _function(library, 'trm_tokenizer_open', check, [c_char_p, POINTER(c_void_p)])
        self.trm_tokenizer_close = _function(library, 'trm_tokenizer_close', None, [c_void_p])
        self.trm_tokenizer_vocab_size = _function(library, 'trm_tokenizer_vocab_size', c_int32, [c_void_p])
        self.trm_tokenizer_find = _function(library, 'trm_tokenizer_find', c_int32, [c_void_p, c_char_p])
        self.trm_tokenizer_token = _function(library, 'trm_tokenizer_token', c_char_p, [c_void_p, c_int32])
        self.trm_tokens_fini = _function(library, 'trm_tokens_fini', None, [POINTER(trm_tokens)])
        self.trm_tokenizer_encode = _function(library, 'trm_tokenizer_encode', check, [c_void_p, c_char_p, c_size_t, c_bool, POINTER(trm_tokens)])
        self.trm_tokenizer_decode = _function(library, 'trm_tokenizer_decode', check, [c_void_p, POINTER(c_int32), c_size_t, c_bool, POINTER(c_char_p), POINTER(c_size_t)])
        self.trm_decoder_create = _function(library, 'trm_decoder_create', check, [c_void_p, c_bool, POINTER(c_void_p)])
        self.trm_decoder_destroy = _function(library, 'trm_decoder_destroy', None, [c_void_p])
        self.trm_decoder_push = _function(library, 'trm_decoder_push', check, [c_void_p, c_int32, POINTER(c_char_p), POINTER(c_size_t)])
        self.trm_decoder_finish = _function(library, 'trm_decoder_finish', check, [c_void_p, POINTER(c_char_p), POINTER(c_size_t)])
        self.trm_grammar_vocab_create = _function(library, 'trm_grammar_vocab_create', check, [c_void_p, POINTER(c_int32), c_size_t, c_int32, POINTER(c_void_p)])
        self.trm_grammar_vocab_destroy = _function(library, 'trm_grammar_vocab_destroy', None, [c_void_p])
        self.trm_grammar_compile = _function(library, 'trm_grammar_compile', check, [c_void_p, c_int, c_char_p, c_size_t, POINTER(c_void_p)])
        self.trm_grammar_destroy = _function(library, 'trm_grammar_destroy', None, [c_void_p])
        self.trm_grammar_state_create = _function(library, 'trm_grammar_state_create', check, [c_void_p, POINTER(c_void_p)])
        self.trm_grammar_state_copy = _function(library, 'trm_grammar_state_copy', check, [c_void_p, POINTER(c_void_p)])
        self.trm_grammar_state_destroy = _function(library, 'trm_grammar_state_destroy', None, [c_void_p])
        self.trm_grammar_state_accept = _function(library, 'trm_grammar_state_accept', check, [c_void_p, c_int32, POINTER(c_bool)])
        self.trm_grammar_state_mask = _function(library, 'trm_grammar_state_mask', check, [c_void_p, POINTER(c_uint32)])
        self.trm_grammar_state_is_complete = _function(library, 'trm_grammar_state_is_complete', c_bool, [c_void_p])
        self.trm_grammar_state_is_final = _function(library, 'trm_grammar_state_is_final', c_bool, [c_void_p])
        self.trm_llm_open = _function(library, 'trm_llm_open', check, [c_char_p, POINTER(trm_llm_options), POINTER(c_void_p)])
        self.trm_llm_close = _function(library, 'trm_llm_close', None, [c_void_p])
        self.trm_llm_generate = _function(library, 'trm_llm_generate', check, [c_void_p, c_char_p, POINTER(trm_llm_params), trm_text_fn, c_void_p])
        self.trm_llm_chat = _function(library, 'trm_llm_chat', check, [c_void_p, POINTER(trm_llm_message), c_int32, POINTER(trm_llm_params), trm_text_fn, c_void_p])
        self.trm_onnx_open = _function(library, 'trm_onnx_open', check, [c_char_p, POINTER(c_void_p)])
        self.trm_onnx_close = _function(library, 'trm_onnx_close', None, [c_void_p])
        self.trm_onnx_get_info = _function(library, 'trm_onnx_get_info', None, [c_void_p, POINTER(trm_onnx_info)])
        self.trm_onnx_input_count = _function(library, 'trm_onnx_input_count', c_int32, [c_void_p])
        self.trm_onnx_output_count = _function(library, 'trm_onnx_output_count', c_int32, [c_void_p])
        self.trm_onnx_get_input = _function(library, 'trm_onnx_get_input', c_bool, [c_void_p, c_int32, POINTER(trm_onnx_port)])
        self.trm_onnx_get_output = _function(library, 'trm_onnx_get_output', c_bool, [c_void_p, c_int32, POINTER(trm_onnx_port)])
        self.trm_onnx_get_default = _function(library, 'trm_onnx_get_default', c_bool, [c_void_p, c_int32, POINTER(trm_onnx_port)])
        self.trm_onnx_build_network = _function(library, 'trm_onnx_build_network', check, [c_void_p, POINTER(trm_onnx_options), POINTER(c_void_p)])
        self.trm_onnx_issue_count = _function(library, 'trm_onnx_issue_count', c_int32, [c_void_p])
        self.trm_onnx_get_issue = _function(library, 'trm_onnx_get_issue', c_bool, [c_void_p, c_int32, POINTER(trm_onnx_issue)])
        self.trm_onnx_get_use = _function(library, 'trm_onnx_get_use', c_bool, [c_void_p, c_int32, POINTER(trm_onnx_use)])
        self.trm_onnx_read_value = _function(library, 'trm_onnx_read_value', check, [c_char_p, c_char_p, POINTER(POINTER(trm_onnx_fixed_value)), POINTER(c_int32)])
        self.trm_onnx_get_product = _function(library, 'trm_onnx_get_product', c_bool, [c_void_p, c_int32, POINTER(trm_onnx_product)])
        self.trm_onnx_quantize = _function(library, 'trm_onnx_quantize', check, [c_void_p, c_char_p, POINTER(trm_onnx_scale), c_int32, trm_quantize_fn, c_void_p])
        self.trm_plugin_load = _function(library, 'trm_plugin_load', check, [c_char_p])
        self.trm_plugin_register = _function(library, 'trm_plugin_register', check, [POINTER(trm_plugin_list)])
        self.trm_plugin_get_info = _function(library, 'trm_plugin_get_info', c_bool, [c_int32, POINTER(trm_plugin_info)])
        self.trm_plugin_make_layer = _function(library, 'trm_plugin_make_layer', check, [c_char_p, c_char_p, c_int32, POINTER(trm_plugin_setting), c_int32, POINTER(c_int32)])
        self.trm_scheduler_create = _function(library, 'trm_scheduler_create', check, [c_void_p, POINTER(trm_scheduler_options), POINTER(c_void_p)])
        self.trm_scheduler_destroy = _function(library, 'trm_scheduler_destroy', None, [c_void_p])
        self.trm_scheduler_submit = _function(library, 'trm_scheduler_submit', check, [c_void_p, POINTER(trm_serving_request)])
        self.trm_scheduler_cancel = _function(library, 'trm_scheduler_cancel', c_bool, [c_void_p, c_uint64])
        self.trm_scheduler_load_adapter = _function(library, 'trm_scheduler_load_adapter', check, [c_void_p, c_char_p, POINTER(c_int32)])
        self.trm_scheduler_unload_adapter = _function(library, 'trm_scheduler_unload_adapter', check, [c_void_p, c_int32])
        self.trm_scheduler_step = _function(library, 'trm_scheduler_step', check, [c_void_p, POINTER(POINTER(trm_serving_event)), POINTER(c_int32)])
        self.trm_scheduler_has_work = _function(library, 'trm_scheduler_has_work', c_bool, [c_void_p])
        self.trm_scheduler_follow = _function(library, 'trm_scheduler_follow', check, [c_void_p])
        self.trm_scheduler_end = _function(library, 'trm_scheduler_end', check, [c_void_p])
        self.trm_scheduler_get_stats = _function(library, 'trm_scheduler_get_stats', None, [c_void_p, POINTER(trm_scheduler_stats)])
        self.trm_scheduler_stalls = _function(library, 'trm_scheduler_stalls', c_int64, [c_void_p, trm_stall_fn, c_void_p])
        self.trm_system_describe = _function(library, 'trm_system_describe', None, [trm_system_fn, c_void_p])
        self.trm_system_gpu_count = _function(library, 'trm_system_gpu_count', c_int32, [])
        self.trm_system_memory_rate = _function(library, 'trm_system_memory_rate', c_double, [c_int32])
        self.trm_system_backend = _function(library, 'trm_system_backend', c_int, [c_int])
        self.trm_timeline_begin = _function(library, 'trm_timeline_begin', check, [c_void_p, c_char_p])
        self.trm_timeline_end = _function(library, 'trm_timeline_end', check, [c_void_p])
        self.trm_timeline_save = _function(library, 'trm_timeline_save', check, [])
        self.trm_version = _function(library, 'trm_version', c_char_p, [])


def _function(library: CDLL, name: str, result: Any, types: list[Any]) -> Callable[..., Any]:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = types
    return function  # type: ignore[no-any-return]
