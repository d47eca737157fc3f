/* LoRA adapters in PEFT's folders. */
#include "graph/import/hf/adapter.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

#define CONFIG_LIMIT ((size_t)1 << 20)
#define CONFIG       "adapter_config.json"
#define WEIGHTS      "adapter_model.safetensors"
#define PREFIX       "base_model.model."

/* What the file has for a linear layer: [r, in] and [out, r]. */
typedef struct pair {
    const char *a, *b;  /* names of tensors, or NULL */
    const char *module; /* as the file names it */
    float scale;
} pair;

struct trm_hf_adapter {
    trm_arena arena;
    const char *config; /* its path, for errors */
    trm_json_document *document;
    trm_safetensors *weights;
    const trm_hf_names *names;
    const trm_hf_targets *targets;
    pair *pairs; /* by target */
    int64_t r;
    double alpha;
    bool rslora;
};

/* ---- targets --------------------------------------------------------------------------------------- */

void trm_hf_targets_fini(trm_hf_targets *targets)
{
    trm_arena_fini(&targets->arena);
    *targets = (trm_hf_targets){0};
}

trm_status trm_hf_targets_add(trm_hf_targets *targets, const trm_hf_target *target)
{
    if (targets->n == targets->capacity) {
        const int32_t capacity = targets->capacity == 0 ? 64 : 2 * targets->capacity;
        trm_hf_target *grown = trm_arena_array(&targets->arena, (size_t)capacity, sizeof(*grown));
        if (grown == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        if (targets->n > 0) {
            memcpy(grown, targets->items, (size_t)targets->n * sizeof(*grown));
        }
        targets->items = grown;
        targets->capacity = capacity;
    }
    trm_hf_target *own = &targets->items[targets->n];
    *own = *target;
    own->module = trm_arena_strdup(&targets->arena, target->module);
    own->a = trm_arena_strdup(&targets->arena, target->a);
    own->b = trm_arena_strdup(&targets->arena, target->b);
    if (own->module == NULL || own->a == NULL || own->b == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    targets->n++;
    return TRM_OK;
}

/* The module behind one of the family's roots, so that a file may be of another wrapper of the model. */
static const char *without_root(const trm_hf_adapter *self, const char *module)
{
    const trm_hf_names *names = self->names;
    for (size_t i = 0; i < sizeof(names->roots) / sizeof(names->roots[0]) && names->roots[i] != NULL; i++) {
        const size_t length = strlen(names->roots[i]);
        if (strncmp(module, names->roots[i], length) != 0) {
            continue;
        }
        for (int32_t k = 0; k < self->targets->n; k++) {
            if (strcmp(self->targets->items[k].module, module + length) == 0) {
                return self->targets->items[k].module;
            }
        }
    }
    return NULL;
}

/* Whether `module` is `name`, or ends in it behind a dot. */
static bool ends_in(const char *module, const char *name)
{
    const size_t length = strlen(module), part = strlen(name);
    return length >= part && strcmp(module + length - part, name) == 0 &&
           (length == part || module[length - part - 1] == '.');
}

/* ---- configuration --------------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *list)
{
    while (*list != NULL && strcmp(*list, text) != 0) {
        list++;
    }
    return *list != NULL;
}

/* Whether a value says that something is not used. */
static bool is_unset(const trm_json *value)
{
    const char *text = trm_json_string(value);
    const bool empty = (trm_json_is_object(value) || trm_json_is_array(value)) && trm_json_count(value) == 0;
    return empty || (text != NULL && text[0] == '\0') ||
           (!trm_json_is_object(value) && !trm_json_is_array(value) && text == NULL && !trm_json_is_number(value) &&
            !trm_json_truth(value, false));
}

/* Refuses what is set and would change the result, which any unknown key might. */
static trm_status check_keys(const trm_hf_adapter *self, const trm_json *root)
{
    static const char *const known[] = {
        "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "bias",
        "init_lora_weights", "fan_in_fan_out", /* of the base weight alone: A and B are [r, in] and [out, r] */
        /* which layers have adapters: the file says it */
        "exclude_modules", "layers_to_transform", "layers_pattern",
        /* of training, or of how it was made */
        "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
        "lora_dropout", "megatron_core", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
        "runtime_config", "qalora_group_size", "ensure_weight_tying", NULL};
    static const char *const starts[] = {"gaussian", "eva", "orthogonal", NULL};
    for (const trm_json *member = trm_json_first(root); member != NULL; member = trm_json_next(member)) {
        if (!is_one_of(trm_json_key(member), known) && !is_unset(member)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s sets %s, which is not supported", self->config, trm_json_key(member));
        }
    }
    const char *type = trm_json_string(trm_json_get(root, "peft_type"));
    if (type == NULL || strcmp(type, "LORA") != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s has peft_type %s, expected LORA", self->config, type == NULL ? "-" : type);
    }
    const char *bias = trm_json_string(trm_json_get(root, "bias"));
    if (bias != NULL && strcmp(bias, "none") != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s has bias %s, expected none", self->config, bias);
    }
    const char *start = trm_json_string(trm_json_get(root, "init_lora_weights"));
    if (start != NULL && !is_one_of(start, starts)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "%s has init_lora_weights %s, which changes the weights of the model; save the adapter converted to "
                 "plain LoRA",
                 self->config, start);
    }
    return TRM_OK;
}

static trm_status read_config(trm_hf_adapter *self)
{
    TRM_TRY(trm_json_read_config(self->config, CONFIG_LIMIT, &self->document));
    const trm_json *root = trm_json_root(self->document);
    TRM_TRY(check_keys(self, root));
    TRM_TRY(trm_json_member_integer(self->document, root, "r", true, &self->r));
    self->alpha = 8.0; /* PEFT's default */
    TRM_TRY(trm_json_member_number(self->document, root, "lora_alpha", false, &self->alpha));
    return trm_json_member_bool(self->document, root, "use_rslora", false, &self->rslora);
}

/* A pattern of Python as one of POSIX: digits are the one class that differs. */
static trm_status translate(const trm_hf_adapter *self, const char *pattern, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "^(.*\\.)?(");
    bool fits = n < size;
    for (const char *at = pattern; fits && *at != '\0'; at++) {
        const bool escaped = at[0] == '\\', is_class = escaped && at[1] == 'd';
        if ((at[0] == '(' && at[1] == '?') || (at[0] == '*' && at[1] == '?') || (at[0] == '+' && at[1] == '?') ||
            (escaped && !is_class && (at[1] == '\0' || strchr(".-+*()[]{}|^$\\/", at[1]) == NULL))) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s has the pattern %s, of which \"%.2s\" is not supported", self->config,
                     pattern, at);
        }
        n += (size_t)snprintf(to + n, size - n, "%.*s", is_class ? 5 : escaped ? 2 : 1, is_class ? "[0-9]" : at);
        at += escaped ? 1 : 0;
        fits = n + 4 < size;
    }
    if (!fits) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s has a pattern of more than %zu characters", self->config, size);
    }
    memcpy(to + n, ")$", 3);
    return TRM_OK;
}

