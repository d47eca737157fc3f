/*
 * Logprobs of a choice: those of its output, of an echoed prompt, and of a prompt apart from the text.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_LOGPROBS_H
#define TRM_LAUNCHER_SERVE_RESPONSES_LOGPROBS_H

#include "launcher/serve/responses/completion.h"

/* Sets how many the engine shall report. */
void logprobs_ask(const choice *ch, trm_serving_request *request);
/* Takes the event of an output token, before its text is known; of a prompt token, in order. */
void logprobs_take(choice *ch, const trm_serving_event *event);
void logprobs_take_prompt(choice *ch, const trm_serving_event *event);
/* The choice ends: a prompt of one token has had no event. */
void logprobs_finish(choice *ch);
/* Write what was taken and not yet written as "logprobs"; as "prompt_logprobs", if the request asks for them. */
void logprobs_write(json_text *json, choice *ch);
void logprobs_write_prompt(json_text *json, const choice *ch);

#endif
