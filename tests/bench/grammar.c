/*
 * How long masks of grammars take over a vocabulary of the size of Llama 3's: 128 thousand tokens made up of words,
 * numbers, signs and characters of two and three bytes. No GPU is needed.
 *
 *   bench_grammar [TOKENIZER]
 *
 * For each grammar it writes a text token by token and prints the time to compile, the time of masks met for the first
 * time (median, 99th percentile, longest) and of all masks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <trireme/grammar.h>

#include "launcher/text/tokenizer/tokenizer.h"
#include "support/made_up_tokenizer.h"
#include "support/support.h"

#define VOCAB      TEST_MADE_UP_TOKENS
#define MOST_MASKS 4096

/* Processor time, so that other work on the machine does not count. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first token that goes on with the wanted text; any allowed one if none does. */
static int32_t next_token(const trm_tokenizer *tokenizer, const uint32_t *mask, const char *want, size_t *taken)
{
    int32_t best = -1;
    *taken = 0;
    for (int32_t id = 0; id < VOCAB - 1; id++) {
        char *text = NULL;
        size_t size = 0;
        const char *token = trm_tokenizer_token(tokenizer, id);
        if ((mask[id / 32] >> id % 32 & 1) == 0 || token == NULL ||
            (token[0] != want[0] && (unsigned char)token[0] < 0x80)) {
            continue;
        }
        assert_ok(trm_tokenizer_decode(tokenizer, &id, 1, false, &text, &size));
        if (size > *taken && strncmp(text, want, size) == 0) {
            best = id;
            *taken = size;
        }
        free(text);
    }
    return best;
}

static void measure(const trm_grammar_vocab *vocab, const trm_tokenizer *tokenizer, const char *name,
                    trm_grammar_kind kind, const char *grammar_text, const char *want)
{
    static double times[MOST_MASKS];
    static uint32_t mask[VOCAB / 32];
    trm_grammar *grammar = NULL;
    trm_grammar_state *state = NULL;
    double begin = seconds(), sum = 0;
    assert_ok(trm_grammar_compile(vocab, kind, grammar_text, strlen(grammar_text), &grammar));
    double compiled = seconds() - begin;
    assert_ok(trm_grammar_state_create(grammar, &state));
    size_t n = 0;
    for (size_t at = 0, taken; want[at] != '\0' && n < MOST_MASKS; at += taken) {
        bool accepted = false;
        begin = seconds();
        assert_ok(trm_grammar_state_mask(state, mask));
        times[n] = seconds() - begin;
        sum += times[n++];
        int32_t token = next_token(tokenizer, mask, want + at, &taken);
        assert_true(token >= 0);
        assert_ok(trm_grammar_state_accept(state, token, &accepted));
        assert_true(accepted);
    }
    qsort(times, n, sizeof(*times), by_time);
    printf("%-28s compile %7.3f ms  masks %4zu  mean %6.1f us  median %6.1f us  p99 %6.1f us  longest %6.1f us\n", name,
           1e3 * compiled, n, 1e6 * sum / (double)n, 1e6 * times[n / 2], 1e6 * times[n * 99 / 100], 1e6 * times[n - 1]);
    trm_grammar_state_destroy(state);
    trm_grammar_destroy(grammar);
}

int main(int argc, char **argv)
{
    trm_tokenizer *tokenizer = NULL;
    trm_grammar_vocab *vocab = NULL;
    if (argc > 1) {
        assert_ok(trm_tokenizer_open(argv[1], &tokenizer));
    } else {
        tokenizer = test_made_up_tokenizer();
    }
    const int32_t end = VOCAB - 1;
    double begin = seconds();
    assert_ok(trm_grammar_vocab_create(tokenizer, &end, 1, VOCAB, &vocab));
    printf("vocabulary of %d tokens: %.1f ms\n", VOCAB, 1e3 * (seconds() - begin));
    measure(vocab, tokenizer, "any JSON", TRM_GRAMMAR_JSON, "",
            "{\"name\": \"the other one\", \"list\": [1, 2.5, true, {\"deep\": [[\"and so on\"]]}], \"note\": "
            "\"\\u00e9 \\n end\"}");
    measure(vocab, tokenizer, "schema", TRM_GRAMMAR_JSON_SCHEMA,
            "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},"
            "\"tags\":{\"type\":"
            "\"array\",\"items\":{\"type\":\"string\"}},\"address\":{\"type\":\"object\",\"properties\":{\"street\":{"
            "\"type\":"
            "\"string\"},\"city\":{\"type\":\"string\"}},\"required\":[\"street\",\"city\"]}},\"required\":[\"name\","
            "\"age\","
            "\"tags\",\"address\"]}",
            "{\"name\": \"Anna Karenina\", \"age\": 28, \"tags\": [\"one\", \"two\", \"and three\"], \"address\": "
            "{\"street\": "
            "\"on the road\", \"city\": \"Tver\"}}");
    measure(vocab, tokenizer, "schema with maxLength 200", TRM_GRAMMAR_JSON_SCHEMA,
            "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":200}},\"required\":[\"s\"]}",
            "{\"s\": \"there is one thing to be said about the other one and it is not that hard to say in the end\"}");
    measure(vocab, tokenizer, "regular expression", TRM_GRAMMAR_REGEX, "[A-Z][a-z]+( [a-z]+)*\\.",
            "The other one is the one to be.");
    measure(vocab, tokenizer, "huge automaton", TRM_GRAMMAR_REGEX, "([a-z ]*a[a-z ]{40}|[a-z ]*b[a-z ]{15})",
            "and a banana is a banana but not a cabbage and a bat is a bat as a rat is a rat");
    measure(vocab, tokenizer, "pattern and maxLength", TRM_GRAMMAR_JSON_SCHEMA,
            "{\"type\":\"string\",\"pattern\":\"^[a-z ]+(, [a-z ]+)*$\",\"maxLength\":200}",
            "\"there is one, and another one, and it is not that hard to say in the end\"");
    measure(vocab, tokenizer, "EBNF", TRM_GRAMMAR_EBNF,
            "root ::= term ([-+*/] term)*\nterm ::= \" \"? ([0-9]+ | \"(\" root \")\") \" \"?",
            "1 + (22 * (333 - 4)) / ((5)) + 6");
    trm_grammar_vocab_destroy(vocab);
    trm_tokenizer_close(tokenizer);
    return 0;
}
