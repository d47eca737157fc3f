/* Replies of a chat: what is printed, and what is kept of them, on the shipped model's tokenizer. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cli/job/reply.h"

#define MODEL TRM_SOURCE_DIR "/configs/models/kjv-7m"

static trm_tokenizer *tokenizer;

static int open_tokenizer(void **state)
{
    (void)state;
    return trm_tokenizer_open(MODEL, &tokenizer) == TRM_OK ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    trm_tokenizer_close(tokenizer);
    return 0;
}

/* The answer and the reasoning of a text, and what is printed of both. */
static void replies(const char *text, bool harmony, const char *stop, const char *answer, const char *reasoning,
                    const char *talked)
{
    char *printed = NULL, *talk = NULL;
    size_t printed_size, talk_size, size;
    FILE *out = open_memstream(&printed, &printed_size), *talks = open_memstream(&talk, &talk_size);
    trm_tokens tokens = {0};
    reply r;
    assert_int_equal(trm_tokenizer_encode(tokenizer, text, strlen(text), false, &tokens), TRM_OK);
    assert_int_equal(reply_init(&r, tokenizer, harmony, &stop, stop != NULL, out, talks), TRM_OK);
    for (size_t i = 0; i < tokens.count && !r.sink.stopped; i++) {
        assert_int_equal(reply_push(&r, tokens.ids[i]), TRM_OK);
    }
    assert_int_equal(reply_finish(&r), TRM_OK);
    fclose(out);
    fclose(talks);
    const char *found = reply_answer(&r, &size);
    assert_int_equal(size, strlen(answer));
    assert_memory_equal(found, answer, size);
    assert_string_equal(printed, answer);
    assert_int_equal(r.reasoning.size, strlen(reasoning));
    assert_memory_equal(r.reasoning.size > 0 ? r.reasoning.data : "", reasoning, r.reasoning.size);
    assert_string_equal(talk, talked);
    reply_fini(&r);
    trm_tokens_fini(&tokens);
    free(printed);
    free(talk);
}

#define THOUGHT "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant"
#define FINAL   "<|channel|>final<|message|>It is so."

static void harmony_is_split(void **state)
{
    (void)state;
    replies(THOUGHT FINAL "<|return|>", true, NULL, "It is so.", "Let me see.", "Let me see.\n\n");
    replies(THOUGHT THOUGHT FINAL, true, NULL, "It is so.", "Let me see.\nLet me see.", "Let me see.\nLet me see.\n\n");
    replies(THOUGHT, true, NULL, "", "Let me see.", "Let me see.");
    replies(FINAL, true, NULL, "It is so.", "", "");
    replies("It is so.", true, NULL, "It is so.", "", "");
    replies(THOUGHT FINAL, true, " so", "It is", "Let me see.", "Let me see.\n\n");
    replies("<|channel|>commentary to=functions.f<|message|>{}<|call|>", true, NULL, "{}", "", "");
}

static void other_text_is_the_answer(void **state)
{
    (void)state;
    replies(FINAL, false, NULL, FINAL, "", "");
    replies(FINAL, false, " so", "<|channel|>final<|message|>It is", "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(harmony_is_split), cmocka_unit_test(other_text_is_the_answer)};
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
