/* Statistics of a group's columns, the candidates for factors, and the errors that they leave. */
#include "launcher/cli/quantize/factors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define RATIOS     20 /* of the grid */
#define CANDIDATES (2 * RATIOS)
#define CHUNK_ROWS 64
#define LEAST      1e-4f

/* A group in work. */
typedef struct search {
    samples *s;
    const group *g;
    const factor_options *options;
    const double *square;       /* [columns] the mean squares of the inputs */
    double *absolute, *largest; /* [columns] */
    double *weight;    /* [columns] the mean share of a block's largest number, or of SmoothQuant the largest number */
    float *candidates; /* [CANDIDATES, columns] */
    float *rows;       /* [CHUNK_ROWS, columns] */
    double *errors;    /* [CHUNK_ROWS, CANDIDATES] */
    int64_t n_rows;
} search;

void factor_list_fini(factor_list *factors)
{
    for (int32_t i = 0; i < factors->n_arrays; i++) {
        free(factors->arrays[i]);
    }
    free(factors->arrays);
    free(factors->list);
    *factors = (factor_list){0};
}

/* ---- a group ------------------------------------------------------------------------------------------------------
 */

static void end_search(search *w)
{
    free(w->absolute);
    free(w->weight);
    free(w->candidates);
    free(w->rows);
    free(w->errors);
}

static trm_status begin_search(search *w, const sample_stats *stats)
{
    const size_t columns = (size_t)w->g->columns;
    w->square = stats->square;
    w->absolute = malloc(2 * columns * sizeof(double));
    w->weight = calloc(columns, sizeof(*w->weight));
    w->candidates = malloc(CANDIDATES * columns * sizeof(*w->candidates));
    w->rows = malloc(CHUNK_ROWS * columns * sizeof(*w->rows));
    w->errors = malloc(sizeof(double) * CHUNK_ROWS * CANDIDATES);
    if (w->absolute == NULL || w->weight == NULL || w->candidates == NULL || w->rows == NULL || w->errors == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %zu columns of tensor %s", columns, w->g->tensor);
    }
    w->largest = w->absolute + columns;
    memcpy(w->absolute, stats->absolute, columns * sizeof(double));
    memcpy(w->largest, stats->largest, columns * sizeof(double));
    return TRM_OK;
}

/* Columns that take the same factor get the same value: the mean or the largest of theirs. */
static void tie(const group *g, double *values, bool largest)
{
    const int64_t kinds = g->columns / g->repeat;
    for (int64_t i = 0; g->repeat > 1 && i < kinds; i++) {
        const int64_t first = i / g->width * g->width * g->repeat + i % g->width;
        double sum = 0.0, most = 0.0;
        for (int64_t r = 0; r < g->repeat; r++) {
            const double value = values[first + r * g->width];
            sum += value;
            most = value > most ? value : most;
        }
        for (int64_t r = 0; r < g->repeat; r++) {
            values[first + r * g->width] = largest ? most : sum / (double)g->repeat;
        }
    }
}

/* Calls fn with the rows of all quantized layers, some at a time. */
static trm_status each_rows(search *w, void (*fn)(search *w))
{
    for (int32_t i = 0; i < w->g->n_layers; i++) {
        const group_layer *layer = &w->g->layers[i];
        for (int64_t first = 0; layer->is_quantized && first < layer->rows; first += CHUNK_ROWS) {
            w->n_rows = layer->rows - first < CHUNK_ROWS ? layer->rows - first : CHUNK_ROWS;
            TRM_TRY(trm_model_read_weight(w->s->model, layer->weight, first * w->g->columns, w->n_rows * w->g->columns,
                                          w->rows));
            fn(w);
        }
    }
    return TRM_OK;
}

static int64_t block_of(const search *w)
{
    const int64_t size = w->options->form.group;
    return size > 0 && w->g->columns % size == 0 ? size : w->g->columns;
}

static float largest_of(const float *numbers, int64_t n)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(numbers[i]);
        most = size > most ? size : most;
    }
    return most;
}

/* The parts of the largest number in its block that a column's numbers are. */
static void add_shares(search *w)
{
    const int64_t columns = w->g->columns, block = block_of(w);
    for (int64_t i = 0; i < w->n_rows * columns; i += block) {
        const float most = largest_of(w->rows + i, block);
        for (int64_t k = 0; k < block; k++) {
            w->weight[i % columns + k] += most > 0.0f ? fabs((double)w->rows[i + k]) / (double)most : 0.0;
        }
    }
}

