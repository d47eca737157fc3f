/*
 * The choices of the partitioner on known networks: that it finds the splits the field has found by hand, honours pins,
 * handles sizes that do not divide, and does so quickly and alike on every rank.
 */
#include <stdio.h>
#include <time.h>

#include "dist/partition/partition.h"
#include "dist/plan/plan.h"
#include "graph/nets.h"
#include "graph/regions.h"
#include "support/decoder.h"
#include "support/support.h"

static const test_decoder llama_8b = {.layers = 2,
                                      .hidden = 4096,
                                      .heads = 32,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .intermediate = 14336,
                                      .vocab = 128256,
                                      .dtype = TRM_BF16,
                                      .spread = 0.02f};

static trm_mesh tp(int32_t n)
{
    return (trm_mesh){{n, 1, 1, 1, 1}};
}

static trm_network *partition(const trm_network *network, trm_mesh mesh, int32_t rank, trm_partition_report *report)
{
    trm_cost_model model;
    trm_network *local;
    trm_cost_model_default(TRM_BACKEND_CUDA, &model);
    assert_ok(trm_partition(network, &mesh, rank, &model, &local, report));
    return local;
}

static void expect_dims(const trm_network *network, const char *name, trm_dims expected)
{
    trm_tensor *tensor = trm_network_find_tensor(network, name);
    char found[TRM_DIMS_TEXT_SIZE], wanted[TRM_DIMS_TEXT_SIZE];
    if (tensor == NULL || !trm_dims_equal(&tensor->dims, &expected)) {
        fail_msg("%s has dims %s, expected %s", name,
                 tensor == NULL ? "of no tensor" : trm_dims_format(&tensor->dims, found),
                 trm_dims_format(&expected, wanted));
    }
}

static int32_t count_op(const trm_network *network, trm_collective_op op)
{
    int32_t n = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer_desc *desc = &network->layers[i]->desc;
        n += desc->kind == TRM_LAYER_DIST_COLLECTIVE && desc->collective.op == op;
    }
    return n;
}

static int32_t count_collectives(const trm_network *network)
{
    int32_t n = 0;
    for (trm_collective_op op = TRM_ALL_REDUCE; op <= TRM_RECV; op++) {
        n += count_op(network, op);
    }
    return n;
}

static trm_layer *find_layer(const trm_network *network, const char *name)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        if (strcmp(network->layers[i]->name, name) == 0) {
            return network->layers[i];
        }
    }
    fail_msg("there is no layer %s", name);
    return NULL;
}

/* q, k, v, gate and up by columns, o and down by rows, one all-reduce after each of the two. */
static void finds_megatron(void **unused)
{
    (void)unused;
    trm_network *network = test_decoder_network(&llama_8b);
    for (int32_t n = 2; n <= 8; n *= 2) {
        trm_partition_report report;
        trm_network *local = partition(network, tp(n), n - 1, &report);
        expect_dims(local, "layers.0.q_proj.weight", (trm_dims){2, {4096 / n, 4096}});
        expect_dims(local, "layers.0.k_proj.weight", (trm_dims){2, {1024 / n, 4096}});
        expect_dims(local, "layers.0.v_proj.weight", (trm_dims){2, {1024 / n, 4096}});
        expect_dims(local, "layers.0.q_heads", (trm_dims){3, {-1, 32 / n, 128}});
        expect_dims(local, "layers.0.key_cache", (trm_dims){4, {-1, 16, 8 / n, 128}});
        expect_dims(local, "layers.0.o_proj.weight", (trm_dims){2, {4096, 4096 / n}});
        expect_dims(local, "layers.1.gate_proj.weight", (trm_dims){2, {14336 / n, 4096}});
        expect_dims(local, "layers.1.up_proj.weight", (trm_dims){2, {14336 / n, 4096}});
        expect_dims(local, "layers.1.down_proj.weight", (trm_dims){2, {4096, 14336 / n}});
        expect_dims(local, "embed_tokens.weight", (trm_dims){2, {128256 / n, 4096}});
        expect_dims(local, "lm_head.weight", (trm_dims){2, {128256 / n, 4096}});
        expect_dims(local, "logits", (trm_dims){2, {-1, 128256}});
        assert_int_equal(count_op(local, TRM_ALL_REDUCE), 1 + 2 * llama_8b.layers);
        assert_int_equal(count_op(local, TRM_ALL_GATHER), 1);
        assert_int_equal(count_collectives(local), report.n_collectives);
        assert_int_equal(report.n_collectives, 2 + 2 * llama_8b.layers);
        assert_string_equal(report.note, "");
        assert_int_equal(find_layer(local, "embed_tokens")->desc.embedding.first_row, 128256 / n * (n - 1));
        find_layer(local, "layers.0.o_proj.all_reduce");
        find_layer(local, "logits.all_gather");
        trm_network_destroy(local);
    }
    trm_network_destroy(network);
}

