/* Replies in the harmony format: what they are read as, whole and in pieces of every size. */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

#include "launcher/text/harmony.h"

#define FINAL "<|channel|>final<|message|>"

/* Reads a text that comes in pieces of `step` bytes. Writes each message as "r:", "c:" or "NAME:" and its text, with
 * ";" after it; a call without arguments has "{}". */
static void read_pieces(const char *text, size_t step, char *found, size_t room)
{
    harmony_reader reader = {.at = 0};
    harmony_piece p;
    const size_t all = strlen(text);
    size_t written = 0;
    for (size_t size = step < all ? step : all;; size = size + step < all ? size + step : all) {
        char grown[2048]; /* what follows is not there yet */
        assert_true(size < sizeof(grown));
        memcpy(grown, text, size);
        memset(grown + size, '<', sizeof(grown) - size);
        while (harmony_next(&reader, grown, size, size == all, &p)) {
            assert_true(p.begin <= p.end && p.end <= size && reader.at <= size);
            assert_true(p.begins || written > 0);
            if (p.begins) {
                written += (size_t)snprintf(found + written, room - written, "%s%.*s:", written > 0 ? ";" : "",
                                            p.kind == HARMONY_CALL ? (int)p.name_size : 1,
                                            p.kind == HARMONY_CALL        ? grown + p.name
                                            : p.kind == HARMONY_REASONING ? "r"
                                                                          : "c");
            }
            written += (size_t)snprintf(found + written, room - written, "%.*s%s", (int)(p.end - p.begin),
                                        grown + p.begin, p.blank ? "{}" : "");
            assert_true(written < room);
        }
        if (size == all) {
            break;
        }
    }
    found[written] = '\0';
}

static void reads_as(const char *text, const char *expected)
{
    char found[2048];
    for (size_t step = strlen(text) + 1; step > 0; step--) {
        read_pieces(text, step, found, sizeof(found));
        assert_string_equal(found, expected);
    }
}

/* The same by the public reader, which keeps the text itself. */
static void pushed_reads_as(const char *template, const char *text, const char *expected)
{
    trm_chat_template *chat;
    const size_t all = strlen(text);
    assert_ok(trm_chat_template_parse("test", template, strlen(template), &chat));
    for (size_t step = all + 1; step > 0; step--) {
        char found[512] = "";
        size_t written = 0, at = 0;
        trm_reply *reply;
        trm_reply_piece p;
        assert_ok(trm_reply_create(chat, &reply));
        assert_int_equal(trm_reply_has_special(reply), strstr(template, FINAL) != NULL);
        do {
            const size_t size = at + step < all ? step : all - at;
            assert_ok(trm_reply_push(reply, text + at, size, at + size == all));
            at += size;
            while (trm_reply_next(reply, &p)) {
                const char *kind = p.kind == TRM_REPLY_REASONING ? "r" : p.kind == TRM_REPLY_ANSWER ? "c" : "";
                assert_int_equal(p.name != NULL, p.kind == TRM_REPLY_CALL && p.begins);
                if (p.begins) {
                    written +=
                        (size_t)snprintf(found + written, sizeof(found) - written, "%s%s%.*s:", written > 0 ? ";" : "",
                                         kind, (int)p.name_size, p.name != NULL ? p.name : "");
                }
                written += (size_t)snprintf(found + written, sizeof(found) - written, "%.*s", (int)p.size, p.text);
            }
        } while (at < all);
        assert_string_equal(found, expected);
        trm_reply_destroy(reply);
    }
    trm_chat_template_close(chat);
}

