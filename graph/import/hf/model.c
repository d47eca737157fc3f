/* trm_model: a folder or a preset, its configuration and its weights. */
#include <trireme/model.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/options.h"
#include "base/recorder.h"
#include "graph/import/hf/count.h"
#include "graph/import/hf/decoder.h"
#include "graph/import/hf/model.h"
#include "graph/import/hf/preset.h"
#include "kernels/kernel.h"

#define CONFIG_LIMIT ((size_t)16 << 20)

struct trm_model {
    trm_arena arena;
    const char *path;
    trm_json_document *document; /* of config.json: holds strings of `config` */
    trm_hf_config config;
    trm_hf_checkpoint checkpoint;
    trm_dtype dtype; /* of the weights */
    int64_t parameters, weight_bytes;
    trm_hf_counts counts;
    trm_hf_targets targets; /* of adapters, in the network built last */
};

/* ---- where it is ---------------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The folder of the local Hugging Face cache, as huggingface_hub finds it; NULL when out of memory. */
static const char *cache_folder(trm_arena *arena)
{
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *cache = getenv("XDG_CACHE_HOME");
    const char *user = getenv("HOME");
    if (hub != NULL && hub[0] != '\0') {
        return trm_arena_strdup(arena, hub);
    }
    if (home != NULL && home[0] != '\0') {
        return trm_arena_printf(arena, "%s/hub", home);
    }
    if (cache != NULL && cache[0] != '\0') {
        return trm_arena_printf(arena, "%s/huggingface/hub", cache);
    }
    return trm_arena_printf(arena, "%s/.cache/huggingface/hub", user != NULL ? user : "");
}

/* "org/name": two parts of letters, digits, '-', '_', '.', none of them all dots. */
static bool is_repository_name(const char *path)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t organization = strspn(path, allowed);
    size_t repository = path[organization] == '/' ? strspn(path + organization + 1, allowed) : 0;
    return organization > 0 && repository > 0 && path[organization + 1 + repository] == '\0' && path[0] != '.' &&
           path[organization + 1] != '.';
}

/* The snapshot that refs/main of org/name in the cache points to. */
static trm_status find_in_cache(trm_arena *arena, const char *path, const char **folder)
{
    const char *cache = cache_folder(arena);
    const char *slash = strchr(path, '/');
    if (cache == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    char *repository = trm_arena_printf(arena, "%s/models--%.*s--%s", cache, (int)(slash - path), path, slash + 1);
    char *reference = repository != NULL ? trm_arena_printf(arena, "%s/refs/main", repository) : NULL;
    if (reference == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!trm_file_exists(reference)) {
        TRM_FAIL(TRM_ERROR_IO,
                 "there is no folder %s, and no such model in the Hugging Face cache %s; download it with: hf download "
                 "%s",
                 path, cache, path);
    }
    char *commit;
    size_t size;
    TRM_TRY(trm_file_read(reference, 256, &commit, &size));
    commit[strspn(commit, "0123456789abcdef")] = '\0';
    char *snapshot = trm_arena_printf(arena, "%s/snapshots/%s", repository, commit);
    bool found = snapshot != NULL && commit[0] != '\0' && is_folder(snapshot);
    free(commit);
    if (snapshot == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!found) {
        TRM_FAIL(TRM_ERROR_IO, "%s names a snapshot that is not there: %s; download it with: hf download %s", reference,
                 snapshot, path);
    }
    *folder = snapshot;
    return TRM_OK;
}

static bool is_gguf(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".gguf") == 0;
}

