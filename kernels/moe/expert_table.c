/* The expert cache on the host, which defines it: a fetch is a memcpy, and requests to the CPU are answered at once. */
#include "kernels/moe/expert_table.h"

#include <string.h>

#include "kernels/device/device_impl.h"
#include "kernels/element.h"
#include "kernels/moe/moe.h"

trm_status trm_expert_table_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                   int32_t *slot_ids, const trm_expert_post *post)
{
    return stream->ops->expert_select(stream, table, ids, pairs, slot_ids, post);
}

trm_status trm_expert_table_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                  int32_t n, const trm_expert_supply *supply, int32_t layer)
{
    return stream->ops->expert_fetch(stream, table, tensors, n, supply, layer);
}

trm_status trm_expert_table_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y, int64_t n)
{
    return stream->ops->expert_add(stream, box, type, y, n);
}

/* Where an id lies among the experts held here, or -1. */
static int64_t local_of(const trm_expert_table *table, int32_t id)
{
    const int64_t local = (int64_t)id - table->first;
    return id >= 0 && local >= 0 && local < table->experts ? local : -1;
}

/* The slot that no expert of step `now` is in and that was not used for the longest time. */
static int32_t find_oldest(const trm_expert_table *table, int64_t now)
{
    int32_t oldest = -1;
    for (int32_t s = 0; s < table->slots; s++) {
        if (table->used[s] != now && (oldest < 0 || table->used[s] < table->used[oldest])) {
            oldest = s;
        }
    }
    return oldest;
}

enum { UNUSED, USED, FOR_CPU }; /* what a step makes of an expert */

/* Marks the missing experts that are for the CPU; returns how many. */
static int32_t choose_for_cpu(const trm_expert_table *table, const trm_expert_post *post, int64_t now, uint8_t *marks)
{
    int32_t missing = 0, n = 0;
    if (table->shares == NULL || post == NULL ||
        (post->box->sent[2] != 0 && post->box->mail->done != *post->box->sent)) {
        return 0;
    }
    post->box->sent[2] = 0;
    for (int32_t e = 0; e < table->experts; e++) {
        missing += marks[e] == USED && table->slot_of[e] == 0;
    }
    const int32_t stay = missing - table->shares[missing], oldest = missing > 0 ? find_oldest(table, now) : -1;
    for (int32_t e = 0; e < table->experts; e++) {
        if (marks[e] == UNUSED || table->slot_of[e] > 0) {
            continue;
        }
        int32_t before = 0; /* missing experts that were used later */
        for (int32_t i = 0; i < table->experts; i++) {
            const bool is_missing = marks[i] != UNUSED && table->slot_of[i] == 0;
            before += is_missing && (table->last[i] > table->last[e] || (table->last[i] == table->last[e] && i < e));
        }
        const bool returns = oldest >= 0 && TRM_EXPERT_RETURNS * (now - table->last[e]) < now - table->used[oldest];
        if (before >= stay && !returns) {
            marks[e] = FOR_CPU;
            n++;
        }
    }
    return n;
}

/* Writes a request. */
static void post_request(const trm_expert_table *table, const trm_expert_post *post, const int32_t *ids,
                         const uint8_t *marks)
{
    trm_expert_mail *mail = post->box->mail;
    for (int32_t i = 0; i < post->tokens * post->k; i++) {
        const int64_t local = local_of(table, ids[i]);
        mail->ids[i] = local >= 0 && marks[local] == FOR_CPU ? ids[i] : -1;
        mail->weights[i] = post->weights[i];
    }
    memcpy(post->box->x, post->x, post->x_bytes);
    mail->layer = post->layer;
    mail->tokens = post->tokens;
    mail->k = post->k;
    post->box->sent[1] = ++post->box->sent[0];
    __atomic_store_n(&mail->posted, post->box->sent[1], __ATOMIC_RELEASE);
}

/* Gives the missing experts that are not for the CPU slots; returns how many. */
static int32_t choose_slots(const trm_expert_table *table, int64_t now, const uint8_t *marks)
{
    int32_t n = 0;
    for (int32_t e = 0; e < table->experts; e++) {
        const int32_t slot = marks[e] == USED && table->slot_of[e] == 0 ? find_oldest(table, now) : -1;
        if (slot >= 0) {
            if (table->expert_of[slot] > 0) {
                table->slot_of[table->expert_of[slot] - 1] = 0;
            }
            table->expert_of[slot] = e + 1;
            table->slot_of[e] = slot + 1;
            table->used[slot] = now;
            table->missing[1 + 2 * n] = e;
            table->missing[2 + 2 * n++] = slot;
        }
        table->last[e] = marks[e] != UNUSED ? now : table->last[e];
        table->uses[e] += marks[e] != UNUSED;
    }
    return n;
}