static void add_largest(search *w)
{
    for (int64_t i = 0; i < w->n_rows * w->g->columns; i++) {
        const double size = fabs((double)w->rows[i]);
        double *most = &w->weight[i % w->g->columns];
        *most = size > *most ? size : *most;
    }
}

/* Factors around 1, none too small to divide by. */
static void normalize(float *factors, int64_t n)
{
    float least = INFINITY, most = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        factors[i] = factors[i] > LEAST ? factors[i] : LEAST;
        least = factors[i] < least ? factors[i] : least;
        most = factors[i] > most ? factors[i] : most;
    }
    const float middle = sqrtf(least * most);
    for (int64_t i = 0; i < n; i++) {
        factors[i] /= middle;
    }
}

/* ---- AWQ ----------------------------------------------------------------------------------------------------------
 */

/* mean |x|^r, and mean |x|^r / (mean |w|)^(1 - r). */
static void make_candidates(search *w)
{
    const int64_t columns = w->g->columns;
    for (int32_t k = 0; k < CANDIDATES; k++) {
        const double ratio = (double)(k % RATIOS) / RATIOS;
        float *to = w->candidates + k * columns;
        for (int64_t c = 0; c < columns; c++) {
            const double x = pow(w->absolute[c], ratio);
            to[c] = (float)(k < RATIOS ? x : x / (pow(w->weight[c], 1.0 - ratio) + 1e-4));
        }
        normalize(to, columns);
    }
}

/* What a candidate leaves of a block of a row: rounding errors of columns have nothing to do with each other, so their
 * squares add up, each times the mean square of its inputs. */
static double block_error(const search *w, const float *row, const float *factors, int64_t first, int64_t n)
{
    const quantize_form *form = &w->options->form;
    double error = 0.0;
    float most = 0.0f;
    for (int64_t c = first; c < first + n; c++) {
        const float size = fabsf(row[c] * factors[c]);
        most = size > most ? size : most;
    }
    const float scale = quantize_form_scale(form, most);
    for (int64_t c = first; c < first + n; c++) {
        const double d = (double)(row[c] - quantize_form_round(form, row[c] * factors[c], scale) / factors[c]);
        error += d * d * w->square[c];
    }
    return error;
}

static void try_rows(void *user, int64_t begin, int64_t end)
{
    search *w = user;
    const int64_t columns = w->g->columns, block = block_of(w);
    for (int64_t row = begin; row < end; row++) {
        for (int32_t k = 0; k < CANDIDATES; k++) {
            double error = 0.0;
            for (int64_t c = 0; c < columns; c += block) {
                error += block_error(w, w->rows + row * columns, w->candidates + k * columns, c, block);
            }
            w->errors[row * CANDIDATES + k] = error;
        }
    }
}

typedef struct awq_search {
    search work;
    double sums[CANDIDATES];
} awq_search;

static void add_errors(search *w)
{
    awq_search *all = (awq_search *)w;
    trm_pool_for(w->options->pool, w->n_rows, 1, try_rows, w);
    for (int64_t i = 0; i < w->n_rows * CANDIDATES; i++) {
        all->sums[i % CANDIDATES] += w->errors[i];
    }
}

static trm_status search_awq(awq_search *all, float *factors)
{
    search *w = &all->work;
    int32_t best = 0;
    TRM_TRY(each_rows(w, add_shares));
    int64_t rows = 0;
    for (int32_t i = 0; i < w->g->n_layers; i++) {
        rows += w->g->layers[i].is_quantized ? w->g->layers[i].rows : 0;
    }
    for (int64_t c = 0; c < w->g->columns; c++) {
        w->weight[c] /= (double)rows;
    }
    tie(w->g, w->weight, false);
    tie(w->g, w->absolute, false);
    make_candidates(w);
    TRM_TRY(each_rows(w, add_errors));
    for (int32_t k = 1; k < CANDIDATES; k++) { /* candidate 0 is 1 everywhere */
        best = all->sums[k] < all->sums[best] ? k : best;
    }
    memcpy(factors, w->candidates + best * w->g->columns, (size_t)w->g->columns * sizeof(*factors));
    return TRM_OK;
}

/* ---- SmoothQuant --------------------------------------------------------------------------------------------------
 */

