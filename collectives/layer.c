/*
 * Kernels of collective layers: find the group's communicator and make the axis the outermost one.
 *
 * A communicator exchanges blocks that lie one after the other. If the axis is the outermost, or all before it are 1,
 * blocks are already contiguous; otherwise they are packed in the workspace first, or unpacked from it afterwards.
 */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/kernel.h"
#include "kernels/program.h"
#include "collectives/communicator.h"
#include "collectives/pack.h"
#include "collectives/choice.h"
#include "collectives/peer.h"
#include "collectives/peer_lane.h"

/* A tensor's axis split into n slices: [outer, n, block] bytes. */
typedef struct layout {
    int64_t outer;
    size_t block;
    size_t bytes; /* of the whole tensor */
} layout;

/* The split side of an op: its input, its output, both or neither. */
static bool cuts_input(trm_collective_op op)
{
    return op == TRM_REDUCE_SCATTER || op == TRM_SCATTER || op == TRM_ALL_TO_ALL;
}

static bool cuts_output(trm_collective_op op)
{
    return op == TRM_ALL_GATHER || op == TRM_GATHER || op == TRM_ALL_TO_ALL;
}

static const trm_view *cut_side(const trm_kernel_call *call)
{
    return cuts_input(call->layer->collective.op) ? &call->inputs[0] : &call->outputs[0];
}

static bool is_cut(trm_collective_op op)
{
    return cuts_input(op) || cuts_output(op);
}

static int32_t axis_of(const trm_kernel_call *call)
{
    int32_t axis = call->layer->collective.axis;
    return axis < 0 ? axis + call->inputs[0].dims.n : axis;
}

static layout layout_of(const trm_kernel_call *call)
{
    const trm_view *view = cut_side(call);
    layout l = {1, 0, (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype)};
    for (int32_t i = 0; i < axis_of(call); i++) {
        l.outer *= view->dims.d[i];
    }
    int64_t pieces = l.outer * call->layer->collective.n_ranks;
    l.block = pieces > 0 ? l.bytes / (size_t)pieces : 0;
    return l;
}

/* Whether the dims of input and output follow the op's rule. */
static bool dims_fit(const trm_kernel_call *call)
{
    const trm_collective_params *p = &call->layer->collective;
    const trm_dims *in = &call->inputs[0].dims, *out = &call->outputs[0].dims;
    int32_t axis = is_cut(p->op) ? axis_of(call) : -1;
    if (in->n != out->n || (is_cut(p->op) && (axis < 0 || axis >= in->n || p->n_ranks < 1))) {
        return false;
    }
    for (int32_t i = 0; i < in->n; i++) {
        int64_t wide = cuts_input(p->op) ? in->d[i] : out->d[i], narrow = cuts_input(p->op) ? out->d[i] : in->d[i];
        if (i != axis                 ? wide != narrow
            : p->op == TRM_ALL_TO_ALL ? wide != narrow || wide % p->n_ranks != 0
                                      : wide != narrow * p->n_ranks) {
            return false;
        }
    }
    return true;
}

static bool collective_accepts(const trm_kernel_call *call)
{
    if (call->layer->collective.op == TRM_RECV && call->layer->collective.dtype != TRM_DTYPE_NONE) {
        return call->n_outputs == 1; /* the inputs only give their dims */
    }
    return call->n_inputs == 1 && call->n_outputs == 1 && call->inputs[0].dtype == call->outputs[0].dtype &&
           (unsigned)call->layer->collective.op <= TRM_RECV && dims_fit(call);
}

static size_t collective_workspace(const trm_kernel_call *call)
{
    trm_collective_op op = call->layer->collective.op;
    if (!is_cut(op)) {
        return 0;
    }
    layout l = layout_of(call);
    if (l.outer <= 1 || call->layer->collective.n_ranks == 1) {
        return 0;
    }
    return op == TRM_ALL_TO_ALL ? 2 * trm_align_up(l.bytes, 256) : l.bytes;
}

