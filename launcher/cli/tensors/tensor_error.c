/* Error statistics of two tensors. */
#include "launcher/cli/tensors/tensor_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"

void tensor_value_fini(tensor_value *value)
{
    free(value->data);
    *value = (tensor_value){0};
}

int64_t tensor_value_count(const tensor_value *value)
{
    int64_t count = 1;
    for (int32_t i = 0; i < value->dims.n; i++) {
        count *= value->dims.d[i];
    }
    return count;
}

bool tensor_same_dims(const trm_dims *a, const trm_dims *b)
{
    bool same = a->n == b->n;
    for (int32_t i = 0; same && i < a->n; i++) {
        same = a->d[i] == b->d[i];
    }
    return same;
}

bool tensor_is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16 || dtype == TRM_F64;
}

/* ---- what is near -------------------------------------------------------------------------------------- */

static const char *const limit_names[TENSOR_LIMITS] = {"outside", "mean", "rms", "max", "cosine"};

/* "mean=0.01". */
static bool read_limit(const char *text, tensor_limit *limit, double *most)
{
    const size_t length = strcspn(text, "=");
    bool known = false;
    for (int i = 0; i < TENSOR_LIMITS && !known; i++) {
        known = strlen(limit_names[i]) == length && strncmp(limit_names[i], text, length) == 0;
        *limit = (tensor_limit)i;
    }
    char *end = NULL;
    const char *number = text + length + (text[length] == '=');
    *most = strtod(number, &end);
    return known && end != number && *end == '\0' && *most >= 0 && isfinite(*most);
}

trm_status tensor_check_limits(const settings *all)
{
    for (int32_t i = 0; i < all->list_counts[SETTING_LIMIT]; i++) {
        tensor_limit limit;
        double most;
        if (!read_limit(all->lists[SETTING_LIMIT][i], &limit, &most)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "limit is \"%s\", expected outside, mean, rms, max or cosine, and a number, such as max=0.01 (%s)",
                     all->lists[SETTING_LIMIT][i], all->origins[SETTING_LIMIT]);
        }
    }
    return TRM_OK;
}

tensor_tolerance tensor_tolerance_for(const settings *all, trm_dtype dtype)
{
    tensor_tolerance t = {0}; /* integers and bytes must be equal */
    switch (dtype) {
    case TRM_F64:
        t.relative = t.of_rms = 1e-7;
        break;
    case TRM_F32:
        t.relative = settings_flag(all, SETTING_TF32) ? 2e-2 : 1e-3;
        t.of_rms = settings_flag(all, SETTING_TF32) ? 2e-2 : 1e-4;
        break;
    case TRM_F16:
        t.relative = t.of_rms = 2e-2;
        t.share = 1e-3;
        break;
    case TRM_BF16:
        t.relative = t.of_rms = 8e-2;
        t.share = 1e-3;
        break;
    default:
        break;
    }
    if (settings_text(all, SETTING_RTOL) != NULL) {
        t.relative = settings_number(all, SETTING_RTOL);
        t.share = 0;
    }
    if (settings_text(all, SETTING_ATOL) != NULL) {
        t.absolute = settings_number(all, SETTING_ATOL);
        t.of_rms = t.share = 0;
    }
    for (int32_t i = 0; i < all->list_counts[SETTING_LIMIT]; i++) {
        tensor_limit limit;
        double most;
        if (read_limit(all->lists[SETTING_LIMIT][i], &limit, &most)) {
            t.limited[limit] = true;
            t.limits[limit] = most;
        }
    }
    return t;
}

static bool is_coarser(const tensor_tolerance *a, const tensor_tolerance *b)
{
    return a->relative > b->relative || a->of_rms > b->of_rms;
}

tensor_tolerance tensor_tolerance_of(const settings *all, trm_dtype a, trm_dtype b)
{
    tensor_tolerance x = tensor_tolerance_for(all, a), y = tensor_tolerance_for(all, b);
    return is_coarser(&x, &y) ? x : y;
}

