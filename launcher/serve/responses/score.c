/* Compares embeddings, which have length 1. */
#include "launcher/serve/responses/score.h"

#include <stdlib.h>

#include "base/error.h"

/* A document and its score. */
typedef struct scored {
    int32_t index;
    double score;
} scored;

static double compare(const completion *c, int32_t document)
{
    const int32_t n = c->request.n_queries;
    const choice *a = &c->choices[n == 1 ? 0 : document], *b = &c->choices[n + document];
    double sum = 0.0;
    for (int64_t i = 0; i < a->n_embedding && i < b->n_embedding; i++) {
        sum += (double)a->embedding[i] * (double)b->embedding[i];
    }
    return sum;
}

/* The best first; of equal ones the first. */
static int by_score(const void *first, const void *second)
{
    const scored *a = first, *b = second;
    return a->score > b->score ? -1 : a->score < b->score ? 1 : a->index - b->index;
}

static void write_result(json_text *json, const completion *c, const scored *s)
{
    const bool ranks = c->request.kind == API_RERANK;
    json_object(json, NULL);
    json_integer(json, "index", s->index);
    if (!ranks) {
        json_string(json, "object", "score");
    } else if (c->request.return_documents) {
        json_object(json, "document");
        json_string(json, "text", c->request.prompts[c->request.n_queries + s->index].text);
        json_end_object(json);
    }
    json_number(json, ranks ? "relevance_score" : "score", s->score);
    json_end_object(json);
}

void score_write(const completion *c, json_text *json)
{
    const bool ranks = c->request.kind == API_RERANK;
    const int32_t n = c->n_choices - c->request.n_queries;
    scored *all = malloc((size_t)n * sizeof(*all));
    if (all == NULL) {
        json->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d scores", n);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        all[i] = (scored){i, compare(c, i)};
    }
    if (ranks) {
        qsort(all, (size_t)n, sizeof(*all), by_score);
    }
    json_object(json, NULL);
    json_string(json, "id", c->id);
    if (!ranks) {
        json_string(json, "object", "list");
        json_integer(json, "created", c->created);
    }
    json_string(json, "model", c->model);
    json_array(json, ranks ? "results" : "data");
    for (int32_t i = 0; i < n && i < c->request.top_n; i++) {
        write_result(json, c, &all[i]);
    }
    json_end_array(json);
    json_object(json, "usage");
    json_integer(json, "prompt_tokens", c->prompt_tokens);
    json_integer(json, "total_tokens", c->prompt_tokens);
    json_end_object(json);
    json_end_object(json);
    free(all);
}
