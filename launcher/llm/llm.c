/*
 * The short way in (include/trireme/llm.h): world, model, tokenizer, chat template and generator behind one handle.
 *
 * It stands on both halves of the library, the engine (dist) and the text rooms (launcher/text), which know nothing of
 * each other, so it lives above them, in a room of its own. Like all of launcher it uses the public API alone.
 */
#include <trireme/llm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/chat.h>
#include <trireme/timeline.h>
#include <trireme/tokenizer.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/options.h"
#include "base/recorder.h"

struct trm_llm {
    trm_world *world;
    trm_model *model;
    trm_model_info info;
    trm_generator *generator;
    bool has_timeline;
    /* Of rank 0, where text comes and goes. */
    bool has_text;
    trm_tokenizer *tokenizer;
    trm_decoder *decoder;
    trm_chat_template *chat; /* NULL until first used */
};

/* ---- life ---------------------------------------------------------------------------------------------- */

/* What a rank does by itself before all make the generator. */
static trm_status open_parts(trm_llm *llm, const char *path, const trm_llm_options *options,
                             trm_generator_options *generator)
{
    TRM_TRY(trm_model_open(path, &llm->model));
    trm_model_get_info(llm->model, &llm->info);
    llm->has_text = trm_world_rank(llm->world) == 0;
    if (llm->has_text) {
        TRM_TRY(trm_tokenizer_open(llm->info.path, &llm->tokenizer));
        TRM_TRY(trm_decoder_create(llm->tokenizer, true, &llm->decoder));
    }
    *generator = TRM_GENERATOR_OPTIONS_INIT;
    generator->dtype = options->dtype;
    generator->mesh = options->mesh;
    generator->progress = options->progress;
    generator->progress_user = options->progress_user;
    generator->max_context = options->max_context;
    if (llm->info.context_length > 0 && options->max_context > llm->info.context_length) {
        TRM_WARN("max_context is %lld, the model has %lld tokens of context: using those",
                 (long long)options->max_context, (long long)llm->info.context_length);
        generator->max_context = llm->info.context_length;
    }
    return options->weight_budget == NULL ? TRM_OK
                                          : trm_weight_budget_parse(options->weight_budget, &generator->weight_budget);
}

static trm_status open_llm(trm_llm *llm, const char *path, const trm_llm_options *options)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    trm_generator_options generator;
    where.backend = options->backend;
    TRM_TRY(trm_world_open(&where, &llm->world));
    TRM_TRY(options->timeline == NULL ? TRM_OK : trm_timeline_begin(llm->world, options->timeline));
    llm->has_timeline = options->timeline != NULL;
    TRM_TRY(trm_world_all_ok(llm->world, open_parts(llm, path, options, &generator)));
    return trm_generator_create(llm->model, llm->world, &generator, &llm->generator);
}

TRM_CALL(NULL, trm_llm_open, (const char *path, const trm_llm_options *options, trm_llm **llm), (path, options, llm))
{
    trm_llm_options own = TRM_LLM_OPTIONS_INIT;
    if (path == NULL || llm == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot open a language model: path or llm is NULL");
    }
    TRM_TRY(trm_options_read("llm options", options, &own));
    trm_llm *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a language model");
    }
    trm_held_error opened;
    trm_error_hold(open_llm(made, path, &own), &opened);
    if (opened.status != TRM_OK) {
        trm_llm_close(made);
        return trm_error_give_back(&opened);
    }
    *llm = made;
    return TRM_OK;
}

void trm_llm_close(trm_llm *llm)
{
    if (llm == NULL) {
        return;
    }
    if (llm->has_timeline && trm_timeline_end(llm->world) != TRM_OK) {
        TRM_WARN("%s", trm_last_error());
    }
    trm_generator_destroy(llm->generator);
    trm_chat_template_close(llm->chat);
    trm_decoder_destroy(llm->decoder);
    trm_tokenizer_close(llm->tokenizer);
    trm_model_close(llm->model);
    trm_world_close(llm->world);
    free(llm);
}

/* ---- generation ---------------------------------------------------------------------------------------- */

/* What rank 0 asks all ranks for. */
typedef struct order {
    int64_t n_prompt, max_tokens;
    trm_sampling sampling;
} order;

