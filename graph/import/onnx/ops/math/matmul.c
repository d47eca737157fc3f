/* Matrix products: MatMul, Gemm, and Einsum of any equation. */
#include <ctype.h>
#include <string.h>

#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

/* numpy's rules: a vector is a row on the left and a column on the right, and what that adds is left out again. */
static void import_matmul(trm_onnx_node *node)
{
    trm_tensor *a = node->inputs[0], *b = node->inputs[1];
    const bool row = a->dims.n == 1, column = b->dims.n == 1;
    const int32_t zero = 0, one = 1;
    if (a->dims.n < 1 || b->dims.n < 1) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "an input is a scalar, expected at least one dimension");
        return;
    }
    a = row ? trm_onnx_unsqueeze(node, a, &zero, 1) : a;
    b = column ? trm_onnx_unsqueeze(node, b, &one, 1) : b;
    trm_tensor *y = trm_onnx_matmul(node, a, b, false, false);
    if (column && !trm_onnx_failed(node)) {
        const int32_t last = y->dims.n - 1;
        y = trm_onnx_squeeze(node, y, &last, 1);
    }
    if (row && !trm_onnx_failed(node)) {
        const int32_t last = y->dims.n - (column ? 1 : 2);
        y = trm_onnx_squeeze(node, y, &last, 1);
    }
    trm_onnx_set(node, 0, y);
}

/* ---- Gemm ------------------------------------------------------------------------------------------------------ */

static trm_tensor *scaled(trm_onnx_node *node, trm_tensor *x, float factor)
{
    return factor == 1.0f ? x : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, x, (double)factor);
}

static trm_tensor *gemm(trm_onnx_node *node)
{
    trm_tensor *a = node->inputs[0], *b = node->inputs[1], *c = node->inputs[2];
    const float alpha = trm_onnx_float(node, "alpha", 1.0f), beta = trm_onnx_float(node, "beta", 1.0f);
    const trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL,
                                 .matmul = {.transpose_a = trm_onnx_flag(node, "transA", false),
                                            .transpose_b = trm_onnx_flag(node, "transB", false)}};
    if (a->dims.n != 2 || b->dims.n != 2) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "inputs 0 and 1 have %d and %d dimensions, expected 2",
                      (int)a->dims.n, (int)b->dims.n);
        return a;
    }
    const int64_t columns = b->dims.d[desc.matmul.transpose_b ? 0 : 1];
    c = beta == 0.0f ? NULL : c;
    if (c != NULL && alpha == 1.0f && c->dims.n == 1 && c->dims.d[0] == columns && columns >= 0) {
        return trm_onnx_add(node, &desc, a, b, scaled(node, c, beta), NULL);
    }
    trm_tensor *y = scaled(node, trm_onnx_add(node, &desc, a, b, NULL, NULL), alpha);
    return c == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, scaled(node, c, beta));
}

static void import_gemm(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, gemm(node));
}

static void import_fused_gemm(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, trm_onnx_fused_activation(node, gemm(node)));
}

/* ---- Einsum ---------------------------------------------------------------------------------------------------- */

/* Labels: the letters by their codes; axes of an ellipsis by FIRST_DOT and up, counted from its last axis. */
#define FIRST_DOT 128
#define LABELS    (FIRST_DOT + TRM_MAX_DIMS)
#define MOST      TRM_ONNX_FIXED_INPUTS

typedef struct term {
    uint8_t labels[TRM_MAX_DIMS];
    int32_t n;
    int32_t dots; /* labels of the ellipsis; -1: none */
    trm_tensor *x;
} term;

typedef struct equation {
    term terms[MOST], out;
    int32_t n;
} equation;

static int32_t find_label(const term *t, uint8_t label)
{
    for (int32_t i = 0; i < t->n; i++) {
        if (t->labels[i] == label) {
            return i;
        }
    }
    return -1;
}

static void fail_equation(trm_onnx_node *node, const char *text)
{
    trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                  "equation \"%.100s\" does not fit %d inputs, or has more than %d axes in a term", text,
                  (int)node->n_inputs, TRM_MAX_DIMS);
}

