/*
 * The choice of strategies: dynamic programming along the layers.
 *
 * After each layer, all that matters for the rest of the network is which forms of the tensors still needed exist: that
 * is a state, and of all choices that lead to a state only the cheapest is kept. A layer's inputs are converted when it
 * first needs them in another form, and later layers can use that form.
 *
 * A state that cannot win is dropped: if another state's cost plus the conversions to this state are not higher,
 * everything that follows this state can follow the other at no higher cost. Weights make most wrong choices so
 * expensive that few states are left after each layer, and the time is proportional to the length of the network.
 *
 * Ties go to the state found first. Nothing depends on the rank, so that all ranks choose the same.
 */
#include "dist/partition/problem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

/* States kept after a layer. Known networks need fewer than a hundred; the limit bounds the time for others. */
enum { BEAM = 512 };

/* How a state was reached: the strategy of a layer, after those of the previous state. */
typedef struct step {
    int32_t previous; /* in search.steps; -1: the start */
    int32_t strategy;
} step;

typedef struct state {
    double cost;
    int32_t step;
    int32_t order;       /* order in which it was found */
    trm_form_set *forms; /* [n_live], in the order of search.live */
} state;

/* The states after one layer. */
typedef struct state_list {
    state *states;
    trm_form_set *forms; /* [capacity * max_live] */
    int32_t n, capacity;
} state_list;

/* What it costs a tensor to get a form more, by the forms it has: [sets, forms], of live tensors of few forms. */
typedef struct price {
    double cost;
    trm_form_set after; /* the forms it then has */
} price;

enum { MOST_PRICED = 6 }; /* forms of a tensor with a table */

typedef struct search {
    const trm_partitioner *partitioner;
    price **prices; /* [tensors], NULL where there is no table yet, or none at all */
    int32_t *slots; /* [slots_capacity] rows of states that were seen, by hash; -1: none */
    size_t slots_capacity;
    int32_t *live; /* [max_live] tensors in the states */
    int32_t n_live, max_live;
    state_list now, next;
    step *steps;
    size_t n_steps, steps_capacity;
} search;

/* ---- forms of one tensor ----------------------------------------------------------------------- */

/* The existing form from which `wanted` is cheapest. */
static double cheapest_source(const trm_partition_tensor *tensor, trm_form_set set, int32_t wanted, int32_t *source)
{
    double best = INFINITY;
    for (int32_t f = 0; f < tensor->n_forms; f++) {
        double cost = (set >> f & 1) != 0 ? tensor->conversion[f * tensor->n_forms + wanted] : INFINITY;
        if (cost < best) {
            best = cost;
            *source = f;
        }
    }
    return best;
}

/* Constants are split when they are read: each form kept costs its price. A state has one form, that of its first use.
 */
static double acquire_kept(const trm_partitioner *partitioner, const trm_partition_tensor *tensor, int32_t wanted,
                           trm_form_set *set)
{
    if (tensor->tensor->role == TRM_TENSOR_STATE && *set != 0) {
        return INFINITY;
    }
    *set |= 1u << wanted;
    return trm_partition_rent(partitioner, tensor->tensor, &tensor->forms[wanted]);
}

double trm_partition_acquire(const trm_partitioner *partitioner, const trm_partition_tensor *tensor, int32_t wanted,
                             trm_form_set *set, trm_conversion *steps, int32_t *n_steps)
{
    *n_steps = 0;
    if ((*set >> wanted & 1) != 0) {
        return 0.0;
    }
    if (tensor->tensor->role == TRM_TENSOR_CONSTANT || tensor->tensor->role == TRM_TENSOR_STATE) {
        return acquire_kept(partitioner, tensor, wanted, set);
    }
    int32_t source = 0, whole_source = 0;
    double direct = cheapest_source(tensor, *set, wanted, &source);
    double by_whole = INFINITY;
    if ((*set & 1) == 0) {
        by_whole = cheapest_source(tensor, *set, 0, &whole_source) + tensor->conversion[wanted];
    }
    if (direct <= by_whole) {
        if (direct < INFINITY) {
            steps[(*n_steps)++] = (trm_conversion){source, wanted};
            *set |= 1u << wanted;
        }
        return direct;
    }
    steps[(*n_steps)++] = (trm_conversion){whole_source, 0};
    steps[(*n_steps)++] = (trm_conversion){0, wanted};
    *set |= 1u << wanted | 1u;
    return by_whole;
}

