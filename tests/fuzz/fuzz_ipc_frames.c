/* Any bytes as what a peer sends: frames are read or refused, never past their end. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "launcher/serve/ipc/ipc_frames.h"

static void read_as_everything(const ipc_frame *frame)
{
    ipc_submission submission;
    ipc_event event;
    ipc_failure failure;
    ipc_refusal refusal;
    ipc_stalls stalls;
    uint64_t sum = 0;
    if (ipc_read_submission(frame, &submission) == TRM_OK) {
        const trm_serving_request *r = &submission.request;
        for (int64_t i = 0; i < r->n_prompt; i++) {
            sum += (uint32_t)r->prompt[i];
        }
        for (int32_t i = 0; i < r->n_stop_tokens; i++) {
            sum += (uint32_t)r->stop_tokens[i];
        }
        for (int32_t i = 0; i < r->sampling.n_bias; i++) {
            sum += (uint32_t)r->sampling.bias[i].token;
        }
        sum += strlen(submission.grammar);
        FUZZ_REQUIRE(r->mask == NULL);
    }
    if (ipc_read_event(frame, &event) == TRM_OK) {
        for (int32_t i = 0; i < event.event.n_top; i++) {
            sum += (uint32_t)event.event.top[i].token;
        }
        sum += strlen(event.event.error);
    }
    if (ipc_read_failure(frame, &failure) == TRM_OK) {
        sum += strlen(failure.cause);
    }
    if (ipc_read_refusal(frame, &refusal) == TRM_OK) {
        sum += strlen(refusal.cause);
    }
    if (ipc_read_stalls(frame, &stalls) == TRM_OK) {
        sum += strlen(stalls.layers);
    }
    volatile uint64_t used = sum;
    (void)used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data;
    bool complete = true;
    ipc_frame frame;
    while (complete && ipc_next(at, size, &complete, &frame) == TRM_OK && complete) {
        FUZZ_REQUIRE(frame.whole <= size);
        char *aligned = malloc(frame.size + 1); /* as a channel hands it out */
        if (aligned != NULL) {
            ipc_frame copy = frame;
            memcpy(aligned, frame.payload, frame.size);
            copy.payload = aligned;
            read_as_everything(&copy);
        }
        free(aligned);
        at += frame.whole;
        size -= frame.whole;
    }
    return 0;
}