/* One term of the text up to `end`; `dots` axes for an ellipsis. False if it is none. */
static bool read_term(const char **text, term *t, int32_t dots)
{
    t->n = 0;
    t->dots = -1;
    for (const char *c = *text;; c++) {
        if (*c == ' ') {
            continue;
        }
        if (strncmp(c, "...", 3) == 0 && t->dots < 0 && t->n + dots <= TRM_MAX_DIMS) {
            t->dots = dots;
            for (int32_t i = dots; i-- > 0;) {
                t->labels[t->n++] = (uint8_t)(FIRST_DOT + i);
            }
            c += 2;
        } else if (isalpha((unsigned char)*c) && t->n < TRM_MAX_DIMS) {
            t->labels[t->n++] = (uint8_t)*c;
        } else {
            *text = c;
            return *c == ',' || *c == '\0' || strncmp(c, "->", 2) == 0;
        }
    }
}

/* The output where the equation has none: the ellipsis, then labels that occur once, in the order of their codes. */
static void implied_output(equation *e, int32_t dots)
{
    int32_t times[LABELS] = {0};
    for (int32_t i = 0; i < e->n; i++) {
        for (int32_t j = 0; j < e->terms[i].n; j++) {
            times[e->terms[i].labels[j]]++;
        }
    }
    e->out.n = 0;
    for (int32_t i = dots; i-- > 0;) {
        e->out.labels[e->out.n++] = (uint8_t)(FIRST_DOT + i);
    }
    for (int32_t label = 0; label < FIRST_DOT && e->out.n < TRM_MAX_DIMS; label++) {
        if (times[label] == 1) {
            e->out.labels[e->out.n++] = (uint8_t)label;
        }
    }
}

static bool read_equation(trm_onnx_node *node, const char *text, equation *e)
{
    int32_t most_dots = 0;
    const char *at = text;
    e->n = 0;
    for (;;) {
        if (e->n == node->n_inputs || e->n == MOST || node->inputs[e->n] == NULL) {
            return false;
        }
        term *t = &e->terms[e->n];
        const char *start = at;
        if (!read_term(&at, t, 0)) {
            return false;
        }
        const int32_t rank = node->inputs[e->n]->dims.n, dots = rank - t->n;
        if (dots < 0 || (t->dots < 0 && dots != 0)) {
            return false;
        }
        at = start;
        if (!read_term(&at, t, dots) || t->n != rank) {
            return false;
        }
        t->x = node->inputs[e->n++];
        most_dots = t->dots > most_dots ? t->dots : most_dots;
        if (*at != ',') {
            break;
        }
        at++;
    }
    if (e->n != node->n_inputs) {
        return false;
    }
    if (*at == '\0') {
        implied_output(e, most_dots);
        return true;
    }
    at += 2;
    if (!read_term(&at, &e->out, most_dots) || *at != '\0') {
        return false;
    }
    for (int32_t i = 0; i < e->out.n; i++) {
        bool there = false;
        for (int32_t j = 0; j < e->n; j++) {
            there = there || find_label(&e->terms[j], e->out.labels[i]) >= 0;
        }
        if (!there || find_label(&e->out, e->out.labels[i]) != i) {
            return false;
        }
    }
    return true;
}

/* The axes of t in the order of labels, which are all of t's. */
static void arrange(trm_onnx_node *node, term *t, const uint8_t *labels)
{
    int32_t perm[TRM_MAX_DIMS];
    for (int32_t i = 0; i < t->n; i++) {
        perm[i] = find_label(t, labels[i]);
    }
    t->x = trm_onnx_transpose(node, t->x, perm);
    memcpy(t->labels, labels, (size_t)t->n);
}

static void drop(term *t, int32_t axis)
{
    memmove(t->labels + axis, t->labels + axis + 1, (size_t)(t->n - axis - 1));
    t->n--;
}

