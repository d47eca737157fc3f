/* The vocabulary, and texts followed byte by byte. */
#include "support/byte_grammar.h"

#include <stdio.h>
#include <string.h>

#include "launcher/text/tokenizer/tokenizer.h"
#include "support/support.h"

void test_byte_vocab(trm_tokenizer **tokenizer, trm_grammar_vocab **vocab)
{
    char text[20000];
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "{\"added_tokens\":[{\"id\":256,\"content\":\"<end>\",\"special\":true,"
                                "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],"
                                "\"decoder\":{\"type\":\"ByteFallback\"},\"model\":{\"type\":\"BPE\","
                                "\"byte_fallback\":true,\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\"<0x%02X>\":%d", i > 0 ? "," : "", i, i);
    }
    n += (size_t)snprintf(text + n, sizeof(text) - n, "}}}");
    const int32_t end = 256;
    assert_ok(trm_tokenizer_parse("bytes", text, n, tokenizer));
    assert_ok(trm_grammar_vocab_create(*tokenizer, &end, 1, 300, vocab));
}

static bool accepts(trm_grammar *grammar, const char *text)
{
    trm_grammar_state *state = NULL;
    bool accepted = true;
    assert_ok(trm_grammar_state_create(grammar, &state));
    for (; *text != '\0' && accepted; text++) {
        uint32_t mask[10];
        assert_ok(trm_grammar_state_mask(state, mask));
        assert_ok(trm_grammar_state_accept(state, (unsigned char)*text, &accepted));
        assert_int_equal(accepted, mask[(unsigned char)*text / 32] >> (unsigned char)*text % 32 & 1);
    }
    bool complete = accepted && trm_grammar_state_is_complete(state);
    if (complete) {
        assert_ok(trm_grammar_state_accept(state, 256, &accepted));
        assert_true(accepted);
        assert_true(trm_grammar_state_is_final(state));
    }
    trm_grammar_state_destroy(state);
    return complete;
}

void test_grammar_texts(const trm_grammar_vocab *vocab, trm_grammar_kind kind, const char *grammar_text,
                        const char *const *texts)
{
    trm_grammar *grammar = NULL;
    assert_ok(trm_grammar_compile(vocab, kind, grammar_text, strlen(grammar_text), &grammar));
    for (int expected = 1; expected >= 0; expected--, texts++) {
        for (; *texts != NULL; texts++) {
            if (accepts(grammar, *texts) != (expected == 1)) {
                fail_msg("%s: \"%s\" is %s", grammar_text, *texts, expected == 1 ? "refused" : "accepted");
            }
        }
    }
    trm_grammar_destroy(grammar);
}
