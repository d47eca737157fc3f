/*
 * The property that defines the partitioner: for every network and mesh, N ranks give what one rank gives.
 *
 * Random networks run on one rank as they are, and on N ranks, which are threads, as partitioned. Strategies are chosen
 * by a cost model in half of the runs and at random in the others, so that every strategy of every kind is met, not
 * only those that pay.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "collectives/communicator.h"
#include "dist/partition/problem.h"
#include "dist/parallel/world.h"
#include "support/decoder.h"
#include "support/interpreter.h"
#include "support/random_network.h"
#include "support/support.h"

enum { MAX_RANKS = 8, MAX_INPUT = 16384 };

static int64_t n_shared;     /* networks whose batch ranks shared */
static int64_t n_parts_seen; /* tensors that were split or summands, and were compared */

/* What goes into a run. */
typedef struct test_feed {
    uint64_t seed;
    int64_t tokens;
    bool decodes; /* a decoder's prompts and then single tokens, instead of one random input */
} test_feed;

/* A network as partitioned. */
typedef struct parts {
    trm_mesh mesh;
    int32_t n;
    trm_network *locals[MAX_RANKS];
    trm_partition_report reports[MAX_RANKS];
} parts;

typedef struct rank_run {
    const trm_network *network;
    const trm_mesh *mesh; /* NULL: the whole network */
    const trm_partition_report *report;
    trm_communicator *communicator;
    test_feed feed;
    test_interpreter *interpreter;
    trm_status status;
    char cause[1024];
} rank_run;

static trm_status run_random(rank_run *run)
{
    for (int32_t i = 0; i < trm_network_input_count(run->network); i++) {
        static _Thread_local float data[MAX_INPUT];
        trm_tensor *input = trm_network_input(run->network, i);
        trm_dims dims;
        test_random_input(input, run->feed.tokens, run->feed.seed + (uint64_t)i, &dims, data);
        TRM_TRY(test_interpreter_set_input(run->interpreter, input->name, &dims, data));
    }
    return test_interpreter_run(run->interpreter);
}

/* Two sequences of 3 and 2 tokens, then a token more of each, twice. */
static trm_status run_decoder(rank_run *run)
{
    test_interpreter *interpreter = run->interpreter;
    static const int32_t blocks[] = {4, 1, 0, 5};
    int32_t lengths[2] = {0, 0};
    for (int32_t step = 0; step < 3; step++) {
        int32_t ids[8], positions[8], starts[3] = {0, 0, 0}, n = 0;
        for (int32_t sequence = 0; sequence < 2; sequence++) {
            for (int32_t i = step == 0 ? 3 - sequence : 1; i > 0; i--) {
                ids[n] = (int32_t)((run->feed.seed + (uint64_t)(7 * step + 3 * n)) % (uint64_t)run->feed.tokens);
                positions[n++] = lengths[sequence]++;
            }
            starts[sequence + 1] = n;
        }
        trm_dims tokens = {1, {n}}, two = {1, {2}}, three = {1, {3}}, table = {2, {2, 2}};
        TRM_TRY(test_interpreter_set_input(interpreter, "token_ids", &tokens, ids));
        TRM_TRY(test_interpreter_set_input(interpreter, "positions", &tokens, positions));
        TRM_TRY(test_interpreter_set_input(interpreter, "sequence_starts", &three, starts));
        TRM_TRY(test_interpreter_set_input(interpreter, "sequence_lengths", &two, lengths));
        TRM_TRY(test_interpreter_set_input(interpreter, "block_table", &table, blocks));
        TRM_TRY(test_interpreter_run(interpreter));
    }
    return TRM_OK;
}

static trm_status run_network(rank_run *run)
{
    test_interpreter_options options = {
        .backend = TRM_BACKEND_HOST, .state_dimension = 8, .communicator = run->communicator};
    TRM_TRY(test_interpreter_create(run->network, &options, &run->interpreter));
    if (run->mesh != NULL) {
        TRM_TRY(trm_partition_open_groups(run->mesh, run->report, run->communicator));
    }
    return run->feed.decodes ? run_decoder(run) : run_random(run);
}

static void *run_thread(void *argument)
{
    rank_run *run = argument;
    run->status = run_network(run);
    if (run->status != TRM_OK) {
        snprintf(run->cause, sizeof(run->cause), "%s", trm_last_error());
        if (run->communicator != NULL) {
            trm_communicator_abort(run->communicator);
        }
    }
    return NULL;
}

static void print_network(const trm_network *network)
{
    char *text = trm_network_to_text(network);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) { /* cmocka cuts long texts off */
        print_error("%.500s\n", line);
    }
    trm_free(text);
}

