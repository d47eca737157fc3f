/* `trireme run`: continues prompts and prints the text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/conversation.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/reply.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/job/tokenizer_thread.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/terminal/chat_commands.h"
#include "launcher/cli/terminal/line_reader.h"

#define PROMPT_LIMIT  ((size_t)256 << 20)
#define MAX_SEQUENCES 16

/* A prompt and its continuation. */
typedef struct prompt {
    char *text;
    size_t size;
    trm_tokens tokens;
    reply reply;
} prompt;

typedef struct run_command {
    job job;
    const settings *all;
    tokenizer_thread tokenizer;
    bool chat;
    conversation talk; /* on rank 0, with --chat */
    bool harmony;      /* of the template; on all ranks */
    prompt *prompts;
    int32_t n_prompts, capacity;
    trm_request *requests;    /* [n_prompts] while generating */
    int32_t adapter;          /* 0: none */
    trm_status sink_status;   /* of the first sink that failed */
    trm_generate_stats stats; /* totals of all rounds */
    int64_t n_retries;        /* of messages; each has other random draws */
} run_command;

static trm_status add_prompt(run_command *c, const char *text, size_t size)
{
    if (c->n_prompts == c->capacity) {
        int32_t capacity = c->capacity == 0 ? 8 : 2 * c->capacity;
        prompt *grown = realloc(c->prompts, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d prompts", capacity);
        }
        c->prompts = grown;
        c->capacity = capacity;
    }
    char *copy = malloc(size + 1);
    if (copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a prompt of %zu bytes", size);
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    c->prompts[c->n_prompts++] = (prompt){.text = copy, .size = size};
    return TRM_OK;
}

static void drop_prompts(run_command *c)
{
    for (int32_t i = 0; i < c->n_prompts; i++) {
        free(c->prompts[i].text);
        trm_tokens_fini(&c->prompts[i].tokens);
        reply_fini(&c->prompts[i].reply);
    }
    c->n_prompts = 0;
}

static trm_status add_stdin(run_command *c)
{
    size_t size = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    while (text != NULL) {
        size_t got = fread(text + size, 1, capacity - size, stdin);
        size += got;
        if (got == 0 || size > PROMPT_LIMIT) {
            break;
        }
        if (size == capacity) {
            capacity *= 2;
            char *grown = realloc(text, capacity);
            if (grown == NULL) {
                free(text);
                text = NULL;
            } else {
                text = grown;
            }
        }
    }
    if (text == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for stdin", capacity);
    }
    trm_status status = ferror(stdin) ? trm_fail(TRM_ERROR_IO, "cannot read stdin: %s", strerror(errno))
                        : size > PROMPT_LIMIT
                            ? trm_fail(TRM_ERROR_INVALID_ARGUMENT, "stdin has more than %zu bytes", PROMPT_LIMIT)
                            : add_prompt(c, text, size);
    free(text);
    return status;
}

static trm_status add_file(run_command *c, const char *path)
{
    char *text;
    size_t size;
    TRM_TRY(trm_file_read_stream(path, PROMPT_LIMIT, &text, &size));
    trm_status status = add_prompt(c, text, size);
    free(text);
    return status;
}

/* Number of prompts or files that are "-", which stands for stdin. */
static int32_t count_stdin(const settings *all, setting_id id)
{
    int32_t n = 0;
    for (int32_t i = 0; i < all->list_counts[id]; i++) {
        n += strcmp(all->lists[id][i], "-") == 0;
    }
    return n;
}

/* Collects prompts from options, files and stdin, in this order. Rank 0 only: the files may exist nowhere else. */
static trm_status collect_prompts(run_command *c)
{
    const settings *all = c->all;
    const int32_t n_stdin = count_stdin(all, SETTING_PROMPT) + count_stdin(all, SETTING_FILE);
    if (n_stdin > 1) { /* the second would be empty */
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%d prompts are \"-\" (stdin), expected at most one", n_stdin);
    }
    for (int32_t i = 0; i < all->list_counts[SETTING_PROMPT]; i++) {
        const char *text = all->lists[SETTING_PROMPT][i];
        TRM_TRY(strcmp(text, "-") == 0 ? add_stdin(c) : add_prompt(c, text, strlen(text)));
    }
    for (int32_t i = 0; i < all->list_counts[SETTING_FILE]; i++) {
        const char *path = all->lists[SETTING_FILE][i];
        TRM_TRY(strcmp(path, "-") == 0 ? add_stdin(c) : add_file(c, path));
    }
    if (c->n_prompts == 0 && !settings_flag(all, SETTING_INTERACTIVE) && !c->chat) {
        TRM_TRY(add_stdin(c));
    }
    return TRM_OK;
}

