/* Which experts host memory holds, and reading the others. */
#include "weight_stream/offload/expert_store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/unit.h"
#include "weight_stream/offload/mail_thread.h"
#include "weight_stream/offload/streaming.h"

/* How long the device waits for one expert. */
#define LIMIT_SECONDS 30
/* Bytes that a thread reads at a time, which a window of the reader holds. */
#define READ_BYTES (TRM_WEIGHT_WINDOW / 2)
/* A miss counts half as much after this many demands of a layer; beyond LARGE all counts are made smaller. */
#define HALF_LIFE 512
#define LARGE     1e100
#define LN_2      0.693147

/* A part of an expert that is read at once. */
typedef struct piece {
    int32_t weight;
    size_t each;        /* bytes of an expert in the weight */
    size_t begin, size; /* in the expert's part of it */
    size_t to;          /* in the expert's slot */
} piece;

typedef struct store_layer {
    const trm_layer *layer;
    int32_t first, experts; /* numbers of its experts among those of all layers */
    int32_t n_pieces;
    piece *pieces; /* [n_pieces] of an expert */
} store_layer;

struct trm_expert_store {
    trm_offload_site site;
    trm_expert_supply supply;
    int32_t n;
    store_layer *layers; /* [n] */
    int32_t all, n_slots;
    size_t slot_bytes;
    unsigned char *memory; /* [n_slots] of slot_bytes, of the residency */
    int32_t *slot_of;      /* [all] slot, or -1 */
    int32_t *expert_of;    /* [n_slots] expert, or -1 */
    int64_t *used;         /* [n_slots] number of the last demand that used it */
    double *misses;        /* [all] of the device, newer ones count more */
    double weight, growth; /* what the next miss counts, and by how much more from demand to demand */
    trm_pool *pool;
    trm_mail_thread thread;
    atomic_llong found, read;
    pthread_mutex_t mutex; /* of the next one */
    trm_held_error failure;
};

/* ---- reading ----------------------------------------------------------------------------------- */

/* Experts of a layer that are read together. */
typedef struct reading {
    trm_expert_store *store;
    const store_layer *layer;
    int32_t n;
    const int32_t *experts;                /* [n] of the layer */
    unsigned char *const *to;              /* [n] */
    atomic_int left[TRM_MOE_MOST_EXPERTS]; /* [n] pieces that are not read yet */
    atomic_bool bad[TRM_MOE_MOST_EXPERTS]; /* [n] a piece could not be read */
    const int32_t *answers;                /* [n] places in the demand's answers; NULL: nobody asked */
    int64_t number;
} reading;

static void publish(trm_expert_store *store, int32_t place, const unsigned char *at, int64_t number)
{
    trm_expert_found *found = &store->supply.demand->found[place];
    found->at = at;
    __atomic_store_n(&found->number, number, __ATOMIC_RELEASE);
}

static void note_failure(trm_expert_store *store, trm_status status)
{
    pthread_mutex_lock(&store->mutex);
    if (store->failure.status == TRM_OK) {
        trm_error_hold(status, &store->failure);
    }
    pthread_mutex_unlock(&store->mutex);
}

/* Reads pieces, and answers for an expert whose last piece it was. */
static void read_pieces(void *user, int64_t begin, int64_t end)
{
    reading *r = user;
    for (int64_t i = begin; i < end; i++) {
        const int32_t j = (int32_t)(i / r->layer->n_pieces);
        const piece *p = &r->layer->pieces[i % r->layer->n_pieces];
        const trm_status status = trm_streaming_read(
            r->store->site.plan, p->weight, (size_t)r->experts[j] * p->each + p->begin, p->size, r->to[j] + p->to);
        if (status != TRM_OK) {
            note_failure(r->store, status);
            atomic_store(&r->bad[j], true);
        }
        if (atomic_fetch_sub(&r->left[j], 1) == 1 && r->answers != NULL) {
            publish(r->store, r->answers[j], atomic_load(&r->bad[j]) ? NULL : r->to[j], r->number);
        }
    }
}

static void read_all(reading *r)
{
    for (int32_t j = 0; j < r->n; j++) {
        atomic_init(&r->left[j], r->layer->n_pieces);
        atomic_init(&r->bad[j], false);
    }
    trm_pool_for(r->store->pool, (int64_t)r->n * r->layer->n_pieces, 1, read_pieces, r);
}

/* ---- demands ----------------------------------------------------------------------------------- */

static void drop(trm_expert_store *store, int32_t expert)
{
    store->expert_of[store->slot_of[expert]] = -1;
    store->slot_of[expert] = -1;
}