static void expect_same(const trm_network *network, rank_run *whole, rank_run *part, const char *what)
{
    for (int32_t i = 0; i < network->n_outputs; i++) {
        trm_dims dims, local;
        const float *expected = test_interpreter_output(whole->interpreter, network->outputs[i]->name, &dims);
        const float *found = test_interpreter_output(part->interpreter, network->outputs[i]->name, &local);
        if (!trm_dims_equal(&dims, &local)) {
            print_network(part->network);
            fail_msg("%s: output %s has other dims", what, network->outputs[i]->name);
        }
        double most = 0.0, apart = 0.0;
        for (int64_t k = 0; k < trm_dims_count(&dims); k++) {
            most = fmax(most, fabs((double)expected[k]));
            apart = fmax(apart, fabs((double)expected[k] - (double)found[k]));
            apart = isnan(expected[k]) == isnan(found[k]) ? apart : INFINITY;
        }
        if (!(apart <= 1e-3 * (1.0 + most))) {
            print_network(network);
            print_network(part->network);
            fail_msg("%s: output %s is off by %g where the largest element is %g", what, network->outputs[i]->name,
                     apart, most);
        }
    }
}

/* The whole tensor from its pieces on the n ranks that begin at `first` and are `apart`, into `sum` [count of dims].
 * False where a pass left it out on one of them. */
static bool join_pieces(rank_run *ranks, int32_t first, int32_t n, int32_t apart, const trm_tensor *tensor,
                        const trm_dims *dims, double *sum)
{
    const trm_tensor_part *part = &tensor->part;
    memset(sum, 0, (size_t)trm_dims_count(dims) * sizeof(*sum));
    for (int32_t piece = 0; piece < part->parts; piece++) {
        test_interpreter *holder = ranks[first + piece * (n / part->parts) * apart].interpreter;
        const trm_tensor *other = trm_network_find_tensor(test_interpreter_network(holder), tensor->name);
        if (other == NULL || other->part.kind != part->kind) {
            return false;
        }
        trm_dims local;
        const float *values = test_interpreter_output(holder, tensor->name, &local);
        int64_t inner = 1, extent = part->kind == TRM_PART_SPLIT ? local.d[part->axis] : 1;
        for (int32_t i = part->kind == TRM_PART_SPLIT ? part->axis + 1 : 0; i < local.n; i++) {
            inner *= local.d[i];
        }
        int64_t whole = part->kind == TRM_PART_SPLIT ? dims->d[part->axis] : 1;
        for (int64_t k = 0; k < trm_dims_count(&local); k++) {
            int64_t at = k / inner % extent + (part->kind == TRM_PART_SPLIT ? piece * extent : 0);
            if (at < whole) {
                sum[(k / inner / extent * whole + at) * inner + k % inner] += (double)values[k];
            } else if (values[k] != 0.0f) {
                fail_msg("%s: behind its end is %g, expected zeros", tensor->name, (double)values[k]);
            }
        }
    }
    return true;
}

/* What a rank's tensors are said to be of the whole ones is what they are. Returns how many were looked at. */
static int32_t expect_parts(const parts *p, rank_run *whole, rank_run *ranks, const char *what)
{
    int32_t n = trm_mesh_tensor_ranks(&p->mesh), seen = 0, firsts = p->n, step = n, stride = 1;
    if (n == 1) { /* parts of a batch */
        n = p->mesh.size[TRM_AXIS_DP];
        firsts = stride = p->mesh.size[TRM_AXIS_PP];
    }
    for (int32_t first = 0; first < firsts; first += step) {
        const trm_network *local = p->locals[first];
        for (int32_t i = 0; i < local->n_tensors; i++) {
            const trm_tensor *tensor = local->tensors[i];
            if (tensor->part.of == NULL || tensor->dtype != TRM_F32 || tensor->role == TRM_TENSOR_STATE) {
                continue;
            }
            trm_dims dims;
            const float *expected = test_interpreter_output(whole->interpreter, tensor->part.of, &dims);
            int64_t count = trm_dims_count(&dims);
            double *sum = malloc(((size_t)count + 1) * sizeof(*sum)), most = 0, apart = 0;
            assert_non_null(sum);
            if (join_pieces(ranks, first, n, stride, tensor, &dims, sum)) {
                for (int64_t k = 0; k < count; k++) {
                    most = fmax(most, fabs((double)expected[k]));
                    apart = fmax(apart, fabs((double)expected[k] - sum[k]));
                }
                seen += tensor->part.kind == TRM_PART_SPLIT || tensor->part.kind == TRM_PART_SUMMAND;
            }
            free(sum);
            if (!(apart <= 1e-3 * (1.0 + most)) && isfinite(most)) {
                print_network(whole->network);
                print_network(local);
                fail_msg("%s: %s, the %s of %s, is off by %g", what, tensor->name,
                         trm_part_kind_name(tensor->part.kind), tensor->part.of, apart);
            }
        }
    }
    return seen;
}