/* Whether a folder has GGUF files and no config.json. */
static bool is_gguf_folder(const char *path)
{
    bool gguf = false, config = false;
    DIR *folder = opendir(path);
    for (struct dirent *e = NULL; folder != NULL && (e = readdir(folder)) != NULL;) {
        gguf = gguf || is_gguf(e->d_name);
        config = config || strcmp(e->d_name, "config.json") == 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return gguf && !config;
}

static trm_status resolve(trm_arena *arena, const char *path, const char **folder)
{
    if (is_folder(path) ? is_gguf_folder(path) : is_gguf(path)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "GGUF files cannot be read, expected a folder with config.json and safetensors; "
                 "download the repository that the GGUF file was made from");
    }
    if (is_folder(path)) {
        *folder = trm_arena_strdup(arena, path);
        return *folder != NULL ? TRM_OK : TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!trm_file_exists(path) && is_repository_name(path)) {
        return find_in_cache(arena, path, folder);
    }
    const char *at = strchr(path, '@');
    char *name = trm_arena_printf(arena, "%.*s", at != NULL ? (int)(at - path) : 0, path);
    if (name != NULL && is_repository_name(name)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "a revision cannot be named; download it with: hf download %s --revision %s --local-dir FOLDER, and "
                 "name that folder",
                 name, at + 1);
    }
    /* finish_open() names the model */
    TRM_FAIL(TRM_ERROR_IO, "%s", trm_file_exists(path) ? "it is not a folder" : "there is no such folder");
}

/* ---- opening --------------------------------------------------------------------------------------------- */

static trm_status read_generation_config(trm_model *model)
{
    char *path = trm_arena_printf(&model->arena, "%s/generation_config.json", model->path);
    if (path == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!trm_file_exists(path)) {
        return TRM_OK;
    }
    trm_json_document *document;
    TRM_TRY(trm_json_read(path, CONFIG_LIMIT, &document));
    trm_status status = trm_hf_config_read_generation(document, &model->config);
    trm_json_close(document);
    return status;
}

/* The type the embedding is stored in, or a draft head's first layer. */
static trm_status find_dtype(trm_model *model)
{
    const char *root, *head;
    char name[256];
    trm_dims dims = {0};
    if (model->config.eagle.is_head) { /* it may have no embedding */
        snprintf(name, sizeof(name), "fc.weight");
    } else {
        TRM_TRY(trm_hf_decoder_find(&model->config, &model->checkpoint, &root, &head));
        snprintf(name, sizeof(name), "%s%s.weight", root, model->config.family->names.embedding);
    }
    trm_safetensors_describe(model->checkpoint.stored, name, &model->dtype, &dims);
    if (model->dtype != TRM_F32 && model->dtype != TRM_F16 && model->dtype != TRM_BF16) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is %s, expected f32, f16 or bf16", name,
                 trm_dtype_name(model->dtype));
    }
    return TRM_OK;
}

/* Files may have an output projection though it is tied: then it is one of its own, as it is to transformers, unless it
 * equals the embedding. */
static trm_status settle_tie(trm_model *model)
{
    const trm_hf_names *names = &model->config.family->names;
    const char *root, *head;
    char embedding[256], name[256];
    trm_dtype dtype;
    trm_dims dims = {0};
    TRM_TRY(trm_hf_decoder_find(&model->config, &model->checkpoint, &root, &head));
    snprintf(embedding, sizeof(embedding), "%s%s.weight", root, names->embedding);
    (void)trm_hf_checkpoint_describe(&model->checkpoint, embedding, &dtype, &dims); /* it has been found */
    for (size_t i = 0; i < sizeof(names->heads) / sizeof(names->heads[0]) && names->heads[i] != NULL; i++) {
        bool same = true;
        snprintf(name, sizeof(name), "%s.weight", names->heads[i]);
        if (model->config.tied && trm_hf_checkpoint_has_floats(&model->checkpoint, name, &dims)) {
            TRM_TRY(trm_hf_checkpoint_same(&model->checkpoint, embedding, name, &same));
            model->config.tied = same;
        }
    }
    return TRM_OK;
}

/* `weights` and `others` are sets of inputs: the others are no parameters, but scales and zero points. */
static int64_t count_more(const trm_layer *layer, uint32_t weights, uint32_t others)
{
    int64_t more = 0;
    for (int32_t k = 0; k < layer->n_inputs; k++) {
        const trm_tensor *tensor = layer->inputs[k];
        if (tensor != NULL && (weights >> k & 1) != 0 && (tensor->dtype == TRM_U8 || tensor->dtype == TRM_F4E2M1)) {
            more += trm_dims_count(&tensor->dims);
        } else if (tensor != NULL && (others >> k & 1) != 0) {
            more -= trm_dims_count(&tensor->dims);
        }
    }
    return more;
}

