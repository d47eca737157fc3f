/* Makes up tokens. */
#include "support/made_up_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "launcher/text/tokenizer/byte_level.h"
#include "launcher/text/tokenizer/tokenizer.h"
#include "support/support.h"

/* One made-up token as bytes. */
static void make_token(uint64_t *seed, char *text, size_t capacity)
{
    static const char *const parts[] = {"th", "er", "on", "an", "re", "he", "in",  "ed", "nd", "ha", "at",  "en",
                                        "es", "of", "or", "nt", "ea", "ti", "to",  "it", "st", "io", "le",  "is",
                                        "ou", "ar", "as", "de", "rt", "ve", "ing", "s",  "a",  "e",  "pro", "con"};
    static const char signs[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \n\t";
    int64_t kind = test_random_below(seed, 100);
    size_t n = 0;
    if (kind < 65) {
        n += (size_t)snprintf(text, capacity, "%s", kind < 40 ? " " : "");
        for (int64_t i = test_random_below(seed, 4); i >= 0; i--) {
            n += (size_t)snprintf(text + n, capacity - n, "%s", parts[test_random_below(seed, 36)]);
        }
        text[n - 1 - (size_t)test_random_below(seed, 2)] ^= kind % 10 == 0 ? 0x20 : 0;
    } else if (kind < 68) {
        snprintf(text, capacity, "%lld", (long long)test_random_below(seed, 1000));
    } else if (kind < 76) {
        for (int64_t i = test_random_below(seed, 4); i >= 0; i--) {
            text[n++] = signs[test_random_below(seed, sizeof(signs) - 1)];
        }
        text[n] = '\0';
    } else {
        for (int64_t i = test_random_below(seed, 3); i >= 0; i--) {
            int64_t c = kind < 84 ? 0x400 + test_random_below(seed, 0x100) : 0x4e00 + test_random_below(seed, 0x4000);
            n += kind < 84
                     ? (size_t)snprintf(text + n, capacity - n, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 63)))
                     : (size_t)snprintf(text + n, capacity - n, "%c%c%c", (int)(0xe0 | c >> 12),
                                        (int)(0x80 | (c >> 6 & 63)), (int)(0x80 | (c & 63)));
        }
    }
}

static void append_entry(trm_bytes *out, const trm_bytes *stand_ins, int id)
{
    char number[32];
    assert_ok(trm_bytes_append(out, id > 0 ? ",\"" : "\"", id > 0 ? 2 : 1));
    for (size_t i = 0; i < stand_ins->size; i++) {
        bool escaped = stand_ins->data[i] == '"' || stand_ins->data[i] == '\\';
        assert_ok(trm_bytes_append(out, "\\", escaped ? 1 : 0));
        assert_ok(trm_bytes_append(out, stand_ins->data + i, 1));
    }
    snprintf(number, sizeof(number), "\":%d", id);
    assert_ok(trm_bytes_append(out, number, strlen(number)));
}

trm_tokenizer *test_made_up_tokenizer(void)
{
    static const char head[] =
        "{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{";
    trm_bytes json = {0}, stand_ins = {0};
    trm_map seen = {0};
    trm_tokenizer *tokenizer = NULL;
    uint64_t seed = 1;
    assert_ok(trm_bytes_append(&json, head, strlen(head)));
    char *keys = calloc(TEST_MADE_UP_TOKENS, 64);
    assert_non_null(keys);
    for (int id = 0; id < TEST_MADE_UP_TOKENS - 1;) {
        char *text = keys + 64 * (size_t)id;
        bool existing = false;
        size_t size = 1;
        if (id < 256) {
            text[0] = (char)id;
        } else {
            make_token(&seed, text, 64);
            size = strlen(text);
        }
        assert_ok(trm_map_add(&seen, text, size, 0, &existing));
        if (existing) {
            continue;
        }
        stand_ins.size = 0;
        assert_ok(trm_byte_level_append(&stand_ins, text, size));
        append_entry(&json, &stand_ins, id++);
    }
    assert_ok(trm_bytes_append(&json, ",\"<end>\":128255}}}", 18));
    assert_ok(trm_tokenizer_parse("made up", json.data, json.size, &tokenizer));
    trm_map_fini(&seen);
    trm_bytes_fini(&json);
    trm_bytes_fini(&stand_ins);
    free(keys);
    return tokenizer;
}