/* A label that occurs twice: both axes to the end, and every (n + 1)th of their n * n elements. */
static void take_diagonal(trm_onnx_node *node, term *t, int32_t first, int32_t second)
{
    int32_t perm[TRM_MAX_DIMS], count = 0;
    uint8_t labels[TRM_MAX_DIMS];
    for (int32_t i = 0; i < t->n; i++) {
        if (i != first && i != second) {
            labels[count] = t->labels[i];
            perm[count++] = i;
        }
    }
    labels[count] = t->labels[first];
    perm[count] = first;
    perm[count + 1] = second;
    t->x = trm_onnx_transpose(node, t->x, perm);
    const trm_onnx_dim n = trm_onnx_dim_of(node, t->x, count);
    const trm_onnx_dim step = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_ADD, n, trm_onnx_dim_known(1));
    trm_onnx_dim dims[TRM_MAX_DIMS];
    trm_onnx_dims_of(node, t->x, dims);
    dims[count] = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, n, n);
    trm_tensor *flat = trm_onnx_reshape_to(node, t->x, dims, count + 1);
    trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {count, 0, INT64_MAX, 1}};
    if (step.tensor == NULL) {
        slice.slice.step = step.value;
        t->x = trm_onnx_add(node, &slice, flat, NULL, NULL, NULL);
    } else {
        t->x = trm_onnx_add(node, &slice, flat, NULL, NULL, step.tensor);
    }
    memcpy(t->labels, labels, (size_t)count + 1);
    t->n = count + 1;
}

static void take_diagonals(trm_onnx_node *node, term *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        for (int32_t j = i + 1; j < t->n; j++) {
            if (t->labels[i] == t->labels[j] && !trm_onnx_failed(node)) {
                take_diagonal(node, t, i, j);
                i = -1;
                break;
            }
        }
    }
}

/* Whether the result or a term from `first` on has the label. */
static bool is_needed(const equation *e, int32_t first, uint8_t label)
{
    bool needed = find_label(&e->out, label) >= 0;
    for (int32_t i = first; i < e->n; i++) {
        needed = needed || find_label(&e->terms[i], label) >= 0;
    }
    return needed;
}

/* Sums over the labels of t that neither `other` (may be NULL) nor anything from `first` on has. */
static void sum_unneeded(trm_onnx_node *node, const equation *e, term *t, const term *other, int32_t first)
{
    int32_t axes[TRM_MAX_DIMS], n = 0;
    for (int32_t i = 0; i < t->n; i++) {
        if (!is_needed(e, first, t->labels[i]) && (other == NULL || find_label(other, t->labels[i]) < 0)) {
            axes[n++] = i;
        }
    }
    if (n > 0) {
        t->x = trm_onnx_reduce(node, TRM_REDUCE_SUM, t->x, axes, n, false);
        for (int32_t i = n; i-- > 0;) {
            drop(t, axes[i]);
        }
    }
}

/* Leaves out axes of size 1 of t where the other one is longer: they repeat. */
static void drop_repeated(trm_onnx_node *node, term *t, const term *other)
{
    for (int32_t i = t->n; i-- > 0;) {
        const int32_t there = find_label(other, t->labels[i]);
        if (there >= 0 && t->x->dims.d[i] == 1 && other->x->dims.d[there] != 1) {
            t->x = trm_onnx_squeeze(node, t->x, &i, 1);
            drop(t, i);
        }
    }
}

/* Labels of a in one of four groups: of both and needed, of a alone, summed over. */
typedef struct grouping {
    uint8_t both[TRM_MAX_DIMS], left[TRM_MAX_DIMS], right[TRM_MAX_DIMS], summed[TRM_MAX_DIMS];
    int32_t n_both, n_left, n_right, n_summed;
} grouping;

static void group_labels(const equation *e, const term *a, const term *b, int32_t next, grouping *g)
{
    memset(g, 0, sizeof(*g));
    for (int32_t i = 0; i < a->n; i++) {
        const uint8_t label = a->labels[i];
        if (find_label(b, label) < 0) {
            g->left[g->n_left++] = label;
        } else if (is_needed(e, next, label)) {
            g->both[g->n_both++] = label;
        } else {
            g->summed[g->n_summed++] = label;
        }
    }
    for (int32_t i = 0; i < b->n; i++) {
        if (find_label(a, b->labels[i]) < 0) {
            g->right[g->n_right++] = b->labels[i];
        }
    }
}