static double acquire(const search *s, int32_t tensor, int32_t wanted, trm_form_set *set)
{
    const trm_partition_tensor *of = &s->partitioner->tensors[tensor];
    trm_conversion steps[2];
    int32_t n_steps;
    if (s->prices[tensor] == NULL) {
        return trm_partition_acquire(s->partitioner, of, wanted, set, steps, &n_steps);
    }
    const price *known = &s->prices[tensor][(size_t)*set * (size_t)of->n_forms + (size_t)wanted];
    *set = known->after;
    return known->cost;
}

/* Makes the table of a tensor that becomes live. */
static trm_status price_tensor(search *s, int32_t tensor)
{
    const trm_partition_tensor *of = &s->partitioner->tensors[tensor];
    const size_t n = (size_t)of->n_forms, sets = (size_t)1 << n;
    trm_conversion steps[2];
    int32_t n_steps;
    if (!of->tracked || s->prices[tensor] != NULL || n > MOST_PRICED) {
        return TRM_OK;
    }
    price *prices = calloc(sets * n + 1, sizeof(*prices));
    if (prices == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the prices of %zu forms", n);
    }
    for (size_t i = 0; i < sets * n; i++) {
        prices[i].after = (trm_form_set)(i / n);
        prices[i].cost = trm_partition_acquire(s->partitioner, of, (int32_t)(i % n), &prices[i].after, steps, &n_steps);
    }
    s->prices[tensor] = prices;
    return TRM_OK;
}

static void forget_prices(search *s, int32_t tensor)
{
    free(s->prices[tensor]);
    s->prices[tensor] = NULL;
}

/* ---- lists of states --------------------------------------------------------------------------- */

static trm_status add_state(search *s, double cost, int32_t step_index, const trm_form_set *forms)
{
    state_list *list = &s->next;
    size_t stride = (size_t)s->max_live;
    if (list->n == list->capacity) {
        int32_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        state *states = realloc(list->states, (size_t)capacity * sizeof(*states));
        list->states = states != NULL ? states : list->states;
        trm_form_set *sets = realloc(list->forms, ((size_t)capacity * stride + 1) * sizeof(*sets));
        list->forms = sets != NULL ? sets : list->forms;
        if (states == NULL || sets == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d states of the partitioner", capacity);
        }
        list->capacity = capacity;
    }
    memcpy(list->forms + (size_t)list->n * stride, forms, (size_t)s->n_live * sizeof(*forms));
    list->states[list->n] = (state){cost, step_index, list->n, NULL};
    list->n++;
    return TRM_OK;
}

