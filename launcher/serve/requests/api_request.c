/* Parses request bodies: completions, chat completions, responses, messages, embeddings. */
#include "launcher/serve/requests/api_request.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/serve/json/json_text.h"
#include "launcher/serve/requests/api_format.h"
#include "launcher/serve/requests/from_anthropic.h"
#include "launcher/serve/requests/from_responses.h"
#include "launcher/serve/requests/tools.h"

#define MOST_TEXTS 2048 /* of a request for embeddings */

static const char *error_type(int status)
{
    return status == 401   ? "authentication_error"
           : status == 404 ? "not_found_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

bool api_fail(api_error *error, int status, const char *param, const char *code, const char *format, ...)
{
    va_list arguments;
    *error = (api_error){.status = status, .type = error_type(status), .param = param, .code = code};
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return false;
}

bool api_fail_status(api_error *error, trm_status status, const char *param)
{
    int http =
        status == TRM_ERROR_INVALID_ARGUMENT || status == TRM_ERROR_INVALID_MODEL || status == TRM_ERROR_UNSUPPORTED
            ? 400
        : status == TRM_ERROR_OUT_OF_MEMORY || status == TRM_ERROR_BUSY ? 503
                                                                        : 500;
    return api_fail(error, http, param, NULL, "%s", trm_last_error());
}

/* Reads a number within [least, most]; if absent, *value stays. */
static bool read_number(const api_request *request, const char *key, double least, double most, double *value,
                        api_error *error)
{
    const trm_json *root = trm_json_root(request->document);
    trm_status status = trm_json_member_number(request->document, root, key, false, value);
    if (status != TRM_OK) {
        return api_fail_status(error, status, key);
    }
    if (!(*value >= least && *value <= most)) {
        return api_fail(error, 400, key, "invalid_value", "%s is %g, expected a number from %g to %g", key, *value,
                        least, most);
    }
    return true;
}

static bool read_float(const api_request *request, const char *key, double least, double most, float *value,
                       api_error *error)
{
    double number = *value;
    if (!read_number(request, key, least, most, &number, error)) {
        return false;
    }
    *value = (float)number;
    return true;
}

static bool read_integer(const api_request *request, const char *key, int64_t least, int64_t most, int64_t *value,
                         api_error *error)
{
    const trm_json *root = trm_json_root(request->document);
    int64_t number = 0;
    if (trm_json_get(root, key) == NULL) {
        return true;
    }
    trm_status status = trm_json_member_integer(request->document, root, key, false, &number);
    if (status != TRM_OK) {
        return api_fail_status(error, status, key);
    }
    if (number < least || number > most) {
        return api_fail(error, 400, key, "invalid_value", "%s is %lld, expected an integer from %lld to %lld", key,
                        (long long)number, (long long)least, (long long)most);
    }
    *value = number;
    return true;
}

static bool read_int32(const api_request *request, const char *key, int32_t least, int32_t most, int32_t *value,
                       api_error *error)
{
    int64_t number = *value;
    if (!read_integer(request, key, least, most, &number, error)) {
        return false;
    }
    *value = (int32_t)number;
    return true;
}

static bool read_bool(const api_request *request, const char *key, bool *value, api_error *error)
{
    trm_status status = trm_json_member_bool(request->document, trm_json_root(request->document), key, false, value);
    return status == TRM_OK || api_fail_status(error, status, key);
}

static bool out_of_memory(api_error *error)
{
    return api_fail(error, 503, NULL, NULL, "cannot allocate the request");
}

/* Refuses a model that is not served. */
static bool check_model(api_request *request, const char *const *names, api_error *error)
{
    const char *model = NULL;
    trm_status status =
        trm_json_member_string(request->document, trm_json_root(request->document), "model", false, &model);
    if (status != TRM_OK) {
        return api_fail_status(error, status, "model");
    }
    request->model = model;
    bool found = model == NULL || names == NULL;
    for (size_t i = 0; !found && names[i] != NULL; i++) {
        found = strcmp(names[i], model) == 0;
    }
    return found || api_fail(error, 404, "model", "model_not_found", "model %.200s does not exist", model);
}

static bool read_stops(api_request *request, api_error *error)
{
    const char *key = request->kind == API_MESSAGES ? "stop_sequences" : "stop";
    const trm_json *stop = trm_json_get(trm_json_root(request->document), key);
    bool single = trm_json_is_string(stop);
    if (stop != NULL && !single && !trm_json_is_array(stop)) {
        return api_fail(error, 400, key, "invalid_type", "%s is neither a string nor an array of strings", key);
    }
    for (const trm_json *at = single ? stop : trm_json_first(stop); at != NULL;
         at = single ? NULL : trm_json_next(at)) {
        const char *text = trm_json_string(at);
        if (request->n_stops == API_MAX_STOPS) {
            return api_fail(error, 400, key, "invalid_value", "%s has more than %d strings", key, API_MAX_STOPS);
        }
        if (text == NULL || *text == '\0' || strlen(text) > API_LONGEST_STOP) {
            return api_fail(error, 400, key, "invalid_value", "stop string %d is not a string of 1 to %d bytes",
                            request->n_stops, API_LONGEST_STOP);
        }
        request->stops[request->n_stops++] = text;
    }
    return true;
}

/* Reads a token id within the vocabulary. */
static bool token_of(const trm_json *value, int32_t vocab, int32_t *token)
{
    int64_t number;
    if (!trm_json_integer(value, &number) || number < 0 || number >= vocab) {
        return false;
    }
    *token = (int32_t)number;
    return true;
}

static bool read_stop_ids(api_request *request, int32_t vocab, api_error *error)
{
    const trm_json *ids = trm_json_get(trm_json_root(request->document), "stop_token_ids");
    if (ids != NULL && (!trm_json_is_array(ids) || trm_json_count(ids) > TRM_MAX_STOP_TOKENS)) {
        return api_fail(error, 400, "stop_token_ids", "invalid_value",
                        "stop_token_ids is not an array of at most %d token ids", TRM_MAX_STOP_TOKENS);
    }
    for (const trm_json *id = trm_json_first(ids); id != NULL; id = trm_json_next(id)) {
        if (!token_of(id, vocab, &request->stop_ids[request->n_stop_ids++])) {
            return api_fail(error, 400, "stop_token_ids", "invalid_value",
                            "stop_token_ids has an element that is not a token id from 0 to %d", vocab - 1);
        }
    }
    return true;
}

static bool read_biases(api_request *request, int32_t vocab, api_error *error)
{
    const trm_json *map = trm_json_get(trm_json_root(request->document), "logit_bias");
    if (map == NULL) {
        return true;
    }
    size_t count = trm_json_count(map);
    if (!trm_json_is_object(map) || count > TRM_MAX_LOGIT_BIAS) {
        return api_fail(error, 400, "logit_bias", "invalid_value", "logit_bias is not an object of at most %d tokens",
                        TRM_MAX_LOGIT_BIAS);
    }
    request->biases = trm_arena_array(&request->arena, count + 1, sizeof(trm_logit_bias));
    if (request->biases == NULL) {
        return out_of_memory(error);
    }
    for (const trm_json *at = trm_json_first(map); at != NULL; at = trm_json_next(at)) {
        const char *key = trm_json_key(at);
        int64_t token = 0;
        size_t digits = strspn(key, "0123456789");
        for (size_t i = 0; i < digits && i < 10; i++) {
            token = token * 10 + (key[i] - '0');
        }
        double bias = trm_json_number(at, NAN);
        if (digits == 0 || digits > 10 || key[digits] != '\0' || token >= vocab || !(bias >= -100 && bias <= 100)) {
            return api_fail(error, 400, "logit_bias", "invalid_value",
                            "logit_bias of \"%.40s\": expected a token id from 0 to %d and a bias from -100 to 100",
                            key, vocab - 1);
        }
        request->biases[request->n_biases++] = (trm_logit_bias){(int32_t)token, (float)bias};
    }
    return true;
}

static bool read_sampling(api_request *r, int32_t vocab, api_error *error)
{
    const trm_json *root = trm_json_root(r->document);
    double seed = 0;
    r->has_seed = trm_json_get(root, "seed") != NULL;
    if (!read_float(r, "temperature", 0, 100, &r->temperature, error) ||
        !read_float(r, "top_p", 0, 1, &r->top_p, error) || !read_float(r, "min_p", 0, 1, &r->min_p, error) ||
        !read_float(r, "typical_p", 0, 1, &r->typical_p, error) ||
        !read_float(r, "repetition_penalty", 1e-3, 100, &r->repetition_penalty, error) ||
        !read_float(r, "presence_penalty", -2, 2, &r->presence_penalty, error) ||
        !read_float(r, "frequency_penalty", -2, 2, &r->frequency_penalty, error) ||
        !read_int32(r, "top_k", -1, INT32_MAX, &r->top_k, error) ||
        !read_int32(r, "min_tokens", 0, INT32_MAX, &r->min_tokens, error) ||
        !read_number(r, "seed", -0x1p63, 0x1p63, &seed, error) || !read_bool(r, "ignore_eos", &r->ignore_eos, error) ||
        !read_biases(r, vocab, error) || !read_stops(r, error) || !read_stop_ids(r, vocab, error)) {
        return false;
    }
    r->top_p = r->top_p <= 0 ? 1e-6f : r->top_p; /* the most likely token */
    r->typical_p = r->typical_p <= 0 ? 1e-6f : r->typical_p;
    r->top_k = r->top_k < 0 ? 0 : r->top_k;
    if (r->has_seed && seed != floor(seed)) {
        return api_fail(error, 400, "seed", "invalid_value", "seed is %g, expected an integer", seed);
    }
    r->seed = seed < 0 ? (uint64_t)(int64_t)seed : seed < 0x1p63 ? (uint64_t)(int64_t)seed : (uint64_t)1 << 63;
    return true;
}

/* Refuses fields that would change the text and are not supported: ignoring them would give a wrong reply. null, false,
 * 0, "", empty values, and the words that turn tools off or leave them to the model are allowed. */
static bool refuse_unsupported(const api_request *r, api_error *error)
{
    static const char *const keys[] = {"allowed_token_ids", "bad_words",        "truncate_prompt_tokens",
                                       "use_beam_search",   "functions",        "function_call",
                                       "prompt_embeds",     "logits_processors"};
    static const char *const of_chats[] = {"chat_template", "documents", "suffix"};
    const size_t n_keys = sizeof(keys) / sizeof(keys[0]), n_of_chats = sizeof(of_chats) / sizeof(of_chats[0]);
    const trm_json *root = trm_json_root(r->document);
    for (size_t i = 0; i < n_keys + (r->kind == API_CHAT ? n_of_chats : 0); i++) {
        const char *key = i < n_keys ? keys[i] : of_chats[i - n_keys];
        const trm_json *value = trm_json_get(root, key);
        const char *text = trm_json_string(value);
        bool is_call = strcmp(key, "function_call") == 0;
        bool asked =
            trm_json_count(value) > 0 || trm_json_truth(value, false) || trm_json_number(value, 0) != 0 ||
            (text != NULL && text[0] != '\0' && !(is_call && (strcmp(text, "none") == 0 || strcmp(text, "auto") == 0)));
        if (asked) {
            return api_fail(error, 400, key, "unsupported_parameter", "%s is not supported", key);
        }
    }
    return true;
}

/* Fields that all generating requests share. */
static bool read_common(api_request *r, int32_t vocab, api_error *error)
{
    const trm_json *root = trm_json_root(r->document);
    const trm_json *options = trm_json_get(root, "stream_options");
    int64_t best_of = 0;
    if (!refuse_unsupported(r, error) || !read_sampling(r, vocab, error) ||
        !read_bool(r, "stream", &r->stream, error) || !read_bool(r, "skip_special_tokens", &r->skip_special, error) ||
        !read_bool(r, "include_stop_str_in_output", &r->include_stop, error) ||
        !read_int32(r, "n", 1, API_MAX_CHOICES, &r->n, error) ||
        !read_int32(r, "priority", -1000000, 1000000, &r->priority, error) ||
        !read_integer(r, "best_of", 1, API_MAX_CHOICES, &best_of, error)) {
        return false;
    }
    r->best_of = best_of > 0 ? (int32_t)best_of : r->n;
    bool single = r->kind != API_COMPLETION || r->stream;
    if (r->best_of < r->n || (single && r->best_of > r->n)) {
        return api_fail(error, 400, "best_of", "invalid_value", "best_of is %d and n %d, expected %s", r->best_of, r->n,
                        single ? "the same: streamed completions cannot be compared" : "at least n");
    }
    if (options != NULL && !r->stream) {
        return api_fail(error, 400, "stream_options", "invalid_value", "stream_options needs stream to be true");
    }
    if (options != NULL && !trm_json_is_object(options)) {
        return api_fail(error, 400, "stream_options", "invalid_type", "stream_options is not an object");
    }
    trm_status status = trm_json_member_bool(r->document, options, "include_usage", false, &r->include_usage);
    return status == TRM_OK || api_fail_status(error, status, "stream_options");
}

/* vLLM's prompt_logprobs. */
static bool read_prompt_logprobs(api_request *r, api_error *error)
{
    if (!read_int32(r, "prompt_logprobs", 0, TRM_MAX_TOP_LOGPROBS, &r->prompt_logprobs, error)) {
        return false;
    }
    return r->prompt_logprobs < 0 || !r->stream ||
           api_fail(error, 400, "prompt_logprobs", "invalid_value", "prompt_logprobs cannot be streamed");
}

static bool read_ids(api_request *r, const char *key, const trm_json *array, int32_t vocab, api_prompt *prompt,
                     api_error *error)
{
    prompt->n_ids = trm_json_count(array);
    prompt->ids = trm_arena_array(&r->arena, prompt->n_ids + 1, sizeof(int32_t));
    if (prompt->ids == NULL) {
        return out_of_memory(error);
    }
    size_t at = 0;
    for (const trm_json *id = trm_json_first(array); id != NULL; id = trm_json_next(id)) {
        if (!token_of(id, vocab, &prompt->ids[at++])) {
            return api_fail(error, 400, key, "invalid_value", "%s has an element that is not a token id from 0 to %d",
                            key, vocab - 1);
        }
    }
    return true;
}

/* Reads a string, an array of strings, an array of ids, or an array of arrays of ids. */
static bool read_prompts(api_request *r, const char *key, int32_t vocab, api_error *error)
{
    const trm_json *value = trm_json_get(trm_json_root(r->document), key);
    const trm_json *first = trm_json_first(value);
    bool single = trm_json_is_string(value) || (trm_json_is_array(value) && trm_json_is_number(first));
    size_t n = single ? 1 : trm_json_count(value);
    if (!single && (!trm_json_is_array(value) || n == 0)) {
        return api_fail(error, 400, key, "invalid_type",
                        "%s is missing or empty, expected a string, an array of strings, or token ids", key);
    }
    size_t most = r->kind == API_EMBEDDING ? MOST_TEXTS : API_MAX_CHOICES / (size_t)r->best_of;
    if (n > most) {
        return api_fail(error, 400, key, "invalid_value", "%s has %zu entries, expected at most %zu", key, n, most);
    }
    r->prompts = trm_arena_array(&r->arena, n, sizeof(api_prompt));
    if (r->prompts == NULL) {
        return out_of_memory(error);
    }
    for (const trm_json *at = single ? value : first; at != NULL; at = single ? NULL : trm_json_next(at)) {
        api_prompt *prompt = &r->prompts[r->n_prompts++];
        prompt->text = trm_json_string(at);
        if (prompt->text == NULL && !trm_json_is_array(at)) {
            return api_fail(error, 400, key, "invalid_type", "%s has an element that is neither text nor token ids",
                            key);
        }
        if (prompt->text == NULL && !read_ids(r, key, at, vocab, prompt, error)) {
            return false;
        }
    }
    return true;
}

static bool read_suffix(api_request *r, api_error *error)
{
    const trm_json *root = trm_json_root(r->document);
    trm_status status = trm_json_member_string(r->document, root, "suffix", false, &r->suffix);
    if (status != TRM_OK) {
        return api_fail_status(error, status, "suffix");
    }
    r->suffix = r->suffix != NULL && *r->suffix != '\0' ? r->suffix : NULL;
    return r->suffix == NULL || !r->echo ||
           api_fail(error, 400, "suffix", "invalid_value", "suffix cannot be combined with echo");
}

static bool read_completion(api_request *r, int32_t vocab, api_error *error)
{
    int64_t logprobs = -1;
    r->max_tokens = 16;
    if (!read_common(r, vocab, error) || !read_integer(r, "max_tokens", 0, INT32_MAX, &r->max_tokens, error) ||
        !read_integer(r, "logprobs", 0, TRM_MAX_TOP_LOGPROBS, &logprobs, error) || !read_prompt_logprobs(r, error) ||
        !read_bool(r, "echo", &r->echo, error) || !read_bool(r, "add_special_tokens", &r->add_special, error) ||
        !read_bool(r, "return_token_ids", &r->return_ids, error) || !read_suffix(r, error) ||
        !api_read_format(r, error)) {
        return false;
    }
    r->logprobs = (int32_t)logprobs;
    return read_prompts(r, "prompt", vocab, error);
}

static bool read_embedding(api_request *r, int32_t vocab, api_error *error)
{
    const char *encoding = NULL;
    const trm_json *root = trm_json_root(r->document);
    trm_status status = trm_json_member_string(r->document, root, "encoding_format", false, &encoding);
    if (status != TRM_OK) {
        return api_fail_status(error, status, "encoding_format");
    }
    r->base64 = encoding != NULL && strcmp(encoding, "base64") == 0;
    if (encoding != NULL && !r->base64 && strcmp(encoding, "float") != 0) {
        return api_fail(error, 400, "encoding_format", "invalid_value",
                        "encoding_format is %.40s, expected float or base64", encoding);
    }
    if (!trm_json_truth(trm_json_get(root, "normalize"), true)) {
        return api_fail(error, 400, "normalize", "unsupported_parameter",
                        "normalize false is not supported: embeddings have length 1");
    }
    r->max_tokens = 0;
    return refuse_unsupported(r, error) && read_integer(r, "dimensions", 1, INT32_MAX, &r->dimensions, error) &&
           read_bool(r, "add_special_tokens", &r->add_special, error) && read_prompts(r, "input", vocab, error);
}

/* Reads the text of a content. */
static bool check_parts(const trm_json *parts, const char *key, int32_t index, api_error *error)
{
    if (!trm_json_is_array(parts)) {
        return api_fail(error, 400, key, "invalid_type", "%s is neither text nor an array of parts", key);
    }
    for (const trm_json *part = trm_json_first(parts); part != NULL; part = trm_json_next(part)) {
        const char *type = trm_json_string(trm_json_get(part, "type"));
        if (type == NULL || strstr(type, "text") == NULL) {
            return api_fail(error, 400, key, "unsupported_content",
                            "%s[%d].content has a part of type %.40s, expected text", key, index,
                            type == NULL ? "none" : type);
        }
        if (!trm_json_is_string(trm_json_get(part, "text"))) {
            return api_fail(error, 400, key, "invalid_type", "%s[%d].content has a part of type %.40s without a text",
                            key, index, type);
        }
    }
    return true;
}

/* Checks messages: objects with a role; the template decides about the rest. */
static bool check_messages(const trm_json *messages, const char *key, api_error *error)
{
    if (!trm_json_is_array(messages) || trm_json_count(messages) == 0) {
        return api_fail(error, 400, key, "invalid_type", "%s is missing or empty, expected an array of messages", key);
    }
    int32_t index = 0;
    for (const trm_json *message = trm_json_first(messages); message != NULL;
         message = trm_json_next(message), index++) {
        const trm_json *content = trm_json_get(message, "content");
        if (!trm_json_is_object(message) || !trm_json_is_string(trm_json_get(message, "role"))) {
            return api_fail(error, 400, key, "invalid_type", "%s[%d] is not a message with a role", key, index);
        }
        if (content != NULL && !trm_json_is_string(content) && !trm_json_is_array(content)) {
            return api_fail(error, 400, key, "invalid_type", "%s[%d].content is neither text nor an array of parts",
                            key, index);
        }
        if (trm_json_is_array(content) && !check_parts(content, key, index, error)) {
            return false;
        }
    }
    return true;
}

/* The text of the last message, if it is the assistant's and has any. */
static const char *last_answer(const api_request *r)
{
    const trm_json *last = trm_json_at(r->messages, trm_json_count(r->messages) - 1);
    const char *role = trm_json_string(trm_json_get(last, "role"));
    const char *text = trm_json_string(trm_json_get(last, "content"));
    const bool answers = role != NULL && strcmp(role, "assistant") == 0 && trm_json_get(last, "tool_calls") == NULL;
    return answers && text != NULL && *text != '\0' ? text : NULL;
}

/* vLLM's continue_final_message. */
static bool read_continued(api_request *r, api_error *error)
{
    bool continues = false, prompts = true;
    if (!read_bool(r, "continue_final_message", &continues, error) ||
        !read_bool(r, "add_generation_prompt", &prompts, error)) {
        return false;
    }
    r->continued = continues ? last_answer(r) : NULL;
    if (continues && r->continued == NULL) {
        return api_fail(error, 400, "continue_final_message", "unsupported_parameter",
                        "continue_final_message needs a last message of role assistant with text");
    }
    return prompts || continues ||
           api_fail(error, 400, "add_generation_prompt", "unsupported_parameter",
                    "add_generation_prompt false is not supported without continue_final_message");
}

static bool read_template_arguments(api_request *r, api_error *error)
{
    r->template_arguments = trm_json_get(trm_json_root(r->document), "chat_template_kwargs");
    return r->template_arguments == NULL || trm_json_is_object(r->template_arguments) ||
           api_fail(error, 400, "chat_template_kwargs", "invalid_type", "chat_template_kwargs is not an object");
}

static bool read_chat(api_request *r, int32_t vocab, api_error *error)
{
    const trm_json *root = trm_json_root(r->document);
    bool logprobs = false;
    int64_t top = 0;
    for (const trm_json *at = trm_json_first(trm_json_get(root, "modalities")); at != NULL; at = trm_json_next(at)) {
        const char *kind = trm_json_string(at);
        if (kind == NULL || strcmp(kind, "text") != 0) {
            return api_fail(error, 400, "modalities", "unsupported_parameter", "modalities has %.40s, expected text",
                            kind == NULL ? "no string" : kind);
        }
    }
    if (trm_json_truth(trm_json_get(root, "echo"), false)) {
        return api_fail(error, 400, "echo", "unsupported_parameter", "echo is not supported for chats");
    }
    r->messages = trm_json_get(root, "messages");
    r->tools = trm_json_get(root, "tools");
    r->tool_choice = trm_json_get(root, "tool_choice");
    if (!check_messages(r->messages, "messages", error) || !read_common(r, vocab, error) ||
        !read_integer(r, "max_tokens", 1, INT32_MAX, &r->max_tokens, error) ||
        !read_integer(r, "max_completion_tokens", 1, INT32_MAX, &r->max_tokens, error) ||
        !read_bool(r, "logprobs", &logprobs, error) ||
        !read_integer(r, "top_logprobs", 0, TRM_MAX_TOP_LOGPROBS, &top, error) || !read_prompt_logprobs(r, error) ||
        !read_bool(r, "parallel_tool_calls", &r->parallel_tools, error) ||
        !read_bool(r, "include_reasoning", &r->include_reasoning, error) ||
        !read_bool(r, "return_token_ids", &r->return_ids, error) || !read_continued(r, error) ||
        !api_read_format(r, error)) {
        return false;
    }
    if (top > 0 && !logprobs) {
        return api_fail(error, 400, "top_logprobs", "invalid_value", "top_logprobs needs logprobs to be true");
    }
    r->logprobs = logprobs ? (int32_t)top : -1;
    if (r->tools != NULL && !trm_json_is_array(r->tools)) {
        return api_fail(error, 400, "tools", "invalid_type", "tools is not an array");
    }
    return tools_read(r, error) && read_template_arguments(r, error);
}

/* What a response shall include: logprobs, whose number per token is a separate field, and reasoning to be kept. */
static bool read_include(api_request *r, api_error *error)
{
    const trm_json *include = trm_json_get(trm_json_root(r->document), "include");
    int64_t top = 0;
    if (include != NULL && !trm_json_is_array(include)) {
        return api_fail(error, 400, "include", "invalid_type", "include is not an array of strings");
    }
    if (!read_integer(r, "top_logprobs", 0, TRM_MAX_TOP_LOGPROBS, &top, error)) {
        return false;
    }
    for (const trm_json *at = trm_json_first(include); at != NULL; at = trm_json_next(at)) {
        const char *word = trm_json_string(at);
        if (word != NULL && strcmp(word, "message.output_text.logprobs") == 0) {
            r->logprobs = (int32_t)top;
        }
        r->keeps_reasoning = r->keeps_reasoning || (word != NULL && strcmp(word, "reasoning.encrypted_content") == 0);
    }
    return true;
}

/* Refuses fields that have no place in replies of this kind. */
static bool refuse_prompt_logprobs(const api_request *r, const char *replies, api_error *error)
{
    const trm_json *value = trm_json_get(trm_json_root(r->document), "prompt_logprobs");
    return value == NULL || api_fail(error, 400, "prompt_logprobs", "unsupported_parameter",
                                     "%s have no prompt_logprobs; use completions or chat completions", replies);
}

/* Takes messages and tools that were written as those of a chat. */
static bool take_chat(api_request *r, json_text *json, bool written, api_error *error)
{
    json_end_object(json);
    trm_status status = json->status;
    if (status == TRM_OK && written) {
        status = trm_json_parse("chat", json->bytes.data, json->bytes.size, &r->chat);
    }
    json_text_fini(json);
    if (!written || status != TRM_OK) {
        return written && api_fail_status(error, status, NULL);
    }
    const trm_json *root = trm_json_root(r->chat);
    r->messages = trm_json_get(root, "messages");
    r->tools = trm_json_get(root, "tools");
    r->tool_choice = trm_json_get(root, "tool_choice");
    const char *key = r->kind == API_RESPONSE ? "input" : "messages";
    return trm_json_count(r->messages) > 0 ||
           api_fail(error, 400, key, "invalid_value", "%s has nothing that the model can be shown", key);
}

static bool read_response(api_request *r, int32_t vocab, api_error *error)
{
    const trm_json *root = trm_json_root(r->document);
    static const char *const stored[] = {"previous_response_id", "conversation", "background"};
    for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++) {
        const trm_json *value = trm_json_get(root, stored[i]);
        if (value != NULL && trm_json_truth(value, true)) {
            return api_fail(error, 400, stored[i], "unsupported_parameter",
                            "%s is not supported: responses are not stored", stored[i]);
        }
    }
    if (trm_json_get(root, "prompt") != NULL) {
        return api_fail(error, 400, "prompt", "unsupported_parameter",
                        "prompt is not supported: no prompts are stored; put the text into input");
    }
    if (trm_json_get(root, "n") != NULL) {
        return api_fail(error, 400, "n", "unsupported_parameter",
                        "responses do not support several choices; use chat completions");
    }
    const char *instructions = NULL;
    trm_status status = trm_json_member_string(r->document, root, "instructions", false, &instructions);
    if (status != TRM_OK) {
        return api_fail_status(error, status, "instructions");
    }
    json_text json = {0};
    json_object(&json, NULL);
    return read_bool(r, "parallel_tool_calls", &r->parallel_tools, error) &&
           take_chat(r, &json, from_responses_write(root, &json, error), error) &&
           refuse_prompt_logprobs(r, "responses", error) && read_common(r, vocab, error) &&
           read_integer(r, "max_output_tokens", 1, INT32_MAX, &r->max_tokens, error) && read_include(r, error) &&
           read_template_arguments(r, error) && api_read_format(r, error) && tools_read(r, error);
}