trm_status trm_host_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids, const trm_expert_post *post)
{
    (void)stream;
    uint8_t marks[TRM_MOE_MOST_EXPERTS] = {UNUSED};
    const int64_t now = ++table->clock[TRM_EXPERT_STEPS];
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t local = local_of(table, ids[i]);
        if (local >= 0 && marks[local] == UNUSED) {
            marks[local] = USED;
            if (table->slot_of[local] > 0) {
                table->used[table->slot_of[local] - 1] = now;
                table->clock[TRM_EXPERT_HITS]++;
            }
        }
    }
    const int32_t hosted = choose_for_cpu(table, post, now, marks);
    table->clock[TRM_EXPERT_HOSTED] += hosted;
    if (post != NULL) {
        post->box->sent[1] = 0;
    }
    if (hosted > 0) {
        post_request(table, post, ids, marks);
    }
    table->missing[0] = choose_slots(table, now, marks);
    table->clock[TRM_EXPERT_MISSES] += table->missing[0];
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t local = local_of(table, ids[i]);
        slot_ids[i] = local < 0 || table->slot_of[local] == 0 ? -1 : table->first + table->slot_of[local] - 1;
    }
    for (int32_t i = 0; i < TRM_EXPERT_CLOCKS; i++) { /* another thread may read them */
        __atomic_store_n(&table->counts[i], table->clock[i], __ATOMIC_RELAXED);
    }
    return TRM_OK;
}

/* Asks for the missing experts. */
static void post_demand(const trm_expert_table *table, const trm_expert_supply *supply, int32_t layer)
{
    trm_expert_demand *demand = supply->demand;
    supply->sent[1] = 0;
    if (supply->sent[2] != 0 && __atomic_load_n(&demand->done, __ATOMIC_ACQUIRE) != supply->sent[0]) {
        return;
    }
    supply->sent[2] = 0;
    demand->layer = layer;
    demand->n = table->missing[0];
    for (int32_t j = 0; j < demand->n; j++) {
        demand->experts[j] = table->missing[1 + 2 * j];
    }
    supply->sent[1] = ++supply->sent[0];
    __atomic_store_n(&demand->posted, supply->sent[1], __ATOMIC_RELEASE);
    if (supply->serve != NULL) {
        supply->serve(supply->server);
    }
}

/* Where the missing expert j was supplied; NULL: it was not. */
static const unsigned char *find_supplied(const trm_expert_supply *supply, int32_t j)
{
    const trm_expert_found *found = &supply->demand->found[j];
    const bool is_there = supply->sent[1] != 0 && __atomic_load_n(&found->number, __ATOMIC_ACQUIRE) == supply->sent[1];
    if (!is_there) {
        supply->demand->late = 1;
        supply->sent[2] = 1;
    }
    return is_there ? found->at : NULL;
}

trm_status trm_host_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n, const trm_expert_supply *supply, int32_t layer)
{
    (void)stream;
    if (supply != NULL && table->missing[0] > 0) {
        post_demand(table, supply, layer);
    }
    for (int32_t j = 0; j < table->missing[0]; j++) {
        const size_t expert = (size_t)table->missing[1 + 2 * j], slot = (size_t)table->missing[2 + 2 * j];
        const unsigned char *at = supply == NULL ? NULL : find_supplied(supply, j);
        if (supply != NULL && at == NULL) {
            table->slot_of[expert] = table->expert_of[slot] = 0;
            table->used[slot] = 0;
            continue;
        }
        for (int32_t i = 0; i < n; i++) {
            const trm_expert_tensor *t = &tensors[i];
            const unsigned char *from =
                t->from == NULL ? at + t->offset : (const unsigned char *)t->from + expert * t->bytes;
            memcpy((char *)t->to + slot * t->bytes, from, t->bytes);
        }
    }
    return TRM_OK;
}

trm_status trm_host_expert_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y, int64_t n)
{
    (void)stream;
    if (box->sent[1] == 0) {
        return TRM_OK;
    }
    if (box->serve != NULL) {
        box->serve(box->server);
    }
    if (__atomic_load_n(&box->mail->done, __ATOMIC_ACQUIRE) != box->sent[1]) {
        box->mail->late = 1;
        box->sent[2] = 1;
        return TRM_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        trm_element_store_f32(type, y, i, trm_element_load_f32(type, y, i) + box->y[i]);
    }
    return TRM_OK;
}
