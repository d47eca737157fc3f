/* The walk of shape inference with values. */
#include "graph/inference.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/evaluate.h"
#include "graph/infer.h"
#include "graph/kinds/kind.h"

/* What is known of a tensor's elements. */
typedef enum value_state {
    VALUE_MISSING, /* not yet, or not on the host */
    VALUE_UNKNOWN, /* the caller does not know */
    VALUE_GIVEN,
    VALUE_COMPUTED
} value_state;

typedef struct value {
    bool wanted; /* may decide dims, directly or through others */
    value_state state;
    const void *elements;
    void *memory; /* memory of `elements`, except for constants, whose elements lie in the arena */
    size_t size, capacity;
} value;

struct trm_inference {
    const trm_network *network;
    value *values; /* [n_tensors] */
    trm_dims *dims;
    int32_t next; /* layer */
    bool may_stop;
    bool follows; /* conditions */
    trm_regions regions;
    trm_evaluator evaluator;
};

/* ---- which values are wanted ------------------------------------------------------------------- */

/* Marks what wanted values depend on; returns whether that marked more. */
static bool want_more(trm_inference *self)
{
    bool more = false;
    for (int32_t i = self->network->n_layers; i-- > 0;) {
        const trm_layer *layer = self->network->layers[i];
        uint32_t wanted = trm_layer_value_inputs(&layer->desc);
        bool is_wanted = false;
        for (int32_t k = 0; k < layer->n_outputs; k++) {
            is_wanted = is_wanted || self->values[layer->outputs[k]->index].wanted;
        }
        if (is_wanted && trm_kind_is(layer, TRM_KIND_EVALUATED) && layer->desc.kind != TRM_LAYER_SHAPE) {
            wanted = UINT32_MAX;
        }
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            if (layer->inputs[k] != NULL && (wanted >> k & 1) != 0) {
                more = more || !self->values[layer->inputs[k]->index].wanted;
                self->values[layer->inputs[k]->index].wanted = true;
            }
        }
        if (layer->desc.kind == TRM_LAYER_NEXT && self->values[layer->inputs[1]->index].wanted && !is_wanted) {
            self->values[layer->outputs[0]->index].wanted = more = true;
        }
    }
    return more;
}

static void want_values(trm_inference *self)
{
    bool again;
    do { /* a wanted loop-carried value makes its initial value wanted */
        again = want_more(self);
    } while (again && self->regions.n > 0);
}

/* Whether a wanted value may have to be read from the device. */
static bool may_stop(const trm_inference *self)
{
    if (self->regions.n > 0) {
        return true;
    }
    for (int32_t i = 0; i < self->network->n_layers; i++) {
        const trm_layer *layer = self->network->layers[i];
        if (trm_layer_is_data_dependent(&layer->desc)) {
            return true;
        }
        bool small = trm_kind_is(layer, TRM_KIND_EVALUATED);
        for (int32_t k = 0; k < layer->n_outputs; k++) {
            const trm_tensor *output = layer->outputs[k];
            int64_t elements = (int64_t)(TRM_LARGEST_VALUE / trm_dtype_size(output->dtype));
            for (int32_t d = 0; d < output->dims.n; d++) { /* unknown size: perhaps too large */
                elements = output->dims.d[d] < 0 ? -1 : output->dims.d[d] > 0 ? elements / output->dims.d[d] : elements;
            }
            if (self->values[output->index].wanted && (!small || elements <= 0)) {
                return true;
            }
        }
    }
    for (int32_t i = 0; i < self->network->n_tensors; i++) {
        if (self->values[i].wanted && self->network->tensors[i]->role == TRM_TENSOR_STATE) {
            return true;
        }
    }
    return false;
}

/* ---- memory of values -------------------------------------------------------------------------- */

static trm_status reserve(value *v, size_t size, const trm_tensor *tensor)
{
    if (size > v->capacity || v->memory == NULL) {
        void *memory = realloc(v->memory, size > 0 ? size : 1);
        if (memory == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for the values of %s", size, tensor->name);
        }
        v->memory = memory;
        v->capacity = size;
    }
    v->size = size;
    v->elements = v->memory;
    return TRM_OK;
}

