/* Patterns that exporters write out and that one layer does: each as text before and after, with the numbers of both,
 * and near misses that must stay. */
#include "graph/check_pass.h"

#define ADD  TRM_ELEMENTWISE_ADD
#define SUB  TRM_ELEMENTWISE_SUB
#define MUL  TRM_ELEMENTWISE_MUL
#define DIV  TRM_ELEMENTWISE_DIV
#define POW  TRM_ELEMENTWISE_POW
#define TANH TRM_ACTIVATION_TANH

static trm_status fuse(trm_network *network, int32_t *changes)
{
    return trm_pass_fuse(network, TRM_PASSES_BEFORE_PARTITION, changes);
}

static trm_tensor *scalar(trm_network *network, float value)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, "c", TRM_F32, (trm_dims){0}, &value, &tensor));
    return tensor;
}

/* A layer of a tensor and a number. */
static trm_tensor *with(trm_network *network, trm_elementwise_op op, trm_tensor *x, float value)
{
    return net_binary(network, "with", op, x, scalar(network, value));
}

static trm_tensor *unary(trm_network *network, const char *name, trm_unary_op op, trm_tensor *x)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_UNARY, .unary = {.op = op}}, x, NULL, NULL,
                     NULL);
}

static trm_tensor *mean(trm_network *network, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_AVG, -1, true}};
    return net_layer(network, "mean", desc, x, NULL, NULL, NULL);
}

static trm_tensor *transpose(trm_network *network, const char *name, trm_tensor *x, int32_t a, int32_t b, int32_t c,
                             int32_t d)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {.perm = {a, b, c, d}}};
    return net_layer(network, name, desc, x, NULL, NULL, NULL);
}

/* ---- activations ------------------------------------------------------------------------------- */

typedef trm_tensor *(*form)(trm_network *network, trm_tensor *x);

/* The last layer of a form of x must become `after`. */
static void check_activation(form write, const char *after)
{
    trm_network *network = net_create();
    trm_tensor *y = write(network, net_input(network, "x", TRM_F32, DIMS(-1, 6)));
    if (strcmp(y->name, "y") != 0) {
        assert_ok(trm_network_rename_tensor(network, y, "y"));
    }
    net_output(network, y);
    check_pass(network, fuse, after);
}

static trm_tensor *one_plus_erf(trm_network *network, trm_tensor *x)
{
    return with(network, ADD, unary(network, "erf", TRM_UNARY_ERF, with(network, DIV, x, 1.41421356f)), 1);
}

/* torch: x / sqrt 2, erf, + 1, x *, * 0.5 */
static trm_tensor *gelu_of_torch(trm_network *network, trm_tensor *x)
{
    return with(network, MUL, net_binary(network, "xg", MUL, x, one_plus_erf(network, x)), 0.5f);
}

/* 0.5 * x first */
static trm_tensor *gelu_by_half(trm_network *network, trm_tensor *x)
{
    return net_binary(network, "y", MUL, with(network, MUL, x, 0.5f), one_plus_erf(network, x));
}

static trm_tensor *gelu_wrong_root(trm_network *network, trm_tensor *x)
{
    trm_tensor *gate = with(network, ADD, unary(network, "erf", TRM_UNARY_ERF, with(network, DIV, x, 1.5f)), 1);
    return with(network, MUL, net_binary(network, "xg", MUL, x, gate), 0.5f);
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static trm_tensor *gelu_tanh(trm_network *network, trm_tensor *x)
{
    trm_tensor *cube = with(network, MUL, with(network, POW, x, 3), 0.044715f);
    trm_tensor *inner = with(network, MUL, net_binary(network, "poly", ADD, x, cube), 0.79788456f);
    trm_tensor *gate = with(network, ADD, net_unary(network, "tanh", TANH, inner), 1);
    return net_binary(network, "y", MUL, with(network, MUL, x, 0.5f), gate);
}

/* 0.5 x (1 + tanh(x sqrt(2 / pi) (1 + 0.044715 x x))) */
static trm_tensor *gelu_tanh_factored(trm_network *network, trm_tensor *x)
{
    trm_tensor *square = net_binary(network, "square", MUL, with(network, MUL, x, 0.044715f), x);
    trm_tensor *inner =
        net_binary(network, "poly", MUL, with(network, MUL, x, 0.79788456f), with(network, ADD, square, 1));
    trm_tensor *gate = with(network, ADD, net_unary(network, "tanh", TANH, inner), 1);
    return net_binary(network, "y", MUL, with(network, MUL, x, 0.5f), gate);
}

static trm_tensor *quick_gelu(trm_network *network, trm_tensor *x)
{
    trm_tensor *gate = net_unary(network, "gate", TRM_ACTIVATION_SIGMOID, with(network, MUL, x, 1.702f));
    return net_binary(network, "y", MUL, x, gate);
}

static trm_tensor *swish(trm_network *network, trm_tensor *x)
{
    trm_tensor *gate = net_unary(network, "gate", TRM_ACTIVATION_SIGMOID, with(network, MUL, x, 1.5f));
    return net_binary(network, "y", MUL, gate, x);
}

static trm_tensor *hard_swish(trm_network *network, trm_tensor *x)
{
    trm_layer_desc clip = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_CLIP, .alpha = 0, .beta = 6}};
    trm_tensor *gate = net_layer(network, "clip", clip, with(network, ADD, x, 3), NULL, NULL, NULL);
    return with(network, DIV, net_binary(network, "xg", MUL, x, gate), 6);
}