static void shares_one_table_when_tied(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.tied = true;
    trm_network *network = test_decoder_network(&decoder);
    trm_network *local = partition(network, tp(4), 1, NULL);
    int32_t tables = 0;
    for (int32_t i = 0; i < local->n_tensors; i++) {
        tables += strncmp(local->tensors[i]->name, "embed_tokens.weight", 19) == 0;
    }
    assert_int_equal(tables, 1);
    expect_dims(local, "embed_tokens.weight", (trm_dims){2, {128256 / 4, 4096}});
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* The sums of attention and MLP are added as they are, and reduced once. */
static void reduces_once_in_a_parallel_block(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.parallel = true;
    decoder.kv_heads = 32;
    trm_network *network = test_decoder_network(&decoder);
    trm_network *local = partition(network, tp(4), 1, NULL);
    trm_network *first = partition(network, tp(4), 0, NULL);
    assert_int_equal(count_op(local, TRM_ALL_REDUCE), 1 + decoder.layers);
    assert_int_equal(count_op(local, TRM_ALL_GATHER), 1);
    find_layer(local, "layers.1.mlp_and_attention.all_reduce");
    expect_dims(local, "layers.0.q_proj.bias", (trm_dims){1, {1024}});
    assert_null(trm_network_find_tensor(local, "layers.0.o_proj.bias")); /* in the first summand only */
    expect_dims(first, "layers.0.o_proj.bias", (trm_dims){1, {4096}});
    trm_network_destroy(first);
    trm_network_destroy(local);
    trm_network_destroy(network);
}

static void reduces_before_norms_after_blocks(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.post_norm = true;
    trm_network *network = test_decoder_network(&decoder);
    trm_network *local = partition(network, tp(4), 3, NULL);
    assert_int_equal(count_op(local, TRM_ALL_REDUCE), 1 + 2 * decoder.layers);
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* 8 ranks, 2 kv heads: neighbours hold the same one. */
static void shares_kv_heads(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.kv_heads = 2;
    trm_network *network = test_decoder_network(&decoder);
    trm_partition_report report;
    trm_network *local = partition(network, tp(8), 5, &report);
    expect_dims(local, "layers.0.q_proj.weight", (trm_dims){2, {512, 4096}});
    expect_dims(local, "layers.0.k_proj.weight", (trm_dims){2, {128, 4096}});
    expect_dims(local, "layers.0.key_cache", (trm_dims){4, {-1, 16, 1, 128}});
    assert_int_equal(report.n_collectives, 2 + 2 * decoder.layers);
    assert_string_equal(report.note, "");
    trm_network_destroy(local);
    trm_network_destroy(network);
}

static void keeps_whole_what_does_not_divide(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.heads = decoder.kv_heads = 5;
    trm_network *network = test_decoder_network(&decoder);
    trm_partition_report report;
    trm_network *local = partition(network, tp(4), 2, &report);
    expect_dims(local, "layers.0.key_cache", (trm_dims){4, {-1, 16, 5, 128}});
    expect_dims(local, "layers.0.up_proj.weight", (trm_dims){2, {14336 / 4, 4096}});
    assert_string_equal(report.note, "attention layers.0.attention and 1 more is replicated: 5 query and 5 kv heads do "
                                     "not divide over 4 ranks");
    trm_network_destroy(local);
    trm_network_destroy(network);
}

static void pads_vocabularies(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.vocab = 50257;
    trm_network *network = test_decoder_network(&decoder);
    trm_network *local = partition(network, tp(4), 3, NULL);
    expect_dims(local, "lm_head.weight", (trm_dims){2, {12565, 4096}});
    expect_dims(local, "embed_tokens.weight", (trm_dims){2, {12565, 4096}});
    expect_dims(local, "logits", (trm_dims){2, {-1, 50257}});
    assert_true(trm_network_find_tensor(local, "logits")->is_output);
    find_layer(local, "logits.trim");
    trm_network_destroy(local);
    trm_network_destroy(network);
}

static void runs_replicas(void **unused)
{
    (void)unused;
    trm_network *network = test_decoder_network(&llama_8b);
    trm_mesh mesh = {{2, 1, 1, 1, 2}};
    trm_network *local = partition(network, mesh, 3, NULL);
    const trm_collective_params *params = &find_layer(local, "layers.0.o_proj.all_reduce")->desc.collective;
    assert_int_equal(params->n_groups, 2);
    assert_int_equal(params->group_size, 2);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(params->groups[i], i);
    }
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* A convolution of images, its sum over the batch, and the mean of each image. */
static trm_network *make_images(int64_t batch, trm_tensor **image)
{
    trm_network *network = net_create();
    *image = net_input(network, "image", TRM_F32, DIMS(batch, 3, 32, 32));
    trm_layer_desc convolution = {.kind = TRM_LAYER_CONVOLUTION, .convolution = {.groups = 1}};
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        convolution.convolution.stride[i] = convolution.convolution.dilation[i] = 1;
        convolution.convolution.before[i] = convolution.convolution.after[i] = i < 2;
    }
    trm_tensor *w = net_weight(network, "w", DIMS(64, 3, 3, 3), 1);
    trm_tensor *x = net_layer(network, "convolved", convolution, *image, w, NULL, NULL);
    const trm_layer_desc sum = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_SUM, 0, false}};
    const trm_layer_desc mean = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_AVG, 3, false}};
    net_output(network, net_layer(network, "mean", mean, x, NULL, NULL, NULL));
    net_output(network, net_layer(network, "sum", sum, x, NULL, NULL, NULL));
    return network;
}