/* The number that rank_pattern or alpha_pattern has for a module; the first pattern that matches its end counts. */
static trm_status find_in_pattern(const trm_hf_adapter *self, const char *key, const char *module, double *number)
{
    const trm_json *patterns = trm_json_get(trm_json_root(self->document), key);
    char text[512];
    bool found = false;
    for (const trm_json *member = trm_json_first(patterns); member != NULL && !found; member = trm_json_next(member)) {
        regex_t regex;
        TRM_TRY(translate(self, trm_json_key(member), text, sizeof(text)));
        if (regcomp(&regex, text, REG_EXTENDED | REG_NOSUB) != 0) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s has %s for %s, which is no pattern", self->config, key,
                     trm_json_key(member));
        }
        found = regexec(&regex, module, 0, NULL, 0) == 0;
        regfree(&regex);
        if (found && !trm_json_is_number(member)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has %s for %s, expected a number", self->config, key,
                     trm_json_key(member));
        }
        *number = found ? trm_json_number(member, 0.0) : *number;
    }
    return TRM_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

/* Splits "base_model.model.<module>.lora_A.weight"; false if the name is of something else. */
static bool split_name(const char *name, char *module, size_t size, bool *is_b)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight", ".lora_A.default.weight",
                                       ".lora_B.default.weight"};
    const size_t length = strlen(name), prefix = sizeof(PREFIX) - 1;
    for (int i = 0; i < 4; i++) {
        const size_t end = strlen(ends[i]);
        if (length > prefix + end && length - prefix - end < size && strncmp(name, PREFIX, prefix) == 0 &&
            strcmp(name + length - end, ends[i]) == 0) {
            memcpy(module, name + prefix, length - prefix - end);
            module[length - prefix - end] = '\0';
            *is_b = i % 2 == 1;
            return true;
        }
    }
    return false;
}