static trm_tensor *mish(trm_network *network, trm_tensor *x)
{
    trm_tensor *soft = net_unary(network, "soft", TRM_ACTIVATION_SOFTPLUS, x);
    return net_binary(network, "y", MUL, x, net_unary(network, "tanh", TANH, soft));
}

static void activations_become_one_layer(void **state)
{
    (void)state;
    static const char gelu[] = "y: f32 [?, 6] = unary(x) op=activation activation=gelu\noutput y\n";
    static const char tanh[] = "y: f32 [?, 6] = unary(x) op=activation activation=gelu_tanh\noutput y\n";
    check_activation(gelu_by_half, gelu);
    check_activation(gelu_tanh, tanh);
    check_activation(gelu_tanh_factored, tanh);
    check_activation(quick_gelu, "y: f32 [?, 6] = unary(x) op=activation activation=quick_gelu\noutput y\n");
    check_activation(swish, "y: f32 [?, 6] = unary(x) op=swish alpha=1.5\noutput y\n");
    check_activation(mish, "y: f32 [?, 6] = unary(x) op=activation activation=mish\noutput y\n");
    check_activation(gelu_of_torch, "y: f32 [?, 6] = unary(x) op=activation activation=gelu # with.2\noutput y\n");
    check_activation(hard_swish, "y: f32 [?, 6] = unary(x) op=activation activation=hard_swish # with.1\noutput y\n");
    check_activation(gelu_wrong_root, NULL);
}

static void activations_that_are_read_inside_stay(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 6)), *gate = one_plus_erf(network, x);
    net_output(network, net_binary(network, "y", MUL, with(network, MUL, x, 0.5f), gate));
    net_output(network, gate);
    check_pass(network, fuse, NULL);
}

/* ---- norms ------------------------------------------------------------------------------------- */

static trm_tensor *layer_norm(trm_network *network, trm_tensor *x, bool by_root)
{
    trm_tensor *d = net_binary(network, "d", SUB, x, mean(network, x));
    trm_tensor *square = by_root ? with(network, POW, d, 2) : net_binary(network, "square", MUL, d, d);
    trm_tensor *root = unary(network, "root", TRM_UNARY_SQRT, with(network, ADD, mean(network, square), 0.25f));
    return by_root ? net_binary(network, "n", DIV, d, root)
                   : net_binary(network, "n", MUL, d, unary(network, "inverse", TRM_UNARY_RECIPROCAL, root));
}

static void norms_become_one_layer(void **state)
{
    (void)state;
    for (int32_t by_root = 0; by_root < 2; by_root++) {
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3, 4));
        trm_tensor *n = layer_norm(network, x, by_root);
        n = net_binary(network, "w", MUL, n, net_values(network, "weight", DIMS(4)));
        net_output(network, net_binary(network, "y", ADD, net_values(network, "bias", DIMS(4)), n));
        check_pass(network, fuse, "y: f32 [?, 3, 4] = norm(x, weight, bias) op=layer eps=0.25\noutput y\n");
    }
}

static void norm_of_a_sum_takes_it_over(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(5, 4)), *z = net_input(network, "z", TRM_F32, DIMS(5, 4));
    trm_tensor *sum = net_binary(network, "sum", ADD, x, z);
    trm_tensor *n = layer_norm(network, sum, true);
    net_output(network, net_binary(network, "y", MUL, n, net_values(network, "weight", DIMS(4))));
    net_output(network, sum);
    check_pass(
        network, fuse,
        "y: f32 [5, 4], sum: f32 [5, 4] = norm(z, x, weight) op=layer residual eps=0.25\noutput y\noutput sum\n");
}

