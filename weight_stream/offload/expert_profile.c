/* Files of expert profiles, and predictions from them. */
#include "weight_stream/offload/expert_profile.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "kernels/moe/moe.h"
#include "weight_stream/offload/expert_cache.h"

#define FIRST_LINE "# trireme expert profile\n"
#define MOST_BYTES ((size_t)16 << 20)
#define SAMPLED    8192 /* elements of a router that tell it from others */
/* Uses of a layer that are kept: later runs then count more. */
#define MOST_USES 1e6
/* An expert that was never used is as likely as one that was used this often. */
#define UNSEEN 0.5

/* ---- identity ---------------------------------------------------------------------------------- */

/* The weights of a layer's router, or NULL. */
static const trm_tensor *router_of(const trm_layer *layer)
{
    const trm_layer *router = layer->inputs[TRM_EXPERTS_IDS]->producer;
    const bool is_router =
        router != NULL && (router->desc.kind == TRM_LAYER_ROUTER ||
                           router->desc.kind == TRM_LAYER_NORM_ROUTER); /* whose inputs begin alike */
    return is_router ? router->inputs[TRM_ROUTER_WEIGHT] : NULL;
}

static trm_status hash_router(const trm_tensor *weight, uint64_t *hash)
{
    const size_t all = (size_t)trm_dims_count(&weight->dims), n = all < SAMPLED ? all : SAMPLED;
    const size_t size = trm_dtype_size(weight->dtype);
    unsigned char sample[SAMPLED * 8];
    *hash = trm_hash_bytes(*hash, weight->dims.d, (size_t)weight->dims.n * sizeof(weight->dims.d[0]));
    if (weight->value != NULL) {
        *hash = trm_hash_bytes(*hash, weight->value, n * size);
    } else if (weight->weight != NULL) {
        TRM_TRY(trm_weight_read(weight->weight, weight->dtype, 0, n, sample));
        *hash = trm_hash_bytes(*hash, sample, n * size);
    }
    return TRM_OK;
}

static trm_status hash_mixture(const trm_streaming_plan *s, uint64_t *hash)
{
    *hash = TRM_HASH_START;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        const trm_layer *layer = s->expert_layers[i];
        const trm_tensor *router = router_of(layer);
        const int32_t chosen = trm_expert_cache_chosen(layer);
        *hash = trm_hash_bytes(*hash, layer->name, strlen(layer->name));
        *hash = trm_hash_bytes(*hash, &chosen, sizeof(chosen));
        TRM_TRY(router == NULL ? TRM_OK : hash_router(router, hash));
    }
    return TRM_OK;
}

/* ---- files ------------------------------------------------------------------------------------- */

/* Reads the numbers of a file; false: it is damaged, or not of this mixture. */
static bool parse(const trm_streaming_plan *s, char *text, double *uses)
{
    uint64_t hash;
    int32_t layers, all;
    if (strncmp(text, FIRST_LINE, strlen(FIRST_LINE)) != 0 ||
        sscanf(text + strlen(FIRST_LINE), "%" SCNx64 " %" SCNd32 " %" SCNd32, &hash, &layers, &all) != 3 ||
        hash != s->profile_hash || layers != s->n_expert_layers || all != trm_expert_cache_all(s)) {
        return false;
    }
    char *at = strchr(text + strlen(FIRST_LINE), '\n');
    for (int32_t i = 0; at != NULL && i < all; i++) {
        char *end;
        uses[i] = trm_c_strtod(at, &end);
        at = end == at || !(uses[i] >= 0 && uses[i] <= 2 * MOST_USES) ? NULL : end;
    }
    return at != NULL && strspn(at, " \n") == strlen(at);
}

trm_status trm_expert_profile_load(const trm_plan *plan, trm_streaming_plan *s)
{
    const char *folder = plan->expert_profile;
    if (folder == NULL || s->n_expert_layers == 0) {
        return TRM_OK;
    }
    const size_t size = strlen(folder) + 64, all = (size_t)trm_expert_cache_all(s);
    const int64_t first = s->expert_layers[0]->desc.experts.first;
    char *text, *path = trm_arena_array(&s->arena, size, 1);
    double *uses = trm_arena_array(&s->arena, all + 1, sizeof(*uses));
    if (path == NULL || uses == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (hash_mixture(s, &s->profile_hash) != TRM_OK) { /* loading the weights will tell */
        TRM_INFO("rank %d: no expert profile: %s", plan->rank, trm_last_error());
        return TRM_OK;
    }
    snprintf(path, size, "%s/%016" PRIx64 "-%" PRId64 ".txt", folder, s->profile_hash, first);
    s->profile_path = path;
    s->expert_uses = uses;
    if (!trm_file_exists(path)) {
        return TRM_OK;
    }
    size_t read;
    if (trm_file_read(path, MOST_BYTES, &text, &read) != TRM_OK) {
        TRM_INFO("rank %d: no expert profile: %s", plan->rank, trm_last_error());
        return TRM_OK;
    }
    if (!parse(s, text, uses)) {
        TRM_INFO("rank %d: expert profile %s is damaged or of another model; it will be replaced", plan->rank, path);
        memset(uses, 0, all * sizeof(*uses));
    }
    free(text);
    return TRM_OK;
}

static bool write_file(const trm_streaming_plan *s, const char *path)
{
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        return false;
    }
    fprintf(out, "%s%016" PRIx64 " %" PRId32 " %" PRId32, FIRST_LINE, s->profile_hash, s->n_expert_layers,
            trm_expert_cache_all(s));
    const double *uses = s->expert_uses;
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        for (int32_t e = 0; e < trm_expert_cache_experts(s->expert_layers[i]); e++) {
            fprintf(out, "%c%.0f", e == 0 ? '\n' : ' ', *uses++);
        }
    }
    fputc('\n', out);
    const bool written = ferror(out) == 0;
    return fclose(out) == 0 && written;
}