/* A part of the images and whole weights on every rank; what is outside of the network is whole. */
static void shares_batches(void **unused)
{
    (void)unused;
    trm_tensor *image;
    trm_network *network = make_images(64, &image);
    const trm_mesh mesh = {{1, 1, 1, 1, 4}};
    trm_partition_report report;
    trm_network *local = partition(network, mesh, 3, &report);
    expect_dims(local, "image", DIMS(64, 3, 32, 32));
    expect_dims(local, "image.part", DIMS(16, 3, 32, 32));
    expect_dims(local, "convolved", DIMS(16, 64, 32, 32));
    expect_dims(local, "w", DIMS(64, 3, 3, 3));
    expect_dims(local, "mean", DIMS(64, 64, 32));
    expect_dims(local, "sum", DIMS(64, 32, 32));
    assert_int_equal(find_layer(local, "image.part")->desc.slice.start, 48);
    assert_int_equal(count_op(local, TRM_ALL_GATHER), 1);
    assert_int_equal(count_op(local, TRM_ALL_REDUCE), 1);
    assert_int_equal(report.n_collectives, 2);
    /* 3/4 of the mean of 64 images once, of the sum twice */
    assert_true(report.bytes_exchanged == 0.75 * 4 * (64 * 64 * 32 + 2 * 64 * 32 * 32));
    assert_true(report.shares_batch);
    assert_string_equal(report.note, "");
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* dp is outermost: groups are ranks with the same places along the other axes. */
static void shares_batches_beside_tp(void **unused)
{
    (void)unused;
    trm_tensor *image;
    trm_network *network = make_images(64, &image);
    const trm_mesh mesh = {{2, 1, 1, 1, 2}};
    trm_network *local = partition(network, mesh, 1, NULL);
    const trm_collective_params *params = &find_layer(local, "sum.all_reduce")->desc.collective;
    static const int32_t expected[] = {0, 2, 1, 3};
    assert_int_equal(params->n_groups, 2);
    assert_int_equal(params->group_size, 2);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(params->groups[i], expected[i]);
    }
    expect_dims(local, "image.part", DIMS(32, 3, 32, 32));
    trm_network_destroy(local);
    trm_network_destroy(network);
}

static void says_why_no_batch_is_shared(void **unused)
{
    (void)unused;
    const trm_mesh mesh = {{1, 1, 1, 1, 2}};
    trm_partition_report report;
    trm_tensor *image;
    trm_network *network = make_images(63, &image), *local;
    assert_fails(trm_partition(network, &mesh, 1, NULL, &local, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "input image has a batch of 63, expected a multiple of 2, the ranks of mesh axis dp that share it");
    trm_network_destroy(network);
    network = make_images(1, &image);
    local = partition(network, mesh, 1, &report);
    assert_string_equal(report.note,
                        "mesh axis dp splits nothing: the first input has no batch, a first dimension other than 1");
    assert_false(report.shares_batch);
    trm_network_destroy(local);
    trm_network_destroy(network);
    network = net_create();
    const trm_layer_desc sorts = {.kind = TRM_LAYER_CUMULATIVE, .cumulative = {.axis = 0}};
    net_output(network,
               net_layer(network, "y", sorts, net_input(network, "x", TRM_F32, DIMS(-1, 4)), NULL, NULL, NULL));
    local = partition(network, mesh, 0, &report);
    assert_string_equal(report.note,
                        "mesh axis dp splits nothing: no layer is known to keep the entries of the batch apart");
    assert_int_equal(trm_network_input(local, 0)->batch_ranks, 0);
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* Stages of like weight, one tensor between them, and the logits everywhere. */
static void cuts_stages(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.layers = 8;
    trm_network *network = test_decoder_network(&decoder);
    trm_mesh mesh = {{2, 2, 1, 1, 2}};
    double bytes[8];
    for (int32_t rank = 0; rank < 8; rank++) {
        trm_network *local = partition(network, mesh, rank, NULL);
        int32_t stage = rank / 2 % 2;
        assert_int_equal(count_op(local, TRM_SEND), 1);
        assert_int_equal(count_op(local, TRM_RECV), 1);
        expect_dims(local, "logits", (trm_dims){2, {-1, 128256}});
        assert_true(trm_network_find_tensor(local, "logits")->is_output);
        assert_int_equal(trm_network_find_tensor(local, "embed_tokens.weight") != NULL, stage == 0);
        assert_int_equal(trm_network_find_tensor(local, "lm_head.weight") != NULL, stage == 1);
        const char *name = stage == 0 ? "logits.recv" : "logits.send";
        assert_int_equal(find_layer(local, name)->desc.collective.root, stage == 0 ? rank + 2 : rank - 2);
        bytes[rank] = 0.0;
        for (int32_t i = 0; i < local->n_tensors; i++) {
            const trm_tensor *tensor = local->tensors[i];
            bytes[rank] += tensor->weight != NULL ? (double)trm_dims_bytes(&tensor->dims, tensor->dtype) : 0.0;
        }
        trm_network_destroy(local);
    }
    assert_true(bytes[0] < 1.1 * bytes[2] && bytes[2] < 1.1 * bytes[0]);
    trm_mesh many = {{1, 64, 1, 1, 1}}, few = {{1, 2, 1, 1, 1}};
    trm_network *local;
    assert_ok(trm_partition(network, &many, 63, NULL, &local, NULL));
    trm_network_destroy(local);
    trm_network_destroy(network);

    trm_tensor *x, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){1, {4}}, &x));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, x, &y));
    assert_ok(trm_network_mark_output(network, y));
    assert_fails(trm_partition(network, &few, 0, NULL, &local, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "the network's 1 layers cannot be cut into 2 stages");
    trm_network_destroy(network);
}

