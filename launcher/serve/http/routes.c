/* The handlers of all paths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "launcher/serve/http/model_routes.h"
#include "launcher/serve/http/page.h"
#include "launcher/serve/http/server_internal.h"
#include "launcher/serve/json/json_value.h"
#include "launcher/serve/requests/chat.h"
#include "launcher/serve/requests/infill.h"
#include "launcher/serve/requests/tools.h"
#include "launcher/serve/formats/reasoning.h"
#include "launcher/serve/formats/tool_format.h"
#include "launcher/serve/requests/tools.h"

static enum MHD_Result answer_version(call *c)
{
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "version", trm_version());
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

/* Tokenizes every prompt; none on failure. */
static trm_status encode_prompts(const served_model *model, const api_request *request, trm_tokens *prompts)
{
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < request->n_prompts && status == TRM_OK; i++) {
        const api_prompt *prompt = &request->prompts[i];
        if (prompt->text != NULL) {
            status = trm_tokenizer_encode(model->tokenizer, prompt->text, strlen(prompt->text), request->add_special,
                                          &prompts[i]);
        } else {
            prompts[i].ids = malloc((prompt->n_ids + 1) * sizeof(int32_t));
            if (prompts[i].ids == NULL) {
                status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a prompt of %zu tokens", prompt->n_ids);
                break;
            }
            memcpy(prompts[i].ids, prompt->ids, prompt->n_ids * sizeof(int32_t));
            prompts[i].count = prompt->n_ids;
        }
        if (status == TRM_OK && prompts[i].count == 0) {
            status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "prompt %d is empty", i);
        }
    }
    if (status != TRM_OK) {
        for (int32_t i = 0; i < request->n_prompts; i++) {
            trm_tokens_fini(&prompts[i]);
        }
    }
    return status;
}

