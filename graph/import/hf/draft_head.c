/* Draft heads: what they take from the model's network, and networks of their own. */
#include "graph/import/hf/draft_head.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "graph/import/hf/decoder.h"
#include "graph/import/hf/parts.h"

/* ---- in the model's network --------------------------------------------------------------------------- */

/* The k-th layer whose input an EAGLE-3 head wants of a model of `layers` layers. */
static int64_t tap_of(const trm_hf_eagle *eagle, int64_t layers, int k)
{
    const int64_t usual[TRM_HF_EAGLE_TAPS] = {2, layers / 2, layers - 3};
    const int64_t tap = eagle->has_taps ? eagle->taps[k] : usual[k];
    return tap < 0 && !eagle->has_taps ? 0 : tap;
}

void trm_hf_draft_tap(trm_hf_decoder *d, int64_t layer, trm_tensor *x)
{
    for (int k = 0; d->draft != NULL && d->draft->eagle != NULL && k < TRM_HF_EAGLE_TAPS; k++) {
        d->taps[k] = tap_of(&d->draft->eagle->eagle, d->config->layers, k) == layer ? x : d->taps[k];
    }
}

static trm_status add_joined(trm_hf_decoder *d, const char *part, trm_tensor *const *parts, int32_t n,
                             trm_tensor **joined)
{
    const trm_layer_desc concat = {.kind = TRM_LAYER_CONCAT, .concat = {.axis = 1}};
    return trm_hf_add_layer(d, part, ".joined", &concat, parts, n, joined);
}

/* The hidden states of the taps, joined, through the head's first layer. */
static trm_status add_tapped(const trm_hf_decoder *d, trm_tensor **hidden)
{
    const trm_hf_config *c = d->draft->eagle;
    trm_hf_decoder head = {.config = c,
                           .names = &c->family->names,
                           .checkpoint = d->draft->checkpoint,
                           .network = d->network,
                           .dtype = d->dtype};
    if (c->eagle.target_hidden != d->config->hidden || c->eagle.target_vocab != d->config->vocab) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "the draft head is for a model of hidden size %lld with %lld tokens, this one has %lld and %lld",
                 (long long)c->eagle.target_hidden, (long long)c->eagle.target_vocab, (long long)d->config->hidden,
                 (long long)d->config->vocab);
    }
    for (int k = 0; k < TRM_HF_EAGLE_TAPS; k++) {
        if (d->taps[k] == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "the draft head wants the hidden states before layer %lld, the model has %lld layers",
                     (long long)tap_of(&c->eagle, d->config->layers, k), (long long)d->config->layers);
        }
    }
    TRM_TRY(add_joined(&head, "fc", d->taps, TRM_HF_EAGLE_TAPS, hidden));
    return trm_hf_add_linear(&head, "fc", &trm_hf_whole, false, c->hidden, TRM_HF_EAGLE_TAPS * d->config->hidden,
                             *hidden, hidden);
}

trm_status trm_hf_add_draft_hidden(trm_hf_decoder *d, trm_tensor *hidden)
{
    if (!trm_hf_draft_wants_final(d->draft)) {
        TRM_TRY(add_tapped(d, &hidden));
    }
    return trm_network_mark_output(d->network, hidden);
}

/* ---- a head's network --------------------------------------------------------------------------------- */

/* The hidden state of the token before each of the step's. */
static trm_status add_hidden(trm_hf_decoder *d, int64_t width, trm_tensor **hidden)
{
    const trm_layer_desc gather = {.kind = TRM_LAYER_GATHER, .gather = {0}};
    trm_tensor *inputs[2];
    TRM_TRY(trm_network_add_input(d->network, "hidden", d->dtype, trm_dims2(-1, width), &inputs[0]));
    TRM_TRY(trm_network_add_input(d->network, "hidden_rows", TRM_I32, trm_dims1(-1), &inputs[1]));
    return trm_network_add_layer(d->network, "hidden.before", &gather, inputs, 2, hidden);
}

/* What the MTP layer's own names begin with. */
static void name_mtp(trm_hf_decoder *d)
{
    if (d->names->mtp_root != NULL) {
        snprintf(d->prefix, sizeof(d->prefix), "%s", d->names->mtp_root);
    } else {
        snprintf(d->prefix, sizeof(d->prefix), "%s%s.%lld.", d->root, d->names->layers, (long long)d->first_layer);
    }
}