static trm_status load_constant(value *v, const trm_tensor *tensor)
{
    size_t size = trm_dims_bytes(&tensor->dims, tensor->dtype);
    if (tensor->value == NULL && tensor->weight != NULL && size <= TRM_LARGEST_VALUE) {
        TRM_TRY(reserve(v, size, tensor));
        TRM_TRY(trm_weight_read(tensor->weight, tensor->dtype, 0, (size_t)trm_dims_count(&tensor->dims), v->memory));
        v->state = VALUE_GIVEN;
    } else if (tensor->value != NULL) {
        v->elements = tensor->value;
        v->size = size;
        v->state = VALUE_GIVEN;
    }
    return TRM_OK;
}

/* ---- life -------------------------------------------------------------------------------------- */

trm_status trm_inference_create(const trm_network *network, trm_inference **inference)
{
    trm_inference *made = calloc(1, sizeof(*made));
    value *values = calloc((size_t)network->n_tensors + 1, sizeof(*values));
    if (made == NULL || values == NULL) {
        free(made);
        free(values);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the shape inference of %d tensors", network->n_tensors);
    }
    made->network = network;
    made->values = values;
    trm_status found = trm_regions_init(network, &made->regions);
    if (found != TRM_OK) {
        trm_inference_destroy(made);
        return found;
    }
    want_values(made);
    made->may_stop = may_stop(made);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        if (values[i].wanted && network->tensors[i]->role == TRM_TENSOR_CONSTANT) {
            trm_status status = load_constant(&values[i], network->tensors[i]);
            if (status != TRM_OK) {
                trm_inference_destroy(made);
                return status;
            }
        }
    }
    *inference = made;
    return TRM_OK;
}

void trm_inference_destroy(trm_inference *self)
{
    if (self == NULL) {
        return;
    }
    for (int32_t i = 0; i < self->network->n_tensors; i++) {
        free(self->values[i].memory);
    }
    trm_evaluator_fini(&self->evaluator);
    trm_regions_fini(&self->regions);
    free(self->values);
    free(self);
}

/* ---- what the caller asks and gives ------------------------------------------------------------ */

bool trm_inference_wants(const trm_inference *self, const trm_tensor *input)
{
    return self->values[input->index].wanted;
}

void trm_inference_follow_conditions(trm_inference *self)
{
    self->follows = true;
}

const trm_regions *trm_inference_regions(const trm_inference *self)
{
    return &self->regions;
}

bool trm_inference_may_stop(const trm_inference *self)
{
    return self->may_stop;
}

const void *trm_inference_values(const trm_inference *self, const trm_tensor *tensor)
{
    const value *v = &self->values[tensor->index];
    return v->state == VALUE_GIVEN || v->state == VALUE_COMPUTED ? v->elements : NULL;
}

bool trm_inference_computed(const trm_inference *self, const trm_tensor *tensor)
{
    return self->values[tensor->index].state == VALUE_COMPUTED;
}

bool trm_inference_has(const trm_inference *self, const trm_tensor *input, const trm_dims *dims, const void *elements)
{
    const value *v = &self->values[input->index];
    size_t size = trm_dims_bytes(dims, input->dtype);
    return v->state == VALUE_GIVEN && v->size == size && memcmp(v->elements, elements, size) == 0;
}

trm_status trm_inference_give(trm_inference *self, const trm_tensor *tensor, const trm_dims *dims, const void *elements)
{
    value *v = &self->values[tensor->index];
    v->state = VALUE_UNKNOWN;
    if (elements != NULL) {
        size_t size = trm_dims_bytes(dims, tensor->dtype);
        TRM_TRY(reserve(v, size, tensor));
        memcpy(v->memory, elements, size);
        v->state = VALUE_GIVEN;
    }
    return TRM_OK;
}

static trm_status take_count(trm_inference *self, const trm_layer *layer, int64_t count)
{
    trm_dims output_dims[TRM_MAX_LAYER_OUTPUTS];
    const trm_tensor *number = layer->outputs[layer->n_outputs - 1];
    value *v = &self->values[number->index];
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        output_dims[i] = self->dims[layer->outputs[i]->index];
    }
    trm_layer_set_count(&layer->desc, count, output_dims);
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        self->dims[layer->outputs[i]->index] = output_dims[i];
    }
    TRM_TRY(reserve(v, sizeof(count), number));
    memcpy(v->memory, &count, sizeof(count));
    v->state = count < 0 ? VALUE_UNKNOWN : VALUE_GIVEN;
    return TRM_OK;
}

