/*
 * How many JSON schemas compile, whether their grammars tell valid from invalid instances, and how long compiling and
 * masks take: reads lines {"name": ..., "schema": text, "tests": [{"valid": true, "data": text}]} as schemas.py writes
 * them, and prints a line of JSON for each.
 *
 *   bench_schemas [--masks] < LINES
 *
 * Instances are followed byte by byte. With --masks they are followed by the longest tokens of a made-up vocabulary of
 * 128 thousand as well, with a mask before each token.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <trireme/grammar.h>

#include "base/json.h"
#include "base/map.h"
#include "launcher/text/grammar/vocab.h"
#include "launcher/text/tokenizer/tokenizer.h"
#include "support/made_up_tokenizer.h"
#include "support/support.h"

#define LONGEST_LINE ((size_t)16 << 20)

typedef struct bench {
    trm_tokenizer *bytes, *tokenizer; /* of the 256 bytes; made up, or NULL */
    trm_grammar_vocab *byte_vocab, *vocab;
    trm_map tokens; /* bytes to ids */
    uint32_t *mask;
    double *times; /* of masks, in seconds */
    size_t n_times, capacity;
} bench;

/* Processor time, so that other work on the machine does not count. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void make_bytes(bench *b)
{
    char text[20000];
    const int32_t end = 256;
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "{\"decoder\":{\"type\":\"ByteFallback\"},\"model\":{\"type\":\"BPE\","
                                "\"byte_fallback\":true,\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\"<0x%02X>\":%d", i > 0 ? "," : "", i, i);
    }
    n += (size_t)snprintf(text + n, sizeof(text) - n, "}}}");
    assert_ok(trm_tokenizer_parse("bytes", text, n, &b->bytes));
    assert_ok(trm_grammar_vocab_create(b->bytes, &end, 1, 257, &b->byte_vocab));
}

/* Whether a grammar accepts a text, byte by byte; *taken says how many of them it takes. */
static bool accepts(trm_grammar *grammar, const char *text, size_t *taken)
{
    const char *begin = text;
    trm_grammar_state *state = NULL;
    bool accepted = true;
    trm_status status = trm_grammar_state_create(grammar, &state);
    for (; status == TRM_OK && accepted && *text != '\0'; text++) {
        status = trm_grammar_state_accept(state, (unsigned char)*text, &accepted);
    }
    *taken = (size_t)(text - begin) - !accepted;
    accepted = status == TRM_OK && accepted && trm_grammar_state_is_complete(state);
    trm_grammar_state_destroy(state);
    return accepted;
}

static void add_time(bench *b, double time)
{
    if (b->n_times == b->capacity) {
        b->capacity = b->capacity == 0 ? 4096 : 2 * b->capacity;
        b->times = realloc(b->times, b->capacity * sizeof(*b->times));
        assert_non_null(b->times);
    }
    b->times[b->n_times++] = time;
}

/* The longest token at the begin of a text. */
static int32_t longest_token(const bench *b, const char *text, size_t *size)
{
    uint32_t token = (unsigned char)text[0];
    const size_t most = strlen(text) < 24 ? strlen(text) : 24;
    for (*size = most; *size > 1 && !trm_map_find(&b->tokens, text, *size, &token); --*size) {
    }
    return (int32_t)token;
}

/* Follows a text token by token with masks. */
static void follow(bench *b, trm_grammar *grammar, const char *text)
{
    trm_grammar_state *state = NULL;
    bool accepted = true;
    trm_status status = trm_grammar_state_create(grammar, &state);
    while (status == TRM_OK && accepted && *text != '\0') {
        size_t size;
        const int32_t token = longest_token(b, text, &size);
        const double begin = seconds();
        status = trm_grammar_state_mask(state, b->mask);
        add_time(b, seconds() - begin);
        status = status == TRM_OK ? trm_grammar_state_accept(state, token, &accepted) : status;
        text += size;
    }
    trm_grammar_state_destroy(state);
}

