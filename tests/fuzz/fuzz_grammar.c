/* Any bytes as a grammar, its kind by the first of them: what compiles can be followed within its masks, which never
 * come to a dead end over a vocabulary that has all bytes. */
#include <stdio.h>
#include <string.h>

#include <trireme/grammar.h>

#include "fuzz.h"
#include "launcher/text/tokenizer/tokenizer.h"

static trm_tokenizer *tokenizer;
static trm_grammar_vocab *vocab;

static void make_vocab(void)
{
    char text[20000];
    const int32_t end = 260;
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "{\"decoder\":{\"type\":\"ByteFallback\"},\"model\":{\"type\":\"BPE\","
                                "\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"\\\"a\":256,"
                                "\"ab\":257,\"true\":258,\"}]\":259");
    for (int i = 0; i < 256; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"<0x%02X>\":%d", i, i);
    }
    n += (size_t)snprintf(text + n, sizeof(text) - n, "}}}");
    FUZZ_REQUIRE(trm_tokenizer_parse("bytes", text, n, &tokenizer) == TRM_OK);
    FUZZ_REQUIRE(trm_grammar_vocab_create(tokenizer, &end, 1, 261, &vocab) == TRM_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1 << 14) {
        return 0;
    }
    if (vocab == NULL) {
        make_vocab();
    }
    trm_grammar *grammar = NULL;
    trm_grammar_state *state = NULL;
    trm_grammar_kind kind = (trm_grammar_kind)(data[0] % 5 + 1);
    trm_status status = trm_grammar_compile(vocab, kind, (const char *)data + 1, size - 1, &grammar);
    if (status != TRM_OK) {
        FUZZ_REQUIRE(grammar == NULL && trm_last_error()[0] != '\0');
        FUZZ_REQUIRE(status == TRM_ERROR_INVALID_ARGUMENT || status == TRM_ERROR_UNSUPPORTED);
        return 0;
    }
    uint32_t random = (uint32_t)size, mask[9];
    status = trm_grammar_state_create(grammar, &state);
    for (int step = 0; step < 40 && status == TRM_OK && !trm_grammar_state_is_final(state); step++) {
        int32_t chosen = -1;
        uint32_t seen = 0;
        status = trm_grammar_state_mask(state, mask);
        if (status != TRM_OK) {
            break;
        }
        for (int32_t id = 0; id < 260; id++) {
            random = random * 1664525u + 1013904223u;
            if ((mask[id / 32] >> id % 32 & 1) != 0 && (random >> 8) % ++seen == 0) {
                chosen = id;
            }
        }
        bool accepted = false;
        FUZZ_REQUIRE(chosen >= 0 || trm_grammar_state_is_complete(state));
        if (chosen < 0) {
            break;
        }
        status = trm_grammar_state_accept(state, chosen, &accepted);
        FUZZ_REQUIRE(status != TRM_OK || accepted);
    }
    FUZZ_REQUIRE(status == TRM_OK || status == TRM_ERROR_INVALID_ARGUMENT);
    trm_grammar_state_destroy(state);
    trm_grammar_destroy(grammar);
    return 0;
}
