/*
 * Requests: the JSON of a request body, checked and with defaults filled in. Independent of connections and engine.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_API_REQUEST_H
#define TRM_LAUNCHER_SERVE_REQUESTS_API_REQUEST_H

#include <trireme/model.h>
#include <trireme/serving.h>
#include <trireme/tokenizer.h>

#include "base/arena.h"
#include "base/json.h"

#define API_MAX_CHOICES    128 /* n times the number of prompts */
#define API_MAX_STOPS      16
#define API_LONGEST_STOP   1024 /* bytes */
#define API_LONGEST_SCHEMA ((size_t)1 << 18)

/* An error reply, as OpenAI's clients expect it. Strings are constants except `message`. */
typedef struct api_error {
    int status; /* HTTP's */
    const char *type;
    const char *param; /* NULL: none */
    const char *code;  /* NULL: none */
    char message[768];
} api_error;

/* Fills in an error; the type follows from `status`. Returns false, so that checks can end with it. */
bool api_fail(api_error *error, int status, const char *param, const char *code, const char *format, ...)
    TRM_PRINTF(5, 6);
/* The same for a failure in trm_last_error. */
bool api_fail_status(api_error *error, trm_status status, const char *param);

/* The output format; the text of the grammar is NULL if the format has none. */
typedef enum api_format {
    API_FORMAT_TEXT,
    API_FORMAT_JSON,
    API_FORMAT_SCHEMA,
    API_FORMAT_REGEX,
    API_FORMAT_EBNF,
    API_FORMAT_CHOICE
} api_format;

/* Whether tools are called: as the model decides, at least one, or the named one. */
typedef enum tool_mode { TOOL_NONE, TOOL_AUTO, TOOL_REQUIRED, TOOL_NAMED } tool_mode;
/* The format in which a model writes tool calls (formats/tool_format.h). */
typedef enum tool_style {
    TOOLS_KIMI,
    TOOLS_DEEPSEEK,
    TOOLS_DSML,
    TOOLS_MINIMAX,
    TOOLS_GLM,
    TOOLS_SEED,
    TOOLS_QWEN_XML,
    TOOLS_COHERE,
    TOOLS_APERTUS,
    TOOLS_OLMO,
    TOOLS_GEMMA,
    TOOLS_GEMMA_FUNCTION,
    TOOLS_GRANITE,
    TOOLS_HERMES,
    TOOLS_MISTRAL,
    TOOLS_LLAMA4,
    TOOLS_LLAMA,
    TOOL_STYLES
} tool_style;

/* API_MESSAGES: Anthropic's API. API_SCORE, API_RERANK: embeddings of texts, compared. */
typedef enum api_kind {
    API_COMPLETION,
    API_CHAT,
    API_RESPONSE,
    API_EMBEDDING,
    API_MESSAGES,
    API_SCORE,
    API_RERANK
} api_kind;

/* One prompt: text, or tokens if the client sent ids. */
typedef struct api_prompt {
    const char *text; /* NULL: ids */
    int32_t *ids;     /* [n_ids] */
    size_t n_ids;
} api_prompt;

/* Everything belongs to the arena or the document, which live as long as the request. */
typedef struct api_request {
    api_kind kind;
    trm_arena arena;
    trm_json_document *document;
    const char *model;          /* NULL: not given */
    int32_t adapter;            /* of that name; 0: none */
    trm_json_document *chat;    /* of RESPONSE and MESSAGES: messages and tools as those of a CHAT */
    trm_json_document *allowed; /* the tools of an allowed_tools choice */
    bool stream, include_usage, echo, ignore_eos, skip_special, include_stop, add_special;
    int32_t n, priority, min_tokens;
    double timeout;     /* time limit in seconds; 0: the server's */
    int32_t best_of;    /* choices generated per prompt, of which n are returned */
    int64_t max_tokens; /* -1: up to the context */
    float temperature, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;
    bool has_seed;
    uint64_t seed;
    int32_t logprobs;        /* number of most likely tokens to report with each token; -1: no logprobs */
    int32_t prompt_logprobs; /* the same for prompt tokens, reported apart from the text */
    trm_logit_bias *biases;  /* [n_biases] */
    int32_t n_biases;
    const char *stops[API_MAX_STOPS];
    int32_t n_stops;
    int32_t stop_ids[TRM_MAX_STOP_TOKENS];
    int32_t n_stop_ids;
    api_prompt *prompts; /* [n_prompts]; for chats none before the template is rendered */
    int32_t n_prompts;
    const trm_json *messages, *tools, *tool_choice; /* as of CHAT; NULL if absent */
    const trm_json *template_arguments;             /* of chats of all kinds; NULL if absent */
    const char *continued;                          /* the last message, which the reply continues; NULL: none */
    const char *suffix;                             /* of COMPLETION: the text behind the reply; NULL: none */
    bool return_ids;                                /* of COMPLETION and CHAT: the reply has token ids, too */
    bool base64;                                    /* of EMBEDDING: numbers as base64 */
    int64_t dimensions;                             /* 0: all */
    int32_t n_queries;                              /* of SCORE and RERANK: prompts that the others are compared with */
    int64_t top_n;                                  /* of RERANK: documents in the reply */
    bool return_documents;                          /* of RERANK */
    trm_embedding embedding;                        /* how embeddings are pooled */
    bool parallel_tools;
    const struct reasoning_marks *reasoning; /* of models that think (formats/reasoning.h); NULL: the reply has none */
    bool reasoning_open, include_reasoning;  /* the prompt ends inside reasoning; the reply includes it */
    bool harmony;                            /* the reply is in the harmony format (launcher/text/harmony.h) */
    bool has_thinking, thinks;               /* of MESSAGES: it says whether the model shall think; what it says */
    bool keeps_reasoning;                    /* of RESPONSE: the client keeps the reasoning and sends it back */
    bool omits_thinking;                     /* of MESSAGES: thinking is in the reply without its text */
    bool is_clipped;                         /* of MESSAGES: max_tokens is what the context has left */
    tool_mode tool_mode;
    tool_style tool_style;
    const char *tool_name; /* of NAMED */
    api_format format;
    const char *format_key; /* the field that asked for it; NULL for TEXT */
    const char *grammar;    /* schema, expression or grammar; for CHOICE a JSON array */
} api_request;

/* Parses a body of `size` bytes. `vocab` bounds token ids; a `model` that is not in `names` (NULL-terminated; NULL:
 * any) is refused with 404. If false, the request is empty. */
bool api_request_parse(api_kind kind, const char *body, size_t size, int32_t vocab, const char *const *names,
                       api_request *request, api_error *error);
/* Samples as the model wants it where the request does not say how. */
void api_request_take_defaults(api_request *request, const trm_model_sampling *sampling);
void api_request_fini(api_request *request);

#endif
