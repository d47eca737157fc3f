/* Any bytes as tokenizer.json: what opens can encode and decode, and the stream gives what decoding gives. */
#include <stdlib.h>
#include <string.h>

#include <trireme/network.h>

#include "fuzz.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/tokenizer.h"

static const char sample[] =
    "Hello  w\xC3\xB6rld! it's 123 ab\n\n<s>\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 e\xCC\x81 \xEF\xAC\x81"
    "\xFF\xC3 \xE2\x96\x81the aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static void check_stream(const trm_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special)
{
    char *text = NULL;
    size_t size = 0, done = 0;
    trm_decoder *decoder = NULL;
    if (trm_tokenizer_decode(tokenizer, ids, count, skip_special, &text, &size) != TRM_OK) {
        return; /* a regex may take too long */
    }
    FUZZ_REQUIRE(trm_utf8_valid_prefix(text, size) == size);
    FUZZ_REQUIRE(trm_decoder_create(tokenizer, skip_special, &decoder) == TRM_OK);
    for (size_t i = 0; i <= count; i++) {
        const char *part;
        size_t length;
        trm_status status =
            i < count ? trm_decoder_push(decoder, ids[i], &part, &length) : trm_decoder_finish(decoder, &part, &length);
        FUZZ_REQUIRE(status == TRM_OK && length <= size - done && memcmp(part, text + done, length) == 0);
        FUZZ_REQUIRE(trm_utf8_valid_prefix(part, length) == length);
        done += length;
    }
    FUZZ_REQUIRE(done == size);
    trm_decoder_destroy(decoder);
    trm_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trm_tokenizer *tokenizer = NULL;
    trm_status status = trm_tokenizer_parse("input", (const char *)data, size, &tokenizer);
    if (status != TRM_OK) {
        FUZZ_REQUIRE(tokenizer == NULL && trm_last_error()[0] != '\0');
        return 0;
    }
    for (int special = 0; special < 2; special++) {
        trm_tokens tokens = {0};
        status = trm_tokenizer_encode(tokenizer, sample, sizeof(sample) - 1, special == 1, &tokens);
        if (status == TRM_OK) {
            check_stream(tokenizer, tokens.ids, tokens.count, special == 1);
        }
        trm_tokens_fini(&tokens);
    }
    int32_t ids[64];
    for (int32_t i = 0; i < 64; i++) {
        ids[i] = i * 7 % 67 - 1; /* also some that no token has */
    }
    check_stream(tokenizer, ids, 64, false);
    trm_tokenizer_close(tokenizer);
    return 0;
}
