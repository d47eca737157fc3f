/*
 * Random texts that follow grammars, for tests/goldens/grammars/check.py: reads a JSON array of {"kind", "text"} from
 * stdin and prints COUNT texts for each, as JSON lines of strings, or {"error": message}.
 *
 *   grammar_main TOKENIZER COUNT SEED < GRAMMARS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/grammar.h>
#include <trireme/network.h>

#include "base/json.h"
#include "support/grammar_walk.h"

static void print_string(const char *text, size_t size)
{
    putchar('"');
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\') {
            printf("\\u%04x", c);
        } else {
            putchar(c);
        }
    }
    putchar('"');
}

static void run_case(const trm_grammar_vocab *vocab, const trm_tokenizer *tokenizer, const trm_json *item, int count,
                     uint64_t *seed)
{
    int64_t kind = 0;
    const char *text = trm_json_string(trm_json_get(item, "text"));
    trm_grammar *grammar = NULL;
    (void)trm_json_integer(trm_json_get(item, "kind"), &kind);
    trm_status status = trm_grammar_compile(vocab, (trm_grammar_kind)kind, text, strlen(text), &grammar);
    for (int i = 0; i < count && status == TRM_OK; i++) {
        char *walked = NULL;
        size_t size = 0;
        status = test_grammar_walk(grammar, tokenizer, trm_tokenizer_vocab_size(tokenizer), seed, &walked, &size);
        if (status == TRM_OK && walked != NULL) {
            print_string(walked, size);
            putchar('\n');
        }
        free(walked);
    }
    if (status != TRM_OK) {
        printf("{\"error\": ");
        print_string(trm_last_error(), strlen(trm_last_error()));
        printf("}\n");
    }
    printf("---\n");
    trm_grammar_destroy(grammar);
}

int main(int argc, char **argv)
{
    size_t capacity = (size_t)64 << 20;
    char *text = malloc(capacity);
    trm_tokenizer *tokenizer = NULL;
    trm_grammar_vocab *vocab = NULL;
    trm_json_document *document = NULL;
    if (argc != 4 || text == NULL) {
        return 2;
    }
    size_t size = fread(text, 1, capacity, stdin);
    uint64_t seed = strtoull(argv[3], NULL, 10);
    trm_status status = trm_tokenizer_open(argv[1], &tokenizer);
    if (status == TRM_OK) {
        int32_t end = trm_tokenizer_vocab_size(tokenizer) - 1;
        status = trm_grammar_vocab_create(tokenizer, &end, 1, 0, &vocab);
    }
    if (status == TRM_OK) {
        status = trm_json_parse("stdin", text, size, &document);
    }
    if (status != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        return 1;
    }
    const trm_json *root = trm_json_root(document);
    for (const trm_json *item = trm_json_first(root); item != NULL; item = trm_json_next(item)) {
        run_case(vocab, tokenizer, item, atoi(argv[2]), &seed);
    }
    trm_json_close(document);
    trm_grammar_vocab_destroy(vocab);
    trm_tokenizer_close(tokenizer);
    free(text);
    return 0;
}
