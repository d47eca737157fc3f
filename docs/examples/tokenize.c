/*
 * Text to tokens and back.
 *
 *   tokenize FOLDER_OR_TOKENIZER_JSON TEXT
 */
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: tokenize FOLDER_OR_TOKENIZER_JSON TEXT\n");
        return 2;
    }
    trm_tokenizer *tokenizer = NULL;
    trm_decoder *decoder = NULL;
    trm_tokens tokens = {0};
    char *text = NULL;
    const char *part;
    size_t size;
    trm_status status;
    TRY(trm_tokenizer_open(argv[1], &tokenizer));
    TRY(trm_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), false, &tokens));
    /* One by one, as they come from a model: what each token adds, once it is certain. */
    TRY(trm_decoder_create(tokenizer, true, &decoder));
    for (size_t i = 0; i < tokens.count; i++) {
        TRY(trm_decoder_push(decoder, tokens.ids[i], &part, &size));
        printf("%6d  %-20s  \"%.*s\"\n", (int)tokens.ids[i], trm_tokenizer_token(tokenizer, tokens.ids[i]), (int)size,
               part);
    }
    TRY(trm_decoder_finish(decoder, &part, &size));
    printf("%6s  %-20s  \"%.*s\"\n", "", "(end)", (int)size, part);
    /* And as a whole. */
    TRY(trm_tokenizer_decode(tokenizer, tokens.ids, tokens.count, true, &text, &size));
    printf("%zu of %d tokens: %s\n", tokens.count, (int)trm_tokenizer_vocab_size(tokenizer),
           strcmp(text, argv[2]) == 0 ? "the text comes back" : text);
done:
    if (status != TRM_OK) {
        fprintf(stderr, "tokenize: %s: %s\n", trm_status_name(status), trm_last_error());
    }
    trm_free(text);
    trm_decoder_destroy(decoder);
    trm_tokens_fini(&tokens);
    trm_tokenizer_close(tokenizer);
    return trm_status_exit_code(status);
}
