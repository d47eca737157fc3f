/* Turns tokens into text and text into replies of completions and chat completions. */
#include "launcher/serve/responses/completion.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/error.h"
#include "launcher/serve/replicas/supervisor.h"
#include "launcher/serve/responses/anthropic.h"
#include "launcher/serve/responses/embedding.h"
#include "launcher/serve/responses/logprobs.h"
#include "launcher/serve/responses/message.h"
#include "launcher/serve/responses/reply_part.h"
#include "launcher/serve/responses/response.h"
#include "launcher/serve/responses/score.h"

#define EVENT_BYTES 256 /* the head of most events is longer than the rest */

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed)) {
        seed = (uint64_t)time(NULL);
    }
    return seed;
}

static trm_status init_choice(completion *c, int32_t index, const trm_tokens *prompts, uint64_t seed)
{
    choice *ch = &c->choices[index];
    const trm_tokens *prompt = &prompts[index / c->request.best_of];
    *ch = (choice){.owner = c, .index = index, .prompt = index / c->request.best_of, .n_prompt = prompt->count};
    ch->seed = seed + (uint64_t)(index % c->request.best_of);
    TRM_TRY(trm_ids_reserve(&ch->tokens, prompt->count));
    memcpy(ch->tokens.data, prompt->ids, prompt->count * sizeof(int32_t));
    ch->tokens.size = prompt->count;
    TRM_TRY(
        text_sink_init(&ch->sink, c->tokenizer, c->request.skip_special, c->request.stops, c->request.n_stops, NULL));
    ch->sink.keep_stop = c->request.include_stop;
    return TRM_OK;
}

trm_status completion_create(http_exchange *x, api_request *request, trm_tokens *prompts,
                             const trm_tokenizer *tokenizer, const char *model, completion **result)
{
    completion *c = calloc(1, sizeof(*c));
    int32_t n = request->n_prompts * request->best_of;
    choice *choices = calloc((size_t)n, sizeof(*choices));
    trm_status status = TRM_OK;
    if (c == NULL || choices == NULL) {
        free(c);
        free(choices);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a request");
    }
    *c = (completion){.exchange = http_exchange_retain(x),
                      .request = *request,
                      .tokenizer = tokenizer,
                      .model = model,
                      .created = (int64_t)time(NULL),
                      .choices = choices};
    *request = (api_request){0};
    static const char *const prefixes[] = {"cmpl-", "chatcmpl-", "resp_", "embd-", "msg_", "score-", "rerank-"};
    snprintf(c->id, sizeof(c->id), "%s%.32s", prefixes[c->request.kind], x->id);
    uint64_t seed = c->request.has_seed ? c->request.seed : random_seed();
    for (; c->n_choices < n && status == TRM_OK; c->n_choices++) {
        status = init_choice(c, c->n_choices, prompts, seed);
    }
    for (int32_t i = 0; i < c->request.n_prompts; i++) {
        c->prompt_tokens += (int64_t)prompts[i].count;
        trm_tokens_fini(&prompts[i]);
    }
    if (status != TRM_OK) {
        completion_destroy(c);
        return status;
    }
    *result = c;
    return TRM_OK;
}

void completion_destroy(completion *c)
{
    if (c == NULL) {
        return;
    }
    for (int32_t i = 0; i < c->n_choices; i++) {
        choice *ch = &c->choices[i];
        trm_ids_fini(&ch->tokens);
        text_sink_fini(&ch->sink);
        reply_reader_fini(&ch->reader);
        reply_part_fini(&ch->part);
        trm_decoder_destroy(ch->prompt_decoder);
        free(ch->embedding);
        json_text_fini(&ch->logprobs);
        json_text_fini(&ch->logprob_tokens);
        json_text_fini(&ch->logprob_values);
        json_text_fini(&ch->logprob_tops);
        json_text_fini(&ch->logprob_offsets);
        json_text_fini(&ch->prompt_logprobs);
    }
    trm_bytes_fini(&c->head);
    free(c->choices);
    api_request_fini(&c->request);
    http_exchange_release(c->exchange);
    free(c);
}