static int compare_states(const void *a, const void *b)
{
    const state *x = a, *y = b;
    if (x->cost != y->cost) {
        return x->cost < y->cost ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Whether `better`, plus the conversions that it lacks, equals `worse` at no higher cost. */
static bool dominates(const search *s, const state *better, const state *worse)
{
    double cost = better->cost;
    for (int32_t i = 0; i < s->n_live; i++) {
        trm_form_set set = better->forms[i];
        trm_form_set missing = worse->forms[i] & ~set;
        for (int32_t f = 0; missing != 0; f++, missing >>= 1) {
            if ((missing & 1) != 0) {
                cost += acquire(s, s->live[i], f, &set);
                if (cost > worse->cost) {
                    return false;
                }
            }
        }
    }
    return cost <= worse->cost;
}

/* What settle() knows of the states that it kept: their forms side by side in a word, so that it compares only the
 * forms that a state lacks. */
typedef struct kept_states {
    bool fits;                       /* in a word, with prices of all */
    uint64_t bits[BEAM];             /* of kept states */
    int32_t n_bits;                  /* of which each stands for a form, */
    int32_t tensor[64], n_forms[64]; /* of a tensor in s->live, how many forms that has, */
    const price *prices[64];         /* and the prices of this one, n_forms apart */
} kept_states;

static void begin_kept(const search *s, kept_states *kept)
{
    kept->fits = true;
    kept->n_bits = 0;
    for (int32_t i = 0; i < s->n_live && kept->fits; i++) {
        const int32_t n = s->partitioner->tensors[s->live[i]].n_forms;
        kept->fits = kept->n_bits + n <= 64 && s->prices[s->live[i]] != NULL;
        for (int32_t f = 0; f < n && kept->fits; f++) {
            kept->tensor[kept->n_bits] = i;
            kept->n_forms[kept->n_bits] = n;
            kept->prices[kept->n_bits++] = s->prices[s->live[i]] + f;
        }
    }
}

static uint64_t bits_of(const search *s, const kept_states *kept, const trm_form_set *forms)
{
    uint64_t bits = 0;
    for (int32_t b = 0, i = 0; i < s->n_live && kept->fits; b += kept->n_forms[b], i++) {
        bits |= (uint64_t)forms[i] << b;
    }
    return bits;
}

/* The same as dominates(), by the bits that the better one lacks. */
static bool dominates_by_bits(const kept_states *kept, const state *better, uint64_t missing, const state *worse)
{
    double cost = better->cost;
    trm_form_set set = 0;
    for (int32_t last = -1; missing != 0; missing &= missing - 1) {
        const int32_t bit = __builtin_ctzll(missing), i = kept->tensor[bit];
        set = i == last ? set : better->forms[i];
        last = i;
        const price *known = kept->prices[bit] + (size_t)set * (size_t)kept->n_forms[bit];
        set = known->after;
        cost += known->cost;
        if (cost > worse->cost) {
            return false;
        }
    }
    return cost <= worse->cost;
}

/* Whether one of the n kept states dominates a new one, which has a higher cost than they. */
static bool is_dominated(const search *s, const kept_states *kept, const state *states, int32_t n, const state *new,
                         uint64_t bits)
{
    for (int32_t j = 0; j < n; j++) {
        if (kept->fits ? dominates_by_bits(kept, &states[j], bits & ~kept->bits[j], new)
                       : dominates(s, &states[j], new)) {
            return true;
        }
    }
    return false;
}

/* Room for the hashes of n rows. */
static trm_status clear_slots(search *s, int32_t n)
{
    size_t wanted = 64;
    while (wanted < 2 * (size_t)n) {
        wanted *= 2;
    }
    if (wanted > s->slots_capacity) {
        int32_t *grown = realloc(s->slots, wanted * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu hashes of the partitioner", wanted);
        }
        s->slots = grown;
        s->slots_capacity = wanted;
    }
    memset(s->slots, 0xff, s->slots_capacity * sizeof(*s->slots));
    return TRM_OK;
}

/* Whether a cheaper state had the same forms; what dominates that one, or itself, dominates this one. */
static bool was_seen(search *s, const state_list *list, int32_t index, const kept_states *kept, uint64_t bits)
{
    const size_t bytes = (size_t)s->n_live * sizeof(trm_form_set), mask = s->slots_capacity - 1;
    const trm_form_set *forms = list->states[index].forms;
    const uint64_t hash = kept->fits ? bits * 0x9e3779b97f4a7c15ull : trm_hash_bytes(TRM_HASH_START, forms, bytes);
    size_t at = (size_t)(hash >> 32) & mask;
    for (; s->slots[at] >= 0; at = (at + 1) & mask) {
        if (memcmp(list->forms + (size_t)s->slots[at] * (size_t)s->max_live, forms, bytes) == 0) {
            return true;
        }
    }
    s->slots[at] = list->states[index].order;
    return false;
}

/* Sorts the new states, drops those that cannot win, and makes them the current ones. */
static trm_status settle(search *s)
{
    state_list *list = &s->next;
    kept_states known;
    begin_kept(s, &known);
    TRM_TRY(clear_slots(s, list->n));
    for (int32_t i = 0; i < list->n; i++) {
        list->states[i].forms = list->forms + (size_t)list->states[i].order * (size_t)s->max_live;
    }
    qsort(list->states, (size_t)list->n, sizeof(*list->states), compare_states);
    int32_t kept = 0;
    for (int32_t i = 0; i < list->n && kept < BEAM; i++) {
        const uint64_t bits = bits_of(s, &known, list->states[i].forms);
        if (!was_seen(s, list, i, &known, bits) &&
            !is_dominated(s, &known, list->states, kept, &list->states[i], bits)) {
            known.bits[kept] = bits;
            list->states[kept++] = list->states[i];
        }
    }
    list->n = kept;
    state_list done = s->now;
    s->now = s->next;
    s->next = done;
    s->next.n = 0;
    return TRM_OK;
}

static trm_status record(search *s, int32_t previous, int32_t strategy, int32_t *index)
{
    if (s->n_steps == s->steps_capacity) {
        size_t capacity = s->steps_capacity == 0 ? 1024 : s->steps_capacity * 2;
        step *grown = realloc(s->steps, capacity * sizeof(*grown));
        if (grown == NULL || capacity > INT32_MAX) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu steps of the partitioner", capacity);
        }
        s->steps = grown;
        s->steps_capacity = capacity;
    }
    s->steps[s->n_steps] = (step){previous, strategy};
    *index = (int32_t)s->n_steps++;
    return TRM_OK;
}

/* ---- one layer --------------------------------------------------------------------------------- */

static int32_t find_live(const search *s, int32_t tensor)
{
    for (int32_t i = 0; i < s->n_live; i++) {
        if (s->live[i] == tensor) {
            return i;
        }
    }
    return -1;
}

/* The forms of a new tensor: a pin makes its form the only one. */
static double arrive(const search *s, int32_t tensor, trm_form_set *set)
{
    int32_t pin = s->partitioner->tensors[tensor].pin;
    if (pin < 0 || *set == 0) {
        return 0.0;
    }
    double cost = acquire(s, tensor, pin, set);
    *set = 1u << pin;
    return cost;
}

/* Appends tensors that this layer is the first to read to the live ones; returns their number. */
static int32_t enter_inputs(search *s, const trm_layer *layer)
{
    int32_t entered = 0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input == NULL || input->role == TRM_TENSOR_ACTIVATION || !s->partitioner->tensors[input->index].tracked ||
            find_live(s, input->index) >= 0) {
            continue;
        }
        assert(s->n_live < s->max_live);
        s->live[s->n_live++] = input->index;
        entered++;
    }
    return entered;
}