/* Runs the ranks' networks and compares each rank's outputs with the whole network's, and its tensors with the parts
 * that they are said to be. */
static void compare(const trm_network *network, const parts *p, test_feed feed, const char *what)
{
    int32_t n = p->n;
    trm_communicator *communicators[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    rank_run whole = {.network = network, .feed = feed}, ranks[MAX_RANKS] = {{0}};
    run_thread(&whole);
    if (whole.status != TRM_OK) {
        print_network(network);
        fail_msg("%s: the whole network: %s", what, whole.cause);
    }
    assert_ok(trm_communicator_local_create(n, 5.0, communicators));
    for (int32_t r = 0; r < n; r++) {
        ranks[r] = (rank_run){.network = p->locals[r],
                              .mesh = &p->mesh,
                              .report = &p->reports[r],
                              .communicator = communicators[r],
                              .feed = feed};
        assert_int_equal(pthread_create(&threads[r], NULL, run_thread, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
    }
    for (int32_t r = 0; r < n; r++) { /* a lost peer is seldom the cause */
        if (ranks[r].status != TRM_OK && ranks[r].status != TRM_ERROR_LOST_RANK) {
            print_network(p->locals[r]);
            fail_msg("%s, rank %d: %s", what, (int)r, ranks[r].cause);
        }
    }
    for (int32_t r = 0; r < n; r++) {
        char name[256];
        snprintf(name, sizeof(name), "%s, rank %d", what, (int)r);
        if (ranks[r].status != TRM_OK) {
            print_network(p->locals[r]);
            fail_msg("%s: %s", name, ranks[r].cause);
        }
        expect_same(network, &whole, &ranks[r], name);
    }
    n_parts_seen += expect_parts(p, &whole, ranks, what);
    for (int32_t r = 0; r < n; r++) {
        test_interpreter_destroy(ranks[r].interpreter);
        trm_communicator_destroy(communicators[r]);
    }
    test_interpreter_destroy(whole.interpreter);
}

/* ---- partitioning ------------------------------------------------------------------------------ */

/* Splitting pays more or less. */
static trm_cost_model random_model(uint64_t *seed)
{
    trm_cost_model model;
    trm_cost_model_default(test_random_below(seed, 2) == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST, &model);
    double cheap = pow(10.0, (double)-test_random_below(seed, 7));
    model.link_latency *= cheap;
    model.link_bandwidth /= cheap;
    model.memory_bandwidth *= pow(10.0, (double)-test_random_below(seed, 6));
    model.memory_price = (double)test_random_below(seed, 10);
    model.layer_overhead *= pow(10.0, (double)-test_random_below(seed, 3));
    return model;
}

/* Gives every strategy and every possible conversion a random price. */
static void shuffle_prices(trm_partitioner *partitioner, uint64_t *seed)
{
    for (int32_t i = 0; i < partitioner->network->n_layers; i++) {
        for (int32_t j = 0; j < partitioner->layers[i].n_strategies; j++) {
            /* whole layers are the way out that is always there: not too often */
            partitioner->layers[i].strategies[j].cost =
                (double)(1 + test_random_below(seed, 1000) + (j == 0 ? 500 : 0));
        }
    }
    for (int32_t i = 0; i < partitioner->network->n_tensors; i++) {
        trm_partition_tensor *tensor = &partitioner->tensors[i];
        for (int32_t k = 0; tensor->conversion != NULL && k < tensor->n_forms * tensor->n_forms; k++) {
            tensor->conversion[k] *= tensor->conversion[k] < INFINITY ? 0.0 : 1.0;
            tensor->conversion[k] += (double)test_random_below(seed, 300);
        }
    }
}

static void pin_some(trm_network *network, uint64_t *seed)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_tensor *tensor = network->tensors[i];
        if (test_random_below(seed, 12) == 0 && tensor->dims.n > 0) {
            char pin[32] = "replicate";
            if (test_random_below(seed, 2) == 0) {
                snprintf(pin, sizeof(pin), "split %d", (int)test_random_below(seed, tensor->dims.n));
            }
            assert_ok(trm_network_pin(network, tensor, pin));
        }
    }
}

static void unpin(trm_network *network)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        assert_ok(trm_network_pin(network, network->tensors[i], NULL));
    }
}