/* Of messages: {"type": "enabled"}, "adaptive" or "disabled". */
static bool read_thinking(api_request *r, api_error *error)
{
    const trm_json *value = trm_json_get(trm_json_root(r->document), "thinking");
    const char *type = trm_json_string(trm_json_get(value, "type"));
    const char *display = trm_json_string(trm_json_get(value, "display"));
    const bool disabled = type != NULL && strcmp(type, "disabled") == 0;
    r->has_thinking = value != NULL;
    r->thinks = !disabled;
    r->include_reasoning = !disabled;
    r->omits_thinking = display != NULL && strcmp(display, "omitted") == 0;
    return value == NULL || disabled ||
           (type != NULL && (strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0)) ||
           api_fail(error, 400, "thinking", "invalid_value", "thinking is not of type enabled, adaptive or disabled");
}

static bool read_messages(api_request *r, int32_t vocab, api_error *error)
{
    static const char *const unsupported[] = {"mcp_servers", "container", "n"};
    const trm_json *root = trm_json_root(r->document);
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
        const trm_json *value = trm_json_get(root, unsupported[i]);
        if (value != NULL && !(trm_json_is_array(value) && trm_json_count(value) == 0)) {
            return api_fail(error, 400, unsupported[i], "unsupported_parameter", "messages do not support %s",
                            unsupported[i]);
        }
    }
    json_text json = {0};
    json_object(&json, NULL);
    if (!take_chat(r, &json, from_anthropic_write(root, &json, error), error)) {
        return false;
    }
    r->parallel_tools = trm_json_truth(trm_json_get(trm_json_root(r->chat), "parallel_tool_calls"), true);
    r->continued = last_answer(r);
    return read_thinking(r, error) && refuse_prompt_logprobs(r, "messages", error) && read_common(r, vocab, error) &&
           read_integer(r, "max_tokens", 1, INT32_MAX, &r->max_tokens, error) && read_template_arguments(r, error) &&
           api_read_format(r, error) && tools_read(r, error);
}