/* A state read twice stays in one stage, and what comes has the size that two inputs broadcast to. */
static void cuts_around_states(void **unused)
{
    (void)unused;
    trm_network *network, *locals[2];
    trm_tensor *x, *y, *state, *t;
    trm_mesh mesh = {{1, 2, 1, 1, 1}};
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, 64}}, &x));
    assert_ok(trm_network_add_input(network, "y", TRM_F32, (trm_dims){2, {-1, 64}}, &y));
    assert_ok(trm_network_add_state(network, "state", TRM_F32, (trm_dims){1, {64}}, &state));
    assert_ok(trm_network_add_elementwise(network, "sum", TRM_ELEMENTWISE_ADD, x, y, &t));
    for (int32_t i = 0; i < 8; i++) {
        bool reads = i == 2 || i == 7;
        assert_ok(trm_network_add_elementwise(network, reads ? "with_state" : "layer", TRM_ELEMENTWISE_MUL, t,
                                              reads ? state : x, &t));
    }
    assert_ok(trm_network_mark_output(network, t));
    for (int32_t rank = 0; rank < 2; rank++) {
        locals[rank] = partition(network, mesh, rank, NULL);
    }
    assert_null(trm_network_find_tensor(locals[0], "state"));
    assert_non_null(trm_network_find_tensor(locals[1], "state"));
    bool received = false;
    for (int32_t i = 0; i < locals[1]->n_layers; i++) {
        const trm_layer_desc *desc = &locals[1]->layers[i]->desc;
        if (desc->kind == TRM_LAYER_DIST_COLLECTIVE && desc->collective.op == TRM_RECV) {
            assert_int_equal(desc->collective.dims.d[0], -(1 + 4)); /* axis 0 of x, axis 0 of y */
            received = true;
        }
    }
    assert_true(received);
    trm_network_destroy(locals[0]);
    trm_network_destroy(locals[1]);
    trm_network_destroy(network);
}

/* A RECV whose dims are its own. */
static void receives_what_it_has_nothing_like(void **unused)
{
    (void)unused;
    trm_network *network;
    trm_tensor *inputs[2], *received;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "ids", TRM_I32, (trm_dims){1, {-1}}, &inputs[0]));
    assert_ok(trm_network_add_input(network, "table", TRM_I32, (trm_dims){2, {3, -1}}, &inputs[1]));
    trm_layer_desc desc = {
        .kind = TRM_LAYER_DIST_COLLECTIVE,
        .collective = {.op = TRM_RECV, .root = 1, .n_ranks = 2, .dtype = TRM_BF16, .dims = {3, {-4, 7, -2}}}};
    assert_ok(trm_network_add_layer(network, "recv", &desc, inputs, 2, &received));
    assert_int_equal(received->dtype, TRM_BF16);
    expect_dims(network, "recv", (trm_dims){3, {-1, 7, 3}});
    desc.collective.dims.d[1] = -7; /* all three axes, broadcast */
    assert_ok(trm_network_add_layer(network, "broadcast", &desc, inputs, 2, &received));
    expect_dims(network, "broadcast", (trm_dims){3, {-1, -1, 3}});
    desc.collective.dims.d[1] = -8;
    assert_fails(trm_network_add_layer(network, "recv", &desc, inputs, 2, &received), TRM_ERROR_INVALID_ARGUMENT,
                 "dimension 1 of recv is -8: the inputs have no such axes");
    desc.collective.dims.n = 0;
    desc.collective.dtype = TRM_DTYPE_COUNT;
    assert_fails(trm_network_add_layer(network, "recv", &desc, inputs, 2, &received), TRM_ERROR_INVALID_ARGUMENT,
                 "recv has type invalid");
    desc.collective.dtype = TRM_F32;
    assert_fails(trm_network_add_layer(network, "recv", &desc, (trm_tensor *[]){NULL, inputs[0]}, 2, &received),
                 TRM_ERROR_INVALID_ARGUMENT, "input");
    trm_network_destroy(network);
}