/* Parameters beyond one for each stored element: two in a byte of 4 bits, none in scales and zero points. */
static int64_t count_quantized(const trm_network *network)
{
    int64_t more = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        if (layer->desc.kind == TRM_LAYER_DEQUANT_MATMUL) {
            more += count_more(layer, 1u << TRM_DEQUANT_MATMUL_WEIGHT,
                               1u << TRM_DEQUANT_MATMUL_SCALE | 1u << TRM_DEQUANT_MATMUL_ZERO_POINT);
        } else if (layer->desc.kind == TRM_LAYER_EXPERTS) {
            more += count_more(layer, 1u << TRM_EXPERTS_GATE_UP | 1u << TRM_EXPERTS_DOWN,
                               1u << TRM_EXPERTS_GATE_UP_SCALE | 1u << TRM_EXPERTS_DOWN_SCALE |
                                   1u << TRM_EXPERTS_GATE_UP_ZERO_POINT | 1u << TRM_EXPERTS_DOWN_ZERO_POINT);
        }
    }
    return more;
}

/* Layers that predict the tokens after the next are not used. */
static trm_status skip_predicting(trm_model *model)
{
    const trm_hf_config *c = &model->config;
    const char *root, *head;
    char prefix[256];
    TRM_TRY(trm_hf_decoder_find(c, &model->checkpoint, &root, &head));
    snprintf(prefix, sizeof(prefix), "%s%s.", root, c->family->names.layers);
    trm_hf_checkpoint_skip_layers(&model->checkpoint, prefix, c->n_stored, c->n_predicting);
    return TRM_OK;
}

/* Builds the network once: every weight is found and checked, and counted. */
static trm_status check(trm_model *model)
{
    trm_network *network;
    TRM_TRY(trm_hf_decoder_build(&model->config, &model->checkpoint, model->dtype, model->dtype, NULL, NULL, NULL,
                                 &network));
    trm_hf_count(network, &model->counts);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->weight != NULL) {
            int64_t count = trm_dims_count(&tensor->dims);
            model->parameters += count;
            model->weight_bytes += count * (int64_t)trm_dtype_size(trm_weight_dtype(tensor->weight));
        }
    }
    model->parameters += count_quantized(network);
    trm_network_destroy(network);
    TRM_TRY(skip_predicting(model));
    trm_hf_checkpoint_warn_unused(&model->checkpoint);
    return TRM_OK;
}

/* Linear layers of floats become what `how` says; NULL: they stay. */
static trm_status quantize_online(trm_model *model, const trm_hf_quantization *how)
{
    trm_hf_quantization *own = &model->config.quantization;
    if (how == NULL) {
        return TRM_OK;
    }
    if (own->format != TRM_HF_QUANT_NONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "its weights are quantized already, by %s", own->method);
    }
    if (model->config.family->names.transposed) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "quantized weights of %s are not supported", model->config.architecture);
    }
    *own = *how;
    own->online = true;
    return TRM_OK;
}