trm_status choice_submission(const choice *ch, trm_serving_request *request)
{
    const api_request *asked = &ch->owner->request;
    size_t resumed = ch->tokens.size - ch->n_prompt;
    *request = TRM_SERVING_REQUEST_INIT;
    request->id = ch->id;
    request->prompt = ch->tokens.data;
    request->n_prompt = (int64_t)ch->tokens.size;
    request->n_resumed = (int64_t)resumed;
    const int64_t left = asked->max_tokens - (int64_t)resumed;
    request->max_tokens = asked->max_tokens < 0 ? 0 : left > 0 ? left : TRM_NO_TOKENS;
    request->priority = asked->priority;
    request->client = ch->owner->client;
    request->sampling.base = (trm_sampling){.temperature = asked->temperature,
                                            .top_k = asked->top_k,
                                            .top_p = asked->top_p,
                                            .min_p = asked->min_p,
                                            .repetition_penalty = asked->repetition_penalty,
                                            .seed = ch->seed};
    request->sampling.typical_p = asked->typical_p;
    request->sampling.presence_penalty = asked->presence_penalty;
    request->sampling.frequency_penalty = asked->frequency_penalty;
    request->sampling.bias = asked->biases;
    request->sampling.n_bias = asked->n_biases;
    request->ignore_eos = asked->ignore_eos;
    request->stop_tokens = asked->stop_ids;
    request->n_stop_tokens = asked->n_stop_ids;
    request->min_tokens = asked->min_tokens;
    request->embedding = asked->embedding;
    request->adapter = asked->adapter;
    const trace_context *trace = &ch->owner->exchange->trace;
    request->traceparent = trace->parent[0] != '\0' ? trace->parent : NULL;
    request->tracestate = trace->state[0] != '\0' ? trace->state : NULL;
    logprobs_ask(ch, request);
    return TRM_OK;
}

void choice_take_prompt(choice *ch, const trm_serving_event *event)
{
    if (!ch->finished && !ch->owner->failed) {
        logprobs_take_prompt(ch, event);
    }
}

bool choice_next_piece(choice *ch, reply_piece *piece)
{
    const bool at_end = ch->finish_reason != NULL;
    return reply_next(&ch->reader, &ch->owner->request, ch->sink.text, at_end ? ch->sink.size : ch->sink.certain,
                      at_end, piece);
}

bool choice_is_call(const choice *ch)
{
    return reply_is_call(&ch->reader, &ch->owner->request, ch->sink.stopped);
}

void choice_call_id(const choice *ch, const reply_piece *piece, const char *prefix, char id[CALL_ID_SIZE])
{
    if (piece->id != NULL) {
        snprintf(id, CALL_ID_SIZE, "%.*s", (int)piece->id_size, piece->id);
    } else {
        snprintf(id, CALL_ID_SIZE, "%s%.40s_%d_%d", prefix, ch->owner->exchange->id, ch->index, piece->call);
    }
}

static const char *prompt_text(const choice *ch)
{
    const char *text = ch->owner->request.prompts[ch->prompt].text;
    return text == NULL ? "" : text;
}

/* Replies. */

static void write_head(json_text *json, const completion *c, bool chunk)
{
    json_object(json, NULL);
    json_string(json, "id", c->id);
    json_string(json, "object",
                c->request.kind != API_CHAT ? "text_completion"
                : chunk                     ? "chat.completion.chunk"
                                            : "chat.completion");
    json_integer(json, "created", c->created);
    json_string(json, "model", c->model);
}

/* Begins a stream event, up to its choices. This runs for every token, so the common part is written once. */
static void begin_event(json_text *json, completion *c)
{
    if (c->head.size == 0) {
        json_text head = {0};
        json_literal(&head, "data: ");
        write_head(&head, c, true);
        if (head.status != TRM_OK) {
            json->status = head.status;
            json_text_fini(&head);
            return;
        }
        c->head = head.bytes;
    }
    if (json->status == TRM_OK) {
        json->status = trm_bytes_reserve(&json->bytes, c->head.size + EVENT_BYTES);
    }
    json_literal_bytes(json, c->head.data, c->head.size);
}

