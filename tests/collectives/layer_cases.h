/* DIST_COLLECTIVE layers on any axis and in groups, against index arithmetic on all ranks' inputs. */
#ifndef TESTS_COLLECTIVES_LAYER_CASES_H
#define TESTS_COLLECTIVES_LAYER_CASES_H

#include "cases.h"
#include "kernels/kernel.h"
#include "kernels/program.h"

/* The groups a case runs in: whole, halves, odd and even, all reversed. */
typedef enum layer_groups {
    LAYER_WHOLE = 0,
    LAYER_HALVES,
    LAYER_ODD_EVEN,
    LAYER_REVERSED,
    LAYER_GROUPS_COUNT
} layer_groups;

static inline void layer_set_groups(trm_collective_params *p, layer_groups kind, int32_t n)
{
    p->n_ranks = n;
    if (kind == LAYER_WHOLE) {
        return;
    }
    p->n_groups = kind == LAYER_REVERSED ? 1 : 2;
    p->group_size = p->n_ranks = n / p->n_groups;
    for (int32_t i = 0; i < p->n_groups * p->group_size; i++) {
        int32_t half = i / p->group_size, at = i % p->group_size;
        p->groups[i] = kind == LAYER_REVERSED ? n - 1 - i : kind == LAYER_HALVES ? i : 2 * at + half;
    }
}

/* The members of the group with `rank`, and its place among them; false if there is none. */
static inline bool layer_members(const trm_collective_params *p, int32_t size, int32_t rank, int32_t *members,
                                 int32_t *me)
{
    int32_t groups = p->n_groups > 0 ? p->n_groups : 1, n = p->n_groups > 0 ? p->group_size : size;
    for (int32_t g = 0; g < groups; g++) {
        for (int32_t i = 0; i < n; i++) {
            if ((p->n_groups > 0 ? p->groups[g * n + i] : i) == rank) {
                for (int32_t k = 0; k < n; k++) {
                    members[k] = p->n_groups > 0 ? p->groups[g * n + k] : k;
                }
                *me = i;
                return true;
            }
        }
    }
    return false;
}

/* Where element `at` of the output [outer, d, inner] comes from: a member and an element of its input. */
static inline void layer_source(trm_collective_op op, int64_t d_in, int64_t d_out, int64_t inner, int32_t n, int32_t me,
                                int32_t root, size_t at, int32_t *member, size_t *element)
{
    int64_t in = (int64_t)at % inner, j = (int64_t)at / inner % d_out, out = (int64_t)at / inner / d_out;
    *member = root;
    switch (op) {
    case TRM_ALL_GATHER:
    case TRM_GATHER:
        *member = (int32_t)(j / d_in);
        j %= d_in;
        break;
    case TRM_REDUCE_SCATTER:
    case TRM_SCATTER:
        j += me * d_out;
        break;
    case TRM_ALL_TO_ALL:
        *member = (int32_t)(j / (d_in / n));
        j = j % (d_in / n) + me * (d_in / n);
        break;
    default:
        break;
    }
    *element = (size_t)((out * d_in + j) * inner + in);
}

static inline bool layer_check(const trm_collective_params *p, const trm_view *in, const trm_view *out, int32_t size,
                               int32_t rank, int32_t root, const unsigned char *found, size_t *where)
{
    int32_t members[TRM_MAX_RANKS], me = 0;
    layer_members(p, size, rank, members, &me);
    if ((p->op == TRM_REDUCE || p->op == TRM_GATHER) && me != root) {
        return true; /* undefined */
    }
    int64_t inner = 1;
    for (int32_t i = p->axis + 1; i < in->dims.n; i++) {
        inner *= in->dims.d[i];
    }
    size_t s = trm_dtype_size(in->dtype);
    trm_exchange as = {.op = p->op, .reduce = p->reduce, .dtype = in->dtype};
    bool exact = !trm_collective_reduces(p->op) || !case_is_float(in->dtype);
    for (size_t at = 0; at < (size_t)trm_dims_count(&out->dims); at++) {
        int32_t member;
        size_t element;
        unsigned char expected[8];
        layer_source(p->op, in->dims.d[p->axis], out->dims.d[p->axis], inner, p->n_ranks, me, root, at, &member,
                     &element);
        if (trm_collective_reduces(p->op)) {
            case_reduced(in->dtype, as.reduce, members, p->n_ranks, element, expected);
        } else {
            case_input(in->dtype, p->op == TRM_SEND ? rank : members[member], element, expected);
        }
        *where = at;
        if (exact ? memcmp(found + at * s, expected, s) != 0
                  : !(fabs(case_load_float(in->dtype, found + at * s) - case_load_float(in->dtype, expected)) <=
                      case_tolerance(in->dtype, p->n_ranks))) {
            return false;
        }
    }
    return true;
}

