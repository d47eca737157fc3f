/* The inputs are outputs of one run of the model, and wait in files until their layers are quantized. */
#include "launcher/cli/quantize/samples.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/quantize/beside.h"
#include "launcher/cli/quantize/evaluate.h"
#include "launcher/cli/quantize/passages.h"
#include "launcher/cli/quantize/token_list.h"

#define LINES 64 /* of inputs read at a time */

void samples_fini(samples *s)
{
    for (int32_t i = 0; s->inputs != NULL && i < s->groups.n; i++) {
        free(s->inputs[i].divide);
        sample_stats_fini(&s->inputs[i].stats);
        if (s->inputs[i].values != NULL) {
            fclose(s->inputs[i].values);
        }
    }
    for (int32_t i = 0; i < s->n_experts; i++) {
        free(s->experts[i].prefix);
        free(s->experts[i].ids);
        if (s->experts[i].file != NULL) {
            fclose(s->experts[i].file);
        }
    }
    free(s->inputs);
    free(s->experts);
    sample_stats_fini(&s->last);
    groups_fini(&s->groups);
    trm_model_close(s->model);
    *s = (samples){0};
}

/* ---- which tensors ------------------------------------------------------------------------------------------- */

static int32_t find_group(const samples *s, const char *tensor)
{
    for (int32_t i = 0; i < s->groups.n; i++) {
        if (strcmp(s->groups.list[i].tensor, tensor) == 0) {
            return i;
        }
    }
    return -1;
}

/* The experts of a network whose input is that of a group. */
static trm_status list_experts(samples *s, const trm_network *network)
{
    trm_layer_info layer;
    s->experts = calloc((size_t)trm_network_layer_count(network) + 1, sizeof(*s->experts));
    if (s->experts == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of experts");
    }
    for (int32_t i = 0; trm_network_get_layer(network, i, &layer); i++) {
        const int32_t input =
            layer.desc->kind == TRM_LAYER_EXPERTS ? find_group(s, trm_tensor_name(layer.inputs[TRM_EXPERTS_X])) : -1;
        if (input < 0) {
            continue;
        }
        const trm_experts_params *params = &layer.desc->experts;
        sampled_experts *e = &s->experts[s->n_experts++];
        *e = (sampled_experts){.prefix = strdup(trm_tensor_name(layer.inputs[TRM_EXPERTS_GATE_UP])),
                               .ids = strdup(trm_tensor_name(layer.inputs[TRM_EXPERTS_IDS])),
                               .k = trm_tensor_dims(layer.inputs[TRM_EXPERTS_IDS]).d[1],
                               .input = input,
                               .has_inner = params->activation <= TRM_EXPERT_GELU_TANH && !params->weighted_input &&
                                            params->limit == 0.0f && layer.inputs[TRM_EXPERTS_GATE_UP_BIAS] == NULL,
                               .activation = params->activation};
        if (e->prefix == NULL || e->ids == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the name of a tensor");
        }
        e->prefix[strlen(e->prefix) - strlen(strrchr(e->prefix, '.'))] = '\0';
    }
    return TRM_OK;
}

static trm_status find_groups(samples *s, const settings *all, const char *folder, const char *weights)
{
    trm_model *quantized;
    trm_network *network = NULL, *after = NULL;
    TRM_TRY(trm_model_open_quantized_except(folder, weights, all->lists[SETTING_KEEP], all->list_counts[SETTING_KEEP],
                                            &quantized));
    trm_status status = trm_model_build_network(quantized, TRM_DTYPE_NONE, &after);
    status = status == TRM_OK ? trm_model_build_network(s->model, TRM_DTYPE_NONE, &network) : status;
    status = status == TRM_OK ? groups_find(s->model, network, after, &s->groups) : status;
    status = status == TRM_OK ? list_experts(s, network) : status;
    trm_network_destroy(network);
    trm_network_destroy(after);
    trm_model_close(quantized);
    return status;
}

trm_status samples_open(samples *s, const settings *all, const char *folder, const char *weights, const char *beside)
{
    *s = (samples){.beside = beside};
    TRM_TRY(trm_model_open(folder, &s->model));
    TRM_TRY(find_groups(s, all, folder, weights));
    s->inputs = calloc((size_t)s->groups.n + 1, sizeof(*s->inputs));
    if (s->inputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of %d inputs", (int)s->groups.n);
    }
    return TRM_OK;
}

static trm_status mark(trm_network *network, const char *name)
{
    trm_tensor *tensor = trm_network_find_tensor(network, name);
    for (int32_t i = 0; i < trm_network_output_count(network); i++) {
        if (trm_network_output(network, i) == tensor) {
            return TRM_OK;
        }
    }
    return trm_network_mark_output(network, tensor);
}

