/*
 * DELTA_NET as the layers it stands for: slices, convolutions, the gated delta rule, a norm and a GLU, one kernel after
 * the other. On the host the reference, on CUDA for what cuda_net.cu does not take.
 */
#include "kernels/delta/net.h"

#include "kernels/kernel_list.h"

enum { Q = 0, K, V, Z, B, A, SLICES };

static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};

/* A tensor of `columns` for each token, in the next room. */
static trm_view next_room(const trm_kernel_call *call, trm_kernel_parts *parts, int64_t columns)
{
    char *rooms = call->workspace;
    const trm_view *x = &call->inputs[TRM_DELTA_NET_X];
    const trm_view view = {rooms == NULL ? NULL : rooms + parts->between, x->dtype, {2, {x->dims.d[0], columns}}};
    parts->between += trm_kernel_parts_room(&view);
    return view;
}

/* The same elements as heads of `dim`. */
static trm_view heads_of(trm_view flat, int64_t heads, int64_t dim)
{
    flat.dims = (trm_dims){3, {flat.dims.d[0], heads, dim}};
    return flat;
}

static void add_slice(const trm_kernel_call *call, trm_kernel_parts *parts, int32_t from, int64_t start, trm_view to)
{
    trm_kernel_call *part = trm_kernel_parts_add(parts, call, TRM_LAYER_SLICE);
    parts->layers[parts->n - 1].slice =
        (trm_slice_params){.axis = 1, .start = start, .end = start + to.dims.d[1], .step = 1};
    part->inputs[part->n_inputs++] = call->inputs[from];
    part->outputs[0] = to;
}

static void pass_sequences(trm_kernel_call *part, const trm_kernel_call *call)
{
    for (int32_t i = TRM_DELTA_NET_SEQUENCE_STARTS; i <= TRM_DELTA_NET_SEQUENCE_SLOTS; i++) {
        trm_kernel_parts_pass(part, call, i);
    }
}

static void add_convolution(const trm_kernel_call *call, trm_kernel_parts *parts, int32_t which, trm_view x, trm_view y)
{
    trm_kernel_call *part = trm_kernel_parts_add(parts, call, TRM_LAYER_SHORT_CONVOLUTION);
    parts->layers[parts->n - 1].short_convolution.activation = call->layer->delta_net.activation;
    part->inputs[part->n_inputs++] = x;
    trm_kernel_parts_pass(part, call, TRM_DELTA_NET_Q_TAPS + which);
    pass_sequences(part, call);
    trm_kernel_parts_pass(part, call, TRM_DELTA_NET_Q_CACHE + which);
    part->outputs[0] = y;
}

/* y = norm of heads of x */
static void add_norm(const trm_kernel_call *call, trm_kernel_parts *parts, trm_view x, trm_view y)
{
    const trm_delta_net_params *p = &call->layer->delta_net;
    trm_kernel_call *part = trm_kernel_parts_add(parts, call, TRM_LAYER_NORM);
    parts->layers[parts->n - 1].norm = (trm_norm_params){.eps = p->norm_eps, .weight_offset = p->weight_offset};
    part->inputs[part->n_inputs++] = x;
    trm_kernel_parts_pass(part, call, TRM_DELTA_NET_NORM);
    part->outputs[0] = y;
}

bool trm_delta_net_describe_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    const trm_delta_net_params *p = &call->layer->delta_net;
    const int64_t keys = (int64_t)p->key_heads * p->key_dim, values = (int64_t)p->heads * p->value_dim;
    const int64_t columns[SLICES] = {keys, keys, values, values, p->heads, p->heads};
    const int64_t starts[SLICES] = {0, keys, 2 * keys, p->z, p->b, p->a};
    trm_view cut[SLICES], convolved[V + 1];
    if (call->n_inputs != TRM_DELTA_NET_INPUT_COUNT || call->n_outputs != 1 ||
        call->inputs[TRM_DELTA_NET_X].dims.n != 2) {
        return false;
    }
    parts->tables = tables;
    parts->n_tables = 2;
    for (int32_t i = 0; i < SLICES; i++) {
        cut[i] = next_room(call, parts, columns[i]);
        add_slice(call, parts, i <= Z ? TRM_DELTA_NET_X : TRM_DELTA_NET_GATES, starts[i], cut[i]);
    }
    for (int32_t i = Q; i <= V; i++) {
        convolved[i] = next_room(call, parts, columns[i]);
        add_convolution(call, parts, i, cut[i], convolved[i]);
    }
    const trm_view y = heads_of(next_room(call, parts, values), p->heads, p->value_dim);
    const trm_view normed = next_room(call, parts, values);
    trm_kernel_call *delta = trm_kernel_parts_add(parts, call, TRM_LAYER_GATED_DELTA);
    parts->layers[parts->n - 1].gated_delta.eps = p->eps;
    for (int32_t i = Q; i <= V; i++) {
        delta->inputs[delta->n_inputs++] =
            heads_of(convolved[i], i < V ? p->key_heads : p->heads, i < V ? p->key_dim : p->value_dim);
    }
    delta->inputs[delta->n_inputs++] = cut[A];
    delta->inputs[delta->n_inputs++] = cut[B];
    trm_kernel_parts_pass(delta, call, TRM_DELTA_NET_A_LOG);
    trm_kernel_parts_pass(delta, call, TRM_DELTA_NET_A_BIAS);
    pass_sequences(delta, call);
    trm_kernel_parts_pass(delta, call, TRM_DELTA_NET_STATE);
    delta->outputs[0] = y;
    add_norm(call, parts, y, heads_of(normed, p->heads, p->value_dim));
    trm_kernel_call *glu = trm_kernel_parts_add(parts, call, TRM_LAYER_GLU);
    parts->layers[parts->n - 1].glu.activation = p->gate;
    glu->inputs[glu->n_inputs++] = cut[Z];
    glu->inputs[glu->n_inputs++] = normed;
    glu->outputs[0] = call->outputs[0];
    return true;
}

#if TRM_HAVE_CUDA
TRM_KERNEL_OF_PARTS(, trm_cuda_delta_net_parts, TRM_BACKEND_CUDA, trm_delta_net_describe_parts)
#endif
TRM_KERNEL_OF_PARTS(, trm_host_delta_net_parts, TRM_BACKEND_HOST, trm_delta_net_describe_parts)