/* The forms of inputs, constants and states before their first use. */
static double initial_forms(const search *s, int32_t tensor, trm_form_set *set)
{
    *set = s->partitioner->tensors[tensor].tensor->role == TRM_TENSOR_INPUT ? 1u : 0u;
    return arrive(s, tensor, set);
}

/* Which live tensors stay after a layer, in order; -1 ends the list. `from` [max_live] indexes the row of one state
 * while the layer is applied: live tensors, then the layer's outputs. */
static int32_t leave(const search *s, const trm_layer *layer, int32_t *from, int32_t *live)
{
    int32_t n = 0;
    const trm_partition_tensor *tensors = s->partitioner->tensors;
    for (int32_t i = 0; i < s->n_live; i++) {
        if (tensors[s->live[i]].last_use > layer->index) {
            from[n] = i;
            live[n++] = s->live[i];
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        int32_t index = layer->outputs[i]->index;
        if (tensors[index].tracked && tensors[index].last_use > layer->index) {
            from[n] = s->n_live + i;
            live[n++] = index;
        }
    }
    return n;
}

/* Applies a strategy to a row of form sets [n_live + n_outputs]; returns the added cost. */
static double apply(const search *s, const trm_layer *layer, const trm_strategy *strategy, trm_form_set *row)
{
    const trm_partition_tensor *tensors = s->partitioner->tensors;
    double cost = strategy->cost;
    for (int32_t i = 0; i < layer->n_inputs && cost < INFINITY; i++) {
        int32_t slot = layer->inputs[i] == NULL ? -1 : find_live(s, layer->inputs[i]->index);
        cost += slot < 0 ? 0.0 : acquire(s, s->live[slot], strategy->inputs[i], &row[slot]);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        trm_form_set *set = &row[s->n_live + i];
        *set = 1u << strategy->outputs[i];
        cost += arrive(s, layer->outputs[i]->index, set);
        if (layer->outputs[i]->is_output && tensors[layer->outputs[i]->index].last_use <= layer->index) {
            cost += acquire(s, layer->outputs[i]->index, 0, set);
        }
    }
    for (int32_t i = 0; i < s->n_live; i++) {
        const trm_partition_tensor *tensor = &tensors[s->live[i]];
        if (tensor->tensor->is_output && tensor->last_use == layer->index) {
            cost += acquire(s, s->live[i], 0, &row[i]);
        }
    }
    return cost;
}

static trm_status advance(search *s, const trm_layer *layer, trm_form_set *row, int32_t *from, int32_t *live)
{
    const trm_partition_layer *choices = &s->partitioner->layers[layer->index];
    int32_t n_known = s->n_live;
    enter_inputs(s, layer);
    int32_t n_row = s->n_live, n_after = leave(s, layer, from, live);
    trm_form_set *after = row + s->max_live + TRM_MAX_LAYER_OUTPUTS;
    for (int32_t t = n_known; t < n_row; t++) {
        TRM_TRY(price_tensor(s, s->live[t]));
    }
    for (int32_t t = 0; t < layer->n_outputs; t++) {
        TRM_TRY(price_tensor(s, layer->outputs[t]->index));
    }
    for (int32_t i = 0; i < s->now.n; i++) {
        const state *before = &s->now.states[i];
        for (int32_t c = 0; c < choices->n_strategies; c++) {
            memcpy(row, before->forms, (size_t)n_known * sizeof(*row));
            double cost = before->cost;
            for (int32_t t = n_known; t < n_row; t++) {
                cost += initial_forms(s, s->live[t], &row[t]);
            }
            cost += apply(s, layer, &choices->strategies[c], row);
            if (cost == INFINITY) {
                continue;
            }
            for (int32_t t = 0; t < n_after; t++) {
                after[t] = row[from[t]];
            }
            int32_t index = -1;
            TRM_TRY(record(s, before->step, c, &index));
            s->n_live = n_after;
            trm_status status = add_state(s, cost, index, after);
            s->n_live = n_row;
            TRM_TRY(status);
        }
    }
    for (int32_t t = 0; t < n_row; t++) {
        if (s->partitioner->tensors[s->live[t]].last_use <= layer->index) {
            forget_prices(s, s->live[t]);
        }
    }
    for (int32_t t = 0; t < layer->n_outputs; t++) {
        if (s->partitioner->tensors[layer->outputs[t]->index].last_use <= layer->index) {
            forget_prices(s, layer->outputs[t]->index);
        }
    }
    memcpy(s->live, live, (size_t)n_after * sizeof(*live));
    s->n_live = n_after;
    TRM_TRY(settle(s));
    if (s->now.n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "layer %s cannot run with its inputs pinned like this", layer->name);
    }
    return TRM_OK;
}