static trm_status mark_inputs(void *user, trm_network *network)
{
    samples *s = user;
    for (int32_t i = 0; i < s->groups.n; i++) {
        const char *tensor = s->groups.list[i].tensor;
        if (trm_network_find_tensor(network, tensor) != NULL) {
            TRM_TRY(beside_file(s->beside, &s->inputs[i].values));
            TRM_TRY(mark(network, tensor));
        }
    }
    for (int32_t i = 0; i < s->n_experts; i++) {
        TRM_TRY(beside_file(s->beside, &s->experts[i].file));
        TRM_TRY(mark(network, s->experts[i].ids));
    }
    return TRM_OK;
}

/* ---- their values -------------------------------------------------------------------------------------------- */

static trm_status put(FILE *file, const void *bytes, size_t size)
{
    if (fwrite(bytes, 1, size, file) != size) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write samples to a temporary file: %s", strerror(errno));
    }
    return TRM_OK;
}

static trm_status keep_floats(FILE *file, trm_dtype dtype, const void *values, size_t count)
{
    float line[1024];
    const size_t most = sizeof(line) / sizeof(line[0]);
    for (size_t done = 0; done < count; done += most) {
        const size_t some = count - done < most ? count - done : most;
        for (size_t i = 0; i < some; i++) {
            line[i] = dtype == TRM_F32    ? ((const float *)values)[done + i]
                      : dtype == TRM_BF16 ? trm_bf16_to_f32(((const uint16_t *)values)[done + i])
                                          : trm_f16_to_f32(((const uint16_t *)values)[done + i]);
        }
        TRM_TRY(put(file, line, some * sizeof(float)));
    }
    return TRM_OK;
}

static trm_status take_output(passages *p, const char *tensor, int64_t n, int64_t columns, const void **values)
{
    trm_dims dims;
    TRM_TRY(trm_context_output(p->context, tensor, &dims, values));
    if (dims.n != 2 || dims.d[0] != n || dims.d[1] != columns) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "tensor %s has %lld rows, expected %lld", tensor, (long long)dims.d[0],
                 (long long)n);
    }
    return TRM_OK;
}

static trm_status run_passage(samples *s, passages *p, const int32_t *ids, int64_t n, trm_dtype dtype)
{
    const float *logits;
    const void *values;
    TRM_TRY(passages_run(p, ids, n, &logits));
    for (int32_t i = 0; i < s->groups.n; i++) {
        const group *g = &s->groups.list[i];
        if (s->inputs[i].values != NULL) {
            TRM_TRY(take_output(p, g->tensor, n, g->columns, &values));
            TRM_TRY(keep_floats(s->inputs[i].values, dtype, values, (size_t)(n * g->columns)));
        }
    }
    for (int32_t i = 0; i < s->n_experts; i++) {
        TRM_TRY(take_output(p, s->experts[i].ids, n, s->experts[i].k, &values));
        TRM_TRY(put(s->experts[i].file, values, (size_t)(n * s->experts[i].k) * sizeof(int32_t)));
    }
    s->n += n;
    return TRM_OK;
}

trm_status samples_collect(samples *s, const settings *all, const char *folder,
                           bool (*tick)(void *user, int64_t done, int64_t total), void *user)
{
    passages p;
    trm_dtype dtype;
    trm_backend backend;
    trm_world *world;
    trm_model_info info;
    token_list tokens = {0};
    TRM_TRY(job_dtype(all, &dtype));
    TRM_TRY(evaluate_open_world(all, &backend, &world));
    trm_status status = passages_open(&p, all, folder, dtype, backend, world, mark_inputs, s);
    if (status == TRM_OK) {
        trm_model_get_info(p.model, &info);
        dtype = dtype != TRM_DTYPE_NONE ? dtype : backend == TRM_BACKEND_HOST ? TRM_F32 : info.weight_dtype;
        status = token_list_read(settings_text(all, SETTING_SAMPLES), info.path,
                                 settings_integer(all, SETTING_SAMPLE_TOKENS), p.tokens, p.vocab, &tokens);
    }
    for (int64_t i = 0; status == TRM_OK && i < tokens.n; i++) {
        const int64_t first = tokens.starts[i], end = tokens.starts[i + 1];
        status = run_passage(s, &p, tokens.ids + first, end - first, dtype);
        if (status == TRM_OK && tick != NULL && !tick(user, end, tokens.starts[tokens.n])) {
            status = trm_fail(TRM_ERROR_CANCELLED, "quantizing was stopped");
        }
    }
    token_list_fini(&tokens);
    passages_close(&p);
    trm_world_close(world);
    return status;
}

/* ---- their use ----------------------------------------------------------------------------------------------- */

/* Reading the lines of one weight. */
typedef struct reading {
    const samples *s;
    const sampled_experts *experts; /* NULL: all tokens */
    int32_t expert;
    int64_t columns; /* of the stored lines */
    const float *divide;
    int64_t inner;    /* columns of inner activations; 0: the lines themselves */
    float *gate, *up; /* [inner, columns], of an expert's inner activations */
    float *lines, *made;
    int32_t *ids;
} reading;