/* Decodes prompts that were given as ids. */
static trm_status write_out_prompts(const served_model *model, api_request *request)
{
    for (int32_t i = 0; i < request->n_prompts; i++) {
        api_prompt *prompt = &request->prompts[i];
        char *text = NULL;
        size_t size;
        if (prompt->text == NULL) {
            TRM_TRY(trm_tokenizer_decode(model->tokenizer, prompt->ids, prompt->n_ids, true, &text, &size));
            prompt->text = trm_arena_strdup(&request->arena, text);
            trm_free(text);
            if (prompt->text == NULL) {
                return TRM_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    return TRM_OK;
}

/* The field of the prompt in each kind of request. */
static const char *prompt_key(api_kind kind)
{
    static const char *const keys[] = {"prompt", "messages", "input", "input", "messages", "text_2", "documents"};
    return keys[kind];
}

/* A prompt must leave room for max_tokens, or for one token. */
static bool check_lengths(const served_model *model, api_request *request, const trm_tokens *prompts, api_error *error)
{
    ipc_ready ready;
    if (!dispatcher_get_ready(model->dispatcher, &ready)) {
        return true;
    }
    for (int32_t i = 0; i < request->n_prompts; i++) {
        int64_t count = (int64_t)prompts[i].count, more = request->max_tokens < 0 ? 1 : request->max_tokens;
        if (request->kind == API_MESSAGES && count < ready.max_context && count + more > ready.max_context) {
            request->max_tokens = more = ready.max_context - count; /* its clients ask for as much as they can get */
            request->is_clipped = true;
        }
        if (count + more > ready.max_context) {
            return api_fail(error, 400, prompt_key(request->kind), "context_length_exceeded",
                            "the prompt has %lld tokens and max_tokens is %lld, but the context is %lld tokens",
                            (long long)count, (long long)more, (long long)ready.max_context);
        }
    }
    return true;
}

static void wake_call(void *user)
{
    http_exchange_wake(user);
    http_exchange_release(user);
}

/* Has the grammar of a request compiled, and checks that it does. *waits: the connection sleeps until it is compiled,
 * then the call is answered anew. */
static bool check_grammar(call *c, const api_request *request, bool *waits, api_error *error)
{
    grammar_cache *cache = c->model->grammars;
    trm_status status = TRM_OK;
    *waits = false;
    if (request->format == API_FORMAT_TEXT) {
        return true;
    }
    if (c->grammar == NULL) {
        status = grammar_cache_ask(cache, request->format, request->grammar, &c->grammar);
        *waits = status == TRM_OK && !grammar_cache_is_ready(cache, c->grammar);
    }
    if (*waits) {
        (void)call_wait(c); /* before it may be woken */
        if (grammar_cache_notify(cache, c->grammar, wake_call, http_exchange_retain(c->exchange)) != TRM_OK) {
            wake_call(c->exchange);
        }
        return true;
    }
    if (status == TRM_OK && !grammar_cache_is_ready(cache, c->grammar)) {
        status = TRM_ERROR_OUT_OF_MEMORY; /* there was no memory to wait for it */
    }
    status = status == TRM_OK ? grammar_cache_outcome(c->grammar) : status;
    if (status != TRM_OK) {
        api_fail_status(error, status, request->format_key);
        tools_explain(request, error);
    }
    return status == TRM_OK;
}

/* Tokenizes the prompts of a parsed request and submits it. Frees the request in any case. */
static enum MHD_Result submit_request(call *c, api_request *request)
{
    api_error error;
    bool waits;
    if (!check_grammar(c, request, &waits, &error)) {
        api_request_fini(request);
        return call_reply_error(c, &error);
    }
    if (waits) {
        api_request_fini(request);
        return MHD_YES;
    }
    trm_tokens *prompts = trm_arena_array(&request->arena, (size_t)request->n_prompts, sizeof(trm_tokens));
    trm_status status = prompts == NULL ? TRM_ERROR_OUT_OF_MEMORY : encode_prompts(c->model, request, prompts);
    enum MHD_Result result;
    if (status == TRM_OK && request->echo) {
        status = write_out_prompts(c->model, request);
    }
    if (status != TRM_OK) {
        result = call_reply_failure(c, status, prompt_key(request->kind));
    } else if (!check_lengths(c->model, request, prompts, &error)) {
        for (int32_t i = 0; i < request->n_prompts; i++) {
            trm_tokens_fini(&prompts[i]);
        }
        result = call_reply_error(c, &error);
    } else {
        result = call_submit(c, request, prompts);
    }
    api_request_fini(request);
    return result;
}

/* Parses a request for the model that it names. */
static bool parse_request(call *c, api_kind kind, api_request *request, api_error *error)
{
    trm_arena arena = {0};
    if (!call_choose_model(c, error)) {
        return false;
    }
    const served_model *model = c->model;
    const bool parsed =
        api_request_parse(kind, c->body.data == NULL ? "" : c->body.data, c->body.size,
                          trm_tokenizer_vocab_size(model->tokenizer), model_names(model, &arena), request, error);
    trm_arena_fini(&arena);
    if (!parsed) {
        return false;
    }
    if (!model_find_adapter(model, request, error)) {
        api_request_fini(request);
        return false;
    }
    if (c->server->options.takes_sampling) {
        api_request_take_defaults(request, &model->info->sampling);
    }
    return true;
}

static enum MHD_Result answer_completions(call *c)
{
    api_request request;
    api_error error;
    if (!parse_request(c, API_COMPLETION, &request, &error)) {
        return call_reply_error(c, &error);
    }
    if (request.suffix != NULL && !infill_prompts(c->model->tokenizer, &request, &error)) {
        api_request_fini(&request);
        return call_reply_error(c, &error);
    }
    return submit_request(c, &request);
}

/* Separates reasoning from the answer if the template does. Requests for JSON and forced tool calls have no reasoning.
 */
static void find_reasoning(api_request *request)
{
    bool free_text = request->format != API_FORMAT_JSON && request->format != API_FORMAT_SCHEMA;
    if (!free_text || request->reasoning == NULL) {
        request->reasoning = NULL;
        return;
    }
    request->reasoning_open = reasoning_is_open(request->reasoning, request->prompts[0].text);
    request->skip_special = request->skip_special && !request->reasoning->special;
    if (request->continued != NULL && !request->reasoning_open) {
        request->reasoning = NULL;
    }
}

/* Prepares a request whose reply has channels: their marks are special tokens, and two of them end it. */
static void read_channels(const trm_tokenizer *tokenizer, api_request *request)
{
    static const char *const ends[] = {"<|return|>", "<|call|>"};
    request->skip_special = false;
    for (size_t i = 0; !request->ignore_eos && i < sizeof(ends) / sizeof(ends[0]); i++) {
        const int32_t token = trm_tokenizer_find(tokenizer, ends[i]);
        if (token >= 0 && request->n_stop_ids < TRM_MAX_STOP_TOKENS) {
            request->stop_ids[request->n_stop_ids++] = token;
        }
    }
}

/* Chats of every kind: renders messages into a prompt and submits it. */
static enum MHD_Result answer_messages(call *c, api_kind kind)
{
    api_request request;
    api_error error;
    if (!parse_request(c, kind, &request, &error)) {
        return call_reply_error(c, &error);
    }
    if (kind == API_MESSAGES && request.max_tokens < 0) { /* counting tokens does not need it */
        api_fail(&error, 400, "max_tokens", "invalid_type", "max_tokens is missing, expected a number of tokens");
        api_request_fini(&request);
        return call_reply_error(c, &error);
    }
    request.tool_style = tools_style(c->model->chat, c->model->tokenizer);
    if (request.tool_mode == TOOL_AUTO) {
        request.skip_special = false; /* tool calls begin with special tokens */
    }
    if (!chat_prompt(c->model->chat, &request, &error)) {
        api_request_fini(&request);
        return call_reply_error(c, &error);
    }
    find_reasoning(&request);
    if (request.harmony) {
        read_channels(c->model->tokenizer, &request);
    }
    return submit_request(c, &request);
}

/* Requests that need embeddings. */
static enum MHD_Result answer_embedded(call *c, api_kind kind)
{
    api_request request;
    api_error error;
    if (!parse_request(c, kind, &request, &error)) {
        return call_reply_error(c, &error);
    }
    request.embedding = c->model->pooling;
    bool served = request.embedding != TRM_EMBEDDING_NONE ||
                  api_fail(&error, 400, NULL, "unsupported_model",
                           "this model has no embeddings: it pools neither by mean nor by last token");
    if (!served || (request.dimensions > c->model->info->hidden &&
                    !api_fail(&error, 400, "dimensions", "invalid_value", "dimensions is %lld, but the model has %lld",
                              (long long)request.dimensions, (long long)c->model->info->hidden))) {
        api_request_fini(&request);
        return call_reply_error(c, &error);
    }
    return submit_request(c, &request);
}

static enum MHD_Result answer_embeddings(call *c)
{
    return answer_embedded(c, API_EMBEDDING);
}

static enum MHD_Result answer_score(call *c)
{
    return answer_embedded(c, API_SCORE);
}

static enum MHD_Result answer_rerank(call *c)
{
    return answer_embedded(c, API_RERANK);
}

static enum MHD_Result answer_chat(call *c)
{
    return answer_messages(c, API_CHAT);
}

static enum MHD_Result answer_responses(call *c)
{
    return answer_messages(c, API_RESPONSE);
}

static enum MHD_Result answer_anthropic(call *c)
{
    return answer_messages(c, API_MESSAGES);
}

/* Replies with the number of tokens of a request's messages. */
static enum MHD_Result answer_count_tokens(call *c)
{
    api_request request;
    api_error error;
    trm_tokens tokens = {0};
    if (!parse_request(c, API_MESSAGES, &request, &error)) {
        return call_reply_error(c, &error);
    }
    enum MHD_Result result;
    if (!chat_prompt(c->model->chat, &request, &error)) {
        result = call_reply_error(c, &error);
    } else if (encode_prompts(c->model, &request, &tokens) != TRM_OK) {
        result = call_reply_failure(c, TRM_ERROR_INVALID_ARGUMENT, "messages");
    } else {
        json_text json = {0};
        json_object(&json, NULL);
        json_integer(&json, "input_tokens", (int64_t)tokens.count);
        json_end_object(&json);
        result = call_reply_json(c, 200, &json);
    }
    trm_tokens_fini(&tokens);
    api_request_fini(&request);
    return result;
}

static enum MHD_Result answer_apply_template(call *c)
{
    api_request request;
    api_error error;
    if (!parse_request(c, API_CHAT, &request, &error)) {
        return call_reply_error(c, &error);
    }
    enum MHD_Result result;
    if (chat_prompt(c->model->chat, &request, &error)) {
        json_text json = {0};
        json_object(&json, NULL);
        json_string(&json, "prompt", request.prompts[0].text);
        json_end_object(&json);
        result = call_reply_json(c, 200, &json);
    } else {
        result = call_reply_error(c, &error);
    }
    api_request_fini(&request);
    return result;
}

trm_json_document *call_parse_body(call *c, enum MHD_Result *result)
{
    trm_json_document *document = NULL;
    trm_status status = trm_json_parse("body", c->body.data == NULL ? "" : c->body.data, c->body.size, &document);
    if (status == TRM_OK && !trm_json_is_object(trm_json_root(document))) {
        trm_json_close(document);
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "body is not a JSON object");
    }
    if (status != TRM_OK) {
        *result = call_reply_failure(c, status, NULL);
        return NULL;
    }
    return document;
}

static enum MHD_Result reply_tokens(call *c, const trm_tokens *tokens)
{
    ipc_ready ready;
    json_text json = {0};
    json_object(&json, NULL);
    json_integer(&json, "count", (int64_t)tokens->count);
    json_integer(&json, "max_model_len",
                 dispatcher_get_ready(c->model->dispatcher, &ready) ? ready.max_context
                                                                    : c->model->info->context_length);
    json_array(&json, "tokens");
    for (size_t i = 0; i < tokens->count; i++) {
        json_integer(&json, NULL, tokens->ids[i]);
    }
    json_end_array(&json);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

/* Tokenizes the messages of a chat, rendered by the template. */
static enum MHD_Result answer_tokenize_chat(call *c)
{
    api_request request;
    api_error error;
    trm_tokens tokens = {0};
    if (!parse_request(c, API_CHAT, &request, &error)) {
        return call_reply_error(c, &error);
    }
    enum MHD_Result result = !chat_prompt(c->model->chat, &request, &error) ? call_reply_error(c, &error)
                             : encode_prompts(c->model, &request, &tokens) != TRM_OK
                                 ? call_reply_failure(c, TRM_ERROR_INVALID_ARGUMENT, "messages")
                                 : reply_tokens(c, &tokens);
    trm_tokens_fini(&tokens);
    api_request_fini(&request);
    return result;
}

static enum MHD_Result answer_tokenize(call *c)
{
    enum MHD_Result result = MHD_NO;
    const char *prompt = NULL;
    trm_tokens tokens = {0};
    bool add_special = true;
    api_error error;
    if (!call_choose_model(c, &error)) {
        return call_reply_error(c, &error);
    }
    trm_json_document *document = call_parse_body(c, &result);
    if (document == NULL) {
        return result;
    }
    const trm_json *root = trm_json_root(document);
    if (trm_json_get(root, "messages") != NULL && trm_json_get(root, "prompt") == NULL) {
        trm_json_close(document);
        return answer_tokenize_chat(c);
    }
    trm_status status = trm_json_member_string(document, root, "prompt", true, &prompt);
    if (status == TRM_OK) {
        status = trm_json_member_bool(document, root, "add_special_tokens", false, &add_special);
    }
    if (status == TRM_OK) {
        status = trm_tokenizer_encode(c->model->tokenizer, prompt, strlen(prompt), add_special, &tokens);
    }
    result = status == TRM_OK ? reply_tokens(c, &tokens) : call_reply_failure(c, status, "prompt");
    trm_tokens_fini(&tokens);
    trm_json_close(document);
    return result;
}

static enum MHD_Result answer_detokenize(call *c)
{
    enum MHD_Result result = MHD_NO;
    api_error error;
    if (!call_choose_model(c, &error)) {
        return call_reply_error(c, &error);
    }
    trm_json_document *document = call_parse_body(c, &result);
    if (document == NULL) {
        return result;
    }
    const trm_json *ids = trm_json_get(trm_json_root(document), "tokens");
    size_t count = trm_json_count(ids), at = 0, size = 0;
    int32_t *tokens = malloc((count + 1) * sizeof(int32_t));
    char *text = NULL;
    trm_status status =
        tokens == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu tokens", count) : TRM_OK;
    if (status == TRM_OK && !trm_json_is_array(ids)) {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "tokens is missing, expected an array of token ids");
    }
    for (const trm_json *id = trm_json_first(ids); status == TRM_OK && id != NULL; id = trm_json_next(id)) {
        int64_t number = -1;
        if (!trm_json_integer(id, &number) || number < 0 || number >= trm_tokenizer_vocab_size(c->model->tokenizer)) {
            status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "tokens[%zu] is not a token id", at);
        } else {
            tokens[at++] = (int32_t)number;
        }
    }
    if (status == TRM_OK) {
        status = trm_tokenizer_decode(c->model->tokenizer, tokens, at, false, &text, &size);
    }
    if (status != TRM_OK) {
        result = call_reply_failure(c, status, "tokens");
    } else {
        json_text json = {0};
        json_object(&json, NULL);
        json_bytes(&json, "prompt", text, size);
        json_end_object(&json);
        result = call_reply_json(c, 200, &json);
    }
    trm_free(text);
    free(tokens);
    trm_json_close(document);
    return result;
}

static enum MHD_Result answer_page(call *c)
{
    return call_reply(c, 200, "text/html; charset=utf-8", (const char *)serve_page, serve_page_size);
}

/* Writes what a path takes and gives, as far as clients that make forms of it need. */
static void write_operation(json_text *json, const server *s, const route *r)
{
    const bool posts = strcmp(r->method, "POST") == 0, under = strcmp(r->path, "/v1/models/") == 0;
    json_object(json, posts ? "post" : "get");
    json_string(json, "summary", r->summary);
    if (under) {
        json_array(json, "parameters");
        json_object(json, NULL);
        json_string(json, "name", "model");
        json_string(json, "in", "path");
        json_bool(json, "required", true);
        json_object(json, "schema");
        json_string(json, "type", "string");
        json_end_object(json);
        json_end_object(json);
        json_end_array(json);
    }
    if (posts) {
        json_object(json, "requestBody");
        json_object(json, "content");
        json_object(json, "application/json");
        json_object(json, "schema");
        json_string(json, "type", "object");
        json_end_object(json);
        json_end_object(json);
        json_end_object(json);
        json_end_object(json);
    }
    json_object(json, "responses");
    json_object(json, "200");
    json_string(json, "description", "the reply");
    json_end_object(json);
    json_object(json, "default");
    json_string(json, "description", "an error");
    json_end_object(json);
    json_end_object(json);
    if (s->n_keys > 0 && !r->open) {
        json_array(json, "security");
        json_object(json, NULL);
        json_array(json, "key");
        json_end_array(json);
        json_end_object(json);
        json_end_array(json);
    }
    json_end_object(json);
}

static enum MHD_Result answer_openapi(call *c)
{
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "openapi", "3.1.0");
    json_object(&json, "info");
    json_string(&json, "title", "Trireme");
    json_string(&json, "version", trm_version());
    json_end_object(&json);
    json_object(&json, "paths");
    const route_table *routes = c->server->options.routes;
    for (size_t i = 0; i < routes->n; i++) {
        const route *r = &routes->rows[i];
        json_object(&json, strcmp(r->path, "/v1/models/") == 0 ? "/v1/models/{model}" : r->path);
        write_operation(&json, c->server, r);
        json_end_object(&json);
    }
    json_end_object(&json);
    json_object(&json, "components");
    json_object(&json, "securitySchemes");
    json_object(&json, "key");
    json_string(&json, "type", "http");
    json_string(&json, "scheme", "bearer");
    json_end_object(&json);
    json_end_object(&json);
    json_end_object(&json);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

static const route rows[] = {
    {"GET", "/", answer_page, true, "a page to chat"},
    {"POST", "/v1/completions", answer_completions, false, "complete texts (OpenAI)"},
    {"POST", "/v1/chat/completions", answer_chat, false, "answer a chat (OpenAI)"},
    {"POST", "/v1/responses", answer_responses, false, "answer items (OpenAI)"},
    {"POST", "/v1/messages", answer_anthropic, false, "answer messages (Anthropic)"},
    {"POST", "/v1/messages/count_tokens", answer_count_tokens, false, "count the tokens of messages (Anthropic)"},
    {"POST", "/v1/embeddings", answer_embeddings, false, "embed texts (OpenAI)"},
    {"POST", "/v1/score", answer_score, false, "compare texts by their embeddings (vLLM)"},
    {"POST", "/score", answer_score, false, "compare texts by their embeddings (vLLM)"},
    {"POST", "/v1/rerank", answer_rerank, false, "rank documents by their embeddings (Jina)"},
    {"POST", "/rerank", answer_rerank, false, "rank documents by their embeddings (Jina)"},
    {"POST", "/v2/rerank", answer_rerank, false, "rank documents by their embeddings (Cohere)"},
    {"POST", "/apply-template", answer_apply_template, false, "render a chat into a prompt"},
    {"GET", "/v1/models", model_routes_models, false, "list models"},
    {"GET", "/v1/models/", model_routes_model, false, "describe a model"},
    {"POST", "/v1/load_lora_adapter", model_routes_load_adapter, false, "load a LoRA adapter (vLLM)"},
    {"POST", "/v1/unload_lora_adapter", model_routes_unload_adapter, false, "unload a LoRA adapter (vLLM)"},
    {"POST", "/tokenize", answer_tokenize, false, "turn text into tokens"},
    {"POST", "/detokenize", answer_detokenize, false, "turn tokens into text"},
    {"POST", "/sleep", model_routes_sleep, false, "end the ranks and free the devices"},
    {"POST", "/wake_up", model_routes_wake, false, "start the ranks again"},
    {"GET", "/is_sleeping", model_routes_is_sleeping, false, "whether the ranks are asleep"},
    {"GET", "/health", model_routes_health, true, "whether the engine serves"},
    {"GET", "/ready", model_routes_health, true, "whether the engine serves"},
    {"GET", "/live", model_routes_live, true, "whether the server runs"},
    {"GET", "/version", answer_version, true, "the version"},
    {"GET", "/metrics", model_routes_metrics, true, "metrics for Prometheus"},
    {"GET", "/openapi.json", answer_openapi, true, "this description"},
};
const route_table language_model_routes = {rows, sizeof(rows) / sizeof(rows[0]), api_error_write};