static void partition_by_model(trm_network *network, uint64_t *seed, parts *p)
{
    trm_cost_model model = random_model(seed);
    if (test_random_below(seed, 3) == 0) {
        pin_some(network, seed);
    }
    if (trm_partition(network, &p->mesh, 0, &model, &p->locals[0], &p->reports[0]) != TRM_OK) {
        assert_fails(TRM_ERROR_INVALID_ARGUMENT, TRM_ERROR_INVALID_ARGUMENT, "pinned"); /* the cause names the pin */
        unpin(network);
        assert_ok(trm_partition(network, &p->mesh, 0, &model, &p->locals[0], &p->reports[0]));
    }
    for (int32_t r = 1; r < p->n; r++) {
        assert_ok(trm_partition(network, &p->mesh, r, &model, &p->locals[r], &p->reports[r]));
    }
}

/* The network of a rank with strategies chosen at random: of the same seed, the same ones on every rank. */
static trm_network *partition_rank_at_random(const trm_network *network, uint64_t seed, bool batch, int32_t rank,
                                             parts *p)
{
    const int32_t stages = batch ? 1 : p->mesh.size[TRM_AXIS_PP];
    trm_partitioner partitioner = {.network = network,
                                   .n = batch ? p->mesh.size[TRM_AXIS_DP] : trm_mesh_tensor_ranks(&p->mesh),
                                   .shares_rows = !batch && p->mesh.size[TRM_AXIS_CP] > 1,
                                   .shares_batch = batch,
                                   .is_share = !batch && p->reports[rank].shares_batch};
    trm_cost_model_default(TRM_BACKEND_HOST, &partitioner.model);
    trm_network *local;
    assert_ok(trm_partition_prepare(&partitioner, stages));
    shuffle_prices(&partitioner, &seed);
    assert_ok(trm_partition_cut_stages(&partitioner, stages));
    assert_ok(trm_partition_search(&partitioner));
    assert_ok(trm_partition_emit(&partitioner, &p->mesh, rank, &local, &p->reports[rank]));
    trm_arena_fini(&partitioner.arena);
    return local;
}

/* `shares`: ranks along dp share the batch. */
static void partition_at_random(const trm_network *network, uint64_t *seed, bool shares, parts *p)
{
    const uint64_t first = test_random(seed), second = test_random(seed);
    for (int32_t r = 0; r < p->n; r++) {
        p->reports[r].shares_batch = shares;
        trm_network *share = shares ? partition_rank_at_random(network, first, true, r, p) : NULL;
        p->locals[r] = partition_rank_at_random(shares ? share : network, second, false, r, p);
        trm_network_destroy(share);
    }
}

/* A batch that the ranks do not divide is refused: on one replica, then. What of the batch is shared: nothing of
 * networks with states, and of those of unknown size not over stages. */
static bool settle_batch(const trm_network *network, parts *p)
{
    trm_partition_report report;
    trm_network *local;
    if (trm_partition(network, &p->mesh, 0, NULL, &local, &report) != TRM_OK) {
        assert_fails(TRM_ERROR_INVALID_ARGUMENT, TRM_ERROR_INVALID_ARGUMENT, "expected a multiple of");
        p->mesh.size[TRM_AXIS_DP] = 1;
        p->n = trm_mesh_ranks(&p->mesh);
        return false;
    }
    trm_network_destroy(local);
    n_shared += report.shares_batch;
    return report.shares_batch;
}

/* Networks whose every cut meets dims that follow from no input have one stage. */
static bool can_be_cut(const trm_network *network, int32_t stages)
{
    trm_partitioner partitioner = {.network = network, .n = 1};
    trm_cost_model_default(TRM_BACKEND_HOST, &partitioner.model);
    trm_status status = trm_partition_prepare(&partitioner, stages);
    trm_arena_fini(&partitioner.arena);
    if (status != TRM_OK) {
        assert_fails(status, TRM_ERROR_INVALID_ARGUMENT, "cannot be cut into");
    }
    return status == TRM_OK;
}

/* Whether cp has something to share. */
static bool has_rows(const trm_network *network)
{
    bool found = false;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer_desc *desc = &network->layers[i]->desc;
        found = found || (desc->kind == TRM_LAYER_ATTENTION && desc->attention.form != TRM_ATTENTION_PACKED_NHD);
    }
    return found;
}

