/* The inputs are outputs of one run of the model, and wait in files until their layer is rounded. */
#include "launcher/cli/quantize/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/quantize/evaluate.h"
#include "launcher/cli/quantize/gptq.h"
#include "launcher/cli/quantize/passages.h"

#define LINES 64 /* of inputs read at a time */

void samples_fini(samples *s)
{
    for (int32_t i = 0; i < s->n_inputs; i++) {
        free(s->inputs[i].tensor);
        if (s->inputs[i].values != NULL) {
            fclose(s->inputs[i].values);
        }
    }
    for (int32_t i = 0; i < s->n_layers; i++) {
        free(s->layers[i].name);
    }
    free(s->inputs);
    free(s->layers);
    free(s->sums);
    *s = (samples){.factored = -1};
}

/* ---- which tensors ------------------------------------------------------------------------------------------- */

static trm_status add_input(samples *s, trm_network *network, trm_tensor *tensor, int32_t *input)
{
    const char *name = trm_tensor_name(tensor);
    for (*input = 0; *input < s->n_inputs; ++*input) {
        if (strcmp(s->inputs[*input].tensor, name) == 0) {
            return TRM_OK;
        }
    }
    sample *added = &s->inputs[s->n_inputs++];
    *added = (sample){.tensor = strdup(name), .columns = trm_tensor_dims(tensor).d[1], .values = tmpfile()};
    if (added->tensor == NULL || added->values == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot make a temporary file: %s", strerror(errno));
    }
    return trm_network_mark_output(network, tensor);
}

/* Products of x [T, columns] with a weight [out, columns]. */
static trm_status mark_inputs(void *user, trm_network *network)
{
    samples *s = user;
    const int32_t n = trm_network_layer_count(network);
    trm_layer_info layer;
    s->inputs = calloc((size_t)n + 1, sizeof(*s->inputs));
    s->layers = calloc((size_t)n + 1, sizeof(*s->layers));
    if (s->inputs == NULL || s->layers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of %d layers", n);
    }
    for (int32_t i = 0; i < n && trm_network_get_layer(network, i, &layer); i++) {
        if (layer.desc->kind != TRM_LAYER_MATMUL || !layer.desc->matmul.transpose_b ||
            trm_tensor_dims(layer.inputs[0]).n != 2) {
            continue;
        }
        struct sampled_layer *added = &s->layers[s->n_layers++];
        added->name = strdup(layer.name);
        if (added->name == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the name of a layer");
        }
        TRM_TRY(add_input(s, network, layer.inputs[0], &added->input));
    }
    return TRM_OK;
}

/* ---- their values -------------------------------------------------------------------------------------------- */

static trm_status keep(const sample *input, trm_dtype dtype, const void *values, int64_t n)
{
    float line[1024];
    const size_t count = (size_t)(n * input->columns), most = sizeof(line) / sizeof(line[0]);
    for (size_t done = 0; done < count; done += most) {
        const size_t some = count - done < most ? count - done : most;
        for (size_t i = 0; i < some; i++) {
            line[i] = dtype == TRM_F32    ? ((const float *)values)[done + i]
                      : dtype == TRM_BF16 ? trm_bf16_to_f32(((const uint16_t *)values)[done + i])
                                          : trm_f16_to_f32(((const uint16_t *)values)[done + i]);
        }
        if (fwrite(line, sizeof(float), some, input->values) != some) {
            TRM_FAIL(TRM_ERROR_IO, "cannot write samples to a temporary file: %s", strerror(errno));
        }
    }
    return TRM_OK;
}

static trm_status run_passage(samples *s, passages *p, const int32_t *ids, int64_t n, trm_dtype dtype)
{
    const float *logits;
    TRM_TRY(passages_run(p, ids, n, &logits));
    for (int32_t i = 0; i < s->n_inputs; i++) {
        trm_dims dims;
        const void *values;
        TRM_TRY(trm_context_output(p->context, s->inputs[i].tensor, &dims, &values));
        if (dims.n != 2 || dims.d[0] != n || dims.d[1] != s->inputs[i].columns) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "tensor %s has %lld rows, expected %lld", s->inputs[i].tensor,
                     (long long)dims.d[0], (long long)n);
        }
        TRM_TRY(keep(&s->inputs[i], dtype, values, n));
    }
    s->n += n;
    return TRM_OK;
}