/* The root as a rank of the group: layers give a global rank, or with several groups an index into each. */
static trm_status find_root(const trm_collective_params *p, const trm_communicator *part, int32_t *root)
{
    *root = 0;
    if (!trm_collective_has_root(p->op)) {
        return TRM_OK;
    }
    *root = p->root;
    if (p->n_groups > 1) {
        return TRM_OK; /* the exchange checks it */
    }
    for (int32_t r = 0; r < part->size; r++) {
        if (part->world_ranks[r] == p->root) {
            *root = r;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has root %d, which is not in the group", trm_collective_op_name(p->op),
             (int)p->root);
}

static trm_status find_part(const trm_kernel_call *call, const trm_collective_params *p, trm_communicator **part)
{
    if (call->communicator == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has no communicator", trm_collective_op_name(p->op));
    }
    TRM_TRY(trm_communicator_part(call->communicator, p->groups, p->n_groups, p->group_size, part));
    if (*part == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has no group with rank %d", trm_collective_op_name(p->op),
                 (int)call->communicator->world_ranks[call->communicator->rank]);
    }
    if ((*part)->size != p->n_ranks && is_cut(p->op)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is for %d ranks, but its group has %d", trm_collective_op_name(p->op),
                 (int)p->n_ranks, (int)(*part)->size);
    }
    return TRM_OK;
}

/* from [a, b, block] -> to [b, a, block] on the call's stream. */
static trm_status swap_blocks(const trm_kernel_call *call, const void *from, void *to, int64_t a, int64_t b,
                              size_t block)
{
#if TRM_HAVE_CUDA
    if (call->stream != NULL && trm_device_backend(trm_stream_device(call->stream)) == TRM_BACKEND_CUDA) {
        return trm_cuda_swap_blocks(from, to, a, b, block, trm_stream_native(call->stream));
    }
#else
    (void)call;
#endif
    for (int64_t y = 0; y < b; y++) {
        for (int64_t x = 0; x < a; x++) {
            memcpy((char *)to + (size_t)(y * a + x) * block, (const char *)from + (size_t)(x * b + y) * block, block);
        }
    }
    return TRM_OK;
}

/* Whether an exchange may add floats in an order that depends on their number. Two ranks have only one order. */
static bool has_free_order(const trm_kernel_call *call, const trm_communicator *part, const trm_exchange *x)
{
    bool floats = x->dtype == TRM_F32 || x->dtype == TRM_F16 || x->dtype == TRM_BF16 || x->dtype == TRM_F64;
    bool cuda = call->stream != NULL && trm_device_backend(trm_stream_device(call->stream)) == TRM_BACKEND_CUDA;
    return cuda && part->size > 2 && floats && trm_collective_reduces(x->op) && x->reduce != TRM_REDUCE_MIN &&
           x->reduce != TRM_REDUCE_MAX;
}

/* Batch-invariant sums use peer memory, whose kernels all add in rank order. */
static trm_status exchange(const trm_kernel_call *call, trm_communicator *part, const trm_exchange *x)
{
    if (!call->batch_invariant || !has_free_order(call, part, x)) {
        return trm_communicator_exchange(part, x, call->stream);
    }
#if TRM_HAVE_CUDA
    const size_t element = trm_dtype_size(x->dtype), most = TRM_PEER_BULK_BYTES / element;
    if (x->op == TRM_ALL_REDUCE && x->reduce == TRM_REDUCE_SUM && x->dtype != TRM_F64 &&
        trm_communicator_peer_link(part) != NULL) {
        for (size_t at = 0; at < x->count; at += most) {
            trm_exchange piece = *x;
            piece.from = (const char *)x->from + at * element;
            piece.to = (char *)x->to + at * element;
            piece.count = x->count - at < most ? x->count - at : most;
            TRM_TRY(trm_communicator_peer_sum(part, &piece, call->stream));
        }
        return TRM_OK;
    }
#endif
    TRM_FAIL(TRM_ERROR_UNSUPPORTED,
             "a batch-invariant %s of %s over %d GPUs needs peer access: use two GPUs, or turn batch invariance off",
             trm_collective_op_name(x->op), trm_dtype_name(x->dtype), (int)part->size);
}

/* Exchanges along an inner axis: packs, exchanges and unpacks as the op needs. */
static trm_status run_packed(const trm_kernel_call *call, trm_communicator *part, trm_exchange *x)
{
    layout l = layout_of(call);
    int64_t n = part->size;
    char *second = (char *)call->workspace + (x->op == TRM_ALL_TO_ALL ? trm_align_up(l.bytes, 256) : 0);
    bool root = !trm_collective_has_root(x->op) || x->root == part->rank;
    if (cuts_input(x->op)) {
        if (x->op != TRM_SCATTER || root) {
            TRM_TRY(swap_blocks(call, x->from, call->workspace, l.outer, n, l.block));
        }
        x->from = call->workspace;
    }
    if (!cuts_output(x->op)) {
        return exchange(call, part, x);
    }
    void *output = x->to;
    x->to = second;
    TRM_TRY(exchange(call, part, x));
    return root ? swap_blocks(call, second, output, n, l.outer, l.block) : TRM_OK;
}

