/*
 * Reading plan files. No part of a file is trusted: lengths are checked before unpacking, offsets before use, and the
 * network is built through the same calls and rules as one built by hand.
 */
#include "dist/plan/messages.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/map.h"
#include "base/recorder.h"
#include "dist/parallel/world.h"
#include "kernels/tuner/tuner.h"
#include "weight_stream/weight_form.h"

typedef struct reader {
    const char *name;
    trm_weight_file *file;
    const unsigned char *bytes;
    size_t size;
    const char *folder;
    bool trusting;
    const Trireme__Plan__Index *index;
    const Trireme__Plan__Network *from;
    trm_weight_file **files;   /* [index->n_files], opened when first needed */
    trm_weight **weights;      /* [from->n_weights]; NULL: a weight that decided the network and that no file has now */
    bool *decides;             /* [from->n_weights] that decided it */
    trm_weight_source *source; /* source of other weights, or NULL */
    uint32_t n_refitted;       /* weights taken from there */
    bool asks_caller;          /* a failure that is not the file's */
    trm_plan *plan;
} reader;

/* ---- pieces -------------------------------------------------------------------------------------------- */

static trm_status refuse(const reader *r, const char *what)
{
    return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: %s", r->name, what);
}

static trm_status find_bytes(const reader *r, uint64_t offset, uint64_t size, uint64_t checksum, const char *what,
                             const unsigned char **bytes)
{
    if (offset < TRM_PLAN_HEADER || offset > r->size || size > r->size - offset) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %s is at bytes %llu + %llu, the plan file has %zu", r->name, what,
                 (unsigned long long)offset, (unsigned long long)size, r->size);
    }
    *bytes = r->bytes + offset;
    if (!r->trusting && trm_plan_checksum(*bytes, (size_t)size) != checksum) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %s is damaged: its checksum differs", r->name, what);
    }
    return TRM_OK;
}

/* A message of the file, to free with protobuf_c_message_free_unpacked. */
static trm_status get_message(const reader *r, const ProtobufCMessageDescriptor *type, uint64_t offset, uint64_t size,
                              uint64_t checksum, ProtobufCMessage **message)
{
    const unsigned char *bytes = NULL;
    TRM_TRY(find_bytes(r, offset, size, checksum, type->short_name, &bytes));
    TRM_TRY(trm_plan_check_message(r->name, type, bytes, (size_t)size));
    *message = protobuf_c_message_unpack(type, NULL, (size_t)size, bytes);
    return *message != NULL ? TRM_OK
                            : trm_fail(TRM_ERROR_INVALID_MODEL, "%s: %s cannot be unpacked", r->name, type->short_name);
}

/* Elements in the file of a tensor of these dims, all known. */
static trm_status get_elements(const reader *r, const Trireme__Plan__Blob *blob, const trm_dims *dims, trm_dtype dtype,
                               const char *what, const unsigned char **bytes)
{
    size_t expected = trm_dtype_size(dtype);
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] < 0 || !trm_checked_mul(expected, (size_t)dims->d[i], &expected)) {
            return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: elements of %s have invalid dims", r->name, what);
        }
    }
    if (blob->size != expected) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: elements of %s have %llu bytes, expected %zu", r->name, what,
                 (unsigned long long)blob->size, expected);
    }
    return find_bytes(r, blob->offset, blob->size, blob->checksum, what, bytes);
}

/* ---- weights ------------------------------------------------------------------------------------------- */

static trm_status open_file(reader *r, uint32_t position, trm_weight_file **file)
{
    if (position == 0) {
        *file = r->file;
        return TRM_OK;
    }
    if (position > r->index->n_files) {
        return refuse(r, "weight refers to a file that the plan does not name");
    }
    const Trireme__Plan__File *named = r->index->files[position - 1];
    if (r->files[position - 1] == NULL) {
        char path[PATH_MAX];
        bool absolute = named->path[0] == '/';
        if ((size_t)snprintf(path, sizeof(path), "%s%s", absolute ? "" : r->folder, named->path) >= sizeof(path)) {
            return refuse(r, "path of a weight file is too long");
        }
        trm_status status = trm_weight_file_open(path, named->name, &r->files[position - 1]);
        if (status != TRM_OK) {
            return trm_fail_in(status, "weight file of plan %s", r->name);
        }
    }
    *file = r->files[position - 1];
    size_t size = trm_weight_file_bytes(*file).size;
    if (size != named->size) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "weight file %s has %zu bytes, it had %llu when plan %s was built: it has "
                 "changed, build the plan again",
                 named->path, size, (unsigned long long)named->size, r->name);
    }
    return TRM_OK;
}