/* Takes the slot of the expert that was missed least, and that this demand does not use. -1: none. */
static int32_t take_slot(trm_expert_store *store, int32_t expert, int64_t number)
{
    int32_t least = -1;
    double fewest = 0;
    for (int32_t s = 0; s < store->n_slots; s++) {
        const double misses = store->expert_of[s] < 0 ? -1 : store->misses[store->expert_of[s]];
        if (store->used[s] != number && (least < 0 || misses < fewest)) {
            least = s;
            fewest = misses;
        }
    }
    if (least >= 0) {
        if (store->expert_of[least] >= 0) {
            drop(store, store->expert_of[least]);
        }
        store->expert_of[least] = expert;
        store->slot_of[expert] = least;
        store->used[least] = number;
    }
    return least;
}

static void count_miss(trm_expert_store *store, int32_t expert)
{
    store->misses[expert] += store->weight;
}

static void age(trm_expert_store *store)
{
    store->weight *= store->growth;
    for (int32_t i = 0; store->weight > LARGE && i < store->all; i++) {
        store->misses[i] /= store->weight;
    }
    store->weight = store->weight > LARGE ? 1 : store->weight;
}

static unsigned char *slot_at(const trm_expert_store *store, int32_t slot)
{
    return store->memory + (size_t)slot * store->slot_bytes;
}

/* Answers for the experts of a layer that are there, and reads the others. */
static void supply(trm_expert_store *store, const store_layer *layer, int32_t n, const int32_t *experts, int64_t number)
{
    reading r = {.store = store, .layer = layer, .number = number};
    int32_t reads[TRM_MOE_MOST_EXPERTS], places[TRM_MOE_MOST_EXPERTS];
    unsigned char *to[TRM_MOE_MOST_EXPERTS];
    for (int32_t j = 0; j < n; j++) {
        const int32_t expert = layer->first + experts[j], slot = store->slot_of[expert];
        count_miss(store, expert);
        if (slot >= 0) {
            store->used[slot] = number;
            publish(store, j, slot_at(store, slot), number);
        }
    }
    for (int32_t j = 0; j < n; j++) {
        const int32_t expert = layer->first + experts[j];
        if (store->slot_of[expert] < 0) {
            const int32_t slot = take_slot(store, expert, number);
            if (slot < 0) { /* the layer asks for more than fit: not if rounds are as they should be */
                publish(store, j, NULL, number);
                continue;
            }
            reads[r.n] = experts[j];
            places[r.n] = j;
            to[r.n++] = slot_at(store, slot);
        }
    }
    atomic_fetch_add_explicit(&store->found, n - r.n, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->read, r.n, memory_order_relaxed);
    r.experts = reads;
    r.answers = places;
    r.to = to;
    read_all(&r);
    for (int32_t j = 0; j < r.n; j++) {
        if (atomic_load(&r.bad[j])) {
            drop(store, layer->first + reads[j]);
        }
    }
    age(store);
}

/* Answers the last demand. */
static void answer(void *user)
{
    trm_expert_store *store = user;
    trm_expert_demand *demand = store->supply.demand;
    int32_t experts[TRM_MOE_MOST_EXPERTS];
    const int64_t number = __atomic_load_n(&demand->posted, __ATOMIC_ACQUIRE);
    const int32_t index = demand->layer, n = demand->n < TRM_MOE_MOST_EXPERTS ? demand->n : TRM_MOE_MOST_EXPERTS;
    const store_layer *layer = &store->layers[index >= 0 && index < store->n ? index : 0];
    for (int32_t j = 0; j < n; j++) {
        const int32_t expert = demand->experts[j];
        experts[j] = expert >= 0 && expert < layer->experts ? expert : 0;
    }
    supply(store, layer, n, experts, number);
    __atomic_store_n(&demand->done, number, __ATOMIC_RELEASE);
}

/* ---- making one -------------------------------------------------------------------------------- */

/* Whether a few rows of an expert read slower than all: the file stores it transposed. */
static bool is_turned(const trm_tensor *tensor)
{
    trm_weight *one = NULL, *flat = NULL;
    bool turned = false;
    if (tensor->dims.n == 3 && tensor->value == NULL && trm_weight_slice(tensor->weight, 0, 0, 1, &one) == TRM_OK) {
        const trm_dims dims = {.n = 2, .d = {tensor->dims.d[1], tensor->dims.d[2]}};
        turned = trm_weight_reshape(one, &dims, &flat) == TRM_OK && trm_weight_is_turned(flat);
    }
    trm_weight_destroy(one);
    trm_weight_destroy(flat);
    return turned;
}