trm_dtype tensor_coarsest(const settings *all, trm_dtype coarsest, trm_dtype dtype)
{
    tensor_tolerance known = tensor_tolerance_for(all, coarsest), its = tensor_tolerance_for(all, dtype);
    return tensor_is_float(dtype) && (coarsest == TRM_DTYPE_NONE || is_coarser(&its, &known)) ? dtype : coarsest;
}

/* ---- measuring ----------------------------------------------------------------------------------------- */

/* Types of less than 16 bits that are not C integers: compared as bytes. */
static double load(const tensor_value *value, int64_t i)
{
    bool is_small = value->dtype > TRM_BOOL;
    return is_small ? (double)((const uint8_t *)value->data)[i] : trm_element_as_double(value->dtype, value->data, i);
}

/* 64-bit integers have more digits than doubles. */
static bool same_bits(const tensor_value *a, const tensor_value *b, int64_t i)
{
    bool wide = a->dtype == b->dtype && (a->dtype == TRM_I64 || a->dtype == TRM_U64);
    return !wide || ((const uint64_t *)a->data)[i] == ((const uint64_t *)b->data)[i];
}

static double root_mean_square(const tensor_value *value, int64_t count)
{
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = load(value, i);
        if (isfinite(x)) {
            sum += x * x;
            finite++;
        }
    }
    return finite == 0 ? 0 : sqrt(sum / (double)finite);
}

typedef struct sums {
    double error, error2, found2, expected2, product;
    int64_t finite;
    double worst_ratio;
} sums;

/* Measures a pair of finite numbers. */
static void add_pair(tensor_error *e, sums *s, int64_t i, double a, double b, double allowed, bool equal)
{
    double off = fabs(a - b), ratio = off == 0 && equal ? 0 : allowed > 0 ? off / allowed : INFINITY;
    s->error += off;
    s->error2 += off * off;
    s->found2 += a * a;
    s->expected2 += b * b;
    s->product += a * b;
    s->finite++;
    e->max_absolute = off > e->max_absolute ? off : e->max_absolute;
    if (b != 0) {
        e->max_relative = off / fabs(b) > e->max_relative ? off / fabs(b) : e->max_relative;
    }
    e->outside += ratio > 1;
    e->far += ratio > 4;
    bool further =
        ratio > s->worst_ratio || (ratio == s->worst_ratio && off > fabs(e->worst_found - e->worst_expected));
    if (ratio > 0 && (e->worst < 0 || further)) {
        s->worst_ratio = ratio;
        e->worst = i;
        e->worst_found = a;
        e->worst_expected = b;
    }
}

void tensor_error_measure(const tensor_value *found, const tensor_value *expected, const tensor_tolerance *tolerance,
                          tensor_error *error)
{
    tensor_error e = {.count = tensor_value_count(expected), .worst = -1};
    e.rms_expected = root_mean_square(expected, e.count);
    double absolute = tolerance->absolute + tolerance->of_rms * e.rms_expected;
    sums s = {0};
    for (int64_t i = 0; i < e.count; i++) {
        double a = load(found, i), b = load(expected, i);
        e.nan_found += isnan(a);
        e.nan_expected += isnan(b);
        e.infinite_found += isinf(a) != 0;
        e.infinite_expected += isinf(b) != 0;
        if (isfinite(a) && isfinite(b)) {
            add_pair(&e, &s, i, a, b, absolute + tolerance->relative * fabs(b), same_bits(found, expected, i));
        } else if (!(isnan(a) && isnan(b)) && !(a == b)) {
            e.outside++;
            e.far++;
            e.unequal++;
            if (s.worst_ratio < INFINITY || e.worst < 0) { /* the first of them */
                s.worst_ratio = INFINITY;
                e.worst = i;
                e.worst_found = a;
                e.worst_expected = b;
            }
        }
    }
    double n = s.finite == 0 ? 1 : (double)s.finite, length = sqrt(s.found2) * sqrt(s.expected2);
    e.mean_absolute = s.error / n;
    e.rms_error = sqrt(s.error2 / n);
    e.cosine = length > 0 ? s.product / length : s.found2 == s.expected2 ? 1 : 0;
    *error = e;
}

static double outside_share(const tensor_error *e)
{
    return e->count == 0 ? 0 : (double)e->outside / (double)e->count;
}