/* At a cut between stages activations are whole, and the next stage's ranks have their own constants. */
static trm_status cross(search *s, trm_form_set *row)
{
    for (int32_t i = 0; i < s->now.n; i++) {
        const state *before = &s->now.states[i];
        double cost = before->cost;
        memcpy(row, before->forms, (size_t)s->n_live * sizeof(*row));
        for (int32_t t = 0; t < s->n_live; t++) {
            if (s->partitioner->tensors[s->live[t]].tensor->role == TRM_TENSOR_ACTIVATION) {
                cost += acquire(s, s->live[t], 0, &row[t]);
                row[t] = 1;
                cost += arrive(s, s->live[t], &row[t]);
            } else {
                cost += initial_forms(s, s->live[t], &row[t]);
            }
        }
        TRM_TRY(add_state(s, cost, before->step, row));
    }
    return settle(s);
}

/* ---- the whole network ------------------------------------------------------------------------- */

/* An upper bound of the tensors live at once. */
static int32_t bound_live(const trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    int32_t most = 0, n = 0;
    int32_t *change = calloc((size_t)network->n_layers + 2, sizeof(*change));
    if (change == NULL) {
        return -1;
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_partition_tensor *tensor = &partitioner->tensors[i];
        if (!tensor->tracked) {
            continue;
        }
        int32_t from = tensor->tensor->producer != NULL ? tensor->tensor->producer->index : tensor->first_use;
        if (from >= 0) {
            change[from]++;
            change[(tensor->last_use > from ? tensor->last_use : from) + 1]--;
        }
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        n += change[i];
        most = n > most ? n : most;
    }
    free(change);
    return most;
}