static trm_status collective_run(const trm_kernel_call *call)
{
    const trm_collective_params *p = &call->layer->collective;
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    trm_communicator *part;
    TRM_TRY(find_part(call, p, &part));
    trm_exchange x = {.op = p->op,
                      .reduce = trm_collective_reduces(p->op) ? p->reduce : TRM_REDUCE_NONE,
                      .dtype = out->dtype,
                      .from = in->data,
                      .to = out->data,
                      .count = (size_t)trm_dims_count(p->op == TRM_RECV ? &out->dims : &in->dims)};
    TRM_TRY(find_root(p, part, &x.root));
    if (cuts_input(p->op)) {
        x.count /= (size_t)part->size;
    }
    size_t workspace = collective_workspace(call);
    if (workspace > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s needs %zu bytes of workspace, has %zu", trm_collective_op_name(p->op),
                 workspace, call->workspace_size);
    }
    if (workspace > 0) {
        return run_packed(call, part, &x);
    }
    TRM_TRY(exchange(call, part, &x));
    if (p->op == TRM_SEND && x.to != x.from && x.count > 0) { /* the output of a SEND is its input */
        return trm_stream_copy(call->stream, x.to, x.from, x.count * trm_dtype_size(x.dtype));
    }
    return TRM_OK;
}

/* ---- all-reduce and norm ------------------------------------------------------------------------ */

/* The norm of an ALL_REDUCE_NORM, of the sum in `reduced`: a call of NORM, and its kernel or NULL. */
static const trm_kernel *find_norm(const trm_kernel_call *call, trm_backend backend, void *reduced,
                                   trm_layer_desc *desc, trm_kernel_call *norm)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};
    *desc = (trm_layer_desc){.kind = TRM_LAYER_NORM, .norm = call->layer->all_reduce_norm.norm};
    *norm = *call;
    norm->layer = desc;
    norm->inputs[0].data = reduced;
    norm->constants &= ~1u;
    norm->workspace = NULL;
    norm->workspace_size = 0;
    const trm_kernel *kernel = trm_kernel_find(tables, 2, backend, norm);
    return kernel != NULL && kernel->workspace == NULL ? kernel : NULL;
}

static bool norm_accepts(const trm_kernel_call *call, trm_backend backend)
{
    trm_layer_desc desc;
    trm_kernel_call norm;
    const trm_collective_params *p = &call->layer->all_reduce_norm.collective;
    return p->op == TRM_ALL_REDUCE && p->reduce == TRM_REDUCE_SUM && call->n_inputs > 0 &&
           find_norm(call, backend, NULL, &desc, &norm) != NULL;
}

/* For the sum, if sum and norm are separate. */
static size_t norm_workspace(const trm_kernel_call *call)
{
    return (size_t)trm_dims_count(&call->inputs[0].dims) * trm_dtype_size(call->inputs[0].dtype);
}

/* Arguments of a launch: the norm reads the sum in the workspace. */
typedef struct norm_args {
    trm_kernel_call call;
    trm_layer_desc layer; /* of the norm */
    trm_kernel_call norm;
    const trm_kernel *kernel;
} norm_args;

/* The sum, then the norm. */
static trm_status run_norm(void *user, trm_stream *stream)
{
    norm_args *args = user;
    const trm_view *x = &args->call.inputs[0];
    trm_communicator *part;
    args->call.stream = args->norm.stream = stream;
    TRM_TRY(find_part(&args->call, &args->call.layer->all_reduce_norm.collective, &part));
    const trm_exchange sum = {.op = TRM_ALL_REDUCE,
                              .reduce = TRM_REDUCE_SUM,
                              .dtype = x->dtype,
                              .from = x->data,
                              .to = args->call.workspace,
                              .count = (size_t)trm_dims_count(&x->dims)};
    if (sum.count == 0) {
        return TRM_OK;
    }
    TRM_TRY(exchange(&args->call, part, &sum));
    return args->kernel->run(&args->norm);
}

