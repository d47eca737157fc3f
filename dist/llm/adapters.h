/*
 * The LoRA adapters of a generator: slots of the states that the network's LORA layers read, and what they hold.
 * Adapter n is in slot n - 1.
 */
#ifndef TRM_DIST_LLM_ADAPTERS_H
#define TRM_DIST_LLM_ADAPTERS_H

#include <trireme/generate.h>

#define TRM_MAX_ADAPTERS 256

typedef struct trm_adapter_slots {
    int32_t n, rank; /* slots; 0: the network has none */
    bool loaded[TRM_MAX_ADAPTERS];
} trm_adapter_slots;

/* The slots that options ask for. INVALID_ARGUMENT if there are too many. */
trm_status trm_adapter_slots_choose(const trm_generator_options *options, trm_adapter_slots *slots);
/* Whether an adapter is loaded; 0, none, always is. */
bool trm_generator_has_adapter(const trm_generator *generator, int32_t adapter);
/* The first adapter that is not loaded. BUSY, INVALID_ARGUMENT. */
trm_status trm_generator_free_adapter(const trm_generator *generator, const char *folder, int32_t *adapter);
/* Loads a folder as that. Collective. */
trm_status trm_generator_load_adapter_as(trm_generator *generator, const char *folder, int32_t adapter);

#endif
