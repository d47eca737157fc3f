/* Sums, their factors and the rounding. */
#include "launcher/cli/quantize/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES   8  /* sums at a time: the compiler makes vectors of them */
#define LINES   16 /* inputs, and rows of a weight, at a time: a line of sums or factors is read once for all */
#define DAMPING 0.01

void gptq_add_inputs(double *sums, const float *inputs, int64_t n, int64_t columns)
{
    for (int64_t first = 0; first < n; first += LINES) {
        const int64_t end = first + LINES < n ? first + LINES : n;
        for (int64_t i = 0; i < columns; i++) {
            double *line = sums + i * columns;
            for (int64_t t = first; t < end; t++) {
                const float *x = inputs + t * columns;
                const double factor = (double)x[i];
                for (int64_t j = i; j < columns; j++) {
                    line[j] += factor * (double)x[j];
                }
            }
        }
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

/* H = U U' with U above the diagonal, from its last column on, in place. */
static bool factor_upper(double *h, int64_t n)
{
    for (int64_t j = n - 1; j >= 0; j--) {
        double *line = h + j * n;
        const double rest = line[j] - dot(line + j + 1, line + j + 1, n - j - 1);
        if (!(rest > 0.0) || isinf(rest)) {
            return false;
        }
        line[j] = sqrt(rest);
        for (int64_t i = 0; i < j; i++) {
            h[i * n + j] = (h[i * n + j] - dot(h + i * n + j + 1, line + j + 1, n - j - 1)) / line[j];
        }
    }
    return true;
}

/* The inverse of U in place, from its last line on; `line` [n] is scratch. It is the factor of H's inverse. */
static void invert_upper(double *u, int64_t n, double *line)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        const double scale = 1.0 / u[i * n + i];
        memset(line, 0, (size_t)n * sizeof(*line));
        for (int64_t k = i + 1; k < n; k++) {
            const double factor = u[i * n + k];
            for (int64_t j = k; j < n; j++) {
                line[j] += factor * u[k * n + j];
            }
        }
        u[i * n + i] = scale;
        for (int64_t j = i + 1; j < n; j++) {
            u[i * n + j] = -scale * line[j];
        }
    }
}

bool gptq_factor(double *sums, int64_t columns)
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
    const bool fine = line != NULL && factor_upper(sums, columns);
    if (fine) {
        invert_upper(sums, columns, line);
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

bool gptq_round(const double *factors, const float *weight, const float *scales, int64_t rows, int64_t columns,
                int64_t group, int32_t low, int32_t high, int8_t *numbers)
{
    double *some = malloc(LINES * (size_t)columns * sizeof(*some));
    for (int64_t first = 0; some != NULL && first < rows; first += LINES) {
        const int64_t n = rows - first < LINES ? rows - first : LINES;
        for (int64_t i = 0; i < n * columns; i++) {
            some[i] = (double)weight[first * columns + i];
        }
        round_rows(factors, some, scales + first * (columns / group), n, columns, group, low, high,
                   numbers + first * columns);
    }
    const bool fine = some != NULL;
    free(some);
    return fine;
}