static void make_tokens(bench *b)
{
    const int32_t size = TEST_MADE_UP_TOKENS, end = size - 1;
    b->tokenizer = test_made_up_tokenizer();
    assert_ok(trm_grammar_vocab_create(b->tokenizer, &end, 1, size, &b->vocab));
    b->mask = calloc((size_t)size / 32 + 1, sizeof(*b->mask));
    assert_non_null(b->mask);
    for (int32_t id = 256; id < end; id++) {
        bool existing;
        if (b->vocab->bytes[id] != NULL) {
            assert_ok(trm_map_add(&b->tokens, (const char *)b->vocab->bytes[id], b->vocab->lengths[id], (uint32_t)id,
                                  &existing));
        }
    }
}

static void print_text(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\') {
            printf("\\u%04x", (unsigned char)*text);
        } else {
            putchar(*text);
        }
    }
    putchar('"');
}

static void run_schema(bench *b, const trm_json *line)
{
    const char *schema = trm_json_string(trm_json_get(line, "schema"));
    const trm_json *tests = trm_json_get(line, "tests");
    trm_grammar *grammar = NULL, *of_tokens = NULL;
    assert_non_null(schema);
    const double begin = seconds();
    trm_status status = trm_grammar_compile(b->byte_vocab, TRM_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &grammar);
    printf("{\"name\": ");
    print_text(trm_json_string(trm_json_get(line, "name")));
    printf(", \"compile_ms\": %.3f", 1e3 * (seconds() - begin));
    if (status != TRM_OK) {
        printf(", \"error\": ");
        print_text(trm_last_error());
    }
    if (status == TRM_OK && b->tokenizer != NULL) {
        assert_ok(trm_grammar_compile(b->vocab, TRM_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &of_tokens));
    }
    printf(", \"tests\": [");
    for (const trm_json *test = trm_json_first(tests); test != NULL; test = trm_json_next(test)) {
        const char *data = trm_json_string(trm_json_get(test, "data"));
        size_t taken = 0;
        const bool accepted = status == TRM_OK && accepts(grammar, data, &taken);
        printf("%s{\"accepted\": %s, \"taken\": %zu}", test == trm_json_first(tests) ? "" : ", ",
               accepted ? "true" : "false", taken);
        if (of_tokens != NULL && accepted) {
            follow(b, of_tokens, data);
        }
    }
    printf("]}\n");
    trm_grammar_destroy(grammar);
    trm_grammar_destroy(of_tokens);
}

static int by_time(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    bench b = {0};
    char *line = malloc(LONGEST_LINE);
    assert_non_null(line);
    make_bytes(&b);
    if (argc > 1 && strcmp(argv[1], "--masks") == 0) {
        make_tokens(&b);
    }
    while (fgets(line, (int)LONGEST_LINE, stdin) != NULL) {
        trm_json_document *document = NULL;
        assert_ok(trm_json_parse("line", line, strlen(line), &document));
        run_schema(&b, trm_json_root(document));
        trm_json_close(document);
        fflush(stdout);
    }
    if (b.n_times > 0) {
        qsort(b.times, b.n_times, sizeof(*b.times), by_time);
        printf("{\"masks\": %zu, \"median_us\": %.1f, \"p99_us\": %.1f, \"longest_us\": %.1f}\n", b.n_times,
               1e6 * b.times[b.n_times / 2], 1e6 * b.times[b.n_times * 99 / 100], 1e6 * b.times[b.n_times - 1]);
    }
    free(line);
    free(b.mask);
    free(b.times);
    trm_map_fini(&b.tokens);
    trm_grammar_vocab_destroy(b.vocab);
    trm_grammar_vocab_destroy(b.byte_vocab);
    trm_tokenizer_close(b.tokenizer);
    trm_tokenizer_close(b.bytes);
    return 0;
}
