/*
 * The short way in: a language model from its folder to text, in three calls.
 *
 *   trm_llm_open -> trm_llm_generate or trm_llm_chat, any number of times -> trm_llm_close
 *
 * Under mpirun every rank makes the same calls. Text and parameters are those of rank 0, and only rank 0 gets the
 * generated text. One thread at a time uses an LLM. Programs that need more control use the parts: mesh.h, model.h,
 * tokenizer.h, chat.h and generate.h, or serving.h for many requests at a time.
 */
#ifndef TRIREME_LLM_H
#define TRIREME_LLM_H

#include <trireme/generate.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_llm trm_llm;

typedef struct trm_llm_options {
    size_t size; /* sizeof(trm_llm_options) */
    trm_backend backend;
    trm_mesh mesh;            /* of zeros: all ranks on tp */
    int64_t max_context;      /* tokens of prompt and output; 0, or more than the model has: all of the model's */
    trm_dtype dtype;          /* NONE: the weights' type on CUDA, f32 on the host */
    trm_progress_fn progress; /* called while weights load; may be NULL */
    void *progress_user;
    const char *weight_budget; /* weights that stay on the device, as trm_weight_budget_parse takes it: "8G", "25%",
                                  "auto"; NULL: all */
    const char *timeline;      /* file for a timeline of all ranks until trm_llm_close (timeline.h); NULL: none */
} trm_llm_options;
#define TRM_LLM_OPTIONS_INIT TRM_MAKE(trm_llm_options, TRM_SET(size, sizeof(trm_llm_options)))

/* Opens a model folder, or "org/name" in the local Hugging Face cache (trm_model_open), and loads its weights.
 * `options` may be NULL. A max_context longer than the model's is a warning. Collective. Errors: those of
 * trm_world_open, trm_model_open, trm_tokenizer_open and trm_generator_create. */
TRM_API trm_status trm_llm_open(const char *path, const trm_llm_options *options, trm_llm **llm);
/* Frees the model and leaves the world. Collective if nothing failed. */
TRM_API void trm_llm_close(trm_llm *llm);

typedef struct trm_llm_params {
    size_t size;           /* sizeof(trm_llm_params) */
    int64_t max_tokens;    /* 0: to the end of the context */
    trm_sampling sampling; /* of zeros: greedy */
} trm_llm_params;
#define TRM_LLM_PARAMS_INIT TRM_MAKE(trm_llm_params, TRM_SET(size, sizeof(trm_llm_params)))

/* Receives text [size] as it is generated, on rank 0: whole characters, not NUL-terminated. Returns false to stop. Must
 * not use the LLM. */
typedef bool (*trm_text_fn)(void *user, const char *text, size_t size);

/* Continues a text until the model ends it, max_tokens or the context is used up, or `fn` returns false. `params` and
 * `fn` may be NULL, and `text` on ranks other than 0. Collective. Errors: those of trm_generate. */
TRM_API trm_status trm_llm_generate(trm_llm *llm, const char *text, const trm_llm_params *params, trm_text_fn fn,
                                    void *user);

typedef struct trm_llm_message {
    const char *role; /* "system", "user", "assistant", or another that the model's chat template knows */
    const char *content;
} trm_llm_message;

/* Renders messages [n] with the model's chat template and continues the result as trm_llm_generate does. Of replies in
 * the harmony format of gpt-oss `fn` receives the answer, not the reasoning. Errors also: those of
 * trm_chat_template_open and trm_chat_template_render. */
TRM_API trm_status trm_llm_chat(trm_llm *llm, const trm_llm_message *messages, int32_t n, const trm_llm_params *params,
                                trm_text_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
