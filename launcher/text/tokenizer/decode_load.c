/* Loads decoders. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/tokenizer/decode.h"

static trm_status load_members(const trm_text_loader *loader, const trm_json *json, trm_decode_step *step)
{
    bool split = true; /* only the pre-tokenizer splits */
    step->cleanup = true;
    switch (step->kind) {
    case TRM_DECODE_METASPACE:
        return trm_metaspace_load(loader, json, &step->character, &step->prepend, &split);
    case TRM_DECODE_WORDPIECE:
        TRM_TRY(trm_loader_string(loader, json, "prefix", &step->text));
        return trm_json_member_bool(loader->document, json, "cleanup", true, &step->cleanup);
    case TRM_DECODE_STRIP:
        TRM_TRY(trm_loader_character(loader, json, "content", &step->character));
        TRM_TRY(trm_loader_count(loader, json, "start", &step->start));
        return trm_loader_count(loader, json, "stop", &step->stop);
    case TRM_DECODE_REPLACE:
        TRM_TRY(trm_pattern_load(loader, trm_json_get(json, "pattern"), &step->pattern));
        return trm_loader_string(loader, json, "content", &step->text);
    case TRM_DECODE_BPE:
        return trm_loader_string(loader, json, "suffix", &step->text);
    case TRM_DECODE_CTC:
        TRM_TRY(trm_loader_string(loader, json, "pad_token", &step->text));
        TRM_TRY(trm_loader_string(loader, json, "word_delimiter_token", &step->delimiter));
        return trm_json_member_bool(loader->document, json, "cleanup", true, &step->cleanup);
    default:
        return TRM_OK;
    }
}

static trm_status append_step(trm_decode_steps *steps, trm_decode_kind kind, trm_decode_step **step)
{
    void *items = steps->items;
    TRM_TRY(trm_array_grow(&items, &steps->capacity, steps->count + 1, sizeof(*steps->items)));
    steps->items = items;
    bool fused = false;
    if (steps->count > 0) {
        const trm_decode_step *last = &steps->items[steps->count - 1];
        fused = last->fused || last->kind == TRM_DECODE_FUSE || last->kind == TRM_DECODE_BYTE_LEVEL;
    }
    *step = &steps->items[steps->count++];
    **step = (trm_decode_step){.kind = kind, .fused = fused};
    return TRM_OK;
}

static trm_status load(const trm_text_loader *loader, const trm_json *json, trm_decode_steps *steps)
{
    static const struct {
        const char *name;
        trm_decode_kind kind;
    } types[] = {
        {"ByteLevel", TRM_DECODE_BYTE_LEVEL},
        {"Metaspace", TRM_DECODE_METASPACE},
        {"WordPiece", TRM_DECODE_WORDPIECE},
        {"ByteFallback", TRM_DECODE_BYTE_FALLBACK},
        {"Fuse", TRM_DECODE_FUSE},
        {"Strip", TRM_DECODE_STRIP},
        {"Replace", TRM_DECODE_REPLACE},
        {"BPEDecoder", TRM_DECODE_BPE},
        {"CTC", TRM_DECODE_CTC},
    };
    const char *type = NULL;
    const trm_json *parts = NULL;
    bool sequence = false;
    TRM_TRY(trm_loader_type(loader, json, "decoder", "decoders", &type, &sequence, &parts));
    for (const trm_json *part = trm_json_first(parts); sequence && part != NULL; part = trm_json_next(part)) {
        TRM_TRY(load(loader, part, steps));
    }
    for (size_t i = 0; !sequence && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(type, types[i].name) == 0) {
            trm_decode_step *step;
            TRM_TRY(append_step(steps, types[i].kind, &step));
            return load_members(loader, json, step);
        }
    }
    return sequence ? TRM_OK : trm_loader_unknown_type(loader, "decoder", type);
}

trm_status trm_decode_steps_load(const trm_text_loader *loader, const trm_json *json, trm_decode_steps *steps)
{
    trm_decode_step *step;
    if (json == NULL) {
        return append_step(steps, TRM_DECODE_JOIN, &step);
    }
    TRM_TRY(load(loader, json, steps));
    return steps->count > 0 ? TRM_OK : append_step(steps, TRM_DECODE_FUSE, &step); /* an empty sequence */
}

void trm_decode_steps_fini(trm_decode_steps *steps)
{
    free(steps->items);
    *steps = (trm_decode_steps){0};
}