/* The text of a document: a string, or an object with a text. */
static const char *document_text(const trm_json *value)
{
    return trm_json_is_object(value) ? trm_json_string(trm_json_get(value, "text")) : trm_json_string(value);
}

/* Adds the prompts of a field, one text or several. */
static bool add_texts(api_request *r, const char *key, const trm_json *value, api_error *error)
{
    const bool single = document_text(value) != NULL;
    for (const trm_json *at = single ? value : trm_json_first(value); at != NULL;
         at = single ? NULL : trm_json_next(at)) {
        const char *text = document_text(at);
        if (text == NULL) {
            return api_fail(error, 400, key, "invalid_type", "%s has an element that is not a text", key);
        }
        r->prompts[r->n_prompts++].text = text;
    }
    return true;
}

/* Reads the texts that are compared, as vLLM and Jina name them. */
static bool read_compared(api_request *r, const char *first, const char *second, api_error *error)
{
    const trm_json *root = trm_json_root(r->document), *a = trm_json_get(root, first), *b = trm_json_get(root, second);
    const size_t n = document_text(a) != NULL ? 1 : trm_json_is_array(a) ? trm_json_count(a) : 0;
    const size_t m = document_text(b) != NULL ? 1 : trm_json_is_array(b) ? trm_json_count(b) : 0;
    if (n == 0 || m == 0) {
        const char *key = n == 0 ? first : second;
        return api_fail(error, 400, key, "invalid_type", "%s is missing or empty, expected a text or an array of texts",
                        key);
    }
    if (n + m > MOST_TEXTS || (n != 1 && n != m)) {
        return api_fail(error, 400, second, "invalid_value",
                        "%s has %zu texts and %s %zu, expected one or as many, and at most %d together", first, n,
                        second, m, MOST_TEXTS);
    }
    r->prompts = trm_arena_array(&r->arena, n + m, sizeof(api_prompt));
    if (r->prompts == NULL) {
        return out_of_memory(error);
    }
    r->n_queries = (int32_t)n;
    r->top_n = (int64_t)m;
    r->max_tokens = 0;
    return add_texts(r, first, a, error) && add_texts(r, second, b, error) &&
           read_bool(r, "add_special_tokens", &r->add_special, error);
}