/* Writes ids of a choice's tokens from `begin` to `end`, if the request asks for them. */
static void write_ids(json_text *json, const char *key, const choice *ch, size_t begin, size_t end)
{
    if (ch->owner->request.return_ids) {
        json_array(json, key);
        for (size_t i = begin; i < end; i++) {
            json_integer(json, NULL, ch->tokens.data[i]);
        }
        json_end_array(json);
    }
}

static void write_usage(json_text *json, const completion *c)
{
    json_object(json, "usage");
    json_integer(json, "prompt_tokens", c->prompt_tokens);
    json_integer(json, "completion_tokens", c->output_tokens);
    json_integer(json, "total_tokens", c->prompt_tokens + c->output_tokens);
    json_object(json, "prompt_tokens_details");
    json_integer(json, "cached_tokens", c->cached_tokens);
    json_end_object(json);
    json_end_object(json);
}

static void send_bytes(completion *c, json_text *json)
{
    c->last_sent = supervisor_clock();
    if (json->status == TRM_OK) {
        http_exchange_stream(c->exchange, json->bytes.data, json->bytes.size);
    } else {
        http_exchange_end_stream(c->exchange, true);
    }
    json_text_fini(json);
}

void completion_send(completion *c, json_text *json)
{
    json_literal(json, "\n\n");
    send_bytes(c, json);
}

json_text completion_begin_event(const char *type)
{
    json_text json = {0};
    json_literal(&json, "event: ");
    json_literal(&json, type);
    json_literal(&json, "\ndata: ");
    json_object(&json, NULL);
    json_string(&json, "type", type);
    return json;
}

void completion_end_event(completion *c, json_text *json)
{
    json_end_object(json);
    completion_send(c, json);
}

static void open_stream(completion *c)
{
    if (!c->open) {
        c->open = true;
        http_exchange_begin_stream(c->exchange);
    }
}

/* Writes a line of the next event. A comment followed by a blank line would be an event without data, which some
 * clients take for an error (openai-go before 3.43: "unexpected end of JSON input"). */
void completion_keep_open(completion *c)
{
    if (!c->failed && c->n_finished < c->n_choices) {
        json_text json = {0};
        open_stream(c);
        json_literal(&json, ":\n");
        send_bytes(c, &json);
    }
}

static void begin_stream(completion *c)
{
    if (c->begun) {
        return;
    }
    c->begun = true;
    open_stream(c);
    if (c->request.kind == API_RESPONSE) {
        response_begin(c);
        return;
    }
    if (c->request.kind == API_MESSAGES) {
        anthropic_begin(c);
        return;
    }
    for (int32_t i = 0; i < c->n_choices; i++) {
        bool echo = c->request.echo;
        if (c->request.kind != API_CHAT && !echo) {
            break;
        }
        json_text json = {0};
        begin_event(&json, c);
        json_array(&json, "choices");
        json_object(&json, NULL);
        json_integer(&json, "index", i);
        if (c->request.kind == API_CHAT) {
            json_object(&json, "delta");
            json_string(&json, "role", "assistant");
            json_string(&json, "content", "");
            json_end_object(&json);
        } else {
            json_string(&json, "text", prompt_text(&c->choices[i]));
        }
        json_null(&json, "logprobs");
        json_null(&json, "finish_reason");
        json_end_object(&json);
        json_end_array(&json);
        if (c->request.kind == API_CHAT) {
            write_ids(&json, "prompt_token_ids", &c->choices[i], 0, c->choices[i].n_prompt);
        }
        json_end_object(&json);
        completion_send(c, &json);
    }
}