static trm_status open_folder(trm_model *model, const char *path, const trm_hf_quantization *how)
{
    TRM_TRY(resolve(&model->arena, path, &model->path));
    char *config = trm_arena_printf(&model->arena, "%s/config.json", model->path);
    if (config == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(trm_json_read_config(config, CONFIG_LIMIT, &model->document));
    TRM_TRY(trm_hf_config_read(model->document, &model->arena, 0, &model->config));
    TRM_TRY(quantize_online(model, how));
    TRM_TRY(read_generation_config(model));
    TRM_TRY(trm_hf_checkpoint_open(model->path, &model->checkpoint));
    TRM_TRY(find_dtype(model));
    if (model->config.tied) {
        TRM_TRY(settle_tie(model));
    }
    TRM_TRY(how != NULL ? trm_hf_check_kept(&model->checkpoint, how) : TRM_OK);
    return model->config.eagle.is_head ? TRM_OK : check(model); /* a head is checked with its model */
}

static trm_status finish_open(trm_model *opened, trm_status status, const char *what, trm_model **model)
{
    if (status != TRM_OK) {
        trm_model_close(opened);
        return trm_fail_in(status, "model %s", what);
    }
    *model = opened;
    return TRM_OK;
}

trm_status trm_hf_open(const char *path, const trm_hf_quantization *how, trm_model **model)
{
    if (path == NULL || path[0] == '\0' || model == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "no model was named");
    }
    trm_model *opened = calloc(1, sizeof(*opened));
    if (opened == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a model");
    }
    return finish_open(opened, open_folder(opened, path, how), path, model);
}

TRM_CALL(NULL, trm_model_open, (const char *path, trm_model **model), (path, model))
{
    return trm_hf_open(path, NULL, model);
}

TRM_CALL(NULL, trm_model_open_quantized, (const char *path, const char *weights, trm_model **model),
         (path, weights, model))
{
    trm_hf_quantization how;
    if (weights == NULL || strcmp(weights, "bf16") == 0) {
        return trm_hf_open(path, NULL, model);
    }
    TRM_TRY(trm_hf_quantization_named(weights, &how));
    return trm_hf_open(path, &how, model);
}

TRM_CALL(NULL, trm_model_open_quantized_except,
         (const char *path, const char *weights, const char *const *keep, int32_t n_keep, trm_model **model),
         (path, weights, keep, n_keep, model))
{
    trm_hf_quantization how;
    TRM_TRY(trm_hf_quantization_named(weights, &how));
    how.keep = keep;
    how.n_keep = n_keep;
    return trm_hf_open(path, &how, model);
}

const char *trm_model_weight_name(const trm_model *model, int32_t index)
{
    const trm_safetensors *stored = model->checkpoint.stored;
    return stored != NULL && index >= 0 && index < trm_safetensors_count(stored) ? trm_safetensors_name(stored, index)
                                                                                 : NULL;
}

bool trm_model_weight_dims(const trm_model *model, const char *name, trm_dims *dims)
{
    trm_dtype dtype;
    return trm_hf_checkpoint_describe(&model->checkpoint, name, &dtype, dims);
}

TRM_CALL(NULL, trm_model_read_weight,
         (const trm_model *model, const char *name, int64_t first, int64_t count, float *to),
         (model, name, first, count, to))
{
    trm_dtype dtype;
    trm_dims dims;
    trm_weight *weight;
    if (name == NULL || !trm_hf_checkpoint_describe(&model->checkpoint, name, &dtype, &dims)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the model has no weight %s", name != NULL ? name : "NULL");
    }
    if (!trm_hf_checkpoint_has_floats(&model->checkpoint, name, &dims)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is %s, expected f32, f16 or bf16", name,
                 trm_safetensors_type(model->checkpoint.stored, name));
    }
    if (first < 0 || count < 0 || first > trm_dims_count(&dims) - count) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s has %lld elements, asked for %lld from %lld on", name,
                 (long long)trm_dims_count(&dims), (long long)count, (long long)first);
    }
    TRM_TRY(trm_safetensors_weight(model->checkpoint.stored, name, &weight));
    trm_status status = trm_weight_read(weight, TRM_F32, (size_t)first, (size_t)count, to);
    trm_weight_destroy(weight);
    return status;
}

trm_hf_checkpoint *trm_hf_model_checkpoint(trm_model *model)
{
    return &model->checkpoint;
}

