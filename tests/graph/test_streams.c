/* Layers on streams: whatever reads a tensor starts after what makes it, memory is written again after all that use it,
 * and branches get streams of their own. */
#include "graph/nets.h"

#include "graph/memory_plan.h"
#include "graph/streams.h"
#include "support/random_network.h"

enum { MOST_LAYERS = 256 };

/* Whether layer `a` is done before `b` starts; the last index is the end of the run. */
static bool before[MOST_LAYERS + 1][MOST_LAYERS + 1];

static void add_edge(int32_t a, int32_t b)
{
    for (int32_t i = 0; i <= a; i++) { /* b is later than all of them: its own row is still empty */
        before[i][b] = before[i][b] || i == a || before[i][a];
    }
}

/* By streams and waits alone. */
static void order_layers(const trm_network *network, const trm_streams *streams)
{
    int32_t tails[TRM_MOST_AUX_STREAMS + 1];
    memset(before, 0, sizeof(before));
    memset(tails, -1, sizeof(tails));
    for (int32_t i = 0; i < network->n_layers; i++) {
        int32_t s = streams->of[i];
        for (int32_t k = streams->first_wait[i]; k < streams->first_wait[i + 1]; k++) {
            assert_true(s >= 0 && streams->waits[k] < i && streams->is_awaited[streams->waits[k]]);
            add_edge(streams->waits[k], i);
        }
        if (s >= 0) {
            assert_true(s <= streams->n);
            if (tails[s] >= 0) {
                add_edge(tails[s], i);
            }
            tails[s] = i;
        }
    }
    for (int32_t s = 0; s <= streams->n; s++) {
        assert_int_equal(tails[s], streams->tails[s]);
        if (tails[s] >= 0 && (s == 0 || streams->joins[s])) {
            add_edge(tails[s], network->n_layers);
        }
    }
}

/* Whether a layer touches the memory of a tensor, through views, too. */
static bool uses(const trm_layer *layer, const trm_tensor *storage)
{
    for (int32_t k = 0; k < layer->n_inputs + layer->n_outputs; k++) {
        const trm_tensor *used = k < layer->n_inputs ? layer->inputs[k] : layer->outputs[k - layer->n_inputs];
        while (used != NULL) {
            used = trm_tensor_storage(used);
            if (used == storage) {
                return true;
            }
            bool is_part = used->role == TRM_TENSOR_ACTIVATION && used->producer->desc.kind == TRM_LAYER_SLICE;
            used = is_part ? used->producer->inputs[0] : NULL;
        }
    }
    return false;
}

static void check_order(const trm_network *network, const trm_streams *streams)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t k = 0; k < layer->n_inputs && streams->of[i] >= 0; k++) {
            const trm_tensor *from = layer->inputs[k] == NULL ? NULL : trm_tensor_storage(layer->inputs[k]);
            if (from != NULL && from->role == TRM_TENSOR_ACTIVATION && streams->of[from->producer->index] >= 0) {
                assert_true(before[from->producer->index][i]);
            }
        }
        assert_true(streams->of[i] < 0 || before[i][network->n_layers]);
    }
}

/* Of two tensors that share bytes, all that use one are done before the other is made. */
static void check_memory(const trm_network *network, const trm_streams *streams)
{
    static size_t sizes[4096], offsets[4096];
    size_t total;
    assert_true(network->n_tensors <= 4096);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        bool is_own = tensor->role == TRM_TENSOR_ACTIVATION && trm_tensor_storage(tensor) == tensor;
        is_own = is_own && streams->of[tensor->producer->index] >= 0;
        sizes[i] = is_own ? 256 * (size_t)(1 + i % 5) : TRM_NO_PLACE;
    }
    assert_ok(trm_memory_plan_place(network, sizes, streams->ends, offsets, &total));
    for (int32_t a = 0; a < network->n_tensors; a++) {
        for (int32_t b = 0; b < network->n_tensors; b++) {
            const trm_tensor *first = network->tensors[a], *second = network->tensors[b];
            if (a == b || sizes[a] == TRM_NO_PLACE || sizes[b] == TRM_NO_PLACE || offsets[a] >= offsets[b] + sizes[b] ||
                offsets[b] >= offsets[a] + sizes[a] || first->producer->index >= second->producer->index) {
                continue;
            }
            for (int32_t i = 0; i < network->n_layers; i++) {
                if (streams->of[i] >= 0 && uses(network->layers[i], first)) {
                    assert_true(before[i][second->producer->index]);
                }
            }
        }
    }
}