/* Writes a chunk with a choice's text, or with parts of its message, and the finish reason if there is one. */
static void send_choice(choice *ch, const message_parts *parts)
{
    completion *c = ch->owner;
    json_text json = {0};
    begin_event(&json, c);
    json_array(&json, "choices");
    json_object(&json, NULL);
    json_integer(&json, "index", ch->index);
    if (parts != NULL) {
        message_write(&json, true, parts);
    } else {
        json_bytes(&json, "text", ch->sink.text + ch->streamed, ch->sink.certain - ch->streamed);
        ch->streamed = ch->sink.certain;
    }
    logprobs_write(&json, ch);
    if (parts == NULL && ch->ids_streamed == 0) {
        write_ids(&json, "prompt_token_ids", ch, 0, ch->n_prompt);
    }
    write_ids(&json, "token_ids", ch, ch->n_prompt + ch->ids_streamed, ch->tokens.size);
    ch->ids_streamed = ch->tokens.size - ch->n_prompt;
    json_string(&json, "finish_reason", ch->finish_reason);
    json_end_object(&json);
    json_end_array(&json);
    json_end_object(&json);
    completion_send(c, &json);
}

/* Sends what is complete, and the finish reason if there is one. */
static trm_status send_chunk(choice *ch)
{
    completion *c = ch->owner;
    if (c->request.kind == API_RESPONSE || c->request.kind == API_MESSAGES) {
        return (c->request.kind == API_RESPONSE ? response_delta : anthropic_delta)(c);
    }
    if (c->request.kind == API_CHAT) {
        message_parts parts = {.any_calls = false};
        trm_status status = message_take(ch, true, &parts);
        if (status == TRM_OK && (!message_is_empty(&parts) || ch->finish_reason != NULL)) {
            send_choice(ch, &parts);
        }
        message_parts_fini(&parts);
        return status;
    }
    if (ch->sink.certain > ch->streamed || ch->finish_reason != NULL) {
        send_choice(ch, NULL);
    }
    return TRM_OK;
}

static void end_stream(completion *c)
{
    if (c->request.kind == API_RESPONSE || c->request.kind == API_MESSAGES) {
        (c->request.kind == API_RESPONSE ? response_end : anthropic_end)(c);
        http_exchange_end_stream(c->exchange, false);
        return;
    }
    if (c->request.include_usage) {
        json_text json = {0};
        begin_event(&json, c);
        json_array(&json, "choices");
        json_end_array(&json);
        write_usage(&json, c);
        json_end_object(&json);
        completion_send(c, &json);
    }
    json_text done = {0};
    json_literal(&done, "data: [DONE]");
    completion_send(c, &done);
    http_exchange_end_stream(c->exchange, false);
}

static void write_whole_choice(json_text *json, choice *ch)
{
    const completion *c = ch->owner;
    json_object(json, NULL);
    json_integer(json, "index", ch->index);
    if (c->request.kind == API_CHAT) {
        message_parts parts = {.any_calls = false};
        const trm_status status = message_take(ch, false, &parts);
        json->status = json->status == TRM_OK ? status : json->status;
        message_write(json, false, &parts);
        message_parts_fini(&parts);
    } else if (c->request.echo) {
        trm_bytes text = {0};
        const char *prompt = prompt_text(ch);
        if (trm_bytes_append(&text, prompt, strlen(prompt)) != TRM_OK ||
            trm_bytes_append(&text, ch->sink.text, ch->sink.size) != TRM_OK) {
            json->status = TRM_ERROR_OUT_OF_MEMORY;
        }
        json_bytes(json, "text", text.data, text.size);
        trm_bytes_fini(&text);
    } else {
        json_bytes(json, "text", ch->sink.text, ch->sink.size);
    }
    logprobs_write(json, ch);
    if (c->request.kind != API_CHAT) {
        logprobs_write_prompt(json, ch);
        write_ids(json, "prompt_token_ids", ch, 0, ch->n_prompt);
    }
    write_ids(json, "token_ids", ch, ch->n_prompt, ch->tokens.size);
    json_string(json, "finish_reason", ch->finish_reason);
    json_end_object(json);
}

/* Logarithm of the mean probability of a choice's tokens. */
static double mean_likelihood(const choice *ch)
{
    size_t output = ch->tokens.size - ch->n_prompt;
    return output > 0 ? ch->likelihood / (double)output : 0.0;
}