static const char *mtp_root(const trm_hf_decoder *d)
{
    return d->names->mtp_root != NULL ? d->names->mtp_root : d->root;
}

bool trm_hf_has_mtp(const trm_hf_config *config, const trm_hf_checkpoint *checkpoint)
{
    trm_hf_decoder d = {.config = config, .names = &config->family->names, .first_layer = config->n_stored};
    if (d.names->mtp_join == NULL || trm_hf_decoder_find(config, checkpoint, &d.root, &d.head) != TRM_OK) {
        return false;
    }
    name_mtp(&d);
    return trm_hf_checkpoint_has(checkpoint, trm_hf_name(&d, d.names->mtp_join, ".weight"));
}

/* join([norm(embedding), norm(hidden state)]), a decoder layer with full attention, the head's norm; then the model's
 * own output projection. */
static trm_status build_mtp(trm_hf_decoder *d)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    trm_tensor *x, *hidden, *joined;
    TRM_TRY(trm_hf_add_inputs(d));
    TRM_TRY(add_hidden(d, c->hidden, &hidden));
    TRM_TRY(trm_hf_decoder_find(c, d->checkpoint, &d->root, &d->head));
    TRM_TRY(trm_hf_add_embedding(d, &x));
    name_mtp(d);
    TRM_TRY(trm_hf_add_norm(d, names->mtp_embedding_norm, c->hidden, x, &x));
    TRM_TRY(trm_hf_add_norm(d, names->mtp_hidden_norm, c->hidden, hidden, &hidden));
    TRM_TRY(add_joined(d, names->mtp_join, (trm_tensor *[]){x, hidden}, 2, &joined));
    TRM_TRY(trm_hf_add_linear(d, names->mtp_join, &trm_hf_whole, false, c->hidden, 2 * c->hidden, joined, &x));
    d->root = mtp_root(d);
    d->first_layer = names->mtp_root != NULL ? 0 : d->first_layer;
    TRM_TRY(trm_hf_add_block(d, 0, x, &x));
    if (names->mtp_root != NULL) {
        name_mtp(d);
    }
    TRM_TRY(trm_hf_add_norm(d, names->mtp_norm, c->hidden, x, &x));
    TRM_TRY(trm_hf_add_logits(d, x));
    return trm_network_mark_output(d->network, x);
}

/* The embedding of the head's folder, or the model's. */
static trm_status add_eagle_embedding(trm_hf_decoder *d, const trm_hf_config *target, trm_hf_checkpoint *checkpoint,
                                      trm_tensor **x)
{
    const trm_hf_config *c = d->config;
    const char *head;
    trm_hf_config own = *c;
    trm_hf_decoder from = *d;
    from.config = &own;
    own.vocab = c->eagle.target_vocab;
    if (!trm_hf_checkpoint_has(d->checkpoint, "embed_tokens.weight")) {
        if (target->hidden != c->hidden) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "the draft head has no embed_tokens.weight, and those of the model have %lld elements, expected "
                     "%lld",
                     (long long)target->hidden, (long long)c->hidden);
        }
        from.config = target;
        from.names = &target->family->names;
        from.checkpoint = checkpoint;
        TRM_TRY(trm_hf_decoder_find(target, checkpoint, &from.root, &head));
    }
    return trm_hf_add_embedding(&from, x);
}

/* A block whose attention takes [norm(embedding), norm(hidden state)], with the hidden state as its residual. The last
 * norm is before the output projection alone: the next token begins with what comes before it. */