static trm_status prepare_norm(const trm_kernel_call *call, trm_backend backend, const char *name,
                               trm_status (*enqueue)(void *, trm_stream *), trm_program *program)
{
    const size_t workspace = norm_workspace(call);
    if (workspace > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "all_reduce_norm needs %zu bytes of workspace, has %zu", workspace,
                 call->workspace_size);
    }
    norm_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    args->call = *call;
    args->kernel = find_norm(call, backend, call->workspace, &args->layer, &args->norm);
    return trm_program_append(program, name, enqueue, args);
}

trm_peer_norm trm_all_reduce_norm_describe(const trm_kernel_call *call)
{
    const trm_all_reduce_norm_params *p = &call->layer->all_reduce_norm;
    const trm_view *x = &call->inputs[0];
    int32_t weight = p->norm.residual ? 2 : 1;
    bool has_bias = p->norm.op == TRM_NORM_LAYER && call->n_inputs > weight + 1;
    trm_peer_norm n = {.dtype = x->dtype,
                       .width = x->dims.d[x->dims.n - 1],
                       .from = x->data,
                       .residual = p->norm.residual ? call->inputs[1].data : NULL,
                       .weight = call->n_inputs > weight ? call->inputs[weight].data : NULL,
                       .bias = has_bias ? call->inputs[weight + 1].data : NULL,
                       .to = call->outputs[0].data,
                       .sum = p->norm.residual ? call->outputs[1].data : NULL};
    n.rows = n.width > 0 ? trm_dims_count(&x->dims) / n.width : 0;
    return n;
}

static bool host_norm_accepts(const trm_kernel_call *call)
{
    return norm_accepts(call, TRM_BACKEND_HOST);
}

static trm_status host_norm_prepare(const trm_kernel_call *call, trm_program *program)
{
    return prepare_norm(call, TRM_BACKEND_HOST, "host.all_reduce_norm", run_norm, program);
}

#if TRM_HAVE_CUDA
static bool cuda_norm_accepts(const trm_kernel_call *call)
{
    return norm_accepts(call, TRM_BACKEND_CUDA);
}

/* Few rows use peer memory, if the group has it, and are normalized as they arrive. */
static trm_status run_cuda_norm(void *user, trm_stream *stream)
{
    const norm_args *args = user;
    const trm_all_reduce_norm_params *p = &args->call.layer->all_reduce_norm;
    bool done = false;
    trm_communicator *part;
    TRM_TRY(find_part(&args->call, &p->collective, &part));
    const trm_peer_norm n = trm_all_reduce_norm_describe(&args->call);
    if (!args->call.batch_invariant) { /* the order of additions depends on the number of rows */
        TRM_TRY(trm_communicator_peer_norm(part, &n, &p->norm, stream, &done));
    }
    return done ? TRM_OK : run_norm(user, stream);
}

static trm_status cuda_norm_prepare(const trm_kernel_call *call, trm_program *program)
{
    return prepare_norm(call, TRM_BACKEND_CUDA, "peer.all_reduce_norm", run_cuda_norm, program);
}
#endif

static const trm_kernel kernels[] = {
    {.name = "host.all_reduce_norm",
     .kind = TRM_LAYER_ALL_REDUCE_NORM,
     .backend = TRM_BACKEND_HOST,
     .accepts = host_norm_accepts,
     .workspace = norm_workspace,
     .prepare = host_norm_prepare},
    {.name = "host.collective",
     .kind = TRM_LAYER_DIST_COLLECTIVE,
     .backend = TRM_BACKEND_HOST,
     .accepts = collective_accepts,
     .workspace = collective_workspace,
     .run = collective_run},
#if TRM_HAVE_CUDA
    {.name = "peer.all_reduce_norm",
     .kind = TRM_LAYER_ALL_REDUCE_NORM,
     .backend = TRM_BACKEND_CUDA,
     .accepts = cuda_norm_accepts,
     .workspace = norm_workspace,
     .prepare = cuda_norm_prepare},
    {.name = "nccl.collective",
     .kind = TRM_LAYER_DIST_COLLECTIVE,
     .backend = TRM_BACKEND_CUDA,
     .accepts = collective_accepts,
     .workspace = collective_workspace,
     .run = collective_run},
#endif
};
const trm_kernel_table trm_collective_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
