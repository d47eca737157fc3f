/*
 * Runs a model over passages of a text, each in one step from its beginning, for the logits of all tokens.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_PASSAGES_H
#define TRM_LAUNCHER_CLI_QUANTIZE_PASSAGES_H

#include <trireme/trireme.h>

#include "launcher/cli/settings/settings.h"

#define PASSAGE_TOKENS 512 /* at most */

typedef struct passages {
    trm_model *model;
    trm_engine *engine;
    trm_context *context;
    int32_t *numbers;      /* [PASSAGE_TOKENS] 0, 1, ... */
    int64_t tokens, vocab; /* of a passage at most */
    bool has_rope_lengths, has_slots;
} passages;

/* Makes outputs of further tensors. */
typedef trm_status (*passages_mark_fn)(void *user, trm_network *network);

/* Opens the model in a folder on a world of one rank, with the weight budget of the settings; `mark` may be NULL.
 * passages_close also after a failure. */
trm_status passages_open(passages *p, const settings *all, const char *folder, trm_dtype dtype, trm_backend backend,
                         trm_world *world, passages_mark_fn mark, void *user);
/* The same of an open model, which it takes over. */
trm_status passages_begin(passages *p, const settings *all, trm_model *model, trm_dtype dtype, trm_backend backend,
                          trm_world *world, passages_mark_fn mark, void *user);
void passages_close(passages *p);
/* logits [n, vocab], valid until the next call; n is at most p->tokens. */
trm_status passages_run(passages *p, const int32_t *ids, int64_t n, const float **logits);

#endif