static trm_status get_view(const reader *r, const Trireme__Plan__Weight *from, trm_weight_view *view)
{
    TRM_TRY(trm_plan_get_dims(r->name, from->dims, from->n_dims, &view->dims));
    if (from->n_sizes > TRM_WEIGHT_MAX_STEPS || from->n_strides != from->n_sizes || from->n_first != from->n_dims + 1 ||
        from->first[from->n_dims] != from->n_sizes) {
        return refuse(r, "view of a weight has steps that do not fit its dimensions");
    }
    view->offset = from->offset;
    for (size_t i = 0; i < from->n_sizes; i++) {
        view->steps[i] = (trm_weight_step){from->sizes[i], from->strides[i]};
    }
    for (size_t i = 0; i < from->n_first; i++) {
        view->first[i] = from->first[i] <= TRM_WEIGHT_MAX_STEPS ? (int32_t)from->first[i] : -1;
    }
    return TRM_OK;
}

/* Checks that the bytes of a stored weight have not changed since the build. */
static trm_status check_stored(const reader *r, size_t position, const trm_weight_form *form, bool refitted)
{
    const Trireme__Plan__Weight *from = r->from->weights[position];
    const unsigned char *bytes = trm_weight_file_bytes(form->file).bytes + form->begin;
    size_t size = trm_dims_bytes(&form->dims, form->dtype);
    const bool deciding =
        r->decides[position]; /* every element counts: checksums of all but large weights cover all bytes */
    if (r->trusting || size == 0 || (refitted && r->from->refittable && !deciding)) {
        return TRM_OK;
    }
    if (form->file == r->file) {
        return trm_plan_checksum(bytes, size) == from->checksum
                   ? TRM_OK
                   : trm_fail(TRM_ERROR_INVALID_MODEL, "%s: weight %s is damaged: its checksum differs", r->name,
                              form->name);
    }
    if (trm_plan_sample(bytes, size) == from->sample &&
        (!deciding || from->checksum == 0 || trm_plan_checksum(bytes, size) == from->checksum)) {
        return TRM_OK;
    }
    if (refitted && deciding) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "weight %s of %s is not the one that plan %s was built with, whose elements decided the "
                 "network: build a plan of these weights",
                 form->name, trm_weight_file_path(form->file), r->name);
    }
    if (refitted) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "weight %s of %s is not the one that plan %s was built with, and constants of the plan were computed "
                 "from its weights: build it refittable",
                 form->name, trm_weight_file_path(form->file), r->name);
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s of %s has changed since plan %s was built: build the plan again",
             form->name, trm_weight_file_path(form->file), r->name);
}

/* Makes a weight from the source of a refit, if that has it; *found keeps its file open. */
static trm_status find_refit(reader *r, const Trireme__Plan__Weight *from, trm_weight_form *form, trm_weight **found)
{
    trm_weight_form base;
    *found = NULL;
    if (r->source == NULL || (from->file == 0 && !from->stripped && !r->from->refittable)) {
        return TRM_OK;
    }
    r->asks_caller = true;
    TRM_TRY(trm_weight_source_replace(r->source, form, found));
    r->asks_caller = false;
    if (*found != NULL) {
        trm_weight_get_form(*found, &base);
        form->file = base.file;
        form->begin = base.begin;
        r->n_refitted++;
    }
    return TRM_OK;
}

/* A weight file may lack weights that decided the network: an import then assumes the default (natural order,
 * symmetric, tied). */