/* Lists the pieces of an expert; pieces NULL: only counts. */
static int32_t list_pieces(const trm_plan *plan, const trm_cached_layer *cached, piece *pieces)
{
    int32_t n = 0;
    for (int32_t k = 0; k < cached->n; k++) {
        const trm_tensor *tensor = cached->layer->inputs[cached->inputs[k]];
        const int32_t weight = trm_streaming_weight(plan, tensor);
        const size_t bytes = cached->tensors[k].bytes, most = is_turned(tensor) ? bytes : READ_BYTES;
        for (size_t begin = 0; weight >= 0 && begin < bytes; begin += most) {
            const size_t size = bytes - begin < most ? bytes - begin : most;
            if (pieces != NULL) {
                pieces[n] = (piece){weight, bytes, begin, size, cached->tensors[k].offset + begin};
            }
            n++;
        }
    }
    return n;
}

static trm_status list_layers(trm_expert_store *made, const trm_cached_layer *layers)
{
    made->layers = calloc((size_t)made->n, sizeof(*made->layers));
    for (int32_t i = 0; made->layers != NULL && i < made->n; i++) {
        store_layer *layer = &made->layers[i];
        *layer = (store_layer){.layer = layers[i].layer,
                               .first = made->all,
                               .experts = layers[i].table.experts,
                               .n_pieces = list_pieces(made->site.plan, &layers[i], NULL)};
        made->all += layer->experts;
        layer->pieces = calloc((size_t)layer->n_pieces + 1, sizeof(*layer->pieces));
        if (layer->pieces == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d pieces of an expert", layer->n_pieces);
        }
        (void)list_pieces(made->site.plan, &layers[i], layer->pieces);
    }
    made->slot_of = malloc(((size_t)made->all + 1) * sizeof(*made->slot_of));
    made->expert_of = malloc(((size_t)made->n_slots + 1) * sizeof(*made->expert_of));
    made->used = calloc((size_t)made->n_slots + 1, sizeof(*made->used));
    made->misses = calloc((size_t)made->all + 1, sizeof(*made->misses));
    if (made->layers == NULL || made->slot_of == NULL || made->expert_of == NULL || made->used == NULL ||
        made->misses == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the tables of %d experts in host memory", made->n_slots);
    }
    memset(made->slot_of, -1, (size_t)made->all * sizeof(*made->slot_of));
    memset(made->expert_of, -1, (size_t)made->n_slots * sizeof(*made->expert_of));
    return TRM_OK;
}

typedef struct expected {
    double misses;
    int32_t layer, expert;
} expected;

/* More misses first; of equal ones the same expert of every layer. */
static int more_first(const void *a, const void *b)
{
    const expected *x = a, *y = b;
    return x->misses != y->misses   ? (x->misses < y->misses) - (x->misses > y->misses)
           : x->expert != y->expert ? x->expert - y->expert
                                    : x->layer - y->layer;
}

/* Reads the experts of a layer that are wanted. */
static trm_status fill_layer(trm_expert_store *made, int32_t index, const bool *wanted)
{
    const store_layer *layer = &made->layers[index];
    reading r = {.store = made, .layer = layer};
    int32_t experts[TRM_MOE_MOST_EXPERTS];
    unsigned char *to[TRM_MOE_MOST_EXPERTS];
    for (int32_t e = 0; e < layer->experts; e++) {
        if (wanted[layer->first + e]) {
            experts[r.n] = e;
            to[r.n++] = slot_at(made, take_slot(made, layer->first + e, 1));
        }
    }
    r.experts = experts;
    r.to = to;
    read_all(&r);
    return trm_error_give_back(&made->failure);
}

/* Reads the experts that the device will miss most often, by prediction, which also counts as misses until now. */
static trm_status fill(trm_expert_store *made)
{
    expected *all = calloc((size_t)made->all + 1, sizeof(*all));
    bool *wanted = calloc((size_t)made->all + 1, sizeof(*wanted));
    trm_status status = all == NULL || wanted == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d experts", made->all)
                            : TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < made->n; i++) {
        const store_layer *layer = &made->layers[i];
        for (int32_t e = 0; e < layer->experts; e++) {
            const double misses = made->site.plan->streaming->expert_misses[layer->first + e];
            all[layer->first + e] = (expected){misses, i, e};
            made->misses[layer->first + e] = misses * HALF_LIFE / LN_2;
        }
    }
    if (status == TRM_OK) {
        qsort(all, (size_t)made->all, sizeof(*all), more_first);
    }
    for (int32_t i = 0; status == TRM_OK && i < made->n_slots && i < made->all; i++) {
        wanted[made->layers[all[i].layer].first + all[i].expert] = true;
    }
    for (int32_t i = 0; status == TRM_OK && i < made->n; i++) {
        status = fill_layer(made, i, wanted);
    }
    memset(made->used, 0, (size_t)made->n_slots * sizeof(*made->used));
    free(wanted);
    free(all);
    return status;
}

