/*
 * Encodes and decodes texts for tests/goldens/tokenizers/compare.py.
 *
 * tokenize_main TOKENIZER < TEXTS: TEXTS is a row of 4-byte little-endian sizes, each followed by that number of bytes.
 * For each text come five lines: ids without and with special tokens, and in hexadecimal the text of the latter with
 * and without special tokens, and whether the streaming decoder agrees. A line "error ..." stands for a failed call.
 * tokenize_main --time TOKENIZER < TEXT prints how fast the text is encoded and decoded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <trireme/network.h>
#include <trireme/tokenizer.h>

static void print_ids(const trm_tokens *tokens)
{
    printf("ids");
    for (size_t i = 0; i < tokens->count; i++) {
        printf(" %d", (int)tokens->ids[i]);
    }
    printf("\n");
}

static int print_error(void)
{
    return printf("error %s\n", trm_last_error());
}

static void print_text(const trm_tokenizer *tokenizer, const trm_tokens *tokens, bool skip)
{
    char *text;
    size_t size;
    if (trm_tokenizer_decode(tokenizer, tokens->ids, tokens->count, skip, &text, &size) != TRM_OK) {
        print_error();
        return;
    }
    printf("text ");
    for (size_t i = 0; i < size; i++) {
        printf("%02x", (unsigned char)text[i]);
    }
    printf("\n");
    trm_free(text);
}

static bool stream_agrees(const trm_tokenizer *tokenizer, const trm_tokens *tokens)
{
    char *whole;
    size_t size, done = 0, length;
    trm_decoder *decoder;
    const char *part;
    if (trm_tokenizer_decode(tokenizer, tokens->ids, tokens->count, true, &whole, &size) != TRM_OK ||
        trm_decoder_create(tokenizer, true, &decoder) != TRM_OK) {
        return false;
    }
    bool same = true;
    for (size_t i = 0; i <= tokens->count && same; i++) {
        same = (i < tokens->count ? trm_decoder_push(decoder, tokens->ids[i], &part, &length)
                                  : trm_decoder_finish(decoder, &part, &length)) == TRM_OK &&
               length <= size - done && memcmp(whole + done, part, length) == 0;
        done += length;
    }
    trm_decoder_destroy(decoder);
    trm_free(whole);
    return same && done == size;
}

static void process(const trm_tokenizer *tokenizer, const char *text, size_t size)
{
    trm_tokens plain = {0}, tokens = {0};
    if (trm_tokenizer_encode(tokenizer, text, size, false, &plain) != TRM_OK ||
        trm_tokenizer_encode(tokenizer, text, size, true, &tokens) != TRM_OK) {
        print_error();
        trm_tokens_fini(&plain);
        return;
    }
    print_ids(&plain);
    print_ids(&tokens);
    print_text(tokenizer, &tokens, false);
    print_text(tokenizer, &tokens, true);
    printf("stream %s\n", stream_agrees(tokenizer, &tokens) ? "same" : "differs");
    trm_tokens_fini(&plain);
    trm_tokens_fini(&tokens);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int measure(const char *path)
{
    static char text[64 << 20];
    size_t size = fread(text, 1, sizeof(text), stdin), decoded;
    trm_tokenizer *tokenizer;
    trm_tokens tokens;
    char *back;
    double start = seconds();
    if (trm_tokenizer_open(path, &tokenizer) != TRM_OK) {
        return print_error(), 1;
    }
    double opened = seconds();
    if (trm_tokenizer_encode(tokenizer, text, size, false, &tokens) != TRM_OK) {
        return print_error(), 1;
    }
    double encoded = seconds();
    if (trm_tokenizer_decode(tokenizer, tokens.ids, tokens.count, false, &back, &decoded) != TRM_OK) {
        return print_error(), 1;
    }
    double end = seconds();
    printf("opened in %.3f s; %zu bytes to %zu tokens in %.3f s, %.1f MB/s; back in %.3f s\n", opened - start, size,
           tokens.count, encoded - opened, (double)size * 1e-6 / (encoded - opened), end - encoded);
    trm_free(back);
    trm_tokens_fini(&tokens);
    trm_tokenizer_close(tokenizer);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--time") == 0) {
        return measure(argv[2]);
    }
    if (argc != 2) {
        fprintf(stderr, "usage: tokenize_main [--time] TOKENIZER < TEXTS\n");
        return 2;
    }
    trm_tokenizer *tokenizer;
    if (trm_tokenizer_open(argv[1], &tokenizer) != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        return 1;
    }
    unsigned char header[4];
    while (fread(header, 1, 4, stdin) == 4) {
        size_t size = (size_t)header[0] | (size_t)header[1] << 8 | (size_t)header[2] << 16 | (size_t)header[3] << 24;
        char *text = malloc(size + 1);
        if (text == NULL || fread(text, 1, size, stdin) != size) {
            return 2;
        }
        process(tokenizer, text, size);
        free(text);
    }
    trm_tokenizer_close(tokenizer);
    return 0;
}
