/* Histograms of magnitudes, and limits. */
#include "launcher/cli/quantize/observer.h"

#include <math.h>
#include <string.h>

#define LEVELS     128 /* of a magnitude in 8 bits */
#define STEP       16  /* bins between two limits that are tried */
#define PERCENTILE 0.9999

bool observer_rule_named(const char *name, observer_rule *rule)
{
    static const char *const names[] = {"minmax", "percentile", "mse", "entropy"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(names[i], name) == 0) {
            *rule = (observer_rule)i;
            return true;
        }
    }
    return false;
}

void observer_measure(observer *o, const float *numbers, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(numbers[i]);
        o->largest = size > o->largest || isnan(size) ? size : o->largest;
    }
}

void observer_count(observer *o, const float *numbers, int64_t n)
{
    const float scale = o->largest > 0.0f ? (float)OBSERVER_BINS / o->largest : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const int64_t bin = (int64_t)(fabsf(numbers[i]) * scale);
        o->bins[bin < OBSERVER_BINS ? bin : OBSERVER_BINS - 1] += 1.0;
    }
}

static double sum_of(const double *bins, int first, int end)
{
    double sum = 0.0;
    for (int i = first; i < end; i++) {
        sum += bins[i];
    }
    return sum;
}

/* The bins whose numbers are not cut off. */
static int by_percentile(const observer *o)
{
    const double all = sum_of(o->bins, 0, OBSERVER_BINS);
    double sum = 0.0;
    for (int i = 0; i < OBSERVER_BINS; i++) {
        sum += o->bins[i];
        if (sum >= PERCENTILE * all) {
            return i + 1;
        }
    }
    return OBSERVER_BINS;
}

/* The square error of all numbers, in bins, each in the middle of its own. */
static double square_error(const observer *o, int limit)
{
    const double scale = (double)limit / (LEVELS - 1);
    double error = 0.0;
    for (int i = 0; i < OBSERVER_BINS; i++) {
        const double number = fmin(rint((i + 0.5) / scale), LEVELS - 1), d = i + 0.5 - number * scale;
        error += o->bins[i] * d * d;
    }
    return error;
}

/* How far the bins up to a limit, with all above it in the last, are from what is left of them in LEVELS parts. */
static double divergence(const observer *o, int limit)
{
    const double cut = sum_of(o->bins, limit, OBSERVER_BINS), all = sum_of(o->bins, 0, OBSERVER_BINS);
    const double kept = sum_of(o->bins, 0, limit);
    double result = 0.0;
    for (int level = 0; level < LEVELS; level++) {
        const int first = level * limit / LEVELS, end = (level + 1) * limit / LEVELS;
        int used = 0;
        for (int i = first; i < end; i++) {
            used += o->bins[i] > 0.0 ? 1 : 0;
        }
        const double share = used > 0 ? sum_of(o->bins, first, end) / used : 0.0;
        for (int i = first; i < end; i++) {
            const double p = (o->bins[i] + (i == limit - 1 ? cut : 0.0)) / all;
            const double q = (o->bins[i] > 0.0 ? share : 0.0) / kept;
            result += p > 0.0 ? p * log(p / (q > 0.0 ? q : 1e-12)) : 0.0;
        }
    }
    return result;
}

static int by_search(const observer *o, double (*cost)(const observer *o, int limit))
{
    int best = OBSERVER_BINS;
    double least = INFINITY;
    for (int limit = LEVELS; limit <= OBSERVER_BINS; limit += STEP) {
        const double found = cost(o, limit);
        if (found < least) {
            least = found;
            best = limit;
        }
    }
    return best;
}

float observer_scale(const observer *o, observer_rule rule)
{
    int limit = OBSERVER_BINS;
    if (!(o->largest > 0.0f)) {
        return 1.0f;
    }
    if (rule == OBSERVER_PERCENTILE) {
        limit = by_percentile(o);
    } else if (rule != OBSERVER_MINMAX) {
        limit = by_search(o, rule == OBSERVER_MSE ? square_error : divergence);
    }
    return o->largest * (float)limit / (float)OBSERVER_BINS / (LEVELS - 1);
}