static trm_status run(search *s)
{
    const trm_network *network = s->partitioner->network;
    size_t n_row = 2 * (size_t)s->max_live + TRM_MAX_LAYER_OUTPUTS;
    trm_form_set *row = calloc(n_row + 1, sizeof(*row));
    int32_t *lists = calloc(2 * (size_t)s->max_live + 1, sizeof(*lists));
    trm_status status = TRM_OK;
    if (row == NULL || lists == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the partitioner");
        goto done;
    }
    TRM_TRY_GOTO(status, add_state(s, 0.0, -1, row), done);
    TRM_TRY_GOTO(status, settle(s), done);
    for (int32_t i = 0, stage = 1; i < network->n_layers; i++) {
        if (stage < s->partitioner->n_stages && i == s->partitioner->stage_begins[stage]) {
            TRM_TRY_GOTO(status, cross(s, row), done);
            stage++;
        }
        TRM_TRY_GOTO(status, advance(s, network->layers[i], row, lists, lists + s->max_live), done);
    }
    int32_t index = s->now.states[0].step;
    for (int32_t i = network->n_layers; i-- > 0;) {
        s->partitioner->layers[i].chosen = s->steps[index].strategy;
        index = s->steps[index].previous;
    }
done:
    free(row);
    free(lists);
    return status;
}

trm_status trm_partition_search(trm_partitioner *partitioner)
{
    search s = {.partitioner = partitioner, .max_live = bound_live(partitioner)};
    const int32_t n_tensors = partitioner->network->n_tensors;
    s.live = s.max_live < 0 ? NULL : calloc((size_t)s.max_live + 1, sizeof(*s.live));
    s.prices = calloc((size_t)n_tensors + 1, sizeof(*s.prices));
    trm_status status = s.live == NULL || s.prices == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the partitioner")
                            : TRM_OK;
    if (status == TRM_OK) {
        status = run(&s);
    }
    for (int32_t i = 0; i < n_tensors && s.prices != NULL; i++) {
        forget_prices(&s, i);
    }
    free(s.prices);
    free(s.slots);
    free(s.live);
    free(s.now.states);
    free(s.now.forms);
    free(s.next.states);
    free(s.next.forms);
    free(s.steps);
    return status;
}