/* x [both, first, second] with first and second each joined into one axis. */
static trm_tensor *join_groups(trm_onnx_node *node, term *t, int32_t both, int32_t first, int32_t second)
{
    trm_onnx_dim dims[TRM_MAX_DIMS];
    if (both + 2 > TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "more than %d axes", TRM_MAX_DIMS);
        return t->x;
    }
    for (int32_t i = 0; i < both; i++) {
        dims[i] = trm_onnx_dim_of(node, t->x, i);
    }
    dims[both] = trm_onnx_dim_product(node, t->x, both, both + first);
    dims[both + 1] = trm_onnx_dim_product(node, t->x, both + first, both + first + second);
    return trm_onnx_reshape_to(node, t->x, dims, both + 2);
}

/* a = the product of a and b, summed over what nothing else needs. */
static void contract(trm_onnx_node *node, const equation *e, term *a, term *b, int32_t next)
{
    grouping g;
    uint8_t labels[4 * TRM_MAX_DIMS];
    group_labels(e, a, b, next, &g);
    const int32_t rank = g.n_both + g.n_left + g.n_right;
    if (rank > TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "a product of two terms has %d axes, at most %d are supported",
                      (int)rank, TRM_MAX_DIMS);
        return;
    }
    memcpy(labels, g.both, (size_t)g.n_both);
    memcpy(labels + g.n_both, g.left, (size_t)g.n_left);
    memcpy(labels + g.n_both + g.n_left, g.summed, (size_t)g.n_summed);
    arrange(node, a, labels);
    memcpy(labels + g.n_both, g.summed, (size_t)g.n_summed);
    memcpy(labels + g.n_both + g.n_summed, g.right, (size_t)g.n_right);
    arrange(node, b, labels);
    trm_onnx_dim dims[TRM_MAX_DIMS];
    int32_t count = 0;
    for (int32_t i = 0; i < g.n_both + g.n_left; i++) {
        dims[count++] = trm_onnx_dim_of(node, a->x, i);
    }
    for (int32_t i = 0; i < g.n_right; i++) {
        dims[count++] = trm_onnx_dim_of(node, b->x, g.n_both + g.n_summed + i);
    }
    trm_tensor *left = join_groups(node, a, g.n_both, g.n_left, g.n_summed);
    trm_tensor *right = join_groups(node, b, g.n_both, g.n_summed, g.n_right);
    trm_tensor *y = g.n_summed > 0 ? trm_onnx_matmul(node, left, right, false, false)
                                   : trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, left, right);
    a->x = trm_onnx_reshape_to(node, y, dims, count);
    memcpy(a->labels, g.both, (size_t)g.n_both);
    memcpy(a->labels + g.n_both, g.left, (size_t)g.n_left);
    memcpy(a->labels + g.n_both + g.n_left, g.right, (size_t)g.n_right);
    a->n = rank;
}

static void import_einsum(trm_onnx_node *node)
{
    equation e;
    const char *text = trm_onnx_string(node, "equation", "");
    if (!trm_onnx_failed(node) && !read_equation(node, text, &e)) {
        fail_equation(node, text);
    }
    for (int32_t i = 0; !trm_onnx_failed(node) && i < e.n; i++) {
        take_diagonals(node, &e.terms[i]);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    term *sum = &e.terms[0];
    for (int32_t i = 1; i < e.n && !trm_onnx_failed(node); i++) {
        term *next = &e.terms[i];
        drop_repeated(node, sum, next);
        drop_repeated(node, next, sum);
        sum_unneeded(node, &e, sum, next, i + 1);
        sum_unneeded(node, &e, next, sum, i + 1);
        contract(node, &e, sum, next, i + 1);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    sum_unneeded(node, &e, sum, NULL, e.n);
    arrange(node, sum, e.out.labels);
    trm_onnx_set(node, 0, sum->x);
}

const trm_onnx_operator trm_onnx_ops_matmul[] = {
    {"", "MatMul", 1, 2, import_matmul, 0},
    {"", "Gemm", 1, 2, import_gemm, 0},
    {"com.microsoft", "FusedGemm", 1, 2, import_fused_gemm, 0},
    {"", "Einsum", 12, 1, import_einsum, 0},
    {0},
};