static trm_status get_stored(reader *r, size_t position, trm_weight_form *form, trm_weight **weight)
{
    const Trireme__Plan__Weight *from = r->from->weights[position];
    trm_weight *found;
    r->plan->n_file_weights[from->stripped    ? TRM_PLAN_WEIGHTS_STRIPPED
                            : from->file == 0 ? TRM_PLAN_WEIGHTS_EMBEDDED
                                              : TRM_PLAN_WEIGHTS_REFERENCED]++;
    TRM_TRY(find_refit(r, from, form, &found));
    if (found == NULL && from->stripped && r->decides[position]) {
        return TRM_OK;
    }
    trm_status status = found != NULL    ? TRM_OK
                        : from->stripped ? refuse(r, "missing weight")
                                         : open_file(r, from->file, &form->file);
    status = status == TRM_OK ? trm_weight_from_form(form, weight) : status;
    if (status == TRM_OK) {
        r->asks_caller = found != NULL;
        TRM_TRY_GOTO(status, check_stored(r, position, form, found != NULL), release);
        r->asks_caller = false;
    }
release:
    trm_weight_destroy(found);
    return status;
}

/* Writes the names of missing stripped weights into `names`, as far as they fit; returns their number. */
static trm_status list_missing(const reader *r, char names[256], uint32_t *count)
{
    trm_map seen = {0};
    trm_status status = TRM_OK;
    size_t used = 0;
    *count = 0;
    names[0] = '\0';
    for (size_t i = 0; status == TRM_OK && i < r->from->n_weights; i++) {
        const Trireme__Plan__Weight *from = r->from->weights[i];
        trm_weight *found = NULL;
        bool existing = true;
        if (!from->stripped || (r->decides[i] && r->source != NULL)) {
            continue;
        }
        status = trm_map_add(&seen, from->name, strlen(from->name), 0, &existing);
        if (status == TRM_OK && !existing && r->source != NULL) {
            status = trm_weight_source_find(r->source, from->name, &found);
        }
        if (status == TRM_OK && !existing && found == NULL && ++*count <= 4) {
            used += (size_t)snprintf(names + used, 256 - used, "%s%.56s", *count == 1 ? "" : ", ",
                                     *count == 4 ? "..." : from->name);
        }
        trm_weight_destroy(found);
    }
    trm_map_fini(&seen);
    return status;
}

static trm_status check_missing(reader *r)
{
    char names[256];
    uint32_t count;
    TRM_TRY(list_missing(r, names, &count));
    if (count == 0) {
        return TRM_OK;
    }
    r->asks_caller = r->source != NULL;
    if (r->source == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s was saved without its %u weights: supply them (%s)", r->name, count,
                 names);
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s lacks %u weights of plan %s: %s", trm_weight_source_path(r->source), count,
             r->name, names);
}

static trm_status get_weight(reader *r, size_t position)
{
    const Trireme__Plan__Weight *from = r->from->weights[position];
    trm_weight_form form = {.kind = (trm_weight_base_kind)from->kind, .begin = (size_t)from->begin};
    int32_t dtype = 0;
    TRM_TRY(trm_plan_get_dtype(r->name, from->dtype, false, &dtype));
    form.dtype = (trm_dtype)dtype;
    TRM_TRY(trm_plan_get_dims(r->name, from->base_dims, from->n_base_dims, &form.dims));
    TRM_TRY(get_view(r, from, &form.view));
    form.name = from->name;
    form.seed = from->seed;
    memcpy(&form.mean, &from->mean, sizeof(form.mean));
    memcpy(&form.spread, &from->spread, sizeof(form.spread));
    if (form.kind == TRM_WEIGHT_STORED) {
        return get_stored(r, position, &form, &r->weights[position]);
    }
    const trm_weight **parts = NULL;
    if (form.kind == TRM_WEIGHT_JOINED || form.kind == TRM_WEIGHT_RECODED || form.kind == TRM_WEIGHT_COMPUTED) {
        parts = calloc(from->n_parts + 1, sizeof(*parts));
        if (parts == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight of %zu parts", from->n_parts);
        }
        for (size_t i = 0; i < from->n_parts; i++) {
            if (from->parts[i] >= position || from->n_parts > INT32_MAX || r->weights[from->parts[i]] == NULL) {
                free(parts);
                return refuse(r, "weight is joined from parts that do not precede it");
            }
            parts[i] = r->weights[from->parts[i]];
        }
        form.axis = from->axis;
        form.code = (trm_weight_code)from->code;
        form.op = (trm_weight_op)from->code;
        form.times = from->times;
        form.n_parts = (int32_t)from->n_parts;
        form.parts = parts;
    }
    trm_status status = trm_weight_from_form(&form, &r->weights[position]);
    free(parts);
    return status;
}