static void honours_pins(void **unused)
{
    (void)unused;
    trm_network *network = test_decoder_network(&llama_8b);
    trm_tensor *q = trm_network_find_tensor(network, "layers.0.q_proj.weight");
    trm_tensor *down = trm_network_find_tensor(network, "layers.1.down_proj");
    assert_ok(trm_network_pin(network, q, "replicate"));
    assert_ok(trm_network_pin(network, down, "split 1"));
    trm_network *local = partition(network, tp(2), 0, NULL);
    expect_dims(local, "layers.0.q_proj.weight", (trm_dims){2, {4096, 4096}});
    expect_dims(local, "layers.1.q_proj.weight", (trm_dims){2, {2048, 4096}});
    assert_int_equal(count_op(local, TRM_REDUCE_SCATTER), 1);
    trm_network_destroy(local);

    trm_mesh mesh = tp(2), three = tp(3);
    assert_ok(trm_network_pin(network, down, "split 0"));
    assert_fails(trm_partition(network, &mesh, 0, NULL, &local, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "tensor layers.1.down_proj cannot be pinned to \"split 0\": the size of axis 0");
    assert_ok(trm_network_pin(network, down, "split 1"));
    assert_fails(trm_partition(network, &three, 0, NULL, &local, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "axis 1 of [?, 4096] does not divide over 3 ranks");
    assert_ok(trm_network_pin(network, down, NULL));
    assert_ok(trm_network_pin(network, trm_network_find_tensor(network, "norm.weight"), "split 0"));
    assert_fails(trm_partition(network, &mesh, 0, NULL, &local, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "layer norm cannot run");
    trm_network_destroy(network);
}

enum { LOOPED = 4, PLAIN = 16, HIDDEN = 256 };

/* A counted loop of LOOPED products, then PLAIN products. */
static trm_network *looped_products(void)
{
    static const trm_layer_desc less = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {.op = TRM_ELEMENTWISE_LESS}};
    static const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL};
    const int64_t numbers[] = {0, 1};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(1, HIDDEN)), *zero, *one;
    trm_tensor *n = net_input(network, "n", TRM_I64, (trm_dims){0});
    assert_ok(trm_network_add_constant(network, "zero", TRM_I64, (trm_dims){0}, &numbers[0], &zero));
    assert_ok(trm_network_add_constant(network, "one", TRM_I64, (trm_dims){0}, &numbers[1], &one));
    const trm_layer_desc carries = {.kind = TRM_LAYER_RECURRENCE}, enters = {.kind = TRM_LAYER_ENTER};
    const trm_layer_desc begins = {.kind = TRM_LAYER_LOOP}, ends = {.kind = TRM_LAYER_END_LOOP};
    const trm_layer_desc next = {.kind = TRM_LAYER_NEXT}, leaves = {.kind = TRM_LAYER_LOOP_OUTPUT};
    trm_tensor *state = net_layer(network, "state", carries, x, NULL, NULL, NULL);
    trm_tensor *pass = net_layer(network, "pass", carries, zero, NULL, NULL, NULL);
    trm_tensor *first = net_layer(network, "first", less, zero, n, NULL, NULL);
    trm_tensor *begun = net_layer(network, "loop", begins, first, NULL, NULL, NULL);
    trm_tensor *t = state;
    for (int32_t i = 0; i < LOOPED + PLAIN; i++) {
        char name[32];
        if (i == LOOPED) {
            trm_tensor *count = net_binary(network, "count", TRM_ELEMENTWISE_ADD, pass, one);
            trm_tensor *trips = net_layer(network, "trips", enters, n, NULL, NULL, NULL);
            trm_tensor *again = net_layer(network, "again", less, count, trips, NULL, NULL);
            net_layer(network, "next", next, t, state, NULL, NULL);
            net_layer(network, "next_pass", next, count, pass, NULL, NULL);
            trm_tensor *end = net_layer(network, "end", ends, again, begun, NULL, NULL);
            t = net_layer(network, "last", leaves, state, end, NULL, NULL);
        }
        snprintf(name, sizeof(name), "%s%d.weight", i < LOOPED ? "looped" : "plain", i);
        trm_tensor *weight = net_weight(network, name, DIMS(HIDDEN, HIDDEN), (uint64_t)i);
        *strchr(name, '.') = '\0';
        t = net_layer(network, name, product, t, weight, NULL, NULL);
    }
    net_output(network, t);
    return network;
}