static int64_t largest_count(const trm_inference *self, const trm_layer *layer)
{
    const trm_dims *dims[TRM_MAX_LAYER_INPUTS];
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        dims[i] = layer->inputs[i] == NULL ? NULL : &self->dims[layer->inputs[i]->index];
    }
    return trm_layer_largest_count(&layer->desc, dims);
}

trm_status trm_inference_give_count(trm_inference *self, int64_t count)
{
    const trm_layer *layer = self->network->layers[self->next];
    int64_t most = largest_count(self, layer);
    if (count >= 0 && most >= 0 && count > most) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "%s %s has %lld entries, expected at most %lld",
                 trm_layer_kind_name(layer->desc.kind), layer->name, (long long)count, (long long)most);
    }
    TRM_TRY(take_count(self, layer, count == TRM_COUNT_OPEN ? -1 : count < 0 ? most : count));
    self->next++;
    return TRM_OK;
}

/* ---- the walk ---------------------------------------------------------------------------------- */

trm_status trm_inference_begin(trm_inference *self, trm_dims *dims)
{
    self->dims = dims;
    self->next = 0;
    for (int32_t i = 0; i < self->network->n_tensors; i++) {
        const trm_tensor *tensor = self->network->tensors[i];
        TRM_TRY(trm_infer_start(tensor, &dims[i]));
        if (tensor->role == TRM_TENSOR_ACTIVATION || tensor->role == TRM_TENSOR_STATE) {
            self->values[i].state = VALUE_MISSING;
        }
    }
    return TRM_OK;
}

/* Whether a known condition is true. */
static bool holds(const trm_inference *self, const trm_tensor *condition)
{
    return *(const unsigned char *)trm_inference_values(self, condition) != 0;
}

/* Whether the layer ignores the value of input i: the other branch of a MERGE, or a tensor that it only names. */
static bool is_passed_over(const trm_inference *self, const trm_layer *layer, int32_t i)
{
    return (layer->desc.kind == TRM_LAYER_MERGE && i > 0 && i != (holds(self, layer->inputs[0]) ? 1 : 2)) ||
           ((layer->desc.kind == TRM_LAYER_NEXT || layer->desc.kind == TRM_LAYER_LOOP_OUTPUT) && i > 0);
}

/* Whether all inputs of the layer are known here, and all outputs are small. */
static bool can_compute(const trm_inference *self, const trm_layer *layer)
{
    bool wanted = false;
    if (!trm_kind_is(layer, TRM_KIND_EVALUATED) ||
        (!self->follows && trm_kind_is_control(layer->desc.kind) && layer->desc.kind != TRM_LAYER_ENTER)) {
        return false;
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        const trm_tensor *output = layer->outputs[i];
        const trm_dims *dims = &self->dims[output->index];
        wanted = wanted || self->values[output->index].wanted;
        if (!trm_dims_are_known(dims) || trm_dims_bytes(dims, output->dtype) > TRM_LARGEST_VALUE) {
            return false;
        }
    }
    for (int32_t i = 0; wanted && i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input == NULL || is_passed_over(self, layer, i)) {
            continue;
        }
        if (layer->desc.kind == TRM_LAYER_SHAPE) {
            wanted = wanted && trm_dims_are_known(&self->dims[input->index]);
        } else {
            wanted = wanted && trm_inference_values(self, input) != NULL;
        }
    }
    return wanted;
}

static trm_status compute(trm_inference *self, const trm_layer *layer)
{
    trm_kernel_call call = {.layer = &layer->desc, .n_inputs = layer->n_inputs, .n_outputs = layer->n_outputs};
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input != NULL) {
            call.values[i] = trm_inference_values(self, input);
            call.inputs[i] =
                (trm_view){(void *)(uintptr_t)call.values[i], input->dtype, self->dims[input->index]}; /* only read */
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        const trm_tensor *output = layer->outputs[i];
        const trm_dims *dims = &self->dims[output->index];
        value *v = &self->values[output->index];
        TRM_TRY(reserve(v, trm_dims_bytes(dims, output->dtype), output));
        call.outputs[i] = (trm_view){v->memory, output->dtype, *dims};
    }
    bool ran = false;
    trm_status status = trm_evaluator_run(&self->evaluator, &call, &ran);
    if (status != TRM_OK) {
        return trm_fail_in(status, "values of layer %s", layer->name);
    }
    for (int32_t i = 0; ran && i < layer->n_outputs; i++) {
        self->values[layer->outputs[i]->index].state = VALUE_COMPUTED;
    }
    return TRM_OK;
}