/* Why a tensor cannot be used. */
static trm_status refuse(const trm_hf_adapter *self, const char *name)
{
    const trm_hf_names *names = self->names;
    const char *what = NULL;
    char text[256];
    for (size_t i = 0; i < sizeof(names->heads) / sizeof(names->heads[0]) && names->heads[i] != NULL; i++) {
        snprintf(text, sizeof(text), "%s%s.", PREFIX, names->heads[i]);
        what = strncmp(name, text, strlen(text)) == 0 ? "an adapter of the output projection" : what;
    }
    snprintf(text, sizeof(text), ".%s.", names->embedding);
    what = strstr(name, "lora_magnitude_vector") != NULL                           ? "DoRA"
           : strstr(name, "lora_embedding_") != NULL || strstr(name, text) != NULL ? "an adapter of the embedding"
           : strstr(name, "modules_to_save") != NULL                               ? "a module saved as a whole"
           : strstr(name, ".experts.") != NULL                                     ? "an adapter of experts"
           : strstr(name, ".lora_") == NULL || strstr(name, ".bias") != NULL       ? "no lora_A or lora_B weight"
           : what != NULL                                                          ? what
                                                                                   : "of no linear layer of the model";
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "tensor %s is %s, which is not supported", name, what);
}

static trm_status note_tensor(trm_hf_adapter *self, const char *name)
{
    char module[256] = "";
    bool is_b;
    const char *target = split_name(name, module, sizeof(module), &is_b) ? without_root(self, module) : NULL;
    const char *own = trm_arena_strdup(&self->arena, module);
    if (target == NULL) {
        return refuse(self, name);
    }
    if (own == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < self->targets->n; i++) {
        if (strcmp(self->targets->items[i].module, target) == 0) {
            *(is_b ? &self->pairs[i].b : &self->pairs[i].a) = name;
            self->pairs[i].module = own;
        }
    }
    return TRM_OK;
}

static trm_status check_dims(const trm_hf_adapter *self, const char *name, trm_dims expected)
{
    char found[TRM_DIMS_TEXT_SIZE], text[TRM_DIMS_TEXT_SIZE];
    trm_dtype dtype;
    trm_dims dims = {0};
    trm_safetensors_describe(self->weights, name, &dtype, &dims);
    if (!trm_dims_equal(&dims, &expected)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has shape %s, expected %s", name, trm_dims_format(&dims, found),
                 trm_dims_format(&expected, text));
    }
    if (dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "tensor %s has type %s, expected F32, F16 or BF16", name,
                 trm_safetensors_type(self->weights, name));
    }
    return TRM_OK;
}

/* Checks the tensors of a target and computes its scale. */
static trm_status check_pair(const trm_hf_adapter *self, const trm_hf_target *target, int32_t rank, pair *found)
{
    double r = (double)self->r, alpha = self->alpha;
    if (found->a == NULL || found->b == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has %s of %s and no %s", WEIGHTS, found->a == NULL ? "lora_B" : "lora_A",
                 target->module, found->a == NULL ? "lora_A" : "lora_B");
    }
    TRM_TRY(find_in_pattern(self, "rank_pattern", found->module, &r));
    TRM_TRY(find_in_pattern(self, "alpha_pattern", found->module, &alpha));
    if (!(r >= 1.0) || r != floor(r) || r > (double)rank || !isfinite(alpha)) {
        TRM_FAIL(r > (double)rank ? TRM_ERROR_UNSUPPORTED : TRM_ERROR_INVALID_MODEL,
                 "%s gives %s the rank %g and alpha %g, expected a rank of 1 to %d%s", self->config, target->module, r,
                 alpha, rank, r > (double)rank ? "; max_adapter_rank allows larger ones" : "");
    }
    TRM_TRY(check_dims(self, found->a, trm_dims2((int64_t)r, target->in)));
    TRM_TRY(check_dims(self, found->b, trm_dims2(target->out, (int64_t)r)));
    found->scale = (float)(alpha / (self->rslora ? sqrt(r) : r));
    return TRM_OK;
}