static trm_status run_all(samples *s, const settings *all, const char *folder, const int32_t *ids, int64_t n)
{
    passages p;
    trm_dtype dtype;
    trm_backend backend;
    trm_world *world;
    trm_model_info info;
    TRM_TRY(job_dtype(all, &dtype));
    TRM_TRY(evaluate_open_world(all, &backend, &world));
    trm_status status = passages_open(&p, folder, dtype, backend, world, mark_inputs, s);
    if (status == TRM_OK) {
        trm_model_get_info(p.model, &info);
        dtype = dtype != TRM_DTYPE_NONE ? dtype : backend == TRM_BACKEND_HOST ? TRM_F32 : info.weight_dtype;
    }
    for (int64_t first = 0; status == TRM_OK && first < n; first += p.tokens) {
        status = run_passage(s, &p, ids + first, n - first < p.tokens ? n - first : p.tokens, dtype);
    }
    passages_close(&p);
    trm_world_close(world);
    return status;
}

trm_status samples_collect(samples *s, const settings *all, const char *folder)
{
    trm_tokens tokens = {0};
    trm_model *model;
    trm_model_info info;
    int64_t n;
    *s = (samples){.factored = -1};
    TRM_TRY(trm_model_open(folder, &model));
    trm_model_get_info(model, &info);
    trm_status status = evaluate_read_tokens(settings_text(all, SETTING_SAMPLES), info.path, &n, &tokens);
    trm_model_close(model);
    TRM_TRY(status);
    status = run_all(s, all, folder, tokens.ids, n);
    trm_tokens_fini(&tokens);
    return status;
}

/* ---- their use ----------------------------------------------------------------------------------------------- */

/* The input of the layer, or of the parts that a fused one is taken apart to. */
static const sample *find_input(const samples *s, const char *name, int32_t *index)
{
    const size_t size = strlen(name);
    for (int32_t i = 0; i < s->n_layers; i++) {
        const char *layer = s->layers[i].name;
        if (strncmp(layer, name, size) == 0 && (layer[size] == '\0' || layer[size] == '.')) {
            *index = s->layers[i].input;
            return &s->inputs[*index];
        }
    }
    return NULL;
}

/* The factors for an input, unless they are those that were made last. */
static trm_status prepare(samples *s, int32_t index)
{
    const sample *input = &s->inputs[index];
    const size_t columns = (size_t)input->columns;
    if (s->factored == index) {
        return TRM_OK;
    }
    s->factored = -1;
    free(s->sums);
    s->sums = calloc(columns * columns, sizeof(*s->sums));
    float *lines = malloc(LINES * columns * sizeof(*lines));
    if (s->sums == NULL || lines == NULL) {
        free(lines);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the products of %zu columns", columns);
    }
    rewind(input->values);
    for (int64_t done = 0; done < s->n; done += LINES) {
        const size_t n = s->n - done < LINES ? (size_t)(s->n - done) : LINES;
        if (fread(lines, columns * sizeof(*lines), n, input->values) != n) {
            free(lines);
            TRM_FAIL(TRM_ERROR_IO, "cannot read samples from a temporary file: %s", strerror(errno));
        }
        gptq_add_inputs(s->sums, lines, (int64_t)n, (int64_t)columns);
    }
    free(lines);
    if (!gptq_factor(s->sums, (int64_t)columns)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the samples of tensor %s are not finite", input->tensor);
    }
    s->factored = index;
    return TRM_OK;
}

trm_status samples_choose(samples *s, const trm_quantize_choice *choice)
{
    int32_t index;
    const sample *input = find_input(s, choice->name, &index);
    if (input == NULL || input->columns != choice->columns) {
        return TRM_OK;
    }
    TRM_TRY(prepare(s, index));
    if (!gptq_round(s->sums, choice->weight, choice->scales, choice->rows, choice->columns, choice->group, choice->low,
                    choice->high, choice->numbers)) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory to round layer %s", choice->name);
    }
    s->chosen++;
    return TRM_OK;
}