static double limited_figure(const tensor_error *e, int limit)
{
    const double figures[TENSOR_LIMITS] = {[TENSOR_LIMIT_OUTSIDE] = outside_share(e),
                                           [TENSOR_LIMIT_MEAN] = e->mean_absolute,
                                           [TENSOR_LIMIT_RMS] = e->rms_error,
                                           [TENSOR_LIMIT_MAX] = e->max_absolute,
                                           [TENSOR_LIMIT_COSINE] = 1 - e->cosine};
    return figures[limit];
}

bool tensor_error_holds(const tensor_error *e, const tensor_tolerance *tolerance)
{
    bool limited = false, holds = e->unequal == 0;
    for (int i = 0; i < TENSOR_LIMITS; i++) {
        limited = limited || tolerance->limited[i];
        holds = holds && !(tolerance->limited[i] && limited_figure(e, i) > tolerance->limits[i]);
    }
    return limited ? holds : (double)e->outside <= ceil(tolerance->share * (double)e->count) && e->far == 0;
}

bool tensor_error_is_worse(const tensor_error *error, const tensor_error *other)
{
    return error->outside > other->outside ||
           (error->outside == other->outside && error->max_absolute > other->max_absolute);
}

/* ---- printing ------------------------------------------------------------------------------------------ */

void tensor_error_print_head(void)
{
    printf("%10s %10s %10s %11s %9s", "max abs", "max rel", "mean abs", "1 - cosine", "outside");
}

void tensor_error_print(const tensor_error *e)
{
    printf("%10.3g %10.3g %10.3g %11.3g %8.3g%%", e->max_absolute, e->max_relative, e->mean_absolute,
           e->cosine < 1 ? 1 - e->cosine : 0, 100.0 * outside_share(e));
    if (e->nan_found + e->nan_expected + e->infinite_found + e->infinite_expected > 0) {
        printf("  NaN %lld (%lld), infinite %lld (%lld)", (long long)e->nan_found, (long long)e->nan_expected,
               (long long)e->infinite_found, (long long)e->infinite_expected);
    }
}

void tensor_error_report(report *r, const tensor_error *e)
{
    report_integer(r, "count", e->count);
    report_integer(r, "outside", e->outside);
    report_integer(r, "far", e->far);
    report_number(r, "outside_share", outside_share(e));
    report_number(r, "max_absolute", e->max_absolute);
    report_number(r, "max_relative", e->max_relative);
    report_number(r, "mean_absolute", e->mean_absolute);
    report_number(r, "rms_error", e->rms_error);
    report_number(r, "rms_reference", e->rms_expected);
    report_number(r, "cosine", e->cosine);
    report_integer(r, "nan_found", e->nan_found);
    report_integer(r, "nan_reference", e->nan_expected);
    report_integer(r, "infinite_found", e->infinite_found);
    report_integer(r, "infinite_reference", e->infinite_expected);
}

void tensor_error_place(const tensor_value *value, int64_t index, char *text, size_t size)
{
    int64_t at[TRM_MAX_DIMS];
    for (int32_t i = value->dims.n; i-- > 0;) {
        at[i] = index % value->dims.d[i];
        index /= value->dims.d[i];
    }
    size_t used = (size_t)snprintf(text, size, "[");
    for (int32_t i = 0; i < value->dims.n && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i == 0 ? "" : ", ", (long long)at[i]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

void tensor_error_describe(const tensor_error *e, const tensor_tolerance *tolerance, const char *place, char *text,
                           size_t size)
{
    for (int i = 0; i < TENSOR_LIMITS && e->unequal == 0; i++) {
        if (tolerance->limited[i] && limited_figure(e, i) > tolerance->limits[i]) {
            snprintf(text, size, "%s is %.6g, the limit %.6g; at %s it is %.6g, expected %.6g", limit_names[i],
                     limited_figure(e, i), tolerance->limits[i], place, e->worst_found, e->worst_expected);
            return;
        }
    }
    snprintf(text, size, "%lld of %lld elements differ, at %s it is %.6g, expected %.6g", (long long)e->outside,
             (long long)e->count, place, e->worst_found, e->worst_expected);
}