/* Broadcasts the prompts of rank 0. */
static trm_status share_prompts(run_command *c)
{
    int64_t n = c->n_prompts;
    TRM_TRY(trm_world_broadcast(c->job.world, &n, sizeof(n), 0));
    for (int64_t i = 0; i < n; i++) {
        uint64_t size = c->job.is_leader ? c->prompts[i].size : 0;
        TRM_TRY(trm_world_broadcast(c->job.world, &size, sizeof(size), 0));
        if (!c->job.is_leader) {
            char *text = malloc((size_t)size + 1);
            if (text == NULL) {
                TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a prompt of %llu bytes", (unsigned long long)size);
            }
            memset(text, 0, (size_t)size + 1);
            trm_status status = add_prompt(c, text, (size_t)size);
            free(text);
            TRM_TRY(status);
        }
        if (size > 0) {
            TRM_TRY(trm_world_broadcast(c->job.world, c->prompts[i].text, (size_t)size, 0));
        }
    }
    return TRM_OK;
}

/* Whether a sampling setting that is not set is as the model wants it; negative: the model does not say. */
static bool takes_model(const run_command *c, setting_id id, double of_model)
{
    return of_model >= 0 && strcmp(c->all->origins[id], "default") == 0 &&
           !settings_flag(c->all, SETTING_NO_GENERATION_CONFIG);
}

static float sampling_number(const run_command *c, setting_id id, float of_model)
{
    return takes_model(c, id, (double)of_model) ? of_model : (float)settings_number(c->all, id);
}

static trm_sampling find_sampling(const run_command *c, int32_t index)
{
    trm_model_info info;
    trm_model_get_info(c->job.model, &info);
    const trm_model_sampling *model = &info.sampling;
    return (trm_sampling){
        .temperature = sampling_number(c, SETTING_TEMPERATURE, model->temperature),
        .top_k = takes_model(c, SETTING_TOP_K, model->top_k) ? model->top_k
                                                             : (int32_t)settings_integer(c->all, SETTING_TOP_K),
        .top_p = sampling_number(c, SETTING_TOP_P, model->top_p),
        .min_p = sampling_number(c, SETTING_MIN_P, model->min_p),
        .repetition_penalty = sampling_number(c, SETTING_REPETITION_PENALTY, model->repetition_penalty),
        .seed = (uint64_t)settings_integer(c->all, SETTING_SEED) + (uint64_t)index + (uint64_t)c->n_retries};
}

/* Tokenizes every prompt and begins its reply, which goes to stdout if there is only one. */
static trm_status prepare_prompts(run_command *c)
{
    const settings *all = c->all;
    bool stream = c->job.is_leader && c->n_prompts == 1 && !settings_flag(all, SETTING_JSON);
    const int64_t max_tokens = settings_integer(all, SETTING_MAX_TOKENS);
    for (int32_t i = 0; i < c->n_prompts; i++) {
        prompt *p = &c->prompts[i];
        /* a chat template adds the special tokens itself */
        TRM_TRY(trm_tokenizer_encode(c->tokenizer.tokenizer, p->text, p->size, !c->chat, &p->tokens));
        if (p->tokens.count == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "prompt %d is empty and the model has no begin-of-sequence token",
                     i + 1);
        }
        TRM_TRY(reply_init(&p->reply, c->tokenizer.tokenizer, c->harmony, all->lists[SETTING_STOP],
                           all->list_counts[SETTING_STOP], stream ? stdout : NULL,
                           stream && !settings_flag(all, SETTING_QUIET) ? stderr : NULL));
        c->requests[i] = (trm_request){.prompt = p->tokens.ids,
                                       .n_prompt = (int64_t)p->tokens.count,
                                       .max_tokens = max_tokens > 0 ? max_tokens : TRM_NO_TOKENS,
                                       .sampling = find_sampling(c, i),
                                       .ignore_eos = settings_flag(all, SETTING_IGNORE_EOS),
                                       .adapter = c->adapter};
    }
    return TRM_OK;
}