/* Runs the kernel that the table finds, on device memory. */
static inline trm_status layer_call(trm_communicator *c, trm_stream *stream, const trm_collective_params *p,
                                    trm_view *in, trm_view *out, const void *input, void *output)
{
    trm_device *device = trm_stream_device(stream);
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = *p};
    trm_kernel_call call = {.layer = &desc,
                            .n_inputs = 1,
                            .n_outputs = 1,
                            .inputs = {*in},
                            .outputs = {*out},
                            .stream = stream,
                            .communicator = c};
    const trm_kernel_table *table = &trm_collective_kernels;
    const trm_kernel *kernel = trm_kernel_find(&table, 1, trm_device_backend(device), &call);
    if (kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "no kernel accepts the call");
    }
    size_t in_size = (size_t)trm_dims_count(&in->dims) * trm_dtype_size(in->dtype);
    size_t out_size = (size_t)trm_dims_count(&out->dims) * trm_dtype_size(out->dtype);
    call.workspace_size = kernel->workspace(&call);
    trm_status status;
    TRM_TRY_GOTO(status, trm_device_alloc(device, in_size + 1, &call.inputs[0].data), done);
    TRM_TRY_GOTO(status, trm_device_alloc(device, out_size + 1, &call.outputs[0].data), done);
    TRM_TRY_GOTO(status, trm_device_alloc(device, call.workspace_size + 1, &call.workspace), done);
    TRM_TRY_GOTO(status, trm_stream_upload(stream, call.inputs[0].data, input, in_size), done);
    TRM_TRY_GOTO(status, trm_kernel_run(kernel, &call), done);
    TRM_TRY_GOTO(status, trm_stream_download(stream, output, call.outputs[0].data, out_size), done);
    status = trm_stream_synchronize(stream);
done:
    trm_device_free(device, call.inputs[0].data);
    trm_device_free(device, call.outputs[0].data);
    trm_device_free(device, call.workspace);
    return status;
}

/* One layer on this rank. `dims` are those of the smaller side; root is a place in the group. */
static inline void layer_case(trm_communicator *c, const case_setup *setup, trm_collective_op op, layer_groups kind,
                              trm_dtype dtype, trm_dims dims, int32_t axis, int32_t root)
{
    const trm_reduce_op reduce = dtype != TRM_BOOL ? TRM_REDUCE_SUM : axis % 2 == 0 ? TRM_REDUCE_MAX : TRM_REDUCE_MIN;
    trm_collective_params p = {.op = op, .reduce = reduce, .axis = axis};
    layer_set_groups(&p, kind, c->size);
    int32_t members[TRM_MAX_RANKS], me = 0;
    if (!layer_members(&p, c->size, c->rank, members, &me)) {
        trm_communicator *none; /* making the group is collective */
        (void)trm_communicator_part(c, p.groups, p.n_groups, p.group_size, &none);
        return;
    }
    p.root = p.n_groups > 1 ? root : members[root];
    trm_view in = {NULL, dtype, dims}, out = {NULL, dtype, dims};
    in.dims.d[axis] *= op == TRM_REDUCE_SCATTER || op == TRM_SCATTER || op == TRM_ALL_TO_ALL ? p.n_ranks : 1;
    out.dims.d[axis] *= op == TRM_ALL_GATHER || op == TRM_GATHER || op == TRM_ALL_TO_ALL ? p.n_ranks : 1;
    size_t s = trm_dtype_size(dtype), n_in = (size_t)trm_dims_count(&in.dims),
           n_out = (size_t)trm_dims_count(&out.dims);
    unsigned char *input = malloc(n_in * s + 1), *output = calloc(n_out * s + 1, 1);
    for (size_t i = 0; i < n_in; i++) {
        case_input(dtype, c->rank, i, input + i * s);
    }
    setup->result->run++;
    size_t where = 0;
    trm_status status = layer_call(c, setup->stream, &p, &in, &out, input, output);
    bool right = status == TRM_OK && layer_check(&p, &in, &out, c->size, c->rank, root, output, &where);
    if (!right && setup->result->failed++ == 0) {
        snprintf(setup->result->why, sizeof(setup->result->why),
                 "rank %d of %d: %s layer of %s, %d dims, axis %d, groups %d, root %d: element %zu: %s", (int)c->rank,
                 (int)c->size, trm_collective_op_name(op), trm_dtype_name(dtype), (int)dims.n, (int)axis, (int)kind,
                 (int)root, where, status != TRM_OK ? trm_last_error() : "wrong");
    }
    free(input);
    free(output);
}

static inline void layer_run_all(trm_communicator *c, const case_setup *setup)
{
    static const trm_dims shapes[] = {
        {1, {5}}, {2, {3, 4}}, {2, {1, 6}}, {3, {2, 3, 5}}, {4, {2, 1, 3, 8}}, {2, {4, 0}},
    };
    static const trm_dtype dtypes[] = {TRM_F32, TRM_BF16, TRM_I64, TRM_U8, TRM_BOOL};
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
        for (int32_t axis = 0; axis < shapes[shape].n; axis++) {
            for (int kind = 0; kind < LAYER_GROUPS_COUNT; kind++) {
                int32_t n = kind == LAYER_HALVES || kind == LAYER_ODD_EVEN ? c->size / 2 : c->size;
                for (int op = TRM_ALL_REDUCE; n > 0 && op <= TRM_SCATTER; op++) {
                    int32_t roots = trm_collective_has_root((trm_collective_op)op) ? n : 1;
                    for (int32_t root = 0; root < roots; root++) {
                        layer_case(c, setup, (trm_collective_op)op, (layer_groups)kind,
                                   dtypes[(shape + (size_t)op) % 5], shapes[shape], axis, root);
                    }
                }
            }
        }
    }
}

/* Rank 0 sends to the last rank; the others have no part in it. */
static inline void layer_run_peers(trm_communicator *c, const case_setup *setup)
{
    int32_t last = c->size - 1;
    trm_dims dims = {2, {3, 4}};
    if (c->rank == 0 && last > 0) {
        layer_case(c, setup, TRM_SEND, LAYER_WHOLE, TRM_F32, dims, 0, last);
    } else if (c->rank == last && last > 0) {
        layer_case(c, setup, TRM_RECV, LAYER_WHOLE, TRM_F32, dims, 0, 0);
    }
}

#endif
