/* Model shapes by name, as config.json texts. */
#ifndef TRM_GRAPH_IMPORT_HF_PRESET_H
#define TRM_GRAPH_IMPORT_HF_PRESET_H

typedef struct trm_hf_preset {
    const char *name;
    const char *config;
} trm_hf_preset;

const trm_hf_preset *trm_hf_preset_find(const char *name); /* NULL if there is none */

#endif
