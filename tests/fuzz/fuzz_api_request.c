/* Any bytes as the body of a request of any kind: refused with a whole error, or within every bound. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "launcher/serve/requests/api_request.h"

#define VOCAB 1000

static void check_request(const api_request *r)
{
    FUZZ_REQUIRE(r->n >= 1 && r->n <= API_MAX_CHOICES);
    FUZZ_REQUIRE(r->temperature >= 0 && r->top_p > 0 && r->top_p <= 1 && r->min_p >= 0 && r->min_p <= 1);
    FUZZ_REQUIRE(r->top_k >= 0 && r->max_tokens >= -1 && r->max_tokens <= INT32_MAX);
    FUZZ_REQUIRE(r->logprobs >= -1 && r->logprobs <= TRM_MAX_TOP_LOGPROBS);
    FUZZ_REQUIRE(r->n_stops <= API_MAX_STOPS && r->n_biases <= TRM_MAX_LOGIT_BIAS);
    for (int32_t i = 0; i < r->n_stops; i++) {
        FUZZ_REQUIRE(strlen(r->stops[i]) >= 1 && strlen(r->stops[i]) <= API_LONGEST_STOP);
    }
    for (int32_t i = 0; i < r->n_biases; i++) {
        FUZZ_REQUIRE(r->biases[i].token >= 0 && r->biases[i].token < VOCAB);
    }
    for (int32_t i = 0; i < r->n_stop_ids; i++) {
        FUZZ_REQUIRE(r->stop_ids[i] >= 0 && r->stop_ids[i] < VOCAB);
    }
    for (int32_t i = 0; i < r->n_prompts; i++) {
        for (size_t k = 0; k < r->prompts[i].n_ids; k++) {
            FUZZ_REQUIRE(r->prompts[i].ids[k] >= 0 && r->prompts[i].ids[k] < VOCAB);
        }
    }
    const bool chats = r->kind == API_CHAT || r->kind == API_RESPONSE || r->kind == API_MESSAGES;
    FUZZ_REQUIRE(chats ? trm_json_count(r->messages) > 0 : r->n_prompts > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"m", NULL};
    for (int kind = API_COMPLETION; kind <= API_RERANK; kind++) {
        api_request request;
        api_error error;
        if (api_request_parse((api_kind)kind, (const char *)data, size, VOCAB, names, &request, &error)) {
            check_request(&request);
            api_request_fini(&request);
        } else {
            FUZZ_REQUIRE(error.status >= 400 && error.status < 600 && error.message[0] != '\0' && error.type != NULL);
            FUZZ_REQUIRE(request.document == NULL && request.prompts == NULL);
        }
    }
    return 0;
}
