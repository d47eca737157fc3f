/*
 * The weights of a model by name: stored in safetensors, or random for presets. Shapes and types are checked as
 * weights are taken.
 */
#ifndef TRM_GRAPH_IMPORT_HF_CHECKPOINT_H
#define TRM_GRAPH_IMPORT_HF_CHECKPOINT_H

#include "weight_stream/weight.h"

/* What a weight is for: decides the spread of random ones. */
typedef enum trm_hf_weight_use {
    TRM_HF_MATRIX = 0,     /* [out, in]: keeps the variance of its input */
    TRM_HF_EMBEDDING,      /* rows of variance 1 */
    TRM_HF_TIED_EMBEDDING, /* also the output projection: rows of variance 1 / width */
    TRM_HF_NORM,           /* near 1, or near 0 where the norm adds 1 */
    TRM_HF_OFFSET_NORM,
    TRM_HF_BIAS
} trm_hf_weight_use;

typedef struct trm_hf_checkpoint {
    trm_safetensors *stored; /* NULL: random weights */
    trm_dtype dtype;         /* of random weights */
    uint64_t seed;
    bool *taken;     /* [stored weights]: what was taken so far */
    bool *quantized; /* [stored weights]: what was quantized on its way */
} trm_hf_checkpoint;

/* Opens the safetensors of a folder. */
trm_status trm_hf_checkpoint_open(const char *folder, trm_hf_checkpoint *checkpoint);
void trm_hf_checkpoint_random(trm_dtype dtype, uint64_t seed, trm_hf_checkpoint *checkpoint);
void trm_hf_checkpoint_fini(trm_hf_checkpoint *checkpoint);

/* Whether a weight is there; random ones always are. */
bool trm_hf_checkpoint_has(const trm_hf_checkpoint *checkpoint, const char *name);
/* A weight of the dims expected; the caller's. INVALID_MODEL if it is missing or has another shape, UNSUPPORTED if it
 * is not stored as f32, f16 or bf16. */
trm_status trm_hf_checkpoint_take(trm_hf_checkpoint *checkpoint, const char *name, trm_hf_weight_use use,
                                  const trm_dims *dims, trm_weight **weight);
/* The same of a stored weight that must be of this type. */
trm_status trm_hf_checkpoint_take_as(trm_hf_checkpoint *checkpoint, const char *name, trm_dtype dtype,
                                     const trm_dims *dims, trm_weight **weight);
/* Type (NONE: one this library does not know) and dims of a stored weight; false if there is none. */
bool trm_hf_checkpoint_describe(const trm_hf_checkpoint *checkpoint, const char *name, trm_dtype *dtype,
                                trm_dims *dims);
/* Whether a weight of these dims is stored as f32, f16 or bf16. */
bool trm_hf_checkpoint_has_floats(const trm_hf_checkpoint *checkpoint, const char *name, const trm_dims *dims);
/* Whether two stored weights of floats have the same elements, whatever their types; reads both as far as they do. */
trm_status trm_hf_checkpoint_same(const trm_hf_checkpoint *checkpoint, const char *a, const char *b, bool *same);
/* Counts a weight that is not needed as taken, if it is there. */
void trm_hf_checkpoint_skip(trm_hf_checkpoint *checkpoint, const char *name);
/* Counts the weights of layers `first` to first + count - 1 as taken, whose names are "<prefix><n>.<rest>". */
void trm_hf_checkpoint_skip_layers(trm_hf_checkpoint *checkpoint, const char *prefix, int64_t first, int64_t count);
/* The seed of a random weight of this name. */
uint64_t trm_hf_checkpoint_seed(const trm_hf_checkpoint *checkpoint, const char *name);
/* A stored positive number, [] or [1]. INVALID_MODEL if it is none, UNSUPPORTED for another shape or type. */
trm_status trm_hf_checkpoint_take_scale(trm_hf_checkpoint *checkpoint, const char *name, float *scale);
/* Forgets what was taken. */
void trm_hf_checkpoint_reset(trm_hf_checkpoint *checkpoint);
/* Logs a warning that names a few of the stored weights that were not taken, if there are any. */
void trm_hf_checkpoint_warn_unused(const trm_hf_checkpoint *checkpoint);

#endif
