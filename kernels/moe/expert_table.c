/* The expert cache on the host, which defines it: a fetch is a memcpy. */
#include "kernels/moe/expert_table.h"

#include <string.h>

#include "kernels/device/device_impl.h"
#include "kernels/moe/moe.h"

trm_status trm_expert_table_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                   int32_t *slot_ids)
{
    return stream->ops->expert_select(stream, table, ids, pairs, slot_ids);
}

trm_status trm_expert_table_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                  int32_t n)
{
    return stream->ops->expert_fetch(stream, table, tensors, n);
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

trm_status trm_host_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids)
{
    (void)stream;
    bool needed[TRM_MOE_MOST_EXPERTS] = {false};
    const int64_t now = ++table->clock[TRM_EXPERT_STEPS];
    int32_t n = 0;
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t local = local_of(table, ids[i]);
        if (local >= 0 && !needed[local]) {
            needed[local] = true;
            if (table->slot_of[local] > 0) {
                table->used[table->slot_of[local] - 1] = now;
                table->clock[TRM_EXPERT_HITS]++;
            }
        }
    }
    for (int32_t e = 0; e < table->experts; e++) {
        const int32_t slot = needed[e] && table->slot_of[e] == 0 ? find_oldest(table, now) : -1;
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
    }
    table->missing[0] = n;
    table->clock[TRM_EXPERT_MISSES] += n;
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t local = local_of(table, ids[i]);
        slot_ids[i] = local < 0 ? -1 : table->first + table->slot_of[local] - 1;
    }
    for (int32_t i = 0; i < TRM_EXPERT_CLOCKS; i++) { /* another thread may read them */
        __atomic_store_n(&table->counts[i], table->clock[i], __ATOMIC_RELAXED);
    }
    return TRM_OK;
}

trm_status trm_host_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n)
{
    (void)stream;
    for (int32_t j = 0; j < table->missing[0]; j++) {
        const size_t expert = (size_t)table->missing[1 + 2 * j], slot = (size_t)table->missing[2 + 2 * j];
        for (int32_t i = 0; i < n; i++) {
            const trm_expert_tensor *t = &tensors[i];
            memcpy((char *)t->to + slot * t->bytes, (const char *)t->from + expert * t->bytes, t->bytes);
        }
    }
    return TRM_OK;
}