static trm_status open_preset(trm_model *model, const trm_hf_preset *preset, const char *weights, int32_t layers,
                              uint64_t seed)
{
    model->path = preset->name;
    TRM_TRY(trm_json_parse("config.json", preset->config, strlen(preset->config), &model->document));
    TRM_TRY(trm_hf_config_read(model->document, &model->arena, layers, &model->config));
    if (weights != NULL && strcmp(weights, "bf16") == 0) {
        model->config.quantization = (trm_hf_quantization){0};
    } else if (weights != NULL) {
        TRM_TRY(trm_hf_quantization_named(weights, &model->config.quantization));
        if (model->config.family->names.transposed) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "quantized weights of %s are not supported", model->config.architecture);
        }
    }
    model->dtype = TRM_BF16;
    trm_hf_checkpoint_random(model->dtype, seed, &model->checkpoint);
    return check(model);
}

TRM_CALL(NULL, trm_model_open_preset, (const char *name, int32_t layers, uint64_t seed, trm_model **model),
         (name, layers, seed, model))
{
    return trm_model_open_preset_quantized(name, NULL, layers, seed, model);
}

TRM_CALL(NULL, trm_model_open_preset_quantized,
         (const char *name, const char *weights, int32_t layers, uint64_t seed, trm_model **model),
         (name, weights, layers, seed, model))
{
    const trm_hf_preset *preset = name != NULL ? trm_hf_preset_find(name) : NULL;
    if (preset == NULL || model == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "there is no model shape named %s; the first one is %s",
                 name != NULL ? name : "(none)", trm_model_preset_name(0));
    }
    if (layers < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%d layers were asked for, expected 0 (all) or more", layers);
    }
    trm_model *opened = calloc(1, sizeof(*opened));
    if (opened == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a model");
    }
    return finish_open(opened, open_preset(opened, preset, weights, layers, seed), name, model);
}

void trm_model_close(trm_model *model)
{
    if (model == NULL) {
        return;
    }
    trm_hf_targets_fini(&model->targets);
    trm_hf_checkpoint_fini(&model->checkpoint);
    trm_json_close(model->document);
    trm_arena_fini(&model->arena);
    free(model);
}

/* ---- use ------------------------------------------------------------------------------------------------- */

void trm_model_get_info(const trm_model *model, trm_model_info *info)
{
    const trm_hf_config *c = &model->config;
    *info = (trm_model_info){
        .path = model->path,
        .architecture = c->architecture,
        .model_type = c->model_type,
        .weight_dtype = model->dtype,
        .layers = c->layers,
        .hidden = c->hidden,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .intermediate = c->intermediate,
        .vocab = c->vocab,
        .context_length = c->context_length,
        .parameters = model->parameters,
        .weight_bytes = model->weight_bytes,
        .bos_token = c->bos_token,
        .n_eos_tokens = c->n_eos,
        .sampling = c->sampling,
    };
    memcpy(info->eos_tokens, c->eos, sizeof(info->eos_tokens));
}

TRM_CALL(NULL, trm_model_get_experts, (const trm_model *model, trm_model_experts *experts), (model, experts))
{
    if (model == NULL || experts == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot describe a model's experts: model or experts is NULL");
    }
    const trm_hf_moe *moe = &model->config.moe;
    const trm_hf_counts *counts = &model->counts;
    trm_model_experts own = {.size = sizeof(own),
                             .active_parameters = model->parameters,
                             .active_bytes = model->weight_bytes - counts->table_bytes + counts->row_bytes};
    if (counts->expert_layers > 0) {
        const int64_t idle = moe->experts - moe->router.k;
        own.n_experts = moe->experts;
        own.experts_per_token = moe->router.k;
        own.expert_width = moe->width;
        own.shared_width = moe->shared_width;
        own.expert_layers = counts->expert_layers;
        own.expert_bytes = counts->expert_bytes;
        own.active_parameters -= counts->expert_parameters / moe->experts * idle;
        own.active_bytes -= counts->expert_bytes / moe->experts * idle;
    }
    return trm_options_write("model experts", &own, experts);
}

TRM_CALL(NULL, trm_model_build_network, (trm_model *model, trm_dtype dtype, trm_network **network),
         (model, dtype, network))
{
    return trm_model_build_network_with_cache(model, dtype, TRM_DTYPE_NONE, network);
}