/* ---- layers -------------------------------------------------------------------------------------------- */

static trm_status get_layer(const reader *r, const Trireme__Plan__Layer *from)
{
    trm_network *network = r->plan->network;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS] = {NULL}, *outputs[TRM_MAX_LAYER_OUTPUTS] = {NULL};
    if (from->n_inputs > TRM_MAX_LAYER_INPUTS || from->n_outputs > TRM_MAX_LAYER_OUTPUTS) {
        return refuse(r, "layer has too many inputs or outputs");
    }
    for (size_t i = 0; i < from->n_inputs; i++) {
        if (from->inputs[i] > (uint32_t)network->n_tensors) {
            return refuse(r, "layer reads an unknown tensor");
        }
        inputs[i] = from->inputs[i] == 0 ? NULL : network->tensors[from->inputs[i] - 1];
    }
    for (size_t i = 0; i < from->n_outputs; i++) {
        if (from->outputs[i] >= (uint32_t)network->n_tensors) {
            return refuse(r, "layer writes an unknown tensor");
        }
        outputs[i] = network->tensors[from->outputs[i]];
    }
    trm_layer_desc desc;
    TRM_TRY(trm_plan_get_desc(r->name, from, inputs[0], &desc));
    return trm_network_restore_layer(network, from->name, &desc, inputs, (int32_t)from->n_inputs, outputs,
                                     (int32_t)from->n_outputs);
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

static trm_status get_constant(const reader *r, const Trireme__Plan__Tensor *from, trm_dtype dtype,
                               const trm_dims *dims, trm_tensor **tensor)
{
    trm_network *network = r->plan->network;
    if ((from->value != NULL) == (from->weight != 0) || from->weight > r->from->n_weights) {
        return refuse(r, "constant has none or several sources of its elements");
    }
    if (from->value != NULL) {
        const unsigned char *bytes = NULL;
        TRM_TRY(get_elements(r, from->value, dims, dtype, from->name, &bytes));
        return trm_network_add_constant(network, from->name, dtype, *dims, bytes, tensor);
    }
    trm_weight *weight;
    if (r->weights[from->weight - 1] == NULL) {
        return refuse(r, "constant refers to a weight without a file");
    }
    trm_dims found = trm_weight_dims(r->weights[from->weight - 1]);
    if (!trm_dims_equal(&found, dims)) {
        return refuse(r, "constant and its weight have different dims");
    }
    TRM_TRY(trm_weight_clone(r->weights[from->weight - 1], &weight));
    return trm_network_add_weight(network, from->name, weight, dtype, tensor);
}