static bool take_token(void *user, int32_t request, int32_t token)
{
    run_command *c = user;
    reply *r = &c->prompts[request].reply;
    job_take_token(&c->job);
    trm_status status = reply_push(r, token);
    if (status != TRM_OK && c->sink_status == TRM_OK) {
        c->sink_status = status;
    }
    return status == TRM_OK && !r->sink.stopped && !line_reader_was_interrupted();
}

static const char *finish_name(const run_command *c, int32_t i)
{
    switch (c->requests[i].finish) {
    case TRM_FINISH_STOP:
        return "stop";
    case TRM_FINISH_LENGTH:
        return "length";
    case TRM_FINISH_CALLBACK:
    case TRM_FINISH_CANCELLED:
    case TRM_FINISH_ERROR:
        return "stop_string";
    case TRM_FINISH_NONE:
        break;
    }
    return "none";
}

static void print_json(const run_command *c)
{
    report r;
    report_begin(&r, stdout);
    report_open(&r, "results", '[');
    for (int32_t i = 0; i < c->n_prompts; i++) {
        size_t size;
        const char *answer = reply_answer(&c->prompts[i].reply, &size);
        const trm_bytes *reasoning = &c->prompts[i].reply.reasoning;
        report_open(&r, NULL, '{');
        report_bytes(&r, "prompt", c->prompts[i].text, c->prompts[i].size);
        report_bytes(&r, "text", answer, size);
        if (reasoning->size > 0) {
            report_bytes(&r, "reasoning", reasoning->data, reasoning->size);
        }
        report_integer(&r, "prompt_tokens", c->requests[i].n_prompt);
        report_integer(&r, "generated_tokens", c->requests[i].n_generated);
        report_text(&r, "finish", finish_name(c, i));
        report_close(&r);
    }
    report_close(&r);
    report_open(&r, "timing", '{');
    report_integer(&r, "ranks", trm_world_size(c->job.world));
    report_number(&r, "load_seconds", c->job.load_seconds);
    report_number(&r, "prefill_seconds", c->stats.prefill_seconds);
    report_number(&r, "decode_seconds", c->stats.decode_seconds);
    report_number(&r, "first_token_seconds", c->stats.first_token_seconds);
    report_integer(&r, "prompt_tokens", c->stats.prompt_tokens);
    report_integer(&r, "generated_tokens", c->stats.generated_tokens);
    report_speculation(&r, &c->stats);
    report_startup(&r, &c->job);
    report_close(&r);
    report_end(&r);
}

static void print_texts(const run_command *c)
{
    for (int32_t i = 0; i < c->n_prompts; i++) {
        if (c->n_prompts > 1) {
            printf("%s[%d]\n", i > 0 ? "\n" : "", i + 1);
            if (settings_flag(c->all, SETTING_ECHO)) {
                fwrite(c->prompts[i].text, 1, c->prompts[i].size, stdout);
            }
            size_t size;
            const char *answer = reply_answer(&c->prompts[i].reply, &size);
            fwrite(answer, 1, size, stdout);
        }
        putchar('\n'); /* a single text was streamed */
    }
    fflush(stdout);
}