/* The weights that a stage has behind the loop. */
static int32_t count_plain(const trm_network *local)
{
    int32_t n = 0;
    for (int32_t i = 0; i < local->n_tensors; i++) {
        const trm_tensor *tensor = local->tensors[i];
        n += tensor->weight != NULL && strncmp(tensor->name, "plain", 5) == 0;
    }
    return n;
}

/* A loop weighs as many passes as are known, or thought, to run. */
static void cuts_weigh_the_passes_of_loops(void **unused)
{
    (void)unused;
    static const struct {
        int32_t passes, least, most; /* 0: nothing is known; of PLAIN products in the first stage */
    } cases[] = {{1, 5, 7}, {2, 3, 5}, {3, 1, 3}, {0, 0, 3}};
    trm_network *network = looped_products();
    const trm_mesh mesh = {{1, 2, 1, 1, 1}};
    double seconds[4];
    for (int32_t i = 0; i < 4; i++) {
        trm_cost_model model;
        trm_partition_report report;
        trm_network *local;
        int32_t runs[64];
        trm_cost_model_default(TRM_BACKEND_HOST, &model);
        model.memory_price = 0; /* time alone */
        for (int32_t k = 0; k < network->n_layers; k++) {
            const bool inside = k > trm_network_find_tensor(network, "loop")->producer->index &&
                                k < trm_network_find_tensor(network, "end")->producer->index;
            runs[k] = inside ? cases[i].passes : 1;
        }
        model.runs = cases[i].passes > 0 ? runs : NULL;
        assert_ok(trm_partition(network, &mesh, 0, &model, &local, &report));
        assert_in_range(count_plain(local), cases[i].least, cases[i].most);
        seconds[i] =
            report.seconds / (double)((cases[i].passes > 0 ? cases[i].passes : 8) * LOOPED + count_plain(local));
        trm_network_destroy(local);
    }
    for (int32_t i = 1; i < 4; i++) { /* of a product, in the report, too */
        assert_true(seconds[i] < 1.1 * seconds[0] && seconds[i] > 0.9 * seconds[0]);
    }
    trm_network_destroy(network);
}

/* What a plan's bounds say of inputs is what is known. */
static void plans_know_the_passes_of_loops(void **unused)
{
    (void)unused;
    static const int64_t trips[] = {1, 24};
    trm_network *network = looped_products();
    int32_t plain[3];
    for (int32_t i = 0; i < 3; i++) {
        trm_build_options options = TRM_BUILD_OPTIONS_INIT;
        options.backend = TRM_BACKEND_HOST;
        const trm_shape_bound bound = {.tensor = "n", .max_values = &trips[1], .opt_values = &trips[i % 2]};
        trm_plan *plan;
        options.mesh.size[TRM_AXIS_PP] = 2;
        options.bounds = &bound;
        options.n_bounds = i < 2;
        assert_ok(trm_build(network, &options, &plan));
        plain[i] = count_plain(plan->network);
        trm_plan_destroy(plan);
    }
    assert_true(plain[0] > plain[2] && plain[2] > plain[1]); /* once, nobody knows, 24 times */
    trm_network_destroy(network);
}

/* What is made in parts and read in a loop is made whole before the loop begins. */
static void gathers_before_loops(void **unused)
{
    (void)unused;
    static const trm_layer_desc relu = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ACTIVATION}};
    trm_network *network = net_create(), *local;
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4, 8));
    trm_tensor *condition = net_input(network, "condition", TRM_BOOL, (trm_dims){0});
    trm_tensor *read = net_layer(network, "read", relu, x, NULL, NULL, NULL);
    assert_ok(trm_network_pin(network, read, "split 1"));
    assert_ok(trm_network_pin(network, x, "split 0"));
    const trm_layer_kind kinds[] = {TRM_LAYER_RECURRENCE, TRM_LAYER_LOOP,     TRM_LAYER_ENTER,      TRM_LAYER_ENTER,
                                    TRM_LAYER_NEXT,       TRM_LAYER_END_LOOP, TRM_LAYER_LOOP_OUTPUT};
    static const char *const names[] = {"state", "loop", "again", "here", "next", "end", "out"};
    trm_tensor *made[7], *sum = NULL;
    for (int32_t i = 0; i < 7; i++) {
        trm_tensor *const a[] = {x, condition, condition, read, sum, made[2], made[0]};
        trm_tensor *const b[] = {NULL, NULL, NULL, NULL, made[0], made[1], made[5]};
        made[i] = net_layer(network, names[i], (trm_layer_desc){.kind = kinds[i]}, a[i], b[i], NULL, NULL);
        sum = i == 3 ? net_binary(network, "sum", TRM_ELEMENTWISE_ADD, made[0], made[3]) : sum;
    }
    net_output(network, made[6]);
    trm_regions regions;
    assert_ok(trm_regions_init(network, &regions));
    trm_regions_fini(&regions);
    local = partition(network, tp(2), 1, NULL);
    assert_in_range(find_layer(local, "read.all_gather")->index, 0, find_layer(local, "loop")->index);
    assert_ok(trm_regions_init(local, &regions));
    trm_regions_fini(&regions);
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* A tensor that has the name of another's layer, as passes leave them. */
static void keeps_names_of_outputs(void **unused)
{
    (void)unused;
    static const trm_layer_desc relu = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ACTIVATION}};
    trm_network *network = net_create(), *local;
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4, 8));
    trm_tensor *a = net_layer(network, "b", relu, x, NULL, NULL, NULL), *b = NULL;
    assert_ok(trm_network_rename_tensor(network, a, "a"));
    b = net_layer(network, "c", relu, a, NULL, NULL, NULL);
    assert_ok(trm_network_rename_tensor(network, b, "b"));
    net_output(network, a);
    net_output(network, b);
    assert_ok(trm_network_pin(network, a, "split 1"));
    assert_ok(trm_network_pin(network, b, "split 0"));
    local = partition(network, tp(2), 0, NULL);
    assert_int_equal(local->n_outputs, 2);
    assert_string_equal(local->outputs[0]->name, "a");
    assert_string_equal(local->outputs[1]->name, "b");
    assert_int_equal(count_op(local, TRM_ALL_GATHER), 2);
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* One sequence of many rows through products and causal attention: queries of a part of the rows on each rank, keys up
 * to the last of them. */
