/* Writes logprobs in the forms of chats and completions. */
#include "launcher/serve/responses/logprobs.h"

#include <stdio.h>
#include <string.h>

#include "launcher/text/grammar/vocab.h"
#include "launcher/text/strings/utf8.h"

/* The choice that holds the prompt_logprobs of a choice's prompt. */
static choice *first_of_prompt(const choice *ch)
{
    return &ch->owner->choices[ch->prompt * ch->owner->request.best_of];
}

/* Number of tokens to report with each prompt token, in the text's logprobs and in prompt_logprobs; -1: none. */
static int32_t echoed_logprobs(const choice *ch)
{
    return ch->owner->request.echo ? ch->owner->request.logprobs : -1;
}

static int32_t prompt_logprobs(const choice *ch)
{
    return first_of_prompt(ch) == ch ? ch->owner->request.prompt_logprobs : -1;
}

/* For a trm_serving_request: of a body's -1 none, of 0 the tokens alone. */
static int32_t wanted_logprobs(int32_t n_top)
{
    return n_top < 0 ? 0 : n_top == 0 ? TRM_LOGPROBS_CHOSEN : n_top;
}

void logprobs_ask(const choice *ch, trm_serving_request *request)
{
    const api_request *asked = &ch->owner->request;
    request->logprobs = wanted_logprobs(asked->best_of > asked->n && asked->logprobs < 0 ? 0 : asked->logprobs);
    if (ch->prompt_seen < ch->n_prompt) {
        int32_t echoed = echoed_logprobs(ch), apart = prompt_logprobs(ch);
        request->prompt_logprobs = wanted_logprobs(echoed > apart ? echoed : apart);
    }
}

/* Logprobs. A token may be part of a character: its text is then U+FFFD, its bytes are that part's. */

