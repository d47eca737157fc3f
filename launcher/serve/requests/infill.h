/*
 * Prompts of completions with a suffix: models that fill in the middle of a text get both sides between marks.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_INFILL_H
#define TRM_LAUNCHER_SERVE_REQUESTS_INFILL_H

#include "launcher/serve/requests/api_request.h"

/* Puts the suffix of a request into its prompts. Refuses prompts of ids, and tokenizers without such marks. */
bool infill_prompts(const trm_tokenizer *tokenizer, api_request *request, api_error *error);

#endif