/* Chooses the best n of each prompt's best_of choices, most likely first; keeps the order if n equals best_of. */
static void write_whole_choices(json_text *json, completion *c)
{
    int32_t n = c->request.n, best_of = c->request.best_of, index = 0;
    for (int32_t first = 0; first < c->n_choices; first += best_of) {
        for (int32_t k = 0; k < n; k++) {
            choice *best = NULL;
            for (int32_t i = first; i < first + best_of; i++) {
                choice *ch = &c->choices[i];
                bool better = best == NULL || (best_of > n && mean_likelihood(ch) > mean_likelihood(best));
                best = !ch->written && better ? ch : best;
            }
            best->index = index++;
            best->written = true;
            write_whole_choice(json, best);
        }
    }
}

static void reply_whole(completion *c)
{
    json_text json = {0};
    if (c->request.kind == API_RESPONSE) {
        response_write(c, &json);
    } else if (c->request.kind == API_MESSAGES) {
        anthropic_write(c, &json);
    } else if (c->request.kind == API_EMBEDDING) {
        embedding_write(c, &json);
    } else if (c->request.kind == API_SCORE || c->request.kind == API_RERANK) {
        score_write(c, &json);
    } else {
        write_head(&json, c, false);
        json_array(&json, "choices");
        write_whole_choices(&json, c);
        json_end_array(&json);
        if (c->request.kind == API_CHAT) {
            logprobs_write_prompt(&json, &c->choices[0]);
            write_ids(&json, "prompt_token_ids", &c->choices[0], 0, c->choices[0].n_prompt);
        }
        write_usage(&json, c);
        json_end_object(&json);
    }
    if (json.status == TRM_OK) {
        http_exchange_reply(c->exchange, 200, json.bytes.data, json.bytes.size);
    } else {
        api_error error;
        api_fail(&error, 503, NULL, NULL, "cannot allocate the reply");
        http_exchange_reply_error(c->exchange, &error);
    }
    json_text_fini(&json);
}

trm_status choice_take(choice *ch, const trm_serving_event *event, bool *stopped)
{
    completion *c = ch->owner;
    *stopped = false;
    if (ch->finished || c->failed) {
        return TRM_OK;
    }
    TRM_TRY(trm_ids_append(&ch->tokens, event->token));
    c->output_tokens++;
    ch->likelihood += (double)event->logprob;
    logprobs_take(ch, event);
    ch->sink.deaf = ch->tokens.size - ch->n_prompt <= (size_t)c->request.min_tokens;
    TRM_TRY(text_sink_push(&ch->sink, event->token));
    *stopped = ch->sink.stopped;
    if (c->request.stream) {
        begin_stream(c);
        if (!ch->sink.stopped) {
            TRM_TRY(send_chunk(ch));
        }
    }
    return TRM_OK;
}

trm_status choice_finish(choice *ch, const char *reason)
{
    completion *c = ch->owner;
    if (ch->finished || c->failed) {
        return TRM_OK;
    }
    logprobs_finish(ch);
    TRM_TRY(text_sink_finish(&ch->sink));
    ch->finished = true;
    ch->finish_reason = ch->sink.stopped ? "stop" : reason;
    c->n_finished++;
    if (c->request.stream) {
        begin_stream(c);
        TRM_TRY(send_chunk(ch));
    }
    if (c->n_finished == c->n_choices) {
        pthread_mutex_lock(&c->exchange->lock);
        c->exchange->prompt_tokens = c->prompt_tokens;
        c->exchange->output_tokens = c->output_tokens;
        pthread_mutex_unlock(&c->exchange->lock);
        if (c->request.stream) {
            end_stream(c);
        } else {
            reply_whole(c);
        }
    }
    return TRM_OK;
}

void completion_fail(completion *c, const api_error *error)
{
    if (c->failed) {
        return;
    }
    c->failed = true;
    if (!c->open) {
        http_exchange_reply_error(c->exchange, error);
        return;
    }
    if (c->request.kind == API_MESSAGES) {
        anthropic_fail(c, error);
    } else if (c->request.kind == API_RESPONSE) {
        response_fail(c, error);
    } else {
        json_text json = {0};
        json_literal(&json, "data: ");
        api_error_write(error, &json);
        completion_send(c, &json);
    }
    http_exchange_end_stream(c->exchange, false);
}
