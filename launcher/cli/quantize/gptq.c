/* Sums, their factors and the rounding. */
#include "launcher/cli/quantize/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES   8  /* sums at a time: the compiler makes vectors of them */
#define LINES   16 /* inputs, and rows of a weight, at a time: a line of sums or factors is read once for all */
#define GRAIN   32 /* lines or columns for a thread */
#define DAMPING 0.01

typedef struct sums_work {
    double *sums;
    const float *inputs;
    int64_t n, columns;
} sums_work;

/* Lines of the sums. */
static void add_to_lines(void *user, int64_t begin, int64_t end)
{
    const sums_work *w = user;
    for (int64_t i = begin; i < end; i++) {
        double *line = w->sums + i * w->columns;
        for (int64_t t = 0; t < w->n; t++) {
            const float *x = w->inputs + t * w->columns;
            const double factor = (double)x[i];
            for (int64_t j = i; j < w->columns; j++) {
                line[j] += factor * (double)x[j];
            }
        }
    }
}

void gptq_add_inputs(trm_pool *pool, double *sums, const float *inputs, int64_t n, int64_t columns)
{
    for (int64_t first = 0; first < n; first += LINES) {
        sums_work w = {sums, inputs + first * columns, n - first < LINES ? n - first : LINES, columns};
        trm_pool_for(pool, columns, GRAIN, add_to_lines, &w);
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sums[LANES] = {0.0}, sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            sums[k] += a[i + k] * b[i + k];
        }
    }
    for (; i < n; i++) {
        sum += a[i] * b[i];
    }
    for (int k = 0; k < LANES; k++) {
        sum += sums[k];
    }
    return sum;
}

typedef struct column_work {
    double *h;
    int64_t n, j;
} column_work;

/* Elements of column j above the diagonal. */
static void factor_column(void *user, int64_t begin, int64_t end)
{
    const column_work *w = user;
    const int64_t n = w->n, j = w->j;
    const double *line = w->h + j * n;
    for (int64_t i = begin; i < end; i++) {
        double *other = w->h + i * n;
        other[j] = (other[j] - dot(other + j + 1, line + j + 1, n - j - 1)) / line[j];
    }
}

/* H = U U' with U above the diagonal, from its last column on, in place. */
static bool factor_upper(trm_pool *pool, double *h, int64_t n)
{
    for (int64_t j = n - 1; j >= 0; j--) {
        double *line = h + j * n;
        const double rest = line[j] - dot(line + j + 1, line + j + 1, n - j - 1);
        if (!(rest > 0.0) || isinf(rest)) {
            return false;
        }
        line[j] = sqrt(rest);
        column_work w = {h, n, j};
        trm_pool_for(pool, j, GRAIN, factor_column, &w);
    }
    return true;
}

typedef struct line_work {
    const double *u;
    double *line; /* [n] */
    int64_t n, i;
} line_work;

/* Columns from i + 1 on of line i, times those below it that are inverted. */
static void invert_columns(void *user, int64_t begin, int64_t end)
{
    const line_work *w = user;
    const int64_t n = w->n, i = w->i, first = i + 1 + begin, last = i + 1 + end;
    memset(w->line + first, 0, (size_t)(last - first) * sizeof(*w->line));
    for (int64_t k = i + 1; k < last; k++) {
        const double factor = w->u[i * n + k];
        for (int64_t j = k > first ? k : first; j < last; j++) {
            w->line[j] += factor * w->u[k * n + j];
        }
    }
}

/* The inverse of U in place, from its last line on; `line` [n] is scratch. It is the factor of H's inverse. */
static void invert_upper(trm_pool *pool, double *u, int64_t n, double *line)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        const double scale = 1.0 / u[i * n + i];
        line_work w = {u, line, n, i};
        trm_pool_for(pool, n - i - 1, GRAIN, invert_columns, &w);
        u[i * n + i] = scale;
        for (int64_t j = i + 1; j < n; j++) {
            u[i * n + j] = -scale * line[j];
        }
    }
}

bool gptq_factor(trm_pool *pool, double *sums, int64_t columns)
{
    double mean = 0.0;
    double *line = malloc((size_t)columns * sizeof(*line));
    for (int64_t i = 0; i < columns; i++) {
        mean += sums[i * columns + i] / (double)columns;
    }
    mean = mean > 0.0 ? mean : 1.0; /* inputs that are all 0 do not matter */
    for (int64_t i = 0; i < columns; i++) {
        sums[i * columns + i] += DAMPING * mean;
    }
    const bool fine = line != NULL && factor_upper(pool, sums, columns);
    if (fine) {
        invert_upper(pool, sums, columns, line);
    }
    free(line);
    return fine;
}

static int32_t round_to(double value, int32_t low, int32_t high)
{
    const double limited = value < low ? low : value > high ? high : value;
    return (int32_t)lrint(limited);
}

/* `n` rows that change as they are rounded. */
static void round_rows(const double *factors, double *rows, const float *scales, int64_t n, int64_t columns,
                       int64_t group, int32_t low, int32_t high, int8_t *numbers)
{
    const int64_t groups = columns / group;
    for (int64_t i = 0; i < columns; i++) {
        const double *line = factors + i * columns;
        for (int64_t r = 0; r < n; r++) {
            double *row = rows + r * columns;
            const double scale = (double)scales[r * groups + i / group];
            const int32_t number = round_to(row[i] / scale, low, high);
            const double error = (row[i] - number * scale) / line[i];
            numbers[r * columns + i] = (int8_t)number;
            for (int64_t j = i + 1; j < columns; j++) {
                row[j] -= error * line[j];
            }
        }
    }
}

typedef struct round_work {
    const double *factors;
    const float *weight, *scales;
    int64_t rows, columns, group;
    int32_t low, high;
    int8_t *numbers;
    _Atomic bool failed;
} round_work;

/* Runs of LINES rows. */
static void round_runs(void *user, int64_t begin, int64_t end)
{
    round_work *w = user;
    const int64_t columns = w->columns;
    double *some = malloc(LINES * (size_t)columns * sizeof(*some));
    for (int64_t run = begin; some != NULL && run < end; run++) {
        const int64_t first = run * LINES, n = w->rows - first < LINES ? w->rows - first : LINES;
        for (int64_t i = 0; i < n * columns; i++) {
            some[i] = (double)w->weight[first * columns + i];
        }
        round_rows(w->factors, some, w->scales + first * (columns / w->group), n, columns, w->group, w->low, w->high,
                   w->numbers + first * columns);
    }
    if (some == NULL) {
        w->failed = true;
    }
    free(some);
}

bool gptq_round(trm_pool *pool, const double *factors, const float *weight, const float *scales, int64_t rows,
                int64_t columns, int64_t group, int32_t low, int32_t high, int8_t *numbers)
{
    round_work w = {.factors = factors,
                    .weight = weight,
                    .scales = scales,
                    .rows = rows,
                    .columns = columns,
                    .group = group,
                    .low = low,
                    .high = high,
                    .numbers = numbers};
    trm_pool_for(pool, (rows + LINES - 1) / LINES, 1, round_runs, &w);
    return !w.failed;
}