static void write_token_text(json_text *json, const completion *c, const char *key, int32_t token, bool with_bytes)
{
    trm_bytes text = {0};
    if (trm_grammar_token_bytes(c->tokenizer, token, &text) != TRM_OK) {
        json->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    json_bytes(json, key, text.data, text.size);
    if (with_bytes) {
        json_array(json, "bytes");
        for (size_t i = 0; i < text.size; i++) {
            json_integer(json, NULL, (unsigned char)text.data[i]);
        }
        json_end_array(json);
    }
    trm_bytes_fini(&text);
}

/* Of chats and responses. */
static void write_chat_logprob(choice *ch, const trm_serving_event *event)
{
    json_text *json = &ch->logprobs;
    json_object(json, NULL);
    write_token_text(json, ch->owner, "token", event->token, true);
    json_number(json, "logprob", event->logprob);
    json_array(json, "top_logprobs");
    for (int32_t i = 0; i < event->n_top; i++) {
        json_object(json, NULL);
        write_token_text(json, ch->owner, "token", event->top[i].token, true);
        json_number(json, "logprob", event->top[i].logprob);
        json_end_object(json);
    }
    json_end_array(json);
    json_end_object(json);
}

/* Whether the object of top logprobs that begins at byte `begin` has a key. */
static bool has_top(const json_text *tops, size_t begin, const trm_bytes *key)
{
    json_text quoted = {0};
    json_bytes(&quoted, NULL, key->data, strlen(key->data));
    json_literal(&quoted, ":");
    bool has = quoted.status == TRM_OK &&
               memmem(tops->bytes.data + begin, tops->bytes.size - begin, quoted.bytes.data, quoted.bytes.size) != NULL;
    json_text_fini(&quoted);
    return has;
}

/* The legacy form: four parallel arrays, with top_logprobs as objects keyed by token text. Among tokens with the same
 * text, such as parts of characters, the most likely one is kept. */
static void write_logprob(choice *ch, const trm_serving_event *event)
{
    write_token_text(&ch->logprob_tokens, ch->owner, NULL, event->token, false);
    json_number(&ch->logprob_values, NULL, event->logprob);
    json_integer(&ch->logprob_offsets, NULL, (int64_t)ch->offset);
    json_text *tops = &ch->logprob_tops;
    trm_bytes text = {0};
    size_t begin = tops->bytes.size;
    json_object(tops, NULL);
    for (int32_t i = 0; i < event->n_top && i < ch->owner->request.logprobs; i++) {
        if (trm_grammar_token_bytes(ch->owner->tokenizer, event->top[i].token, &text) == TRM_OK &&
            trm_bytes_append(&text, "", 1) == TRM_OK && !has_top(tops, begin, &text)) {
            json_number(tops, text.data, event->top[i].logprob);
        }
    }
    json_end_object(tops);
    trm_bytes_fini(&text);
}

/* Moves the offset past a prompt token, by the characters that it completes. */
static void pass_prompt_token(choice *ch, int32_t token)
{
    const char *text;
    size_t size;
    if (ch->prompt_decoder == NULL && trm_decoder_create(ch->owner->tokenizer, true, &ch->prompt_decoder) != TRM_OK) {
        return;
    }
    if (trm_decoder_push(ch->prompt_decoder, token, &text, &size) == TRM_OK) {
        ch->offset += trm_utf8_count(text, size);
    }
    if (ch->prompt_seen == ch->n_prompt && trm_decoder_finish(ch->prompt_decoder, &text, &size) == TRM_OK) {
        ch->offset += trm_utf8_count(text, size);
    }
}

static void write_echoed_logprob(choice *ch, int32_t token, const trm_serving_event *event)
{
    if (event != NULL) {
        write_logprob(ch, event);
    } else {
        write_token_text(&ch->logprob_tokens, ch->owner, NULL, token, false);
        json_null(&ch->logprob_values, NULL);
        json_null(&ch->logprob_tops, NULL);
        json_integer(&ch->logprob_offsets, NULL, (int64_t)ch->offset);
    }
    pass_prompt_token(ch, token);
}

/* Writes one token by its id, as vLLM does; rank 0: not among the most likely tokens. */
static void write_ranked(json_text *json, const completion *c, int32_t token, float logprob, int32_t rank)
{
    char key[16];
    snprintf(key, sizeof(key), "%d", (int)token);
    json_object(json, key);
    json_number(json, "logprob", logprob);
    if (rank > 0) {
        json_integer(json, "rank", rank);
    } else {
        json_null(json, "rank");
    }
    write_token_text(json, c, "decoded_token", token, false);
    json_end_object(json);
}

/* Writes the prompt token, then the most likely ones. */
static void write_prompt_logprob(choice *ch, const trm_serving_event *event)
{
    json_text *json = &ch->prompt_logprobs;
    int32_t rank = 0, most = prompt_logprobs(ch);
    if (event == NULL) {
        json_null(json, NULL);
        return;
    }
    for (int32_t i = 0; i < event->n_top; i++) {
        rank = event->top[i].token == event->token ? i + 1 : rank;
    }
    json_object(json, NULL);
    write_ranked(json, ch->owner, event->token, event->logprob, rank);
    for (int32_t i = 0; i < event->n_top && i < most; i++) {
        if (i + 1 != rank) {
            write_ranked(json, ch->owner, event->top[i].token, event->top[i].logprob, i + 1);
        }
    }
    json_end_object(json);
}

/* Handles the next prompt token; the first has no logprob and no event. */
static void take_prompt_token(choice *ch, int32_t token, const trm_serving_event *event)
{
    ch->prompt_seen++;
    if (echoed_logprobs(ch) >= 0) {
        write_echoed_logprob(ch, token, event);
    }
    if (prompt_logprobs(ch) >= 0) {
        write_prompt_logprob(ch, event);
    }
}

void logprobs_finish(choice *ch)
{
    if (ch->n_prompt == 1 && ch->prompt_seen == 0) {
        take_prompt_token(ch, ch->tokens.data[0], NULL);
    }
}

void logprobs_take_prompt(choice *ch, const trm_serving_event *event)
{
    if (ch->prompt_seen == 0) {
        take_prompt_token(ch, ch->tokens.data[0], NULL);
    }
    if (event->index == (int64_t)ch->prompt_seen && ch->prompt_seen < ch->n_prompt) {
        take_prompt_token(ch, event->token, event); /* a restarted job repeats earlier events */
    }
}

void logprobs_take(choice *ch, const trm_serving_event *event)
{
    const api_request *asked = &ch->owner->request;
    if (asked->logprobs >= 0 && asked->kind != API_COMPLETION) {
        write_chat_logprob(ch, event);
    } else if (asked->logprobs >= 0) {
        logprobs_finish(ch);
        ch->offset += trm_utf8_count(ch->sink.text + ch->counted, ch->sink.size - ch->counted);
        ch->counted = ch->sink.size;
        write_logprob(ch, event);
    }
}

void logprobs_write_prompt(json_text *json, const choice *ch)
{
    const choice *first = first_of_prompt(ch);
    if (ch->owner->request.prompt_logprobs >= 0) {
        json_array(json, "prompt_logprobs");
        json_literal_bytes(json, first->prompt_logprobs.bytes.data, first->prompt_logprobs.bytes.size);
        json_end_array(json);
    }
}

void logprobs_write(json_text *json, choice *ch)
{
    const api_request *asked = &ch->owner->request;
    if (asked->logprobs < 0) {
        json_null(json, "logprobs");
        return;
    }
    json_object(json, "logprobs");
    if (asked->kind == API_CHAT) {
        json_array(json, "content");
        json_literal_bytes(json, ch->logprobs.bytes.data, ch->logprobs.bytes.size);
        json_end_array(json);
        json_text_fini(&ch->logprobs);
    } else {
        struct {
            const char *key;
            json_text *text;
        } parts[] = {{"tokens", &ch->logprob_tokens},
                     {"token_logprobs", &ch->logprob_values},
                     {"top_logprobs", &ch->logprob_tops},
                     {"text_offset", &ch->logprob_offsets}};
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            json_array(json, parts[i].key);
            json_literal_bytes(json, parts[i].text->bytes.data, parts[i].text->bytes.size);
            json_end_array(json);
            json_text_fini(parts[i].text);
        }
    }
    json_end_object(json);
}
