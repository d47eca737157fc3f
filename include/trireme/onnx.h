/*
 * ONNX models: open a file, inspect it, build its network.
 *
 *   trm_onnx_open -> trm_onnx_build_network -> trm_build (engine.h)
 *
 * One thread at a time uses a model. Networks built from it may outlive it.
 */
#ifndef TRIREME_ONNX_H
#define TRIREME_ONNX_H

#include <trireme/model.h>
#include <trireme/network.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_onnx trm_onnx;

/*
 * Opens a model file. Weights stay in the file, which is mapped, and in the files that it names as external data, which
 * must lie in its folder. Nodes are checked when a network is built. Errors: IO, INVALID_MODEL (malformed, or nested
 * too deep).
 */
TRM_API trm_status trm_onnx_open(const char *path, trm_onnx **model);
TRM_API void trm_onnx_close(trm_onnx *model);

/* The newest opset of ONNX's own operators that the importer knows completely. A model of a later opset is imported by
 * the rules of this one: the meaning of an operator may have changed. */
#define TRM_ONNX_NEWEST_OPSET 28

typedef struct trm_onnx_info {
    const char *path, *producer; /* producer: name and version, or "" */
    int64_t ir_version, opset;   /* opset of ONNX's own operators; 0: the model uses none of them */
    int64_t newer_opset;         /* newest opset above TRM_ONNX_NEWEST_OPSET of the model or a function; 0: none */
    int32_t nodes;               /* of the main graph */
    int32_t functions;           /* local ones */
    int64_t parameters;          /* elements of the main graph's initializers */
    size_t weight_bytes;
} trm_onnx_info;
TRM_API void trm_onnx_get_info(const trm_onnx *model, trm_onnx_info *info); /* strings live with the model */

/* An input or output of the model as the file declares it. */
typedef struct trm_onnx_port {
    const char *name;
    const char *type; /* "f32", "string", "sequence(f32)", "optional(i64)", ... */
    trm_dtype dtype;  /* NONE: not a tensor, or an unsupported type */
    bool has_dims;    /* false: not a tensor, of unknown rank, or of more than TRM_MAX_DIMS dimensions */
    trm_dims dims;    /* -1: unknown or named */
    const char *dim_names[TRM_MAX_DIMS]; /* NULL: no name */
} trm_onnx_port;
/* Inputs are what the caller sets: initializers that the file also lists as inputs do not count. False past the last.
 */
TRM_API int32_t trm_onnx_input_count(const trm_onnx *model);
TRM_API int32_t trm_onnx_output_count(const trm_onnx *model);
TRM_API bool trm_onnx_get_input(trm_onnx *model, int32_t index, trm_onnx_port *port);
TRM_API bool trm_onnx_get_output(trm_onnx *model, int32_t index, trm_onnx_port *port);
/* Inputs with a default, from IR version 4 on: the initializer of the same name. False past the last. */
TRM_API bool trm_onnx_get_default(trm_onnx *model, int32_t index, trm_onnx_port *port);

/* A value for an input, which then becomes a constant of the network. A sequence has one entry per element, in order;
 * an entry of type NONE is an empty sequence or an optional without a value. */
typedef struct trm_onnx_fixed_value {
    const char *input;
    trm_dtype dtype;
    trm_dims dims;
    const void *data; /* copied */
} trm_onnx_fixed_value;

typedef struct trm_onnx_named_dim {
    const char *name; /* as the file names it, such as "batch" */
    int64_t value;
} trm_onnx_named_dim;

typedef struct trm_onnx_input_dims {
    const char *input;
    trm_dims dims; /* -1: unknown, if the file leaves it open */
} trm_onnx_input_dims;

/* Another type for an input or output than the model declares, with a CAST in between: f16 for a model in f32, for
 * example, copies half the bytes. */
typedef struct trm_onnx_port_type {
    const char *port;
    trm_dtype dtype;
} trm_onnx_port_type;