static void root_mean_square_norms(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *square = with(network, ADD, mean(network, with(network, POW, x, 2)), 1e-5f);
    trm_tensor *inverse =
        net_binary(network, "inverse", DIV, scalar(network, 1), unary(network, "root", TRM_UNARY_SQRT, square));
    trm_tensor *n = net_binary(network, "n", MUL, x, inverse);
    net_output(network, net_binary(network, "y", MUL, net_values(network, "weight", DIMS(4)), n));
    check_pass(network, fuse, "y: f32 [?, 4] = norm(x, weight) op=rms eps=1e-05\noutput y\n");
}

static void norms_in_f32_between_casts(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_layer_desc narrow = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_F16}};
    trm_layer_desc widen = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_F32}};
    trm_tensor *h = net_layer(network, "h", narrow, net_input(network, "x", TRM_F32, DIMS(3, 4)), NULL, NULL, NULL);
    trm_tensor *n = layer_norm(network, net_layer(network, "wide", widen, h, NULL, NULL, NULL), true);
    n = net_layer(network, "back", narrow, n, NULL, NULL, NULL);
    net_output(network, net_layer(network, "y", widen, n, NULL, NULL, NULL));
    check_pass(network, fuse,
               "h: f16 [3, 4] = cast(x) to=f16\n"
               "back: f16 [3, 4] = norm(h) op=layer eps=0.25\n"
               "y: f32 [3, 4] = cast(back) to=f32\n"
               "output y\n");
}

static void norms_that_differ_stay(void **state)
{
    (void)state;
    for (int32_t miss = 0; miss < 3; miss++) {
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4, 4));
        trm_layer_desc along = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_AVG, miss == 0 ? 1 : 2, true}};
        trm_tensor *square = with(network, POW, x, miss == 1 ? 3 : 2);
        trm_tensor *variance = net_layer(network, "variance", along, square, NULL, NULL, NULL);
        trm_tensor *root = unary(network, "root", TRM_UNARY_SQRT, with(network, ADD, variance, 8));
        net_output(network, net_binary(network, "y", DIV, x, root));
        if (miss == 2) {
            net_output(network, root);
        }
        check_pass(network, fuse, NULL);
    }
}

/* ---- attention --------------------------------------------------------------------------------- */

enum { B = 2, H = 3, D = 4, E = 5 };

typedef struct parts {
    trm_network *network;
    trm_tensor *q, *k, *v;
} parts;

static parts begin_attention(int64_t queries)
{
    parts p = {.network = net_create()};
    p.q = net_input(p.network, "q", TRM_F32, DIMS(B, H, queries, D));
    p.k = net_input(p.network, "k", TRM_F32, DIMS(B, H, 7, D));
    p.v = net_input(p.network, "v", TRM_F32, DIMS(B, H, 7, E));
    return p;
}

static trm_tensor *product(const parts *p, const char *name, trm_tensor *a, trm_tensor *b, bool transpose_b)
{
    trm_tensor *output = NULL;
    assert_ok(trm_network_add_matmul(p->network, name, a, b, NULL, transpose_b, &output));
    return output;
}

static trm_tensor *softmax(const parts *p, trm_tensor *x, int32_t axis)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SOFTMAX, .softmax = {axis}};
    return net_layer(p->network, "softmax", desc, x, NULL, NULL, NULL);
}

/* BERT: q k^T / 2 + mask. */
static void attention_with_an_added_mask(void **state)
{
    (void)state;
    parts p = begin_attention(6);
    trm_tensor *mask = net_input(p.network, "mask", TRM_F32, DIMS(B, 1, 1, 7));
    trm_tensor *scores =
        with(p.network, DIV, product(&p, "qk", p.q, transpose(p.network, "kt", p.k, 0, 1, 3, 2), false), 2);
    scores = net_binary(p.network, "masked", ADD, scores, mask);
    net_output(p.network, product(&p, "y", softmax(&p, scores, -1), p.v, false));
    check_pass(p.network, fuse,
               "kt: f32 [2, 3, 7, 4] = transpose(k) perm=[0, 1, 2, 3]\n"
               "y: f32 [2, 3, 6, 5] = attention(q, kt, v, -, -, -, -, -, mask) form=padded_bhnd "
               "scale=0.5 n_ranks=1\n"
               "output y\n");
}