static void public_reader(void **state)
{
    (void)state;
    pushed_reads_as(FINAL,
                    "<|channel|>analysis<|message|>2 < 3.<|end|><|start|>assistant to=functions.f<|channel|>commentary "
                    "json<|message|>{\"a\":1}<|call|><|start|>assistant" FINAL "Yes, <b>.<|return|>",
                    "r:2 < 3.;f:{\"a\":1};c:Yes, <b>.");
    pushed_reads_as(FINAL, "<|channel|>commentary to=functions.g<|message|><|call|>", "g:{}");
    pushed_reads_as("{{ messages }}", "Yes," FINAL " <b>", "c:Yes," FINAL " <b>");
    pushed_reads_as("{{ messages }}", "", "");
    trm_reply *reply;
    assert_fails(trm_reply_create(NULL, &reply), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_reply_push(NULL, "", 0, true), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    trm_reply_destroy(NULL);
}

static void channels(void **state)
{
    (void)state;
    reads_as("<|channel|>analysis<|message|>Simple: 2 < 3.<|end|><|start|>assistant" FINAL "Yes, <b>.<|return|>",
             "r:Simple: 2 < 3.;c:Yes, <b>.");
    reads_as(FINAL "Yes.", "c:Yes.");
    reads_as(FINAL " a\n\n", "c: a\n\n");
    reads_as("<|channel|>analysis<|message|>a<|end|>\n<|start|>assistant<|channel|>analysis<|message|>b<|end|>",
             "r:a;r:b");
    reads_as("<|channel|>final <|constrain|>json<|message|>{\"a\":1}<|return|>", "c:{\"a\":1}");
    reads_as("<|channel|>analysis<|message|><|end|><|start|>assistant" FINAL "x", "c:x");
    reads_as("", "");
}

static void calls(void **state)
{
    (void)state;
    reads_as("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": \"<|\"}<|call|>",
             "f:{\"a\": \"<|\"}");
    reads_as(" to=functions.get.it<|channel|>commentary json<|message|>{}<|call|>", "get.it:{}");
    reads_as("<|channel|>commentary to=functions.f<|message|><|call|>", "f:{}");
    reads_as("<|channel|>commentary to=functions.f <|constrain|>json<|message|> ", "f: {}");
    reads_as("<|channel|>analysis to=functions.f code<|message|>{}<|call|>", "f:{}");
    reads_as("<|channel|>commentary to=f<|message|>{}<|call|>", "f:{}");
    reads_as("<|channel|>analysis to=python<|message|>1+1<|call|>", "r:1+1");
    reads_as("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
             "<|constrain|>json<|message|>{\"x\":1}<|call|><|start|>assistant to=functions.g<|channel|>commentary"
             "<|message|>{}<|end|>",
             "c:I look.;f:{\"x\":1};g:{}");
    reads_as("<|channel|>commentary to=assistant<|message|>a", "c:a");
}

/* Nothing but marks and headers is lost. */
static void malformed(void **state)
{
    char text[1400], expected[1400];
    (void)state;
    reads_as("Plain text.", "c:Plain text.");
    reads_as(" {\"a\": 1} <|end|>", "c: {\"a\": 1} ");
    reads_as("to be", "c:to be");
    reads_as("to=be", "c:to=be");
    reads_as("<", "c:<");
    reads_as("<|channel|>analy", "");
    reads_as("<|channel|>final<|mess", "c:<|mess");
    reads_as("<|channel|>analysis<|message|>cut <|en", "r:cut <|en");
    reads_as("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": [1", "f:{\"a\": [1");
    reads_as("<|channel|>commentary to=functions.f json", "");
    reads_as("<|channel|>commentary to=functions.f json{\"a\":1}<|call|>", "f:{\"a\":1}");
    reads_as("<|channel|>commentary to=functions.f it is so<|end|>", "c:it is so");
    reads_as("<|channel|>analysis So it is.<|end|><|start|>assistant" FINAL "Yes.", "r:So it is.;c:Yes.");
    reads_as("<|channel|>final So it is.", "c:So it is.");
    reads_as("<|channel|>analysis<|channel|>final<|message|>a", "c:a");
    reads_as("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "r:a;c:b");
    reads_as("<|channel|>analysis<|message|>a<|start|>assistant" FINAL "b<|message|>c", "r:a;c:b<|message|>c");
    reads_as("<|message|>a<|end|>b<|end|>", "c:a;c:b");
    reads_as("<|end|><|return|><|call|><|start|><|start|>user<|message|>Hm?", "c:Hm?");
    reads_as("<|channel|>odd<|message|>a", "c:a");
    memset(text, 'x', sizeof(text)); /* longer than a header may be */
    memcpy(text, "<|channel|>analysis ", 20);
    text[sizeof(text) - 1] = '\0';
    snprintf(expected, sizeof(expected), "r:%s", text + 20);
    reads_as(text, expected);
    memcpy(text, "<|channel|>xxxxxxxxx", 20);
    snprintf(expected, sizeof(expected), "c:%s", text + 11);
    reads_as(text, expected);
    for (size_t i = 0; i + 11 < sizeof(text); i += 11) { /* marks only */
        memcpy(text + i, "<|channel|>", 11);
    }
    read_pieces(text, 7, expected, sizeof(expected));
}

/* Text that cannot be a header is not held back. */
static void plain_text_streams(void **state)
{
    (void)state;
    harmony_reader reader = {.at = 0};
    harmony_piece p;
    assert_true(harmony_next(&reader, " Plain", 6, false, &p));
    assert_int_equal(p.end, 6);
    reader = (harmony_reader){.at = 0};
    assert_false(harmony_next(&reader, "to", 2, false, &p));
    assert_true(harmony_next(&reader, "to ", 3, false, &p));
    assert_int_equal(p.begin, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(channels), cmocka_unit_test(calls), cmocka_unit_test(malformed),
                                       cmocka_unit_test(plain_text_streams), cmocka_unit_test(public_reader)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
