/* Any bytes as JSON: what is accepted can be walked, and printed it is accepted again. */
#include <cjson/cJSON.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "fuzz.h"

static void walk(const trm_json_document *document, const trm_json *value, int depth)
{
    int64_t integer = 0;
    double number = 0;
    bool truth = false;
    const char *string = NULL;
    FUZZ_REQUIRE(depth <= 64);
    FUZZ_REQUIRE(!trm_json_integer(value, &integer) || (double)integer == trm_json_number(value, 0.5));
    size_t count = 0;
    for (const trm_json *child = trm_json_first(value); child != NULL; child = trm_json_next(child)) {
        count++;
        if (trm_json_is_object(value)) {
            const char *key = trm_json_key(child);
            FUZZ_REQUIRE(key != NULL);
            (void)trm_json_member_integer(document, value, key, true, &integer);
            (void)trm_json_member_number(document, value, key, true, &number);
            (void)trm_json_member_bool(document, value, key, true, &truth);
            (void)trm_json_member_string(document, value, key, true, &string);
        }
        if (count < 100) {
            walk(document, child, depth + 1);
        }
    }
    FUZZ_REQUIRE(count == trm_json_count(value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trm_json_document *document = NULL;
    trm_status status = trm_json_parse("input", (const char *)data, size, &document);
    if (status != TRM_OK) {
        FUZZ_REQUIRE(status == TRM_ERROR_INVALID_MODEL && document == NULL);
        FUZZ_REQUIRE(strncmp(trm_last_error(), "input: line ", 12) == 0);
        return 0;
    }
    walk(document, trm_json_root(document), 0);
    char *printed = cJSON_PrintUnformatted(trm_json_root(document));
    trm_json_document *again = NULL;
    FUZZ_REQUIRE(printed != NULL && trm_json_parse("printed", printed, strlen(printed), &again) == TRM_OK);
    trm_json_close(again);
    cJSON_free(printed);
    trm_json_close(document);
    return 0;
}