static trm_status start(trm_expert_store *made, const trm_cached_layer *layers)
{
    const trm_streaming_plan *s = made->site.plan->streaming;
    trm_device *device = made->site.world->device;
    void *memory;
    made->n_slots = s->host_experts;
    made->slot_bytes = s->host_expert_bytes;
    made->memory = made->site.places->experts;
    TRM_TRY(list_layers(made, layers));
    TRM_TRY(trm_pool_create(TRM_READER_THREADS, &made->pool));
    TRM_TRY(trm_device_alloc_host(device, sizeof(trm_expert_demand), &memory));
    made->supply.demand = memset(memory, 0, sizeof(trm_expert_demand));
    made->supply.limit = (int64_t)LIMIT_SECONDS * 1000000000;
    made->weight = 1;
    made->growth = 1 + LN_2 / HALF_LIFE / made->n;
    TRM_TRY(fill(made));
    TRM_DEBUG("rank %d: %d of %d experts are in host memory (%s)", made->site.plan->rank, made->n_slots, made->all,
              trm_size_text((double)made->site.places->expert_bytes).text);
    if (trm_device_backend(device) == TRM_BACKEND_HOST) {
        made->supply.serve = answer;
        made->supply.server = made;
        return TRM_OK;
    }
    return trm_mail_thread_start(&made->thread, &made->supply.demand->posted, answer, made);
}

trm_status trm_expert_store_create(const trm_offload_site *site, const trm_cached_layer *layers, int32_t n,
                                   int64_t *sent, trm_expert_store **made)
{
    trm_expert_store *store = calloc(1, sizeof(*store));
    *made = NULL;
    if (store == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the experts in host memory");
    }
    store->site = *site;
    store->n = n;
    store->supply.sent = sent;
    pthread_mutex_init(&store->mutex, NULL);
    const trm_status status = start(store, layers);
    if (status != TRM_OK) {
        trm_expert_store_destroy(store, site->world->device);
        return status;
    }
    *made = store;
    return TRM_OK;
}

void trm_expert_store_destroy(trm_expert_store *store, trm_device *device)
{
    if (store == NULL) {
        return;
    }
    trm_mail_thread_stop(&store->thread);
    trm_pool_destroy(store->pool);
    trm_device_free_host(device, store->supply.demand);
    for (int32_t i = 0; store->layers != NULL && i < store->n; i++) {
        free(store->layers[i].pieces);
    }
    pthread_mutex_destroy(&store->mutex);
    free(store->layers);
    free(store->slot_of);
    free(store->expert_of);
    free(store->used);
    free(store->misses);
    free(store);
}

const trm_expert_supply *trm_expert_store_supply(const trm_expert_store *store)
{
    return &store->supply;
}

bool trm_expert_store_has(const trm_expert_store *store, const trm_tensor *tensor)
{
    return store != NULL && trm_streaming_weight(store->site.plan, tensor) >= 0;
}

trm_expert_store_counts trm_expert_store_count(const trm_expert_store *store)
{
    return store == NULL ? (trm_expert_store_counts){0}
                         : (trm_expert_store_counts){atomic_load(&store->found), atomic_load(&store->read)};
}

trm_status trm_expert_store_status(trm_expert_store *store)
{
    if (store == NULL) {
        return TRM_OK;
    }
    trm_expert_demand *demand = store->supply.demand;
    const bool is_late = demand->late != 0;
    const int32_t layer = demand->layer;
    pthread_mutex_lock(&store->mutex);
    const trm_status status = trm_error_give_back(&store->failure);
    store->failure = (trm_held_error){0};
    pthread_mutex_unlock(&store->mutex);
    demand->late = 0;
    if (status == TRM_OK && is_late) {
        TRM_FAIL(TRM_ERROR_IO, "layer %s: an expert was not read from its file within %d s",
                 store->layers[layer].layer->name, LIMIT_SECONDS);
    }
    return status;
}