static void shares_rows_along_cp(void **unused)
{
    (void)unused;
    enum { ROWS = 32768, WIDTH = 4096, HEADS = 32, RANKS = 4 };
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_BF16, DIMS(1, ROWS, WIDTH)), *heads[3], *y;
    for (int32_t i = 0; i < 3; i++) {
        static const char *const names[][3] = {{"wq", "xq", "q"}, {"wk", "xk", "k"}, {"wv", "xv", "v"}};
        const trm_layer_desc split = {.kind = TRM_LAYER_RESHAPE,
                                      .reshape = {.dims = DIMS(1, ROWS, HEADS, WIDTH / HEADS)}};
        trm_weight *weight = NULL;
        trm_tensor *w = NULL;
        assert_ok(trm_weight_random(TRM_BF16, &DIMS(WIDTH, WIDTH), 1 + (uint64_t)i, 0, 1, &weight));
        assert_ok(trm_network_add_weight(network, names[i][0], weight, TRM_BF16, &w));
        heads[i] = net_layer(network, names[i][2], split, net_linear(network, names[i][1], x, w), NULL, NULL, NULL);
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                           .attention = {.form = TRM_ATTENTION_PADDED_BNHD, .causal = TRM_CAUSAL_UPPER_LEFT}};
    assert_ok(trm_network_add_layer(network, "y", &desc, heads, 3, &y));
    net_output(network, y);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        trm_partition_report report;
        trm_network *local = partition(network, (trm_mesh){{1, 1, RANKS, 1, 1}}, rank, &report);
        const trm_layer *attention = find_layer(local, "y");
        assert_string_equal(report.note, "");
        assert_int_equal(attention->inputs[0]->dims.d[1], ROWS / RANKS);
        assert_int_equal(attention->inputs[1]->dims.d[1], ROWS / RANKS * (rank + 1));
        assert_int_equal(attention->inputs[2]->dims.d[1], ROWS / RANKS * (rank + 1));
        assert_int_equal(attention->desc.attention.causal, TRM_CAUSAL_LOWER_RIGHT);
        assert_int_equal(count_op(local, TRM_ALL_GATHER), 3); /* of keys, values and the result */
        assert_int_equal(count_collectives(local), 3);
        expect_dims(local, "y", DIMS(1, ROWS, HEADS, WIDTH / HEADS));
        trm_network_destroy(local);
    }
    trm_partition_report report;
    trm_network *local = partition(network, (trm_mesh){{1, 1, 3, 1, 1}}, 0, &report);
    assert_non_null(strstr(report.note, "attention y is replicated: rows are unknown, do not divide over 3 ranks"));
    trm_network_destroy(local);
    trm_network_destroy(network);
}

/* A language model's tokens and cache: queries, keys and values are gathered for each rank's share of the keys, and
 * what the ranks find goes back to those that have the tokens. Along tp as well, heads and weights are split. */