/* torch: the root of the scale on q and on k^T, which is made from [B, M, H, D]; NaN of rows that see nothing made 0.
 */
static void attention_with_the_scale_on_both(void **state)
{
    (void)state;
    parts p = begin_attention(-1);
    trm_tensor *k = net_input(p.network, "kd", TRM_F32, DIMS(B, 7, H, D));
    trm_tensor *kt = with(p.network, MUL, transpose(p.network, "kt", k, 0, 2, 3, 1), 0.5f);
    trm_tensor *weights = softmax(&p, product(&p, "qk", with(p.network, MUL, p.q, 0.25f), kt, false), 3);
    trm_layer_desc desc = {.kind = TRM_LAYER_SELECT};
    weights = net_layer(p.network, "safe", desc, unary(p.network, "nan", TRM_UNARY_IS_NAN, weights),
                        scalar(p.network, 0), weights, NULL);
    net_output(p.network, product(&p, "y", weights, p.v, false));
    check_pass(p.network, fuse,
               "kt: f32 [2, 3, 7, 4] = transpose(kd) perm=[0, 2, 1, 3]\n"
               "y: f32 [2, 3, ?, 5] = attention(q, kt, v) form=padded_bhnd scale=0.125 n_ranks=1\n"
               "output y\n");
}

/* torch.export: batch and heads are one axis while k is turned. */
static void attention_with_keys_turned_as_one_batch(void **state)
{
    (void)state;
    parts p = begin_attention(-1);
    trm_tensor *merged = NULL, *kt = NULL;
    assert_ok(trm_network_add_reshape(p.network, "merged", p.k, DIMS(-1, 7, D), &merged));
    trm_layer_desc turn = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {.perm = {0, 2, 1}}};
    merged = net_layer(p.network, "turned", turn, merged, NULL, NULL, NULL);
    assert_ok(trm_network_add_reshape(p.network, "kt", merged, DIMS(B, H, D, 7), &kt));
    net_output(p.network, product(&p, "y", softmax(&p, product(&p, "qk", p.q, kt, false), 3), p.v, false));
    check_pass(p.network, fuse,
               "y: f32 [2, 3, ?, 5] = attention(q, k, v) form=padded_bhnd scale=1 n_ranks=1\n"
               "output y\n");

    p = begin_attention(-1); /* and are made as one */
    merged = net_input(p.network, "x", TRM_F32, DIMS(7, B * H, D));
    turn = (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {.perm = {1, 2, 0}}};
    merged = net_layer(p.network, "turned", turn, merged, NULL, NULL, NULL);
    assert_ok(trm_network_add_reshape(p.network, "kt", merged, DIMS(B, H, D, -1), &kt));
    net_output(p.network, product(&p, "y", softmax(&p, product(&p, "qk", p.q, kt, false), 3), p.v, false));
    check_pass(p.network, fuse,
               "turned: f32 [6, 7, 4] = transpose(x) perm=[1, 0, 2]\n"
               "kt: f32 [2, 3, 7, 4] = reshape(turned) dims=[2, 3, -1, 4]\n"
               "y: f32 [2, 3, ?, 5] = attention(q, kt, v) form=padded_bhnd scale=1 n_ranks=1\n"
               "output y\n");
}

/* Causal: a choice between the scores and a large negative number, `flipped` in the other order. */
static void attention_by_choice(bool flipped, bool added, const char *after)
{
    parts p = begin_attention(7);
    bool seen[7 * 7];
    for (int32_t i = 0; i < 7 * 7; i++) {
        seen[i] = (i % 7 <= i / 7) != flipped;
    }
    trm_tensor *causal = NULL, *scores = product(&p, "qk", p.q, p.k, true), *low = scalar(p.network, -1e9f);
    assert_ok(trm_network_add_constant(p.network, "causal", TRM_BOOL, DIMS(1, 1, 7, 7), seen, &causal));
    scores = net_layer(p.network, "chosen", (trm_layer_desc){.kind = TRM_LAYER_SELECT}, causal, flipped ? low : scores,
                       flipped ? scores : low, NULL);
    if (added) {
        trm_tensor *mask = net_input(p.network, "mask", TRM_F32, DIMS(B, 1, 1, 7));
        scores = net_binary(p.network, "masked", ADD, scores, mask);
    }
    net_output(p.network, product(&p, "y", softmax(&p, scores, -1), p.v, false));
    check_pass(p.network, fuse, after);
}