static bool read_score(api_request *r, api_error *error)
{
    const bool renamed = trm_json_get(trm_json_root(r->document), "queries") != NULL;
    return read_compared(r, renamed ? "queries" : "text_1", renamed ? "documents" : "text_2", error);
}

static bool read_rerank(api_request *r, api_error *error)
{
    if (!trm_json_is_string(trm_json_get(trm_json_root(r->document), "query"))) {
        return api_fail(error, 400, "query", "invalid_type", "query is missing, expected a text");
    }
    return read_compared(r, "query", "documents", error) && read_integer(r, "top_n", 1, INT32_MAX, &r->top_n, error) &&
           read_bool(r, "return_documents", &r->return_documents, error);
}

static bool parse(api_request *r, const char *body, size_t size, int32_t vocab, const char *const *names,
                  api_error *error)
{
    trm_status status = trm_json_parse("body", body, size, &r->document);
    if (status != TRM_OK) {
        return api_fail_status(error, status, NULL);
    }
    if (!trm_json_is_object(trm_json_root(r->document))) {
        return api_fail(error, 400, NULL, "invalid_type", "body is not a JSON object");
    }
    if (!check_model(r, names, error) || !read_number(r, "timeout", 0, 1e6, &r->timeout, error)) {
        return false;
    }
    switch (r->kind) {
    case API_COMPLETION:
        return read_completion(r, vocab, error);
    case API_CHAT:
        return read_chat(r, vocab, error);
    case API_RESPONSE:
        return read_response(r, vocab, error);
    case API_EMBEDDING:
        return read_embedding(r, vocab, error);
    case API_MESSAGES:
        return read_messages(r, vocab, error);
    case API_SCORE:
        return read_score(r, error);
    case API_RERANK:
        return read_rerank(r, error);
    }
    return false;
}

