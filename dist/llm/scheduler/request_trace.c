/* Requests in the timeline. */
#include "base/trace.h"
#include "dist/llm/scheduler/scheduler.h"

/* A part of a request that has been, if it has begun. */
static void add(const trm_sequence *sequence, int32_t row, const char *name, double begin, double end,
                const trm_trace_value *values, int32_t n_values)
{
    const trm_trace_span span = {.category = "request",
                                 .name = name,
                                 .begin = begin,
                                 .seconds = end - begin,
                                 .row = row,
                                 .id = sequence->request.id + 1, /* 0 would be none */
                                 .values = values,
                                 .n_values = n_values};
    if (begin > 0 && end > begin) {
        trm_trace_add(&span);
    }
}

void trm_scheduler_trace(const trm_scheduler *s, const trm_sequence *sequence, trm_finish finish)
{
    static const char *const names[] = {"none", "stop", "length", "callback", "cancelled", "error"};
    const trm_serving_request *r = &sequence->request;
    if (!trm_trace_is_on() || s->g->world->rank != 0) {
        return;
    }
    const double now = trm_scheduler_now(), started = sequence->started > 0 ? sequence->started : now,
                 first = sequence->first_token > 0 ? sequence->first_token : now;
    const int32_t row = trm_trace_row("requests");
    const trm_trace_value values[] = {{.key = "id", .number = (int64_t)r->id},
                                      {.key = "prompt_tokens", .number = r->n_prompt},
                                      {.key = "cached_tokens", .number = sequence->n_found},
                                      {.key = "output_tokens", .number = sequence->n_tokens - r->n_prompt},
                                      {.key = "finish", .text = names[finish]},
                                      {.key = "traceparent", .text = r->traceparent},
                                      {.key = "tracestate", .text = r->tracestate}};
    /* a trace state comes with a trace parent alone */
    const int32_t n = r->traceparent == NULL ? 5 : r->tracestate == NULL ? 6 : 7;
    add(sequence, row, "request", sequence->submitted, now, values, n);
    add(sequence, row, "queued", sequence->submitted, started, NULL, 0);
    add(sequence, row, "prefill", sequence->started, first, NULL, 0);
    add(sequence, row, "decode", sequence->first_token, now, NULL, 0);
}