static void add_layer(double *uses, const int64_t *more, int32_t experts)
{
    double sum = 0;
    for (int32_t e = 0; e < experts; e++) {
        uses[e] += (double)more[e];
        sum += uses[e];
    }
    for (int32_t e = 0; sum > MOST_USES && e < experts; e++) {
        uses[e] = floor(uses[e] * MOST_USES / sum);
    }
}

void trm_expert_profile_add(trm_streaming_plan *s, const int64_t *uses)
{
    const size_t size = s->profile_path == NULL ? 0 : strlen(s->profile_path) + 64;
    char *temporary = size == 0 ? NULL : malloc(size);
    int32_t at = 0;
    int64_t any = 0;
    if (temporary == NULL) {
        return;
    }
    for (int32_t i = 0; i < s->n_expert_layers; i++) {
        const int32_t experts = trm_expert_cache_experts(s->expert_layers[i]);
        for (int32_t e = 0; e < experts; e++) {
            any += uses[at + e];
        }
        add_layer(s->expert_uses + at, uses + at, experts);
        at += experts;
    }
    snprintf(temporary, size, "%s.%ld.part", s->profile_path, (long)getpid());
    if (any > 0) {
        trm_file_make_folders(s->profile_path);
        if (!write_file(s, temporary) || rename(temporary, s->profile_path) != 0) {
            TRM_INFO("cannot write expert profile %s: %s", s->profile_path, strerror(errno));
            unlink(temporary);
        }
    }
    free(temporary);
}

bool trm_expert_profile_is_known(const trm_streaming_plan *s)
{
    const int32_t all = s->expert_uses == NULL ? 0 : trm_expert_cache_all(s);
    bool any = false;
    for (int32_t i = 0; i < all; i++) {
        any = any || s->expert_uses[i] > 0;
    }
    return any;
}

typedef struct counted {
    double uses;
    int32_t expert;
} counted;

static int fewer_first(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    return x->uses != y->uses ? (x->uses > y->uses) - (x->uses < y->uses) : y->expert - x->expert;
}

void trm_expert_profile_order(const trm_streaming_plan *s, int32_t layer, int32_t *experts)
{
    counted all[TRM_MOE_MOST_EXPERTS];
    const double *uses = s->expert_uses;
    for (int32_t i = 0; i < layer; i++) {
        uses += trm_expert_cache_experts(s->expert_layers[i]);
    }
    const int32_t n = trm_expert_cache_experts(s->expert_layers[layer]);
    for (int32_t e = 0; e < n; e++) {
        all[e] = (counted){uses[e], e};
    }
    qsort(all, (size_t)n, sizeof(*all), fewer_first);
    for (int32_t e = 0; e < n; e++) {
        experts[e] = all[e].expert;
    }
}

/* ---- predictions ------------------------------------------------------------------------------- */

/* How likely a token uses an expert. */
static double chance(const double *uses, double sum, double used, int32_t e)
{
    const double p = (uses[e] + UNSEEN) / sum * used;
    return p < 1 ? p : 1;
}

/* How many different experts are used in `steps` steps, on average. */
static double used_within(const double *uses, int32_t experts, double sum, double used, double steps)
{
    double n = 0;
    for (int32_t e = 0; e < experts; e++) {
        n += 1 - pow(1 - chance(uses, sum, used, e), steps);
    }
    return n;
}

double trm_expert_profile_predict(const double *uses, int32_t experts, double used, int32_t slots, double *misses)
{
    double sum = 0, low = 0, high = 1, missed = 0, all = 0;
    for (int32_t e = 0; e < experts; e++) {
        misses[e] = 0;
    }
    if (slots >= experts) {
        return 1;
    }
    if (uses == NULL) {
        const double found = (double)slots / experts;
        for (int32_t e = 0; e < experts; e++) {
            misses[e] = used / experts * (1 - found);
        }
        return found;
    }
    for (int32_t e = 0; e < experts; e++) {
        sum += uses[e] + UNSEEN;
    }
    while (used_within(uses, experts, sum, used, high) < slots && high < 1e12) {
        high *= 2;
    }
    for (int32_t i = 0; i < 50; i++) { /* the steps after which an expert that was not used has left its slot */
        const double steps = (low + high) / 2;
        *(used_within(uses, experts, sum, used, steps) < slots ? &low : &high) = steps;
    }
    for (int32_t e = 0; e < experts; e++) {
        const double p = chance(uses, sum, used, e);
        misses[e] = p * pow(1 - p, high);
        missed += misses[e];
        all += p;
    }
    return all > 0 ? 1 - missed / all : 0;
}