/* Prints in one write and a little later, because mpirun forwards stdout separately. */
static void print_summary(const run_command *c)
{
    const trm_generate_stats *s = &c->stats;
    char decode[64] = "", drafted[96] = "";
    if (trm_world_size(c->job.world) > 1) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    if (s->decode_tokens > 0 && s->decode_seconds > 0) {
        snprintf(decode, sizeof(decode), " (decode %s tok/s)",
                 trm_number_text((double)s->decode_tokens / s->decode_seconds, 1).text);
    }
    if (s->drafted_tokens > 0) {
        snprintf(drafted, sizeof(drafted), "; %lld of %lld draft tokens accepted", (long long)s->accepted_tokens,
                 (long long)s->drafted_tokens);
    }
    fprintf(stderr,
            "\n%d rank%s, loaded in %.2f s; prompt: %lld tokens in %.3f s (%s tok/s); generated: %lld tokens in %.3f "
            "s%s%s; first token after %.3f s\n",
            trm_world_size(c->job.world), trm_world_size(c->job.world) == 1 ? "" : "s", c->job.load_seconds,
            (long long)s->prompt_tokens, s->prefill_seconds,
            trm_number_text(s->prefill_seconds > 0 ? (double)s->prompt_tokens / s->prefill_seconds : 0.0, 0).text,
            (long long)s->generated_tokens, s->prefill_seconds + s->decode_seconds, decode, drafted,
            s->first_token_seconds);
}

/* Continues the current prompts. */
static trm_status generate(run_command *c)
{
    trm_status status = trm_world_all_ok(c->job.world, prepare_prompts(c));
    if (status == TRM_OK && c->job.is_leader && c->n_prompts == 1 && settings_flag(c->all, SETTING_ECHO) &&
        !settings_flag(c->all, SETTING_JSON)) {
        fwrite(c->prompts[0].text, 1, c->prompts[0].size, stdout);
    }
    c->stats = (trm_generate_stats){0};
    TRM_TRY(status);
    TRM_TRY(trm_generate(c->job.generator, c->requests, c->n_prompts, take_token, c, &c->stats));
    TRM_TRY(c->sink_status);
    for (int32_t i = 0; i < c->n_prompts; i++) {
        TRM_TRY(reply_finish(&c->prompts[i].reply));
    }
    if (c->job.is_leader) {
        if (settings_flag(c->all, SETTING_JSON)) {
            print_json(c);
        } else {
            print_texts(c);
        }
        if (!settings_flag(c->all, SETTING_QUIET)) {
            print_summary(c);
            if (settings_flag(c->all, SETTING_VERBOSE)) {
                print_startup(&c->job);
            }
        }
    }
    return TRM_OK;
}

/* Makes the prompt of a turn on rank 0: the text, or the conversation with the text as its next user message. */
static trm_status add_turn(run_command *c, const char *text, size_t size)
{
    if (!c->chat) {
        return add_prompt(c, text, size);
    }
    char *rendered = NULL;
    size_t rendered_size = 0;
    TRM_TRY(conversation_say(&c->talk, "user", text, size));
    trm_status status = conversation_prompt(&c->talk, &rendered, &rendered_size);
    if (status == TRM_OK) {
        status = add_prompt(c, rendered, rendered_size);
    }
    trm_free(rendered);
    return status;
}

/* Continues one prompt or message. A message that fails is removed from the conversation. */
static trm_status take_turn(run_command *c, const char *text, size_t size)
{
    drop_prompts(c);
    size_t said = c->talk.count;
    trm_status status = trm_world_all_ok(c->job.world, c->job.is_leader ? add_turn(c, text, size) : TRM_OK);
    if (status == TRM_OK) {
        status = share_prompts(c);
    }
    if (status == TRM_OK) {
        status = generate(c);
    }
    if (status == TRM_OK && c->chat && c->job.is_leader) {
        size_t answer_size;
        const char *answer = reply_answer(&c->prompts[0].reply, &answer_size);
        status = conversation_say(&c->talk, "assistant", answer, answer_size);
    }
    while (status != TRM_OK && c->talk.count > said) {
        conversation_unsay(&c->talk);
    }
    return status;
}

/* Handles the current prompts as messages, one after the other. */
static trm_status take_given_turns(run_command *c)
{
    prompt *given = c->prompts;
    int32_t n = c->n_prompts;
    trm_status status = TRM_OK;
    c->prompts = NULL;
    c->n_prompts = c->capacity = 0;
    for (int32_t i = 0; i < n && status == TRM_OK; i++) {
        status = take_turn(c, given[i].text, given[i].size);
    }
    for (int32_t i = 0; i < n; i++) {
        free(given[i].text);
    }
    free(given);
    return status;
}

