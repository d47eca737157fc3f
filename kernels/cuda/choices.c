/* What tuning chose, in a table without chains. */
#include "kernels/cuda/choices.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

#include "base/hash.h"

#define SLOTS 4096 /* a power of two */

typedef struct slot {
    trm_choice_key key;
    int device;
    bool used;
    int32_t way;
} slot;

static struct {
    pthread_mutex_t mutex;
    slot slots[SLOTS];
} choices = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static slot *slot_of(const trm_choice_key *key, int device)
{
    const uint64_t hash = trm_hash_bytes(trm_hash_bytes(TRM_HASH_START, key, sizeof(*key)), &device, sizeof(device));
    return &choices.slots[(hash >> 32 ^ hash) & (SLOTS - 1)];
}

void trm_choice_remember(const trm_choice_key *key, int32_t way)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        return;
    }
    pthread_mutex_lock(&choices.mutex);
    *slot_of(key, device) = (slot){*key, device, true, way};
    pthread_mutex_unlock(&choices.mutex);
}

bool trm_choice_recall(const trm_choice_key *key, int32_t *way)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        return false;
    }
    pthread_mutex_lock(&choices.mutex);
    const slot *found = slot_of(key, device);
    const bool known = found->used && found->device == device && memcmp(&found->key, key, sizeof(*key)) == 0;
    *way = known ? found->way : *way;
    pthread_mutex_unlock(&choices.mutex);
    return known;
}