static void attention_with_a_choice(void **state)
{
    (void)state;
    attention_by_choice(false, false,
                        "y: f32 [2, 3, 7, 5] = attention(q, k, v, -, -, -, -, -, causal) "
                        "form=padded_bhnd scale=1 n_ranks=1\n"
                        "output y\n");
    attention_by_choice(true, false,
                        "chosen: bool [1, 1, 7, 7] = unary(causal) op=not\n"
                        "y: f32 [2, 3, 7, 5] = attention(q, k, v, -, -, -, -, -, chosen) "
                        "form=padded_bhnd scale=1 n_ranks=1\n"
                        "output y\n");
    attention_by_choice(false, true,
                        "chosen: f32 [2, 1, 7, 7] = select(causal, mask, c)\n"
                        "y: f32 [2, 3, 7, 5] = attention(q, k, v, -, -, -, -, -, chosen) "
                        "form=padded_bhnd scale=1 n_ranks=1\n"
                        "output y\n");
}

static void attention_that_differs_stays(void **state)
{
    (void)state;
    for (int32_t miss = 0; miss < 4; miss++) {
        parts p = begin_attention(7);
        trm_tensor *k = p.k, *v = p.v;
        if (miss == 0) { /* keys that all heads share */
            k = net_input(p.network, "shared", TRM_F32, DIMS(B, 1, 7, D));
        }
        if (miss == 3) { /* f64 is not what the layer computes */
            trm_layer_desc wide = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_F64}};
            p.q = net_layer(p.network, "wq", wide, p.q, NULL, NULL, NULL);
            k = net_layer(p.network, "wk", wide, k, NULL, NULL, NULL);
            v = net_layer(p.network, "wv", wide, v, NULL, NULL, NULL);
        }
        trm_tensor *weights = softmax(&p, product(&p, "qk", p.q, k, true), miss == 1 ? 2 : 3);
        trm_tensor *y = product(&p, "y", weights, v, false);
        if (miss == 3) {
            trm_layer_desc narrow = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_F32}};
            y = net_layer(p.network, "z", narrow, y, NULL, NULL, NULL);
        }
        net_output(p.network, y);
        if (miss == 2) {
            net_output(p.network, weights);
        }
        check_pass(p.network, fuse, NULL);
    }
}

/* ---- rotary positions -------------------------------------------------------------------------- */

static trm_tensor *slice(trm_network *network, trm_tensor *x, int64_t start, int64_t end, int64_t step)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SLICE, .slice = {-1, start, end, step}};
    return net_layer(network, "part", desc, x, NULL, NULL, NULL);
}

static trm_tensor *join(trm_network *network, const char *name, trm_tensor *a, trm_tensor *b)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_CONCAT, .concat = {-1}}, a, b, NULL, NULL);
}

/* a and b as neighbours: [.., n] each, joined on a new last axis and flattened. */
static trm_tensor *weave(trm_network *network, const char *name, trm_tensor *a, trm_tensor *b)
{
    trm_tensor *c = NULL, *d = NULL, *flat = NULL;
    assert_ok(trm_network_add_reshape(network, "a1", a, DIMS(0, 0, 0, 1), &c));
    assert_ok(trm_network_add_reshape(network, "b1", b, DIMS(0, 0, 0, 1), &d));
    trm_tensor *both =
        net_layer(network, "both", (trm_layer_desc){.kind = TRM_LAYER_CONCAT, .concat = {-1}}, c, d, NULL, NULL);
    assert_ok(trm_network_add_reshape(network, name, both, DIMS(0, 0, -1), &flat));
    return flat;
}

/* x * cos + (-b, a) * sin */
static void rotation_by_turning(bool interleaved, bool partial, const char *after)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 5, 8)), *whole = x;
    trm_tensor *c = net_input(network, "cos", TRM_F32, DIMS(5, partial ? 6 : 8));
    trm_tensor *s = net_input(network, "sin", TRM_F32, DIMS(5, partial ? 6 : 8));
    const int64_t half = partial ? 3 : 4;
    x = partial ? slice(network, x, 0, 6, 1) : x;
    trm_tensor *a = slice(network, x, 0, interleaved ? INT64_MAX : half, interleaved ? 2 : 1);
    trm_tensor *b = slice(network, x, interleaved ? 1 : -half, INT64_MAX, interleaved ? 2 : 1);
    b = unary(network, "negated", TRM_UNARY_NEG, b);
    trm_tensor *turned = interleaved ? weave(network, "turned", b, a) : join(network, "turned", b, a);
    trm_tensor *y =
        net_binary(network, "y", ADD, net_binary(network, "xc", MUL, x, c), net_binary(network, "ts", MUL, turned, s));
    net_output(network, partial ? join(network, "z", y, slice(network, whole, 6, INT64_MAX, 1)) : y);
    check_pass(network, fuse, after);
}