/* The first value input without known elements, or NULL. */
static const trm_tensor *find_missing(const trm_inference *self, const trm_layer *layer)
{
    uint32_t needed = trm_layer_value_inputs(&layer->desc);
    if (!self->follows && trm_kind_is_control(layer->desc.kind)) {
        return NULL;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if ((needed >> i & 1) != 0 && layer->inputs[i] != NULL &&
            self->values[layer->inputs[i]->index].state == VALUE_MISSING) {
            return layer->inputs[i];
        }
    }
    return NULL;
}

/* Whether the walk may continue elsewhere than at the next layer. */
static bool jumps(const trm_inference *self, const trm_layer *layer)
{
    if (!self->follows) {
        return false;
    }
    switch (layer->desc.kind) {
    case TRM_LAYER_IF:
        return holds(self, layer->inputs[0]) == layer->desc.branch.negated;
    case TRM_LAYER_LOOP:
        return !holds(self, layer->inputs[0]);
    case TRM_LAYER_END_LOOP:
        return true;
    default:
        return false;
    }
}

/* Starts the next pass of the loop between two layers: takes over loop-carried values and forgets those of its layers.
 */
static trm_status next_pass(trm_inference *self, int32_t begin, int32_t end)
{
    for (int32_t i = begin + 1; i < end; i++) {
        const trm_layer *layer = self->network->layers[i];
        if (layer->desc.kind != TRM_LAYER_NEXT || self->regions.inside[i] != begin) {
            continue;
        }
        const trm_tensor *made = layer->outputs[0], *carried = layer->inputs[1];
        const void *elements = trm_inference_values(self, made);
        self->dims[carried->index] = self->dims[made->index];
        if (elements == NULL) {
            self->values[carried->index].state = VALUE_MISSING;
        } else {
            TRM_TRY(trm_inference_give(self, carried, &self->dims[made->index], elements));
        }
    }
    for (int32_t i = begin + 1; i < end; i++) {
        for (int32_t k = 0; k < self->network->layers[i]->n_outputs; k++) {
            self->values[self->network->layers[i]->outputs[k]->index].state = VALUE_MISSING;
        }
    }
    return TRM_OK;
}

trm_status trm_inference_jump(trm_inference *self, int32_t *next)
{
    const trm_layer *layer = self->network->layers[self->next];
    int32_t other = self->regions.other[self->next];
    if (layer->desc.kind == TRM_LAYER_END_LOOP) {
        bool again = holds(self, layer->inputs[0]);
        TRM_TRY(next_pass(self, other, self->next));
        self->next = again ? other + 1 : self->next + 1;
    } else {
        self->next = other + 1;
    }
    *next = self->next;
    return TRM_OK;
}

trm_status trm_inference_run(trm_inference *self, trm_inference_stop *stop)
{
    for (; self->next < self->network->n_layers; self->next++) {
        const trm_layer *layer = self->network->layers[self->next];
        const trm_tensor *missing = find_missing(self, layer);
        if (missing != NULL) {
            *stop = (trm_inference_stop){TRM_INFERENCE_VALUES, layer, missing};
            return TRM_OK;
        }
        const void *values[TRM_MAX_LAYER_INPUTS];
        bool by_all = !self->follows && layer->desc.kind == TRM_LAYER_MERGE;
        for (int32_t i = 0; i < layer->n_inputs; i++) {
            values[i] = layer->inputs[i] == NULL || by_all ? NULL : trm_inference_values(self, layer->inputs[i]);
        }
        TRM_TRY(trm_infer_in_network(layer, values, self->dims));
        if (self->follows && layer->desc.kind == TRM_LAYER_RECURRENCE) { /* in the first pass the initial value */
            self->dims[layer->outputs[0]->index] = self->dims[layer->inputs[0]->index];
        }
        if (jumps(self, layer)) {
            *stop = (trm_inference_stop){TRM_INFERENCE_JUMP, layer, NULL};
            return TRM_OK;
        }
        if (trm_layer_is_data_dependent(&layer->desc)) {
            TRM_TRY(take_count(self, layer, largest_count(self, layer)));
            *stop = (trm_inference_stop){TRM_INFERENCE_COUNT, layer, layer->outputs[layer->n_outputs - 1]};
            return TRM_OK;
        }
        if (can_compute(self, layer)) {
            TRM_TRY(compute(self, layer));
        }
    }
    *stop = (trm_inference_stop){.state = TRM_INFERENCE_DONE};
    return TRM_OK;
}