typedef struct trm_onnx_options {
    size_t size;                        /* sizeof(trm_onnx_options) */
    const trm_onnx_fixed_value *values; /* [n_values] */
    int32_t n_values;
    const trm_onnx_named_dim *dims; /* [n_dims] */
    int32_t n_dims;
    const trm_onnx_input_dims *inputs; /* [n_inputs] dims of inputs that the file leaves open; an input with a default
                                          that is listed here, or in `values`, is set instead of being the default */
    int32_t n_inputs;
    int32_t n_ranks;   /* of the world that the network is for, which DistCollective nodes need; 0: 1 */
    bool refittable;   /* a refit (engine.h) may replace float initializers of the main graph that have more than one
                          element. The build folds nothing computed from them, which costs fusions; batch norms are
                          still merged into convolutions */
    int64_t max_trips; /* unroll loops of unknown length to this many guarded passes, so that a run does not wait; a run
                          that needs more passes fails. 0: keep them as loops without a bound. Loops of known length
                          are unrolled if it is at most this, or gives at most some thousand layers */
    const trm_onnx_port_type *types; /* [n_types] */
    int32_t n_types;
} trm_onnx_options;
#define TRM_ONNX_OPTIONS_INIT TRM_MAKE(trm_onnx_options, TRM_SET(size, sizeof(trm_onnx_options)))

/*
 * Builds the network of the main graph. Inputs and outputs keep the model's names; a sequence becomes one tensor per
 * element, "name.0", "name.1", .... A node that cannot be imported is recorded as an issue, and the import continues
 * with the next node to find all of them; then the call fails with the first issue. `options` may be NULL. Errors:
 * UNSUPPORTED, INVALID_MODEL, INVALID_ARGUMENT (options).
 */
TRM_API trm_status trm_onnx_build_network(trm_onnx *model, const trm_onnx_options *options, trm_network **network);

/* A problem that the last trm_onnx_build_network of the model found. */
typedef struct trm_onnx_issue {
    trm_status status;
    const char *place;  /* subgraphs and functions around the node; "": the main graph */
    int32_t node;       /* index in its graph; -1: an input, an output or the graph itself */
    const char *name;   /* of the node */
    const char *domain; /* "" is ONNX's own */
    const char *op;     /* operator */
    int64_t opset;      /* of the domain */
    const char *cause;  /* one line, as trm_last_error() gives it */
    const char *text;   /* all of the above and the file, in one line */
} trm_onnx_issue;
TRM_API int32_t trm_onnx_issue_count(const trm_onnx *model);
/* False past the last. Strings live until the next build or close. */
TRM_API bool trm_onnx_get_issue(const trm_onnx *model, int32_t index, trm_onnx_issue *issue);

/* An operator that the model uses in any graph or function, in the order in which they first appear. */
typedef struct trm_onnx_use {
    const char *domain, *op; /* domain "" is ONNX's own */
    int64_t opset;           /* of the domain; 0: the model does not say */
    int32_t nodes;
    bool known; /* the importer knows it, by name and opset, or it is a function of the model */
} trm_onnx_use;
/* False past the last. Strings live with the model. */
TRM_API bool trm_onnx_get_use(const trm_onnx *model, int32_t index, trm_onnx_use *use);

/*
 * Reads a value from a file in the format of ONNX's test data: a TensorProto, or a SequenceProto or OptionalProto if
 * `type` (of a port) begins with "sequence" or "optional". *values [*n] are its tensors, with `input` NULL; an empty
 * sequence or optional has one entry of type NONE. Release with trm_free. Errors: IO, INVALID_MODEL, UNSUPPORTED.
 */
TRM_API trm_status trm_onnx_read_value(const char *path, const char *type, trm_onnx_fixed_value **values, int32_t *n);

/* A product of the main graph with a weight that is an initializer of f32: a Conv, MatMul or Gemm. */
typedef struct trm_onnx_product {
    const char *output, *input, *weight; /* names of tensors; they live with the model */
    int32_t axis;                        /* of the weight's channels */
} trm_onnx_product;
/* False past the last. */
TRM_API bool trm_onnx_get_product(const trm_onnx *model, int32_t index, trm_onnx_product *product);

/* The scale of a product's input: numbers of int8 times it are what stands for the input. Products with one input have
 * the scale of the first. */
typedef struct trm_onnx_scale {
    const char *output; /* of the product */
    float scale;
} trm_onnx_scale;
/*
 * Writes the model to a new file in which these products [n] have inputs and weights of int8, by QuantizeLinear and
 * DequantizeLinear nodes before them; the weights' scales are those of channels. All else stays. `on_layer` may be
 * NULL; its layers have no sums by column, and done and total count products. The file appears when it is complete.
 * Errors: INVALID_ARGUMENT (the file exists, no such product, a scale that is not above 0), UNSUPPORTED (an opset
 * before 13, external data in another folder), INVALID_MODEL (a weight is not finite), IO, CANCELLED.
 */
TRM_API trm_status trm_onnx_quantize(trm_onnx *model, const char *path, const trm_onnx_scale *scales, int32_t n,
                                     trm_quantize_fn on_layer, void *user);

#ifdef __cplusplus
}
#endif
#endif