/* Fails if the configuration names a layer of the model, and the file has nothing for it. */
static trm_status check_missing(const trm_hf_adapter *self, const trm_hf_target *target)
{
    const trm_json *root = trm_json_root(self->document), *names = trm_json_get(root, "target_modules");
    const bool all =
        is_unset(trm_json_get(root, "exclude_modules")) && is_unset(trm_json_get(root, "layers_to_transform"));
    for (const trm_json *name = trm_json_is_array(names) && all ? trm_json_first(names) : NULL; name != NULL;
         name = trm_json_next(name)) {
        if (trm_json_is_string(name) && ends_in(target->module, trm_json_string(name))) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has no tensors of %s, which target_modules names as %s", WEIGHTS,
                     target->module, trm_json_string(name));
        }
    }
    return TRM_OK;
}

static trm_status read_tensors(trm_hf_adapter *self, int32_t rank)
{
    self->pairs = trm_arena_array(&self->arena, (size_t)self->targets->n + 1, sizeof(*self->pairs));
    if (self->pairs == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (trm_safetensors_count(self->weights) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has no tensors", WEIGHTS);
    }
    for (int32_t i = 0; i < trm_safetensors_count(self->weights); i++) {
        TRM_TRY(note_tensor(self, trm_safetensors_name(self->weights, i)));
    }
    for (int32_t i = 0; i < self->targets->n; i++) {
        const bool has = self->pairs[i].a != NULL || self->pairs[i].b != NULL;
        TRM_TRY(has ? check_pair(self, &self->targets->items[i], rank, &self->pairs[i])
                    : check_missing(self, &self->targets->items[i]));
    }
    return TRM_OK;
}

/* ---- life ------------------------------------------------------------------------------------------- */

static trm_status open_folder(trm_hf_adapter *self, const char *folder, int32_t rank)
{
    self->config = trm_arena_printf(&self->arena, "%s/" CONFIG, folder);
    if (self->config == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(read_config(self));
    TRM_TRY(trm_safetensors_open_file(folder, WEIGHTS, &self->weights));
    return read_tensors(self, rank);
}

trm_status trm_hf_adapter_open(const char *folder, const trm_hf_names *names, const trm_hf_targets *targets,
                               int32_t rank, trm_hf_adapter **adapter)
{
    trm_hf_adapter *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate an adapter");
    }
    self->names = names;
    self->targets = targets;
    const trm_status status = open_folder(self, folder, rank);
    if (status != TRM_OK) {
        trm_hf_adapter_close(self);
        return trm_fail_in(status, "adapter %s", folder);
    }
    *adapter = self;
    return TRM_OK;
}

void trm_hf_adapter_close(trm_hf_adapter *adapter)
{
    if (adapter == NULL) {
        return;
    }
    trm_safetensors_close(adapter->weights);
    trm_json_close(adapter->document);
    trm_arena_fini(&adapter->arena);
    free(adapter);
}

trm_status trm_hf_adapter_take(const trm_hf_adapter *adapter, const char *state, trm_weight **weight, float *scale)
{
    int32_t i = 0;
    const trm_hf_targets *targets = adapter->targets;
    while (i < targets->n && strcmp(targets->items[i].a, state) != 0 && strcmp(targets->items[i].b, state) != 0) {
        i++;
    }
    if (i == targets->n) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "%s is no state of adapters", state);
    }
    const bool is_b = strcmp(targets->items[i].b, state) == 0;
    const char *name = is_b ? adapter->pairs[i].b : adapter->pairs[i].a;
    *weight = NULL;
    *scale = is_b ? adapter->pairs[i].scale : 1.0f;
    if (name == NULL) {
        return TRM_OK;
    }
    trm_weight *whole;
    TRM_TRY(trm_safetensors_weight(adapter->weights, name, &whole));
    return is_b ? trm_hf_take_rows(whole, &targets->items[i].rows, weight) : (*weight = whole, TRM_OK);
}