static trm_status build_eagle(trm_hf_decoder *d, const trm_hf_config *target, trm_hf_checkpoint *checkpoint)
{
    const trm_hf_config *c = d->config;
    trm_tensor *x, *hidden, *normed, *mixed;
    TRM_TRY(trm_hf_add_inputs(d));
    TRM_TRY(add_hidden(d, c->hidden, &hidden));
    TRM_TRY(add_eagle_embedding(d, target, checkpoint, &x));
    const bool listed = trm_hf_checkpoint_has(d->checkpoint, "layers.0.self_attn.q_proj.weight");
    snprintf(d->prefix, sizeof(d->prefix), "%s", listed ? "layers.0." : "midlayer.");
    TRM_TRY(trm_hf_add_norm(d, "input_layernorm", c->hidden, x, &x));
    TRM_TRY(trm_hf_add_norm(d, "hidden_norm", c->hidden, hidden, &normed));
    hidden = c->eagle.norm_before_residual ? normed : hidden;
    TRM_TRY(add_joined(d, "hidden_norm", (trm_tensor *[]){x, normed}, 2, &x));
    TRM_TRY(trm_hf_add_attention(d, 0, x, &mixed));
    TRM_TRY(trm_hf_add_wanted(d, "wanted", hidden, &hidden));
    TRM_TRY(trm_hf_add_wanted(d, "attention.wanted", mixed, &mixed));
    TRM_TRY(trm_hf_add_linear(d, d->names->o, &trm_hf_whole, c->o_bias, c->hidden, mixed->dims.d[1], mixed, &mixed));
    TRM_TRY(trm_hf_add_sum(d, "attention_residual", hidden, mixed, &x));
    TRM_TRY(trm_hf_add_norm(d, d->names->mlp_norm, c->hidden, x, &normed));
    TRM_TRY(trm_hf_add_mlp(d, 0, normed, &mixed));
    TRM_TRY(trm_hf_add_sum(d, "mlp_residual", x, mixed, &hidden));
    d->prefix[0] = '\0';
    TRM_TRY(trm_hf_add_norm(d, d->names->final_norm, c->hidden, hidden, &x));
    d->head = d->names->heads[0];
    TRM_TRY(trm_hf_add_logits(d, x));
    return trm_network_mark_output(d->network, hidden);
}

trm_status trm_hf_draft_head_build(const trm_hf_config *config, trm_hf_checkpoint *checkpoint,
                                   const trm_hf_draft *draft, trm_dtype dtype, trm_dtype cache_dtype,
                                   trm_network **network)
{
    const bool is_eagle = draft->eagle != NULL;
    bool plain[1] = {false};
    trm_hf_config own = is_eagle ? *draft->eagle : *config;
    own.layers = 1; /* an ordinary one, with full attention */
    own.sliding = own.unrotated = plain;
    own.halves = NULL;
    own.delta.layers = own.scan.layers = own.moe.dense = NULL;
    trm_hf_decoder d = {.config = &own,
                        .names = &own.family->names,
                        .checkpoint = draft->checkpoint,
                        .dtype = dtype,
                        .cache_dtype = cache_dtype,
                        .root = "",
                        .first_layer = own.n_stored};
    if (!is_eagle && !trm_hf_has_mtp(config, checkpoint)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "the model has no MTP layer to draft with: %s; use another way of speculation, or a draft model",
                 own.family->names.mtp_join == NULL ? "none is known of its architecture"
                                                    : "its weights are not in the checkpoint");
    }
    trm_hf_checkpoint_reset(draft->checkpoint);
    TRM_TRY(trm_network_create(&d.network));
    trm_status status = is_eagle ? build_eagle(&d, config, checkpoint) : build_mtp(&d);
    if (status != TRM_OK) {
        trm_network_destroy(d.network);
        return status;
    }
    *network = d.network;
    return TRM_OK;
}

/* d2t: what is added to the head's number of a token. */
static trm_status read_offsets(trm_hf_checkpoint *checkpoint, int64_t n, int64_t *offsets)
{
    const trm_dims dims = trm_dims1(n);
    trm_weight *weight;
    TRM_TRY(trm_hf_checkpoint_take_as(checkpoint, "d2t", TRM_I64, &dims, &weight));
    trm_status status = trm_weight_read(weight, TRM_I64, 0, (size_t)n, offsets);
    trm_weight_destroy(weight);
    return status;
}

trm_status trm_hf_draft_read_tokens(const trm_hf_draft *draft, int32_t *tokens)
{
    const trm_hf_config *c = draft->eagle;
    int64_t *offsets = calloc((size_t)c->vocab, sizeof(*offsets));
    if (offsets == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld tokens of a draft head", (long long)c->vocab);
    }
    trm_status status = TRM_OK;
    if (trm_hf_checkpoint_has(draft->checkpoint, "d2t") || c->vocab != c->eagle.target_vocab) {
        status = read_offsets(draft->checkpoint, c->vocab, offsets);
    }
    for (int64_t i = 0; status == TRM_OK && i < c->vocab; i++) {
        if (offsets[i] < -i || offsets[i] >= c->eagle.target_vocab - i) {
            status = trm_fail(TRM_ERROR_INVALID_MODEL, "weight d2t[%lld] is %lld, expected a token below %lld",
                              (long long)i, (long long)offsets[i], (long long)c->eagle.target_vocab);
        } else {
            tokens[i] = (int32_t)(i + offsets[i]);
        }
    }
    free(offsets);
    return status;
}