static trm_status get_part(const reader *r, const Trireme__Plan__Part *from, trm_tensor *tensor)
{
    if (from == NULL) {
        return TRM_OK;
    }
    bool is_split = from->kind == TRM_PART_SPLIT;
    if (from->kind < TRM_PART_WHOLE || from->kind > TRM_PART_SUMMAND || from->parts < 1 ||
        from->parts > TRM_MAX_RANKS || (is_split ? from->axis >= (uint32_t)tensor->dims.n : from->axis != 0) ||
        (is_split ? from->whole < -1 : from->whole != 0)) {
        return refuse(r, "tensor has an invalid part");
    }
    const char *of = trm_arena_strdup(&r->plan->network->arena, from->of[0] == '\0' ? tensor->name : from->of);
    if (of == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    tensor->part =
        (trm_tensor_part){(trm_part_kind)from->kind, (int32_t)from->axis, (int32_t)from->parts, of, from->whole};
    return TRM_OK;
}

static trm_status get_dim_names(const reader *r, const Trireme__Plan__Tensor *from, trm_tensor *tensor)
{
    if (from->n_dim_names > 0 && (tensor->role != TRM_TENSOR_INPUT || from->n_dim_names != (size_t)tensor->dims.n)) {
        return refuse(r, "tensor has names for dimensions that it lacks");
    }
    for (size_t i = 0; i < from->n_dim_names; i++) {
        if (from->dim_names[i][0] != '\0') {
            TRM_TRY(trm_network_name_dim(r->plan->network, tensor, (int32_t)i, from->dim_names[i]));
        }
    }
    return TRM_OK;
}

static trm_status get_tensor(const reader *r, const Trireme__Plan__Tensor *from)
{
    trm_network *network = r->plan->network;
    trm_tensor *tensor = NULL;
    trm_dims dims;
    int32_t dtype = 0;
    TRM_TRY(trm_plan_get_dtype(r->name, from->dtype, false, &dtype));
    TRM_TRY(trm_plan_get_dims(r->name, from->dims, from->n_dims, &dims));
    trm_status status = TRM_ERROR_INVALID_MODEL;
    switch (from->role) {
    case TRIREME__PLAN__TENSOR__ROLE__INPUT:
        status = trm_network_add_input(network, from->name, (trm_dtype)dtype, dims, &tensor);
        break;
    case TRIREME__PLAN__TENSOR__ROLE__CONSTANT:
        status = get_constant(r, from, (trm_dtype)dtype, &dims, &tensor);
        break;
    case TRIREME__PLAN__TENSOR__ROLE__STATE:
        status = trm_network_add_state(network, from->name, (trm_dtype)dtype, dims, &tensor);
        break;
    case TRIREME__PLAN__TENSOR__ROLE__ACTIVATION:
        status = trm_network_restore_output(network, from->name, (trm_dtype)dtype, dims, &tensor);
        break;
    default:
        return refuse(r, "tensor has an unknown role");
    }
    TRM_TRY(status);
    if (strcmp(tensor->name, from->name) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: two tensors are named \"%s\", or one has no name", r->name, from->name);
    }
    TRM_TRY(get_dim_names(r, from, tensor));
    const bool is_shared = tensor->role == TRM_TENSOR_INPUT && tensor->dims.n > 0;
    if (from->batch_ranks > (is_shared ? TRM_MAX_RANKS : 0)) {
        return refuse(r, "tensor has a batch that cannot be split");
    }
    tensor->batch_ranks = (int32_t)from->batch_ranks;
    TRM_TRY(get_part(r, from->part, tensor));
    return from->pin[0] == '\0' ? TRM_OK : trm_network_pin(network, tensor, from->pin);
}

/* Notes which weights decided the network, before looking for them. */
static trm_status find_deciding(reader *r)
{
    const Trireme__Plan__Network *from = r->from;
    if (from->n_deciding > from->n_weights) {
        return refuse(r, "more weights decide the network than there are");
    }
    for (size_t i = 0; i < from->n_deciding; i++) {
        if (from->deciding[i] >= from->n_weights ||
            from->weights[from->deciding[i]]->kind != TRIREME__PLAN__WEIGHT__KIND__STORED) {
            return refuse(r, "a weight that decides the network is not in a file");
        }
        r->decides[from->deciding[i]] = true;
    }
    return TRM_OK;
}

static trm_status get_deciding(const reader *r)
{
    for (size_t i = 0; i < r->from->n_deciding; i++) {
        const trm_weight *weight = r->weights[r->from->deciding[i]];
        if (weight != NULL) {
            TRM_TRY(trm_network_note_deciding(r->plan->network, weight));
        }
    }
    return TRM_OK;
}

static trm_status get_network(reader *r)
{
    const Trireme__Plan__Network *from = r->from;
    r->weights = calloc(from->n_weights + 1, sizeof(trm_weight *));
    r->decides = calloc(from->n_weights + 1, sizeof(bool));
    r->files = calloc(r->index->n_files + 1, sizeof(trm_weight_file *));
    if (r->weights == NULL || r->decides == NULL || r->files == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu weights", from->n_weights);
    }
    TRM_TRY(trm_network_create(&r->plan->network));
    trm_network *network = r->plan->network;
    network->refittable = from->refittable != 0;
    TRM_TRY(find_deciding(r));
    TRM_TRY(check_missing(r));
    for (size_t i = 0; i < from->n_weights; i++) {
        TRM_TRY(get_weight(r, i));
    }
    if (r->source != NULL && r->n_refitted == 0) {
        r->asks_caller = true;
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has none of the weights that plan %s lacks",
                 trm_weight_source_path(r->source), r->name);
    }
    TRM_TRY(get_deciding(r));
    for (size_t i = 0; i < from->n_tensors; i++) {
        TRM_TRY(get_tensor(r, from->tensors[i]));
    }
    for (size_t i = 0; i < from->n_layers; i++) {
        TRM_TRY(get_layer(r, from->layers[i]));
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        if (network->tensors[i]->role == TRM_TENSOR_ACTIVATION && network->tensors[i]->producer == NULL) {
            return refuse(r, "tensor that no layer writes");
        }
    }
    for (size_t i = 0; i < from->n_outputs; i++) {
        if (from->outputs[i] >= (uint32_t)network->n_tensors) {
            return refuse(r, "output is an unknown tensor");
        }
        TRM_TRY(trm_network_mark_output(network, network->tensors[from->outputs[i]]));
    }
    return TRM_OK;
}