static trm_mesh random_mesh(const trm_network *network, uint64_t *seed)
{
    int32_t tp = 1 + (int32_t)test_random_below(seed, 4), pp = 1, dp = 1 + (int32_t)test_random_below(seed, 3);
    tp = tp * dp > MAX_RANKS || (dp > 1 && test_random_below(seed, 2) == 0) ? 1 : tp;
    if (test_random_below(seed, 2) == 0) {
        pp = MAX_RANKS / (tp * dp);
        pp = pp > 3 ? 3 : pp;
    }
    pp = can_be_cut(network, pp) ? pp : 1;
    return has_rows(network) && test_random_below(seed, 2) == 0 ? (trm_mesh){{1, pp, tp, 1, dp}}
                                                                : (trm_mesh){{tp, pp, 1, 1, dp}};
}

/* What dist/plan/plan.c does with a rank's network: for CUDA, layouts too. */
static void run_passes(trm_network *network, bool cuda)
{
    assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
    if (cuda) {
        assert_ok(trm_pass_layouts(network, true, NULL));
        assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
    }
    assert_ok(trm_pass_fuse_exchanges(network, NULL));
    assert_ok(trm_pass_fuse_norm_products(network, NULL));
    assert_ok(trm_pass_fuse_elementwise(network, NULL));
}

static void check_network(trm_network *network, uint64_t *seed, test_feed feed, const char *what)
{
    parts p = {.mesh = random_mesh(network, seed)};
    p.n = trm_mesh_ranks(&p.mesh);
    bool by_model = test_random_below(seed, 2) == 0, shares = settle_batch(network, &p);
    feed.tokens *= feed.decodes ? 1 : p.mesh.size[TRM_AXIS_DP];
    char name[200], axes[64];
    trm_mesh_format(&p.mesh, axes, sizeof(axes));
    snprintf(name, sizeof(name), "%s on %s %s", what, axes, by_model ? "by model" : "at random");
    if (by_model) {
        partition_by_model(network, seed, &p);
    } else {
        partition_at_random(network, seed, shares, &p);
    }
    const bool cuda = test_random_below(seed, 2) == 0;
    for (int32_t r = 0; by_model && r < p.n; r++) {
        run_passes(p.locals[r], cuda);
    }
    compare(network, &p, feed, name);
    for (int32_t r = 0; r < p.n; r++) {
        trm_network_destroy(p.locals[r]);
    }
}

static void random_networks_agree(void **unused)
{
    (void)unused;
    uint64_t first = test_seed();
    int32_t n = getenv("TRM_TEST_COUNT") != NULL ? atoi(getenv("TRM_TEST_COUNT")) : 400;
    for (int32_t i = 0; i < n; i++) {
        uint64_t seed = first + (uint64_t)i;
        char what[64];
        snprintf(what, sizeof(what), "TRM_TEST_SEED=%llu", (unsigned long long)seed);
        trm_network *network = test_random_network(seed, 3 + (int32_t)(seed % 20));
        test_feed feed = {seed, 1 + (int64_t)(seed % 5), false};
        check_network(network, &seed, feed, what);
        trm_network_destroy(network);
    }
    assert_true(n_parts_seen >= n / 4);
    assert_true(n_shared >= n / 8);
}

/* Prompts and single tokens with a KV cache, of decoders of all sizes that divide and that do not. */
static void decoders_agree(void **unused)
{
    (void)unused;
    uint64_t seed = test_seed();
    for (int32_t i = 0; i < 60; i++) {
        char what[64];
        snprintf(what, sizeof(what), "decoder TRM_TEST_SEED=%llu number %d", (unsigned long long)test_seed(), (int)i);
        test_decoder decoder = {.layers = 2, .dtype = TRM_F32, .spread = 0.3f};
        decoder.kv_heads = 1 + test_random_below(&seed, 4);
        decoder.heads = decoder.kv_heads * (1 + test_random_below(&seed, 4));
        decoder.head_dim = 4;
        decoder.hidden = 8 + test_random_below(&seed, 9);
        decoder.intermediate = 16 + test_random_below(&seed, 9);
        decoder.vocab = 20 + test_random_below(&seed, 9);
        decoder.tied = test_random_below(&seed, 2) == 0;
        decoder.parallel = test_random_below(&seed, 3) == 0;
        decoder.bias = test_random_below(&seed, 2) == 0;
        decoder.post_norm = test_random_below(&seed, 3) == 0;
        trm_network *network = test_decoder_network(&decoder);
        test_feed feed = {seed, decoder.vocab, true};
        check_network(network, &seed, feed, what);
        trm_network_destroy(network);
    }
}

typedef struct odd_chain {
    trm_network *network;
    trm_tensor *x;
    uint64_t *seed;
} odd_chain;