static void end_reading(reading *r)
{
    free(r->gate);
    free(r->up);
    free(r->lines);
    free(r->made);
    free(r->ids);
}

static float activate(trm_expert_activation activation, float g)
{
    switch (activation) {
    case TRM_EXPERT_GELU:
        return 0.5f * g * (1.0f + erff(g * 0.70710678f));
    case TRM_EXPERT_GELU_TANH:
        return 0.5f * g * (1.0f + tanhf(0.79788456f * (g + 0.044715f * g * g * g)));
    default:
        return g / (1.0f + expf(-g));
    }
}

static float dot(const float *a, const float *b, int64_t n)
{
    float sums[16] = {0.0f}, sum = 0.0f;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int k = 0; k < 16; k++) {
            sums[k] += a[i + k] * b[i + k];
        }
    }
    for (; i < n; i++) {
        sum += a[i] * b[i];
    }
    for (int k = 0; k < 16; k++) {
        sum += sums[k];
    }
    return sum;
}

/* made [n, inner] = act(gate x) * (up x). */
static void make_inner(const reading *r, int64_t n)
{
    for (int64_t i = 0; i < r->inner; i++) {
        const float *gate = r->gate + i * r->columns, *up = r->up + i * r->columns;
        for (int64_t t = 0; t < n; t++) {
            const float *x = r->lines + t * r->columns;
            r->made[t * r->inner + i] =
                activate(r->experts->activation, dot(gate, x, r->columns)) * dot(up, x, r->columns);
        }
    }
}

/* Keeps the lines of the expert's tokens. */
static trm_status keep_own(const reading *r, int64_t *n)
{
    const int64_t k = r->experts->k;
    int64_t kept = 0;
    if (fread(r->ids, sizeof(*r->ids), (size_t)(*n * k), r->experts->file) != (size_t)(*n * k)) {
        TRM_FAIL(TRM_ERROR_IO, "cannot read samples from a temporary file: %s", strerror(errno));
    }
    for (int64_t t = 0; t < *n; t++) {
        bool own = false;
        for (int64_t i = 0; i < k; i++) {
            own = own || r->ids[t * k + i] == r->expert;
        }
        if (own) {
            memmove(r->lines + kept++ * r->columns, r->lines + t * r->columns, (size_t)r->columns * sizeof(*r->lines));
        }
    }
    *n = kept;
    return TRM_OK;
}

static trm_status read_lines(const reading *r, FILE *values, samples_fn fn, void *user, int64_t *count)
{
    const int64_t columns = r->inner > 0 ? r->inner : r->columns;
    float *lines = r->inner > 0 ? r->made : r->lines;
    rewind(values);
    if (r->experts != NULL) {
        rewind(r->experts->file);
    }
    for (int64_t done = 0; done < r->s->n; done += LINES) {
        int64_t n = r->s->n - done < LINES ? r->s->n - done : LINES;
        const size_t some = (size_t)(n * r->columns);
        if (fread(r->lines, sizeof(float), some, values) != some) {
            TRM_FAIL(TRM_ERROR_IO, "cannot read samples from a temporary file: %s", strerror(errno));
        }
        TRM_TRY(r->experts != NULL ? keep_own(r, &n) : TRM_OK);
        if (r->inner > 0) {
            make_inner(r, n);
        }
        for (int64_t i = 0; r->divide != NULL && i < n * columns; i++) {
            lines[i] /= r->divide[i % columns];
        }
        *count += n;
        TRM_TRY(n > 0 ? fn(user, lines, n) : TRM_OK);
    }
    return TRM_OK;
}

/* The experts that a weight "<prefix>.<e>.<matrix>.weight" is of. */
static const sampled_experts *find_experts(const samples *s, const char *weight, int32_t *expert)
{
    for (int32_t i = 0; i < s->n_experts; i++) {
        const size_t size = strlen(s->experts[i].prefix);
        if (strncmp(weight, s->experts[i].prefix, size) == 0 && weight[size] == '.' && weight[size + 1] >= '0' &&
            weight[size + 1] <= '9') {
            *expert = (int32_t)strtol(weight + size + 1, NULL, 10);
            return &s->experts[i];
        }
    }
    return NULL;
}