/* ---- bounds and partition ------------------------------------------------------------------------------ */

static trm_status get_point(const reader *r, const trm_tensor *tensor, const Trireme__Plan__Bound__Point *from,
                            const trm_dims *max, trm_dims *dims, const void **values)
{
    if (from == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_plan_get_dims(r->name, from->dims, from->n_dims, dims));
    if (from->values == NULL) {
        return TRM_OK;
    }
    const unsigned char *bytes = NULL;
    TRM_TRY(get_elements(r, from->values, dims->n == 0 ? max : dims, tensor->dtype, tensor->name, &bytes));
    *values = bytes;
    return TRM_OK;
}

static trm_status get_bounds(const reader *r, trm_shape_bound *bounds)
{
    const trm_network *network = r->plan->network;
    for (size_t i = 0; i < r->from->n_bounds; i++) {
        const Trireme__Plan__Bound *from = r->from->bounds[i];
        trm_shape_bound *to = &bounds[i];
        if (from->tensor >= (uint32_t)network->n_tensors || from->max == NULL) {
            return refuse(r, "bound without dims, or of an unknown tensor");
        }
        const trm_tensor *tensor = network->tensors[from->tensor];
        to->tensor = tensor->name;
        to->profile = from->profile;
        TRM_TRY(get_point(r, tensor, from->max, &to->max, &to->max, &to->max_values));
        TRM_TRY(get_point(r, tensor, from->min, &to->max, &to->min, &to->min_values));
        TRM_TRY(get_point(r, tensor, from->opt, &to->max, &to->opt, &to->opt_values));
    }
    return TRM_OK;
}

static trm_status get_partition(const reader *r)
{
    const Trireme__Plan__Partition *from = r->from->partition;
    trm_partition_report *to = &r->plan->partition;
    int32_t most = (int32_t)(sizeof(to->parts) / sizeof(to->parts[0])), ranks = trm_mesh_tensor_ranks(&r->plan->mesh);
    if (from == NULL || from->n_parts > (size_t)most) {
        return refuse(r, "the partition is missing");
    }
    for (size_t i = 0; i < from->n_parts; i++) {
        if (from->parts[i] < 1 || from->parts[i] > ranks || ranks % from->parts[i] != 0) {
            return refuse(r, "parts of collectives do not divide the ranks");
        }
        to->parts[i] = from->parts[i];
    }
    to->n_parts = (int32_t)from->n_parts;
    to->n_collectives = from->n_collectives;
    to->bytes_exchanged = from->bytes_exchanged;
    to->seconds = from->seconds;
    to->shares_batch = from->shares_batch;
    to->shares_tokens = from->shares_tokens;
    to->as_written = from->as_written;
    to->has_regions = from->has_regions;
    strncpy(to->note, from->note, sizeof(to->note) - 1);
    return TRM_OK;
}

static bool is_tactic(const char *name, int64_t nanoseconds)
{
    return name[0] != '\0' && strlen(name) < TRM_TACTIC_NAME_SIZE && strchr(name, ' ') == NULL && nanoseconds >= 0;
}

static trm_status get_tactic(const reader *r, const Trireme__Plan__Tactic *from)
{
    trm_plan_timed timed[TRM_MOST_SHORTLISTED] = {{from->name, from->nanoseconds}};
    bool fits = from->problem[0] != '\0' && strlen(from->problem) < TRM_PROBLEM_TEXT_SIZE &&
                from->n_others < TRM_MOST_SHORTLISTED && is_tactic(from->name, from->nanoseconds);
    for (size_t i = 0; fits && i < from->n_others; i++) {
        timed[i + 1] = (trm_plan_timed){from->others[i]->name, from->others[i]->nanoseconds};
        fits = is_tactic(timed[i + 1].name, timed[i + 1].nanoseconds);
    }
    if (!fits) {
        return refuse(r, "invalid tactic");
    }
    return trm_plan_add_tactic(r->plan, from->problem, timed, 1 + (int32_t)from->n_others);
}