bool api_request_parse(api_kind kind, const char *body, size_t size, int32_t vocab, const char *const *names,
                       api_request *request, api_error *error)
{
    *request = (api_request){.kind = kind,
                             .n = 1,
                             .best_of = 1,
                             .max_tokens = -1,
                             .temperature = 1,
                             .top_p = 1,
                             .typical_p = 1,
                             .repetition_penalty = 1,
                             .logprobs = -1,
                             .prompt_logprobs = -1,
                             .skip_special = true,
                             .add_special = true,
                             .parallel_tools = true,
                             .return_documents = true,
                             .include_reasoning = true};
    if (!parse(request, body, size, vocab, names, error)) {
        api_request_fini(request);
        return false;
    }
    /* Constrained output ends where its grammar ends. */
    request->ignore_eos = request->ignore_eos && request->format == API_FORMAT_TEXT;
    request->min_tokens = request->format == API_FORMAT_TEXT ? request->min_tokens : 0;
    return true;
}

void api_request_take_defaults(api_request *request, const trm_model_sampling *sampling)
{
    const struct {
        const char *key;
        float *value, of_model;
    } numbers[] = {{"temperature", &request->temperature, sampling->temperature},
                   {"top_p", &request->top_p, sampling->top_p},
                   {"min_p", &request->min_p, sampling->min_p},
                   {"repetition_penalty", &request->repetition_penalty, sampling->repetition_penalty}};
    const trm_json *root = trm_json_root(request->document);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].of_model >= 0 && trm_json_get(root, numbers[i].key) == NULL) {
            *numbers[i].value = numbers[i].of_model;
        }
    }
    if (sampling->top_k >= 0 && trm_json_get(root, "top_k") == NULL) {
        request->top_k = sampling->top_k;
    }
}

void api_request_fini(api_request *request)
{
    trm_json_close(request->document);
    trm_json_close(request->chat);
    trm_json_close(request->allowed);
    trm_arena_fini(&request->arena);
    *request = (api_request){0};
}