typedef struct output {
    trm_llm *llm;
    trm_text_fn fn;
    void *user;
    trm_status status; /* of this rank */
    bool stopped;      /* by `fn` */
    trm_decoder *decoder;
    trm_reply *reply; /* divides the text of a chat, whose answer is given; else NULL */
    bool answered;    /* there was some answer */
} output;

static bool give(output *out, const char *text, size_t size)
{
    return size == 0 || out->fn == NULL || out->fn(out->user, text, size);
}

/* Gives the answer in the next text of a reply, each message on a line of its own. */
static trm_status give_answer(output *out, const char *text, size_t size, bool at_end, bool *goes_on)
{
    trm_reply_piece piece;
    TRM_TRY(trm_reply_push(out->reply, text, size, at_end));
    while (*goes_on && trm_reply_next(out->reply, &piece)) {
        if (piece.kind == TRM_REPLY_REASONING || piece.size == 0) {
            continue;
        }
        *goes_on = (!piece.begins || !out->answered || give(out, "\n", 1)) && give(out, piece.text, piece.size);
        out->answered = true;
    }
    return TRM_OK;
}

/* Gives decoded text. */
static void give_decoded(output *out, const char *text, size_t size, bool at_end)
{
    bool goes_on = true;
    if (out->reply != NULL) {
        out->status = give_answer(out, text, size, at_end, &goes_on);
    } else {
        goes_on = give(out, text, size);
    }
    out->stopped = !goes_on;
}

/* Rank 0 decides whether to go on, and the others follow. */
static bool take_token(void *user, int32_t request, int32_t token)
{
    output *out = user;
    trm_llm *llm = out->llm;
    unsigned char goes_on = true;
    (void)request; /* there is one only */
    if (llm->has_text) {
        const char *text;
        size_t size;
        out->status = trm_decoder_push(out->decoder, token, &text, &size);
        if (out->status == TRM_OK) {
            give_decoded(out, text, size, false);
        }
        goes_on = out->status == TRM_OK && !out->stopped;
    }
    const trm_status told = trm_world_broadcast(llm->world, &goes_on, sizeof(goes_on), 0);
    out->status = out->status == TRM_OK ? told : out->status;
    return goes_on && told == TRM_OK;
}

/* What the decoder holds back at the end; it can then be used anew. */
static trm_status finish_text(output *out)
{
    const char *text;
    size_t size;
    TRM_TRY(trm_decoder_finish(out->decoder, &text, &size));
    if (!out->stopped && out->status == TRM_OK) {
        give_decoded(out, text, size, true);
    }
    return out->status;
}

/* Runs an order whose prompt every rank has. */
static trm_status run(output *out, const order *asked, const int32_t *prompt)
{
    trm_llm *llm = out->llm;
    trm_request request = {
        .prompt = prompt, .n_prompt = asked->n_prompt, .max_tokens = asked->max_tokens, .sampling = asked->sampling};
    trm_held_error generated;
    trm_error_hold(trm_generate(llm->generator, &request, 1, take_token, out, NULL), &generated);
    const trm_status finished = llm->has_text ? finish_text(out) : TRM_OK;
    TRM_TRY(trm_error_give_back(&generated));
    return trm_world_all_ok(llm->world, out->status == TRM_OK ? finished : out->status);
}

static trm_status encode(const trm_llm *llm, const char *text, size_t size, bool add_special, trm_tokens *tokens)
{
    TRM_TRY(trm_tokenizer_encode(llm->tokenizer, text, size, add_special, tokens));
    if (tokens->count == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the text is empty and the model has no token to begin with");
    }
    return TRM_OK;
}

/* Generates from text of rank 0, which came with status `given`. */
static trm_status continue_text(trm_llm *llm, trm_status given, const char *text, size_t size, bool add_special,
                                const trm_llm_params *params, output *out)
{
    trm_tokens tokens = {0};
    int32_t *received = NULL;
    trm_status status = given;
    if (status == TRM_OK && llm->has_text) {
        status = encode(llm, text, size, add_special, &tokens);
    }
    order asked = {(int64_t)tokens.count, params->max_tokens, params->sampling};
    TRM_TRY_GOTO(status, trm_world_all_ok(llm->world, status), done);
    TRM_TRY_GOTO(status, trm_world_broadcast(llm->world, &asked, sizeof(asked), 0), done);
    int32_t *prompt = tokens.ids;
    if (!llm->has_text) {
        prompt = received = malloc((size_t)asked.n_prompt * sizeof(*received));
        if (received == NULL) {
            status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %lld tokens", (long long)asked.n_prompt);
        }
    }
    TRM_TRY_GOTO(status, trm_world_all_ok(llm->world, status), done);
    TRM_TRY_GOTO(status, trm_world_broadcast(llm->world, prompt, (size_t)asked.n_prompt * sizeof(*prompt), 0), done);
    status = run(out, &asked, prompt);
done:
    free(received);
    trm_tokens_fini(&tokens);
    return status;
}