static void chain(odd_chain *c, const trm_layer_desc *desc, trm_dims dims)
{
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS], *inputs[2] = {c->x, NULL};
    if (dims.n > 0) {
        float values[256];
        for (int64_t i = 0; i < trm_dims_count(&dims); i++) {
            values[i] = test_random_float(c->seed);
        }
        assert_ok(trm_network_add_constant(c->network, "constant", TRM_F32, dims, values, &inputs[1]));
    }
    assert_ok(trm_network_add_layer(c->network, "layer", desc, inputs, dims.n > 0 ? 2 : 1, outputs));
    c->x = outputs[0];
}

/* The same by a quantized weight, whose rows have a scale each, by two, or one for all. */
static void quantized_chain(odd_chain *c, int64_t rows, int64_t columns)
{
    static const trm_dtype types[] = {TRM_F8E4M3, TRM_I8, TRM_U8};
    const trm_dtype type = types[test_random_below(c->seed, 3)];
    const bool packed = type == TRM_U8;
    const int32_t block_n[] = {1, 2, (int32_t)rows, (int32_t)rows + 1};
    const trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANT_MATMUL,
                                 .dequant_matmul = {.block_n = block_n[test_random_below(c->seed, 4)]}};
    const int64_t blocks = (rows + desc.dequant_matmul.block_n - 1) / desc.dequant_matmul.block_n;
    const trm_dims dims = {2, {rows, packed ? columns / 2 : columns}}, scale = {2, {blocks, 1}};
    trm_tensor *inputs[3] = {c->x}, *outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_weight *weights[2];
    assert_ok(trm_weight_random(type, &dims, test_random(c->seed), packed ? 127.5f : 0.0f, packed ? 127.5f : 8.0f,
                                &weights[0]));
    assert_ok(trm_weight_random(TRM_F32, &scale, test_random(c->seed), 0.1f, 0.05f, &weights[1]));
    assert_ok(trm_network_add_weight(c->network, "quantized", weights[0], type, &inputs[1]));
    assert_ok(trm_network_add_weight(c->network, "scale", weights[1], TRM_F32, &inputs[2]));
    assert_ok(trm_network_add_layer(c->network, "product", &desc, inputs, 3, outputs));
    c->x = outputs[0];
}

/* Splits that end in zeros, through layers that keep zeros and layers that do not, to sums over them. */
static void odd_sizes_agree(void **unused)
{
    (void)unused;
    uint64_t seed = test_seed();
    for (int32_t i = 0; i < 500; i++) {
        odd_chain c = {.seed = &seed};
        assert_ok(trm_network_create(&c.network));
        assert_ok(trm_network_add_input(c.network, "tokens", TRM_F32, (trm_dims){2, {-1, 4}}, &c.x));
        int64_t odd = 5 + 2 * test_random_below(&seed, 4);
        trm_layer_desc product = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
        if (test_random_below(&seed, 2) == 0) {
            chain(&c, &product, (trm_dims){2, {odd, 4}});
        } else {
            quantized_chain(&c, odd, 4);
        }
        for (int32_t k = 0; k < 2; k++) {
            trm_layer_desc unary = {.kind = TRM_LAYER_UNARY, .unary = {.alpha = 0.5f}};
            static const trm_unary_op ops[] = {
                TRM_UNARY_ACTIVATION, TRM_UNARY_NEG,          TRM_UNARY_ABS,   TRM_UNARY_EXP,  TRM_UNARY_ERF,
                TRM_UNARY_LINEAR,     TRM_UNARY_SOFTCAP,      TRM_UNARY_SIN,   TRM_UNARY_COS,  TRM_UNARY_COSH,
                TRM_UNARY_CLIP,       TRM_UNARY_ELU,          TRM_UNARY_SELU,  TRM_UNARY_CELU, TRM_UNARY_LEAKY_RELU,
                TRM_UNARY_ASINH,      TRM_UNARY_HARD_SIGMOID, TRM_UNARY_SWISH,
            };
            unary.unary.op = ops[test_random_below(&seed, (int64_t)(sizeof(ops) / sizeof(ops[0])))];
            unary.unary.activation = (trm_activation)(1 + test_random_below(&seed, TRM_ACTIVATION_SOFTSIGN));
            unary.unary.beta = test_random_below(&seed, 2) == 0 ? 0.5f : 0.0f;
            trm_layer_desc two = {.kind = TRM_LAYER_ELEMENTWISE};
            two.elementwise.op = (trm_elementwise_op)test_random_below(&seed, TRM_ELEMENTWISE_MUL + 1);
            bool is_unary = test_random_below(&seed, 2) == 0;
            trm_dims other = {1, {test_random_below(&seed, 2) == 0 ? 1 : odd}}, none = {0, {0}};
            chain(&c, is_unary ? &unary : &two, is_unary ? none : other);
        }
        trm_layer_desc sum = {.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_SUM, 1, true}};
        bool sums = test_random_below(&seed, 3) == 0;
        chain(&c, sums ? &sum : &product, sums ? (trm_dims){0, {0}} : (trm_dims){2, {3, odd}});
        assert_ok(trm_network_mark_output(c.network, c.x));
        test_feed feed = {seed, 3, false};
        char what[64];
        snprintf(what, sizeof(what), "odd sizes TRM_TEST_SEED=%llu number %d", (unsigned long long)test_seed(), (int)i);
        check_network(c.network, &seed, feed, what);
        trm_network_destroy(c.network);
    }
}

