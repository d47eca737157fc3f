/*
 * ONNX models: open a file, see what it asks for, build its network.
 *
 *   trm_onnx_open -> trm_onnx_build_network -> trm_build (engine.h)
 *
 * A model is used by one thread at a time. Networks built from it may outlive it.
 */
#ifndef TRIREME_ONNX_H
#define TRIREME_ONNX_H

#include <trireme/network.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_onnx trm_onnx;

/*
 * Opens a model file. Weights stay in the file, which is mapped, and in the files it names as external data, which must
 * lie in its folder. Errors: IO; INVALID_MODEL for a file that is malformed or nests too deep. What single nodes ask
 * for is looked at when a network is built.
 */
TRM_API trm_status trm_onnx_open(const char *path, trm_onnx **model);
TRM_API void trm_onnx_close(trm_onnx *model); /* NULL is ignored */

/* Of the opsets of ONNX's own operators, the last whose operators are all known as it has them. A model that uses a
 * later one is imported as if they still were: what an operator means may have changed since. */
#define TRM_ONNX_NEWEST_OPSET 28

typedef struct trm_onnx_info {
    const char *path, *producer; /* producer: name and version, "" where it has none */
    int64_t ir_version, opset;   /* opset of ONNX's own operators; 0: the model uses none */
    int64_t newer_opset;         /* the latest behind TRM_ONNX_NEWEST_OPSET that it, or a function, uses; 0: none */
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
    trm_dtype dtype;  /* NONE: no tensor, or of a type that is not supported */
    bool has_dims;    /* false: the file does not say how many there are, or it is no tensor */
    trm_dims dims;    /* -1: unknown or named; has_dims false where there are more than TRM_MAX_DIMS */
    const char *dim_names[TRM_MAX_DIMS]; /* NULL where a dimension has no name */
} trm_onnx_port;
/* Inputs are those the caller gives: initializers that the file also lists as inputs are none. */
TRM_API int32_t trm_onnx_input_count(const trm_onnx *model);
TRM_API int32_t trm_onnx_output_count(const trm_onnx *model);
TRM_API bool trm_onnx_get_input(trm_onnx *model, int32_t index, trm_onnx_port *port);
TRM_API bool trm_onnx_get_output(trm_onnx *model, int32_t index, trm_onnx_port *port);

/* The value of an input that is known when the network is built: the input becomes a constant. One entry for each
 * element of a sequence, in order; an entry of type NONE is an empty sequence or an optional without a value. */
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
    trm_dims dims; /* -1 stays unknown, where the file leaves it open */
} trm_onnx_input_dims;

/* An input or output that has another type in the network than in the model, with a CAST in between: f16 for a model
 * in f32, say, so that half as much is copied. */
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
    const trm_onnx_input_dims *inputs; /* [n_inputs] dims of inputs, for those the file leaves open */
    int32_t n_inputs;
    int32_t n_ranks;   /* of the world the network is for; DistCollective nodes depend on it. 0 is 1. */
    bool refittable;   /* float initializers of the main graph with more than one element may get others later, by a
                          refit (engine.h): nothing is computed from them for good when the network is built, which
                          costs fusions; batch norms still become part of convolutions */
    int64_t max_trips; /* loops whose passes only a run tells are repeated so often, each pass guarded by whether it
                          runs, so that a run waits for nothing; one that wants more passes fails. 0: they are loops of
                          the network, without a bound. Loops of known length are unrolled if it is no more than this,
                          or takes no more than some thousand layers */
    const trm_onnx_port_type *types; /* [n_types] */
    int32_t n_types;
} trm_onnx_options;
#define TRM_ONNX_OPTIONS_INIT TRM_MAKE(trm_onnx_options, TRM_SET(size, sizeof(trm_onnx_options)))

/*
 * Builds the network of the main graph. Its inputs and outputs have the model's names; a sequence becomes one tensor
 * for each element, "name.0", "name.1", .... What cannot be imported is recorded as an issue, and the import goes on
 * with the next node, so that all of them are known in the end; if there are any, the call fails with the first.
 * Errors: UNSUPPORTED, INVALID_MODEL, INVALID_ARGUMENT (options). `options` may be NULL.
 */
TRM_API trm_status trm_onnx_build_network(trm_onnx *model, const trm_onnx_options *options, trm_network **network);

/* What the last trm_onnx_build_network of the model found. */
typedef struct trm_onnx_issue {
    trm_status status;
    const char *place;  /* subgraphs and functions around the node, "" for the main graph */
    int32_t node;       /* index in its graph; -1: not a node, but an input, an output or the graph itself */
    const char *name;   /* of the node */
    const char *domain; /* "" is ONNX's own */
    const char *op;     /* operator */
    int64_t opset;      /* of the domain */
    const char *cause;  /* one line, as trm_last_error() gives it */
    const char *text;   /* all of it in one line, with the file */
} trm_onnx_issue;
TRM_API int32_t trm_onnx_issue_count(const trm_onnx *model);
/* Strings live until the next build or close. */
TRM_API bool trm_onnx_get_issue(const trm_onnx *model, int32_t index, trm_onnx_issue *issue);

/* What operators the model uses, in all its graphs and functions, in the order in which they first appear. */
typedef struct trm_onnx_use {
    const char *domain, *op; /* domain "" is ONNX's own */
    int64_t opset;           /* of the domain; 0 where the model does not say */
    int32_t nodes;
    bool known; /* it can be imported, as far as its name and opset tell, or is a function of the model */
} trm_onnx_use;
TRM_API bool trm_onnx_get_use(const trm_onnx *model, int32_t index,
                              trm_onnx_use *use); /* strings live with the model */

/*
 * Reads a value from a file as ONNX's test data has it: one TensorProto, or where `type` (of a port) begins with
 * "sequence" or "optional", that. *values [*n] are its tensors, without `input`; an empty sequence or optional has one
 * entry of type NONE. Release with trm_free.
 */
TRM_API trm_status trm_onnx_read_value(const char *path, const char *type, trm_onnx_fixed_value **values, int32_t *n);

#ifdef __cplusplus
}
#endif
#endif