TRM_CALL(NULL, trm_model_build_network_with_cache,
         (trm_model *model, trm_dtype dtype, trm_dtype cache_dtype, trm_network **network),
         (model, dtype, cache_dtype, network))
{
    return trm_hf_build_network(model, dtype, cache_dtype, NULL, NULL, network);
}

bool trm_model_is_draft_head(const trm_model *model)
{
    return model != NULL && model->config.eagle.is_head;
}

/* Settles the types that a network of the model computes and caches in. */
static trm_status choose_types(const trm_model *model, trm_dtype *computing, trm_dtype *cached)
{
    const trm_dtype dtype = *computing == TRM_DTYPE_NONE ? model->dtype : *computing;
    trm_dtype cache_dtype = *cached;
    if (dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot compute a model in %s, expected f32, f16 or bf16",
                 trm_dtype_name(dtype));
    }
    cache_dtype = cache_dtype == TRM_DTYPE_NONE ? dtype : cache_dtype;
    if (cache_dtype != dtype && cache_dtype != TRM_F8E4M3) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot cache the keys and values of a model in %s, expected %s or %s",
                 trm_dtype_name(cache_dtype), trm_dtype_name(dtype), trm_dtype_name(TRM_F8E4M3));
    }
    *computing = dtype;
    *cached = cache_dtype;
    return TRM_OK;
}

/* What `head` wants of the model; NULL: it is the model's MTP layer. */
static trm_hf_draft draft_of(trm_model *model, trm_model *head)
{
    return (trm_hf_draft){.eagle = head == NULL ? NULL : &head->config,
                          .checkpoint = head == NULL ? &model->checkpoint : &head->checkpoint};
}

trm_status trm_hf_build_network(trm_model *model, trm_dtype dtype, trm_dtype cache_dtype,
                                const trm_hf_adapters *adapters, const trm_hf_drafting *drafting, trm_network **network)
{
    if (model == NULL || network == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot build a model's network: model or network is NULL");
    }
    if (model->config.eagle.is_head) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "model %s is a draft head: it drafts for another model, and has no text itself",
                 model->path);
    }
    TRM_TRY(choose_types(model, &dtype, &cache_dtype));
    trm_hf_draft draft = draft_of(model, drafting == NULL ? NULL : drafting->head);
    trm_hf_targets_fini(&model->targets);
    return trm_hf_decoder_build(&model->config, &model->checkpoint, dtype, cache_dtype, adapters, &model->targets,
                                drafting == NULL ? NULL : &draft, network);
}

trm_status trm_hf_build_draft_head(trm_model *model, const trm_hf_drafting *drafting, trm_dtype dtype,
                                   trm_dtype cache_dtype, trm_network **network)
{
    const trm_hf_draft draft = draft_of(model, drafting->head);
    TRM_TRY(choose_types(model, &dtype, &cache_dtype));
    trm_status status =
        trm_hf_draft_head_build(&model->config, &model->checkpoint, &draft, dtype, cache_dtype, network);
    return status == TRM_OK ? TRM_OK
                            : trm_fail_in(status, "model %s", (drafting->head == NULL ? model : drafting->head)->path);
}

trm_status trm_hf_draft_tokens(trm_model *head, int32_t **tokens)
{
    const trm_hf_draft draft = draft_of(head, head);
    int32_t *read = calloc((size_t)head->config.vocab + 1, sizeof(*read));
    if (read == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the %lld tokens of a draft head",
                 (long long)head->config.vocab);
    }
    trm_status status = trm_hf_draft_read_tokens(&draft, read);
    if (status != TRM_OK) {
        free(read);
        return trm_fail_in(status, "model %s", head->path);
    }
    *tokens = read;
    return TRM_OK;
}

trm_status trm_hf_model_open_adapter(const trm_model *model, const char *folder, int32_t rank, trm_hf_adapter **adapter)
{
    return trm_hf_adapter_open(folder, &model->config.family->names, &model->targets, rank, adapter);
}