static trm_status get_tactics(const reader *r)
{
    trm_plan *plan = r->plan;
    const Trireme__Plan__Device *device = r->index->device;
    if (r->from->n_tactics == 0) {
        return TRM_OK;
    }
    if (device == NULL || strlen(device->name) >= sizeof(plan->device.name) ||
        r->from->n_tactics > TRM_PLAN_MOST_TACTICS) {
        return refuse(r, "too many tactics, or tactics without a device");
    }
    plan->device =
        (trm_plan_device){.multiprocessors = device->multiprocessors, .major = device->major, .minor = device->minor};
    memcpy(plan->device.name, device->name, strlen(device->name));
    for (size_t i = 0; i < r->from->n_tactics; i++) {
        TRM_TRY(get_tactic(r, r->from->tactics[i]));
    }
    return TRM_OK;
}

static trm_status fill_plan(reader *r)
{
    TRM_TRY(get_network(r));
    TRM_TRY(get_partition(r));
    TRM_TRY(get_tactics(r));
    TRM_TRY(trm_plan_check_exchanges(r->plan));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = r->plan->backend;
    options.mesh = r->plan->mesh;
    options.rank = r->plan->rank;
    trm_shape_bound *bounds = calloc(r->from->n_bounds + 1, sizeof(*bounds));
    if (bounds == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bounds", r->from->n_bounds);
    }
    options.bounds = bounds;
    options.n_bounds = (int32_t)r->from->n_bounds;
    trm_status status = get_bounds(r, bounds);
    status = status == TRM_OK ? trm_plan_check_bounds(r->plan->network, &options) : status;
    status = status == TRM_OK ? trm_plan_set_profiles(r->plan, &options) : status;
    status = status == TRM_OK ? trm_plan_lay_out_memory(r->plan) : status;
    free(bounds);
    return status;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static trm_status check_index(reader *r, int32_t rank)
{
    const Trireme__Plan__Index *index = r->index;
    trm_plan *plan = r->plan;
    if (!r->trusting && strcmp(index->library, trm_version()) != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: the plan was built by trireme %.40s, this is %s: build it again", r->name,
                 index->library, trm_version());
    }
    bool cuda = strcmp(index->backend, trm_backend_name(TRM_BACKEND_CUDA)) == 0;
    if (!cuda && strcmp(index->backend, trm_backend_name(TRM_BACKEND_HOST)) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the plan is for backend \"%.40s\", which does not exist", r->name,
                 index->backend);
    }
    plan->backend = cuda ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    plan->allow_tf32 = index->allow_tf32 != 0;
    plan->batch_invariant = index->batch_invariant != 0;
    plan->max_workspace = index->max_workspace;
    plan->max_aux_streams = index->max_aux_streams;
    if (plan->max_aux_streams < TRM_AUX_STREAMS_AUTO || plan->max_aux_streams > TRM_MAX_AUX_STREAMS) {
        return refuse(r, "number of streams is out of range");
    }
    int64_t ranks = 1;
    for (size_t i = 0; i < index->n_mesh && index->n_mesh == TRM_AXIS_COUNT; i++) {
        bool fits = index->mesh[i] >= 1 && index->mesh[i] <= TRM_MAX_RANKS;
        plan->mesh.size[i] = index->mesh[i];
        ranks = fits ? ranks * (i == TRM_AXIS_EP ? 1 : index->mesh[i]) : 0; /* ep is laid over dp */
        ranks = ranks > TRM_MAX_RANKS ? 0 : ranks;
    }
    if (index->n_mesh != TRM_AXIS_COUNT || ranks == 0 || (size_t)ranks != index->n_ranks ||
        plan->mesh.size[TRM_AXIS_DP] % plan->mesh.size[TRM_AXIS_EP] != 0) {
        return refuse(r, "invalid mesh, or one that does not match the ranks");
    }
    if (rank < 0 || (size_t)rank >= index->n_ranks) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s: the plan is for a mesh of %zu ranks and has no rank %d", r->name,
                 index->n_ranks, rank);
    }
    plan->rank = rank;
    return TRM_OK;
}