TRM_CALL(NULL, trm_llm_generate,
         (trm_llm *llm, const char *text, const trm_llm_params *params, trm_text_fn fn, void *user),
         (llm, text, params, fn, user))
{
    trm_llm_params own = TRM_LLM_PARAMS_INIT;
    if (llm == NULL || (text == NULL && llm->has_text)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot generate: llm or text is NULL");
    }
    TRM_TRY(trm_options_read("llm params", params, &own));
    output out = {.llm = llm, .fn = fn, .user = user, .decoder = llm->decoder};
    return continue_text(llm, TRM_OK, text, llm->has_text ? strlen(text) : 0, true, &own, &out);
}

/* ---- chat ---------------------------------------------------------------------------------------------- */

/* The messages as JSON, {"messages": [...]}; release with free. */
static char *write_messages(const trm_llm_message *messages, int32_t n)
{
    char *json = NULL;
    size_t size;
    FILE *out = open_memstream(&json, &size);
    if (out == NULL) {
        return NULL;
    }
    trm_json_writer w;
    trm_json_writer_begin(&w, out);
    trm_json_writer_open(&w, "messages", '[');
    for (int32_t i = 0; i < n; i++) {
        trm_json_writer_open(&w, NULL, '{');
        trm_json_writer_text(&w, "role", messages[i].role);
        trm_json_writer_bytes(&w, "content", messages[i].content, strlen(messages[i].content));
        trm_json_writer_close(&w);
    }
    trm_json_writer_end(&w);
    if (fclose(out) != 0) {
        free(json);
        return NULL;
    }
    return json;
}

static trm_status render(trm_llm *llm, const trm_llm_message *messages, int32_t n, char **text, size_t *size)
{
    for (int32_t i = 0; i < n; i++) {
        if (messages == NULL || messages[i].role == NULL || messages[i].content == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "message %d has no role or no content", i);
        }
    }
    if (llm->chat == NULL) {
        TRM_TRY(trm_chat_template_open(llm->info.path, NULL, &llm->chat));
    }
    char *json = write_messages(messages, n);
    if (json == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of %d messages", n);
    }
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    input.messages = "[]"; /* those of `extra` win */
    input.extra = json;
    const trm_status status = trm_chat_template_render(llm->chat, &input, text, size);
    free(json);
    return status;
}

TRM_CALL(NULL, trm_llm_chat,
         (trm_llm *llm, const trm_llm_message *messages, int32_t n, const trm_llm_params *params, trm_text_fn fn,
          void *user),
         (llm, messages, n, params, fn, user))
{
    trm_llm_params own = TRM_LLM_PARAMS_INIT;
    char *text = NULL;
    size_t size = 0;
    if (llm == NULL || n < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot chat: llm is NULL, or there are %d messages", n);
    }
    TRM_TRY(trm_options_read("llm params", params, &own));
    output out = {.llm = llm, .fn = fn, .user = user, .decoder = llm->decoder};
    trm_status rendered = llm->has_text ? render(llm, messages, n, &text, &size) : TRM_OK;
    if (rendered == TRM_OK && llm->has_text) {
        rendered = trm_reply_create(llm->chat, &out.reply);
    }
    trm_decoder *with_special = NULL;
    if (out.reply != NULL && trm_reply_has_special(out.reply)) {
        rendered = trm_decoder_create(llm->tokenizer, false, &with_special);
        out.decoder = with_special;
    }
    const trm_status status = /* the template writes the special tokens */
        continue_text(llm, rendered, text, size, false, &own, &out);
    trm_decoder_destroy(with_special);
    trm_reply_destroy(out.reply);
    trm_free(text);
    return status;
}