/* a cos - b sin, a sin + b cos, with an angle for each pair */
static void rotation_by_parts(bool interleaved, const char *after)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 5, 8));
    trm_tensor *c = net_input(network, "cos", TRM_F32, DIMS(2, 1, 4)),
               *s = net_input(network, "sin", TRM_F32, DIMS(2, 1, 4));
    trm_tensor *a = slice(network, x, 0, interleaved ? INT64_MAX : 4, interleaved ? 2 : 1);
    trm_tensor *b = slice(network, x, interleaved ? 1 : 4, INT64_MAX, interleaved ? 2 : 1);
    trm_tensor *p =
        net_binary(network, "p", SUB, net_binary(network, "ac", MUL, a, c), net_binary(network, "bs", MUL, b, s));
    trm_tensor *q =
        net_binary(network, "q", ADD, net_binary(network, "as", MUL, a, s), net_binary(network, "bc", MUL, b, c));
    net_output(network, interleaved ? weave(network, "y", p, q) : join(network, "y", p, q));
    check_pass(network, fuse, after);
}

static void rotations_become_one_layer(void **state)
{
    (void)state;
    rotation_by_turning(false, false, "y: f32 [2, 5, 8] = rotate(x, cos, sin) rotary_dim=8\noutput y\n");
    rotation_by_turning(true, false, "y: f32 [2, 5, 8] = rotate(x, cos, sin) rotary_dim=8 interleaved\noutput y\n");
    rotation_by_turning(false, true, "z: f32 [2, 5, 8] = rotate(x, cos, sin) rotary_dim=6\noutput z\n");
    rotation_by_parts(false, "y: f32 [2, 5, 8] = rotate(x, cos, sin) rotary_dim=8\noutput y\n");
    rotation_by_parts(true, "y: f32 [2, 5, 8] = rotate(x, cos, sin) rotary_dim=8 interleaved\noutput y\n");
}

/* The halves in the order that turns the other way, and halves of different sizes. */
static void rotations_that_differ_stay(void **state)
{
    (void)state;
    for (int32_t miss = 0; miss < 2; miss++) {
        trm_network *network = net_create();
        trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(2, 5, 8));
        trm_tensor *c = net_input(network, "cos", TRM_F32, DIMS(5, 8)),
                   *s = net_input(network, "sin", TRM_F32, DIMS(5, 8));
        trm_tensor *a = slice(network, x, 0, miss == 0 ? 4 : 3, 1),
                   *b = slice(network, x, miss == 0 ? 4 : 3, INT64_MAX, 1);
        if (miss == 0) {
            a = unary(network, "negated", TRM_UNARY_NEG, a);
        } else {
            b = unary(network, "negated", TRM_UNARY_NEG, b);
        }
        trm_tensor *turned = join(network, "turned", b, a);
        net_output(network, net_binary(network, "y", ADD, net_binary(network, "xc", MUL, x, c),
                                       net_binary(network, "ts", MUL, turned, s)));
        check_pass(network, fuse, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_become_one_layer),
        cmocka_unit_test(activations_that_are_read_inside_stay),
        cmocka_unit_test(norms_become_one_layer),
        cmocka_unit_test(norm_of_a_sum_takes_it_over),
        cmocka_unit_test(root_mean_square_norms),
        cmocka_unit_test(norms_in_f32_between_casts),
        cmocka_unit_test(norms_that_differ_stay),
        cmocka_unit_test(attention_with_an_added_mask),
        cmocka_unit_test(attention_with_the_scale_on_both),
        cmocka_unit_test(attention_with_a_choice),
        cmocka_unit_test(attention_with_keys_turned_as_one_batch),
        cmocka_unit_test(attention_that_differs_stays),
        cmocka_unit_test(rotations_become_one_layer),
        cmocka_unit_test(rotations_that_differ_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