/* x that is quantized by one scale, or by one for columns that no split parts: by the same numbers on any ranks. */
static void quantized_rows_agree(void **unused)
{
    (void)unused;
    uint64_t seed = test_seed();
    for (int32_t i = 0; i < 200; i++) {
        odd_chain c = {.seed = &seed};
        const int32_t block_k[] = {0, 2, 4, 8}, columns = 16;
        const int64_t rows = 4 + test_random_below(&seed, 5);
        trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANT_MATMUL,
                               .dequant_matmul = {.block_n = 1 + (int32_t)test_random_below(&seed, 2),
                                                  .block_k = block_k[test_random_below(&seed, 4)]}};
        trm_dequant_matmul_params *p = &desc.dequant_matmul;
        p->x_quantization = p->block_k == 0 || test_random_below(&seed, 2) == 0 ? TRM_X_STATIC : TRM_X_DYNAMIC;
        p->x_scale = p->x_quantization == TRM_X_STATIC ? 0.01f : 0.0f;
        const trm_dims dims = {2, {rows, columns}},
                       scale = {2, {(rows + p->block_n - 1) / p->block_n, p->block_k == 0 ? 1 : columns / p->block_k}};
        trm_weight *weights[2];
        trm_tensor *inputs[3], *outputs[TRM_MAX_LAYER_OUTPUTS];
        assert_ok(trm_network_create(&c.network));
        assert_ok(trm_network_add_input(c.network, "tokens", TRM_F32, (trm_dims){2, {-1, columns}}, &inputs[0]));
        assert_ok(trm_weight_random(TRM_F8E4M3, &dims, test_random(&seed), 0.0f, 8.0f, &weights[0]));
        assert_ok(trm_weight_random(TRM_F32, &scale, test_random(&seed), 0.1f, 0.05f, &weights[1]));
        assert_ok(trm_network_add_weight(c.network, "quantized", weights[0], TRM_F8E4M3, &inputs[1]));
        assert_ok(trm_network_add_weight(c.network, "scale", weights[1], TRM_F32, &inputs[2]));
        assert_ok(trm_network_add_layer(c.network, "product", &desc, inputs, 3, outputs));
        c.x = outputs[0];
        chain(&c, &(trm_layer_desc){.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ERF}}, (trm_dims){0, {0}});
        assert_ok(trm_network_mark_output(c.network, c.x));
        test_feed feed = {seed, 3, false};
        char what[64];
        snprintf(what, sizeof(what), "quantized TRM_TEST_SEED=%llu number %d", (unsigned long long)test_seed(), (int)i);
        check_network(c.network, &seed, feed, what);
        trm_network_destroy(c.network);
    }
}

typedef struct padded_net {
    trm_network *network;
    int64_t batch, rows, heads, kv_heads;
    uint64_t *seed;
} padded_net;

enum { HEAD_DIM = 4 };

static trm_tensor *add_to(padded_net *p, const trm_layer_desc *desc, trm_tensor *const *inputs, int32_t n)
{
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
    assert_ok(trm_network_add_layer(p->network, NULL, desc, inputs, n, outputs));
    return outputs[0];
}

static trm_tensor *values_of(padded_net *p, trm_dims dims, float scale)
{
    float values[4096];
    trm_tensor *tensor;
    assert_in_range(trm_dims_count(&dims), 0, 4096);
    for (int64_t i = 0; i < trm_dims_count(&dims); i++) {
        values[i] = scale * test_random_float(p->seed);
    }
    assert_ok(trm_network_add_constant(p->network, "values", TRM_F32, dims, values, &tensor));
    return tensor;
}