static trm_status smooth(search *w, float *factors)
{
    const double alpha = w->options->alpha;
    TRM_TRY(each_rows(w, add_largest));
    tie(w->g, w->weight, true);
    tie(w->g, w->largest, true);
    for (int64_t c = 0; c < w->g->columns; c++) {
        const double x = w->largest[c], weight = w->weight[c];
        factors[c] = x > 0.0 && weight > 0.0 ? (float)(pow(x, alpha) / pow(weight, 1.0 - alpha)) : 1.0f;
        factors[c] = factors[c] > LEAST ? factors[c] : LEAST;
    }
    return TRM_OK;
}

/* ---- all ----------------------------------------------------------------------------------------------------------
 */

static trm_status add_array(factor_list *to, int64_t n, float **array)
{
    float **arrays = realloc(to->arrays, ((size_t)to->n_arrays + 1) * sizeof(*arrays));
    to->arrays = arrays != NULL ? arrays : to->arrays;
    *array = arrays != NULL ? malloc((size_t)n * sizeof(**array)) : NULL;
    if (*array == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld factors", (long long)n);
    }
    to->arrays[to->n_arrays++] = *array;
    return TRM_OK;
}

static trm_status add_factors(factor_list *to, const char *weight, int32_t axis, int64_t n, const float *factors,
                              float offset)
{
    trm_weight_factors *list = realloc(to->list, ((size_t)to->n + 1) * sizeof(*list));
    if (list == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of factors");
    }
    to->list = list;
    list[to->n++] = (trm_weight_factors){weight, axis, n, factors, offset};
    return TRM_OK;
}

/* The group's columns times factors, and its source over them. */
static trm_status list_group(factor_list *to, const group *g, const float *factors)
{
    const int64_t n = g->columns / g->repeat;
    float *inverse;
    TRM_TRY(add_array(to, n, &inverse));
    for (int64_t i = 0; i < n; i++) {
        inverse[i] = 1.0f / factors[i / g->width * g->width * g->repeat + i % g->width];
    }
    for (int32_t i = 0; i < g->n_layers; i++) {
        TRM_TRY(add_factors(to, g->layers[i].weight, 1, g->columns, factors, 0.0f));
    }
    TRM_TRY(add_factors(to, g->weight, 0, n, inverse, g->offset));
    to->groups++;
    return g->bias != NULL ? add_factors(to, g->bias, 0, n, inverse, 0.0f) : TRM_OK;
}

/* Of all tokens: those of a layer that is no expert's, if the group has one. A group of experts alone takes those of
 * the first that has any. */
static trm_status find_stats(samples *s, const group *g, const sample_stats **stats)
{
    *stats = NULL;
    for (int32_t i = g->n_layers - 1; *stats == NULL && i >= 0; i--) {
        TRM_TRY(strstr(g->layers[i].weight, ".experts.") == NULL ? samples_stats(s, g->layers[i].weight, stats)
                                                                 : TRM_OK);
    }
    for (int32_t i = 0; *stats == NULL && i < g->n_layers; i++) {
        TRM_TRY(samples_stats(s, g->layers[i].weight, stats));
    }
    return TRM_OK;
}

static trm_status choose_group(samples *s, int32_t index, const factor_options *options, factor_list *to)
{
    awq_search all = {.work = {.s = s, .g = &s->groups.list[index], .options = options}};
    search *w = &all.work;
    const sample_stats *stats;
    float *factors;
    TRM_TRY(find_stats(s, w->g, &stats));
    if (stats == NULL) {
        return TRM_OK;
    }
    trm_status status = begin_search(w, stats);
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, add_array(to, w->g->columns, &factors), done);
    TRM_TRY_GOTO(status, options->smooth ? smooth(w, factors) : search_awq(&all, factors), done);
    TRM_TRY_GOTO(status, list_group(to, w->g, factors), done);
    status = samples_divide(s, w->g, factors);
done:
    end_search(w);
    return status;
}

trm_status factors_choose(samples *s, const factor_options *options, factor_list *factors)
{
    *factors = (factor_list){0};
    for (int32_t i = 0; i < s->groups.n; i++) {
        const group_source source = s->groups.list[i].source;
        if (source == GROUP_SOURCE_NORM || (source == GROUP_SOURCE_LINEAR && !options->smooth)) {
            TRM_TRY(choose_group(s, i, options, factors));
        }
        if (options->tick != NULL && !options->tick(options->user, i + 1, s->groups.n)) {
            TRM_FAIL(TRM_ERROR_CANCELLED, "quantizing was stopped");
        }
    }
    return TRM_OK;
}