/* The weights by which inner activations are made. */
static trm_status read_inner_weights(reading *r, const group *inner)
{
    char name[512];
    const char *down = inner->layers[0].weight;
    const size_t size = strlen(down), w2 = strlen("w2.weight");
    const bool is_w2 = size > w2 && strcmp(down + size - w2, "w2.weight") == 0;
    const int64_t count = r->inner * r->columns;
    r->gate = malloc((size_t)count * sizeof(float));
    r->up = malloc((size_t)count * sizeof(float));
    r->made = malloc((size_t)(LINES * r->inner) * sizeof(float));
    if (r->gate == NULL || r->up == NULL || r->made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the weights of expert %s", inner->tensor);
    }
    snprintf(name, sizeof(name), "%s.%s", inner->tensor, is_w2 ? "w1.weight" : "gate_proj.weight");
    TRM_TRY(trm_model_read_weight(r->s->model, name, 0, count, r->gate));
    snprintf(name, sizeof(name), "%s.%s", inner->tensor, is_w2 ? "w3.weight" : "up_proj.weight");
    return trm_model_read_weight(r->s->model, name, 0, count, r->up);
}

trm_status samples_each(const samples *s, const char *weight, samples_fn fn, void *user, int64_t *count)
{
    reading r = {.s = s};
    const group *g = groups_of(&s->groups, weight);
    *count = 0;
    if (g == NULL || s->n == 0) {
        return TRM_OK;
    }
    const int32_t own = (int32_t)(g - s->groups.list);
    r.experts = find_experts(s, weight, &r.expert);
    const bool is_inner = s->inputs[own].values == NULL;
    if (is_inner && (r.experts == NULL || !r.experts->has_inner)) {
        return TRM_OK;
    }
    const int32_t input = is_inner ? r.experts->input : own;
    r.columns = s->groups.list[input].columns;
    r.inner = is_inner ? g->columns : 0;
    r.divide = s->inputs[own].divide;
    r.lines = malloc((size_t)(LINES * r.columns) * sizeof(float));
    r.ids = r.experts != NULL ? malloc((size_t)(LINES * r.experts->k) * sizeof(int32_t)) : NULL;
    trm_status status = r.lines == NULL || (r.experts != NULL && r.ids == NULL)
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for the inputs of weight %s", weight)
                            : TRM_OK;
    status = status == TRM_OK && is_inner ? read_inner_weights(&r, g) : status;
    status = status == TRM_OK ? read_lines(&r, s->inputs[input].values, fn, user, count) : status;
    end_reading(&r);
    return status;
}

/* ---- statistics ------------------------------------------------------------------------------------------------ */

static trm_status add_lines(void *user, const float *lines, int64_t n)
{
    sample_stats *stats = user;
    for (int64_t t = 0; t < n; t++) {
        for (int64_t c = 0; c < stats->columns; c++) {
            const double x = fabs((double)lines[t * stats->columns + c]);
            stats->absolute[c] += x;
            stats->square[c] += x * x;
            stats->largest[c] = x > stats->largest[c] || isnan(x) ? x : stats->largest[c];
        }
    }
    return TRM_OK;
}

static trm_status make_stats(const samples *s, const char *weight, int64_t columns, sample_stats *stats)
{
    *stats = (sample_stats){.columns = columns};
    stats->absolute = calloc(3 * (size_t)columns + 1, sizeof(double));
    if (stats->absolute == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the statistics of weight %s", weight);
    }
    stats->square = stats->absolute + columns;
    stats->largest = stats->square + columns;
    TRM_TRY(samples_each(s, weight, add_lines, stats, &stats->n));
    for (int64_t c = 0; c < columns; c++) {
        if (!isfinite(stats->square[c])) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the samples of weight %s are not finite", weight);
        }
        stats->absolute[c] /= stats->n > 0 ? (double)stats->n : 1.0;
        stats->square[c] /= stats->n > 0 ? (double)stats->n : 1.0;
    }
    return TRM_OK;
}

trm_status samples_stats(samples *s, const char *weight, const sample_stats **stats)
{
    int32_t expert;
    const group *g = groups_of(&s->groups, weight);
    *stats = NULL;
    if (g == NULL || s->n == 0) {
        return TRM_OK;
    }
    sample *input = &s->inputs[g - s->groups.list];
    const bool is_own = find_experts(s, weight, &expert) == NULL;
    if (is_own && input->stats.absolute != NULL) {
        *stats = &input->stats;
        return TRM_OK;
    }
    sample_stats *made = is_own ? &input->stats : &s->last;
    sample_stats_fini(made);
    TRM_TRY(make_stats(s, weight, g->columns, made));
    *stats = made->n > 0 ? made : NULL;
    return TRM_OK;
}

trm_status samples_divide(samples *s, const group *g, const float *factors)
{
    sample *input = &s->inputs[g - s->groups.list];
    const size_t size = (size_t)g->columns * sizeof(float);
    sample_stats_fini(&input->stats);
    input->divide = malloc(size);
    if (input->divide == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for factors of tensor %s", g->tensor);
    }
    memcpy(input->divide, factors, size);
    return TRM_OK;
}

void sample_stats_fini(sample_stats *stats)
{
    free(stats->absolute);
    *stats = (sample_stats){0};
}
