/*
 * Post-processors: the special tokens around an encoded text. For a single text they all reduce to a fixed template.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_POSTPROCESS_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_POSTPROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"
#include "launcher/text/tokenizer/loader.h"

#define TRM_TEMPLATE_TEXT (-1) /* the place of the text's own ids */

typedef struct trm_postprocessor {
    trm_ids pattern; /* ids and TRM_TEMPLATE_TEXT; empty with `given` false is the text alone */
    bool given;
} trm_postprocessor;

/* Loads the member "post_processor" (NULL: none). UNSUPPORTED naming an unknown type. */
trm_status trm_postprocessor_load(const trm_text_loader *loader, const trm_json *json,
                                  trm_postprocessor *postprocessor);
void trm_postprocessor_fini(trm_postprocessor *postprocessor);
/* Appends the ids of a text, with or without the special ones. */
trm_status trm_postprocessor_apply(const trm_postprocessor *postprocessor, const trm_ids *text, bool add_special,
                                   trm_ids *out);

#endif