static trm_tensor *product_of(padded_net *p, trm_tensor *x, int64_t width)
{
    const int64_t depth = x->dims.d[2];
    const trm_layer_desc linear = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    return add_to(p, &linear, (trm_tensor *[]){x, values_of(p, (trm_dims){2, {width, depth}}, 1.5f / (float)depth)}, 2);
}

/* Heads of a product, first or behind the rows. */
static trm_tensor *heads_of(padded_net *p, trm_tensor *x, int64_t heads, bool first)
{
    trm_tensor *y = product_of(p, x, heads * HEAD_DIM);
    const trm_layer_desc split = {.kind = TRM_LAYER_RESHAPE,
                                  .reshape = {{4, {p->batch, x->dims.d[1], heads, HEAD_DIM}}}};
    const trm_layer_desc swap = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{0, 2, 1, 3}}};
    y = add_to(p, &split, &y, 1);
    return first ? add_to(p, &swap, &y, 1) : y;
}

/* x + attention of x over itself or over other rows, of any kind. */
static trm_tensor *block_of(padded_net *p, trm_tensor *x)
{
    const bool first = test_random_below(p->seed, 2) == 0, itself = test_random_below(p->seed, 2) == 0;
    const int64_t others = 1 + test_random_below(p->seed, 2 * p->rows);
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                           .attention = {.form = first ? TRM_ATTENTION_PADDED_BHND : TRM_ATTENTION_PADDED_BNHD,
                                         .causal = (trm_causal)test_random_below(p->seed, TRM_CAUSAL_LOWER_RIGHT + 1)}};
    desc.attention.window = desc.attention.causal == TRM_CAUSAL_NONE ? 0 : (int32_t)test_random_below(p->seed, 6);
    desc.attention.chunked = desc.attention.window > 0 && test_random_below(p->seed, 3) == 0;
    trm_tensor *kv = itself ? x : values_of(p, (trm_dims){3, {p->batch, others, x->dims.d[2]}}, 1.0f);
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {
        heads_of(p, x, p->heads, first), heads_of(p, kv, p->kv_heads, first), heads_of(p, kv, p->kv_heads, first)};
    if (test_random_below(p->seed, 3) == 0) {
        const bool rows = test_random_below(p->seed, 2) == 0;
        inputs[TRM_ATTENTION_MASK] = values_of(p, (trm_dims){2, {rows ? p->rows : 1, kv->dims.d[1]}}, 1.0f);
    }
    if (test_random_below(p->seed, 3) == 0) {
        inputs[TRM_ATTENTION_SINKS] = values_of(p, (trm_dims){1, {p->heads}}, 1.0f);
    }
    trm_tensor *y = add_to(p, &desc, inputs, TRM_ATTENTION_INPUT_COUNT);
    const trm_layer_desc swap = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{0, 2, 1, 3}}};
    const trm_layer_desc join = {.kind = TRM_LAYER_RESHAPE, .reshape = {{3, {p->batch, p->rows, p->heads * HEAD_DIM}}}};
    y = first ? add_to(p, &swap, &y, 1) : y;
    y = product_of(p, add_to(p, &join, &y, 1), x->dims.d[2]);
    const trm_layer_desc sum = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_ADD}};
    return add_to(p, &sum, (trm_tensor *[]){x, y}, 2);
}

/* Attention over padded sequences, whose rows cp shares and whose heads tp does. */
static void padded_attention_agrees(void **unused)
{
    (void)unused;
    uint64_t seed = test_seed();
    for (int32_t i = 0; i < 150; i++) {
        char what[64];
        snprintf(what, sizeof(what), "padded TRM_TEST_SEED=%llu number %d", (unsigned long long)test_seed(), (int)i);
        padded_net p = {.network = NULL, .seed = &seed};
        p.batch = 1 + test_random_below(&seed, 4);
        p.rows = test_random_below(&seed, 4) == 0 ? 7 : 12;
        p.kv_heads = 1 + test_random_below(&seed, 3);
        p.heads = p.kv_heads * (1 + test_random_below(&seed, 2));
        assert_ok(trm_network_create(&p.network));
        trm_tensor *x;
        assert_ok(trm_network_add_input(p.network, "x", TRM_F32, (trm_dims){3, {p.batch, p.rows, 8}}, &x));
        x = block_of(&p, block_of(&p, x));
        assert_ok(trm_network_mark_output(p.network, x));
        test_feed feed = {seed, 3, false};
        check_network(p.network, &seed, feed, what);
        trm_network_destroy(p.network);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_networks_agree),   cmocka_unit_test(decoders_agree),
        cmocka_unit_test(odd_sizes_agree),         cmocka_unit_test(quantized_rows_agree),
        cmocka_unit_test(padded_attention_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