/* Reads the next prompt or message on rank 0, after the commands before it. Its length is -1 at the end of input. */
static int64_t read_turn(run_command *c, line_reader *reader, trm_bytes *again, const char **text)
{
    for (;;) {
        size_t size = 0;
        const line_outcome outcome = line_reader_next(reader, text, &size);
        if (outcome == LINE_END) {
            return -1;
        }
        if (outcome == LINE_INTERRUPTED || size == 0) {
            continue;
        }
        const chat_action action = c->chat && reader->terminal ? chat_command(&c->talk, *text, again) : CHAT_SAY;
        if (action == CHAT_EXIT) {
            return -1;
        }
        if (action == CHAT_RETRY) {
            c->n_retries++;
            *text = again->data;
            return (int64_t)again->size;
        }
        if (action == CHAT_SAY) {
            return (int64_t)size;
        }
    }
}

/* Reads lines until the end of input, each a prompt. */
static trm_status interact(run_command *c)
{
    line_reader reader = {0};
    trm_bytes again = {0};
    const char *text = NULL;
    trm_status status = TRM_OK;
    if (c->job.is_leader) {
        line_reader_init(&reader, trm_world_size(c->job.world) == 1); /* several ranks end a reply together or not */
    }
    for (;;) {
        int64_t turn[2] = {0}; /* length of the text, and retries so far */
        if (c->job.is_leader) {
            turn[0] = read_turn(c, &reader, &again, &text);
            turn[1] = c->n_retries;
        }
        status = trm_world_broadcast(c->job.world, turn, sizeof(turn), 0);
        if (status != TRM_OK || turn[0] < 0) {
            break;
        }
        c->n_retries = turn[1];
        status = take_turn(c, text, (size_t)turn[0]);
        if (status != TRM_OK && status != TRM_ERROR_INVALID_ARGUMENT) {
            break;
        }
        if (status != TRM_OK &&
            c->job.is_leader) { /* such as a prompt that is too long: it fails on every rank, and the next may not */
            print_failure(status);
        }
    }
    line_reader_fini(&reader);
    trm_bytes_fini(&again);
    return status;
}

/* Opens the model unless it is open, and starts to open its tokenizer. */
static trm_status open_files(run_command *c)
{
    if (c->job.model == NULL) {
        double began = wall_seconds();
        TRM_TRY(open_model(c->all, c->all->operands[0], &c->job.model));
        c->job.model_seconds = wall_seconds() - began;
    }
    trm_model_info info;
    trm_model_get_info(c->job.model, &info);
    tokenizer_thread_start(&c->tokenizer, info.path);
    return TRM_OK;
}

/* Waits for the tokenizer. */
static trm_status take_tokenizer(run_command *c)
{
    trm_status status = tokenizer_thread_wait(&c->tokenizer);
    c->job.tokenizer_seconds = c->tokenizer.seconds;
    return status;
}

/* Opens the model and the generator. */
static trm_status prepare_run(run_command *c)
{
    const char *name = c->all->operands[0];
    if (names_shape(name)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%s is a named shape, which has no tokenizer; expected a model folder (bench and inspect take shapes)",
                 name);
    }
    c->job.began = wall_seconds();
    TRM_TRY(open_files(c));
    trm_model_info info;
    trm_model_get_info(c->job.model, &info);
    if (atomic_load(&c->tokenizer.is_done)) { /* errors are reported before the weights are loaded */
        TRM_TRY(take_tokenizer(c));
    }
    c->requests = calloc((size_t)c->n_prompts + 1, sizeof(*c->requests));
    if (c->requests == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d requests", c->n_prompts);
    }
    if (c->chat && c->job.is_leader) {
        const char *file = settings_text(c->all, SETTING_CHAT_TEMPLATE);
        TRM_TRY(conversation_open(&c->talk, file != NULL ? file : info.path, settings_text(c->all, SETTING_SYSTEM)));
        c->talk.effort = settings_text(c->all, SETTING_REASONING_EFFORT);
        c->harmony = harmony_is_written(c->talk.chat);
    }
    return TRM_OK;
}