static void random_networks_are_ordered(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    int32_t beside = 0;
    for (int32_t i = 0; i < (test_is_brief() ? 30 : 200); i++) {
        trm_network *network = test_random_network(seed + (uint64_t)i, 4 + i % 60);
        bool skipped[MOST_LAYERS] = {false};
        trm_arena arena = {0};
        trm_streams streams;
        assert_true(network->n_layers <= MOST_LAYERS);
        for (int32_t k = 0; k < network->n_layers; k++) {
            skipped[k] = i % 3 == 0 && k % 7 == 3 && network->layers[k]->desc.kind == TRM_LAYER_SHAPE;
        }
        assert_ok(trm_streams_assign(network, skipped, 1 + i % TRM_MOST_AUX_STREAMS, &arena, &streams));
        if (streams.n > 0) {
            beside++;
            order_layers(network, &streams);
            check_order(network, &streams);
            check_memory(network, &streams);
        }
        trm_arena_fini(&arena);
        trm_network_destroy(network);
    }
    print_message("%d networks with branches, seed %llu\n", (int)beside, (unsigned long long)seed);
    assert_true(beside > 5);
}

/* x forks into four branches of two layers, which are joined again. */
static void branches_get_streams(void **state)
{
    (void)state;
    static const bool skipped[16] = {false};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4, 8)), *ends[4];
    trm_tensor *stem = net_unary(network, "stem", TRM_ACTIVATION_RELU, x);
    for (int i = 0; i < 4; i++) {
        ends[i] = net_unary(network, "first", TRM_ACTIVATION_TANH, stem);
        ends[i] = net_unary(network, "second", TRM_ACTIVATION_SIGMOID, ends[i]);
    }
    trm_layer_desc concat = {.kind = TRM_LAYER_CONCAT, .concat = {0}};
    trm_tensor *joined;
    assert_ok(trm_network_add_layer(network, "joined", &concat, ends, 4, &joined));
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_RELU, joined));
    for (int32_t most = 0; most < 5; most++) {
        trm_arena arena = {0};
        trm_streams streams;
        assert_ok(trm_streams_assign(network, skipped, most, &arena, &streams));
        assert_int_equal(streams.n, most < 3 ? most : 3);
        if (most > 0) {
            order_layers(network, &streams);
            check_order(network, &streams);
            check_memory(network, &streams);
        }
        for (int32_t i = 0; most >= 3 && i < 4; i++) {
            const int32_t first = 1 + 2 * i;
            assert_int_equal(streams.of[first], i);
            assert_int_equal(streams.of[first + 1], i);
            assert_int_equal(streams.first_wait[first + 1] - streams.first_wait[first], i == 0 ? 0 : 1);
        }
        if (most >= 3) {
            assert_int_equal(streams.of[9], 0);
            assert_int_equal(streams.first_wait[10] - streams.first_wait[9], 3);
            assert_true(!streams.joins[1] && !streams.joins[2] && !streams.joins[3]);
        }
        trm_arena_fini(&arena);
    }
    trm_network_destroy(network);
}

/* A chain stays where it is. */
static void chains_stay_on_one_stream(void **state)
{
    (void)state;
    static const bool skipped[16] = {false};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4, 8));
    for (int i = 0; i < 5; i++) {
        x = net_unary(network, "y", TRM_ACTIVATION_RELU, x);
    }
    net_output(network, x);
    trm_arena arena = {0};
    trm_streams streams;
    assert_ok(trm_streams_assign(network, skipped, 4, &arena, &streams));
    assert_int_equal(streams.n, 0);
    trm_arena_fini(&arena);
    trm_network_destroy(network);
}

/* Layers that take time, by the longest chain of them; others do not count. */
static void width_of_a_network(void **state)
{
    (void)state;
    const trm_layer_desc pool = {.kind = TRM_LAYER_POOL,
                                 .pool = {.kernel = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}}};
    trm_network *network = net_create();
    double width;
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(1, 2, 4, 4)), *y = x;
    assert_ok(trm_streams_width(network, &width));
    assert_true(width == 1);
    for (int i = 0; i < 3; i++) {
        y = net_unary(network, NULL, TRM_ACTIVATION_RELU, net_layer(network, NULL, pool, y, NULL, NULL, NULL));
    }
    assert_ok(trm_streams_width(network, &width));
    assert_true(width == 1);
    for (int i = 0; i < 3; i++) { /* a branch beside it */
        x = net_layer(network, NULL, pool, x, NULL, NULL, NULL);
    }
    net_output(network, net_binary(network, NULL, TRM_ELEMENTWISE_ADD, x, y));
    assert_ok(trm_streams_width(network, &width));
    assert_true(width == 2);
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_networks_are_ordered),
        cmocka_unit_test(branches_get_streams),
        cmocka_unit_test(chains_stay_on_one_stream),
        cmocka_unit_test(width_of_a_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