static void shares_tokens_along_cp(void **unused)
{
    (void)unused;
    static const trm_mesh meshes[] = {{{1, 1, 4, 1, 1}}, {{2, 1, 2, 1, 1}}};
    trm_network *network = test_decoder_network(&llama_8b);
    for (int32_t m = 0; m < 2; m++) {
        const int32_t tp_ranks = meshes[m].size[TRM_AXIS_TP], n = meshes[m].size[TRM_AXIS_CP];
        for (int32_t rank = 0; rank < 4; rank++) {
            trm_partition_report report;
            trm_network *local = partition(network, meshes[m], rank, &report);
            const trm_layer *share = find_layer(local, "layers.1.attention.share");
            const trm_layer *join = find_layer(local, "layers.1.attention");
            assert_true(report.shares_tokens && !report.shares_batch);
            assert_int_equal(share->desc.attention.cache_ranks, n);
            assert_int_equal(share->desc.attention.cache_rank, rank / tp_ranks);
            assert_int_equal(share->inputs[TRM_ATTENTION_Q]->dims.d[1], 32 / tp_ranks);
            assert_int_equal(join->desc.kind, TRM_LAYER_ATTENTION_JOIN);
            assert_int_equal(join->desc.attention_join.n_ranks, n);
            assert_int_equal(count_op(local, TRM_ALL_TO_ALL), 2 * llama_8b.layers);
            assert_true(count_op(local, TRM_ALL_GATHER) >= 3 * llama_8b.layers + 1); /* of the last tokens, too */
            assert_true(count_op(local, TRM_ALL_REDUCE) >= (tp_ranks > 1 ? 2 * llama_8b.layers : 0));
            expect_dims(local, "layers.1.key_cache", DIMS(-1, 16, 8 / tp_ranks, 128));
            assert_int_equal(trm_network_find_tensor(local, "token_ids")->batch_ranks, n);
            assert_int_equal(trm_network_find_tensor(local, "positions")->batch_ranks, n);
            assert_int_equal(trm_network_find_tensor(local, "sequence_starts")->batch_ranks, 0);
            assert_int_equal(trm_network_find_tensor(local, "block_table")->batch_ranks, 0);
            trm_network_destroy(local);
        }
    }
    trm_network_destroy(network);
}

static void refuses_meshes(void **unused)
{
    (void)unused;
    trm_network *network = test_decoder_network(&llama_8b);
    trm_network *local;
    trm_mesh staged = {{1, 2, 2, 1, 1}}, none = {{0, 1, 1, 1, 1}}, two = tp(2);
    assert_fails(trm_partition(network, &staged, 0, NULL, &local, NULL), TRM_ERROR_UNSUPPORTED,
                 "use cp with tp, without pp");
    assert_fails(trm_partition(network, &none, 0, NULL, &local, NULL), TRM_ERROR_INVALID_ARGUMENT, "size 0");
    assert_fails(trm_partition(network, &two, 2, NULL, &local, NULL), TRM_ERROR_INVALID_ARGUMENT, "rank 2");
    trm_network_destroy(network);
}

static void is_quick_and_alike_on_every_rank(void **unused)
{
    (void)unused;
    test_decoder decoder = llama_8b;
    decoder.layers = 80;
    decoder.tied = true;
    trm_network *network = test_decoder_network(&decoder);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    trm_partition_report report;
    trm_network *first = partition(network, tp(8), 0, &report);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    print_message("80 layers over 8 ranks: %.3f s, %d collectives, model says %.3f ms a run\n", seconds,
                  (int)report.n_collectives, 1e3 * report.seconds);
    assert_int_equal(report.n_collectives, 162);
    trm_network *last = partition(network, tp(8), 7, NULL);
    assert_int_equal(first->n_layers, last->n_layers);
    for (int32_t i = 0; i < first->n_layers; i++) {
        assert_string_equal(first->layers[i]->name, last->layers[i]->name);
        assert_true(trm_dims_equal(&first->layers[i]->outputs[0]->dims, &last->layers[i]->outputs[0]->dims));
    }
    trm_network_destroy(first);
    trm_network_destroy(last);
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_megatron),
        cmocka_unit_test(shares_one_table_when_tied),
        cmocka_unit_test(reduces_once_in_a_parallel_block),
        cmocka_unit_test(reduces_before_norms_after_blocks),
        cmocka_unit_test(shares_kv_heads),
        cmocka_unit_test(keeps_whole_what_does_not_divide),
        cmocka_unit_test(pads_vocabularies),
        cmocka_unit_test(runs_replicas),
        cmocka_unit_test(shares_batches),
        cmocka_unit_test(shares_batches_beside_tp),
        cmocka_unit_test(says_why_no_batch_is_shared),
        cmocka_unit_test(cuts_stages),
        cmocka_unit_test(cuts_around_states),
        cmocka_unit_test(receives_what_it_has_nothing_like),
        cmocka_unit_test(honours_pins),
        cmocka_unit_test(gathers_before_loops),
        cmocka_unit_test(cuts_weigh_the_passes_of_loops),
        cmocka_unit_test(plans_know_the_passes_of_loops),
        cmocka_unit_test(keeps_names_of_outputs),
        cmocka_unit_test(shares_rows_along_cp),
        cmocka_unit_test(shares_tokens_along_cp),
        cmocka_unit_test(refuses_meshes),
        cmocka_unit_test(is_quick_and_alike_on_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