static trm_status run(run_command *c, bool *alike)
{
    const settings *all = c->all;
    *alike = true;
    TRM_TRY(trm_world_all_ok(c->job.world, c->job.is_leader ? collect_prompts(c) : TRM_OK));
    *alike = false;
    TRM_TRY(share_prompts(c));
    *alike = true;
    int64_t sequences = settings_integer(all, SETTING_SEQUENCES);
    if (c->chat) {
        sequences = 1;
    } else if (sequences == 0) {
        sequences = c->n_prompts < 1 ? 1 : c->n_prompts > MAX_SEQUENCES ? MAX_SEQUENCES : c->n_prompts;
    }
    TRM_TRY(trm_world_all_ok(c->job.world, prepare_run(c)));
    TRM_TRY(trm_world_broadcast(c->job.world, &c->harmony, sizeof(c->harmony), 0));
    TRM_TRY(job_open_generator(&c->job, settings_integer(all, SETTING_CONTEXT), (int32_t)sequences));
    if (all->list_counts[SETTING_ADAPTER] > 0) {
        TRM_TRY(trm_generator_load_adapter(c->job.generator, all->lists[SETTING_ADAPTER][0], &c->adapter));
    }
    TRM_TRY(trm_world_all_ok(c->job.world, take_tokenizer(c)));
    trm_status status = TRM_OK;
    bool reads_lines = settings_flag(all, SETTING_INTERACTIVE) || (c->chat && c->n_prompts == 0);
    if (c->n_prompts > 0) {
        status = c->chat ? take_given_turns(c) : generate(c);
        *alike = status == TRM_ERROR_INVALID_ARGUMENT;
    }
    if (status == TRM_OK && reads_lines) {
        status = interact(c);
        *alike = status == TRM_OK;
    }
    return status;
}

/* Opens the model before the world, so that its tokenizer is read while drivers and peers start. On failure the model
 * is NULL, and the error is reported once all ranks can agree on it. */
static trm_model *open_ahead(run_command *c)
{
    const char *name = c->all->operands[0];
    trm_model *model = NULL;
    if (!names_shape(name) && open_model(c->all, name, &model) == TRM_OK) {
        trm_model_info info;
        trm_model_get_info(model, &info);
        tokenizer_thread_start(&c->tokenizer, info.path);
    }
    return model;
}

/* Refuses options of a conversation without --chat. */
static trm_status check_options(const settings *all)
{
    static const setting_id of_chats[] = {SETTING_SYSTEM, SETTING_CHAT_TEMPLATE, SETTING_REASONING_EFFORT};
    TRM_TRY(check_operand(all));
    for (size_t i = 0; i < sizeof(of_chats) / sizeof(of_chats[0]) && !settings_flag(all, SETTING_CHAT); i++) {
        if (settings_is_option(all, of_chats[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s needs --chat", all->origins[of_chats[i]]);
        }
    }
    if (settings_flag(all, SETTING_CHAT) && settings_is_option(all, SETTING_SEQUENCES)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option --sequences is for prompts; --chat is one sequence");
    }
    if (all->list_counts[SETTING_ADAPTER] > 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%d adapters were given, run takes one",
                 all->list_counts[SETTING_ADAPTER]);
    }
    return TRM_OK;
}

int command_run(const settings *all)
{
    trm_status checked = check_options(all);
    if (checked != TRM_OK) {
        return print_failure_once(checked);
    }
    if (names_network(all->operands[0])) {
        return onnx_run_command(all);
    }
    for (int32_t i = 0; i < all->list_counts[SETTING_STOP]; i++) {
        if (all->lists[SETTING_STOP][i][0] == '\0') {
            return print_failure_once(trm_fail(TRM_ERROR_INVALID_ARGUMENT, "stop text %d is empty", i + 1));
        }
    }
    run_command c = {.all = all, .chat = settings_flag(all, SETTING_CHAT)};
    bool alike = true;
    trm_model *model = open_ahead(&c);
    trm_status status = job_open_world(&c.job, all);
    if (status == TRM_OK) {
        c.job.model = model;
        model = NULL;
        status = run(&c, &alike);
    }
    int code = job_close(&c.job, status, alike);
    trm_model_close(model);
    drop_prompts(&c);
    free(c.prompts);
    free(c.requests);
    conversation_close(&c.talk);
    tokenizer_thread_fini(&c.tokenizer);
    return code;
}