/* Reads index and network, and makes the plan. */
static trm_status read_rank(reader *r, const trm_plan_header *header, int32_t rank)
{
    ProtobufCMessage *index = NULL, *network = NULL;
    trm_status status;
    TRM_TRY_GOTO(status,
                 get_message(r, &trireme__plan__index__descriptor, header->index_offset, header->index_size,
                             header->index_checksum, &index),
                 done);
    r->index = (const Trireme__Plan__Index *)index;
    TRM_TRY_GOTO(status, check_index(r, rank), done);
    const Trireme__Plan__Blob *blob = r->index->ranks[rank];
    TRM_TRY_GOTO(
        status, get_message(r, &trireme__plan__network__descriptor, blob->offset, blob->size, blob->checksum, &network),
        done);
    r->from = (const Trireme__Plan__Network *)network;
    status = fill_plan(r);
    if (status == TRM_ERROR_INVALID_ARGUMENT &&
        !r->asks_caller) { /* rules report wrong arguments; here the file is wrong */
        status = trm_fail_in(TRM_ERROR_INVALID_MODEL, "%s", r->name);
    }
    for (size_t i = 0; r->weights != NULL && i < r->from->n_weights; i++) {
        trm_weight_destroy(r->weights[i]);
    }
    for (size_t i = 0; r->files != NULL && i < r->index->n_files; i++) {
        trm_weight_file_release(r->files[i]);
    }
done:
    free(r->weights);
    free(r->decides);
    free(r->files);
    if (network != NULL) {
        protobuf_c_message_free_unpacked(network, NULL);
    }
    if (index != NULL) {
        protobuf_c_message_free_unpacked(index, NULL);
    }
    return status;
}

trm_status trm_plan_read(trm_weight_file *file, const char *folder, int32_t rank, bool trusting,
                         trm_weight_source *weights, trm_plan **plan)
{
    trm_mapping mapping = trm_weight_file_bytes(file);
    reader r = {.name = trm_weight_file_name(file),
                .file = file,
                .bytes = mapping.bytes,
                .size = mapping.size,
                .folder = folder,
                .trusting = trusting,
                .source = weights};
    trm_plan_header header;
    TRM_TRY(trm_plan_get_header(r.name, r.bytes, r.size, trusting, &header));
    r.plan = calloc(1, sizeof(*r.plan));
    if (r.plan == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a plan");
    }
    r.plan->format = TRM_PLAN_FORMAT; /* the header allows no other */
    trm_status status = read_rank(&r, &header, rank);
    if (status != TRM_OK) {
        trm_plan_destroy(r.plan);
        return status;
    }
    *plan = r.plan;
    return TRM_OK;
}

static trm_status load(const char *path, int32_t rank, trm_weight_source *weights, trm_plan **plan)
{
    trm_weight_file *file;
    const char *slash = strrchr(path, '/');
    TRM_TRY(trm_weight_file_open(path, slash == NULL ? path : slash + 1, &file));
    char folder[PATH_MAX];
    const char *full = trm_weight_file_path(file);
    slash = strrchr(full, '/');
    int length = slash == NULL ? 0 : (int)(slash - full) + 1;
    snprintf(folder, sizeof(folder), "%.*s", length, full);
    trm_status status = trm_plan_read(file, folder, rank, false, weights, plan);
    trm_weight_file_release(file);
    return status;
}

TRM_CALL(NULL, trm_plan_load, (const char *path, int32_t rank, trm_plan **plan), (path, rank, plan))
{
    if (path == NULL || plan == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot load a plan file: path or plan is NULL");
    }
    return load(path, rank, NULL, plan);
}

TRM_CALL(NULL, trm_plan_refit, (const char *path, int32_t rank, const char *weights, trm_plan **plan),
         (path, rank, weights, plan))
{
    trm_weight_source *source;
    if (path == NULL || weights == NULL || plan == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot refit a plan file: path, weights or plan is NULL");
    }
    TRM_TRY(trm_weight_source_open(weights, &source));
    trm_status status = load(path, rank, source, plan);
    trm_weight_source_close(source);
    return status;
}
