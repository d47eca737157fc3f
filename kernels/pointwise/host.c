/*
 * Kernels that work element by element: elementwise (two inputs, broadcast) and glu. What an operation is stands in
 * kernels/pointwise/element.h.
 */
#include "kernels/pointwise/element.h"
#include "kernels/host/host.h"

/* What elementwise computes on: f32, f16 and bf16 as f32, integers as i64 or u64, f64 as it is. */
static bool is_arithmetic(trm_dtype dtype)
{
    return trm_host_is_float(dtype) || dtype == TRM_F64 || trm_element_is_integer(dtype);
}

/* Two inputs laid over an output: neighbouring axes joined where both inputs allow it. */
typedef struct broadcast {
    const trm_kernel_call *call;
    int32_t n;
    int64_t dims[TRM_MAX_DIMS];
    int64_t a[TRM_MAX_DIMS], b[TRM_MAX_DIMS]; /* strides in elements, 0 where repeated; the last is 0 or 1 */
} broadcast;

/* Strides of an input along the output's axes. False if it does not broadcast. */
static bool broadcast_strides(const trm_dims *input, const trm_dims *output, int64_t *strides)
{
    const int32_t shift = output->n - input->n;
    if (shift < 0) {
        return false;
    }
    for (int32_t i = 0; i < output->n; i++) {
        strides[i] = 0;
        if (i >= shift && input->d[i - shift] != 1) {
            strides[i] = trm_host_span(input, i - shift + 1, input->n);
            if (input->d[i - shift] != output->d[i]) {
                return false;
            }
        }
    }
    return true;
}

static bool broadcast_init(broadcast *b, const trm_kernel_call *call)
{
    const trm_dims *out = &call->outputs[0].dims;
    int64_t strides_a[TRM_MAX_DIMS], strides_b[TRM_MAX_DIMS];
    if (!broadcast_strides(&call->inputs[0].dims, out, strides_a) ||
        !broadcast_strides(&call->inputs[1].dims, out, strides_b)) {
        return false;
    }
    b->call = call;
    b->n = 0;
    for (int32_t i = 0; i < out->n; i++) {
        const int64_t d = out->d[i];
        if (d == 1) {
            continue;
        }
        const int32_t last = b->n - 1;
        if (last >= 0 && b->a[last] == strides_a[i] * d && b->b[last] == strides_b[i] * d) {
            b->dims[last] *= d;
            b->a[last] = strides_a[i];
            b->b[last] = strides_b[i];
        } else {
            b->dims[b->n] = d;
            b->a[b->n] = strides_a[i];
            b->b[b->n++] = strides_b[i];
        }
    }
    if (b->n == 0) {
        b->n = 1;
        b->dims[0] = 1;
        b->a[0] = b->b[0] = 0;
    }
    return true;
}

bool trm_host_elementwise_accepts(const trm_kernel_call *call)
{
    broadcast b;
    const trm_elementwise_op op = call->layer->elementwise.op;
    const trm_dtype type = call->inputs[0].dtype;
    if (call->n_inputs != 2 || call->n_outputs != 1 || op < TRM_ELEMENTWISE_ADD || op > TRM_ELEMENTWISE_PRELU ||
        call->inputs[1].dtype != type) {
        return false;
    }
    const bool logical = trm_elementwise_is_logical(op), of_bools = logical || op == TRM_ELEMENTWISE_EQUAL;
    const bool of_floats = !logical && !trm_elementwise_is_shift(op);
    return ((is_arithmetic(type) && (of_floats || trm_element_is_integer(type))) || (type == TRM_BOOL && of_bools)) &&
           call->outputs[0].dtype == (trm_elementwise_is_comparison(op) ? TRM_BOOL : type) && broadcast_init(&b, call);
}

/* One loop per operation: x and y at strides sx and sy (0 or 1), into z. */
#define LOOP(op, function, type)                                                                                       \
    case TRM_ELEMENTWISE_##op:                                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            z[i] = (type)function(TRM_ELEMENTWISE_##op, px[i * sx], py[i * sy]);                                       \
        }                                                                                                              \
        break;
#define LOOPS_OF(suffix, type)                                                                                         \
    TRM_VECTOR_CLONES static void compute_##suffix(trm_elementwise_op op, const type *px, int64_t sx, const type *py,  \
                                                   int64_t sy, type *z, int64_t n)                                     \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
            LOOP(ADD, trm_binary_##suffix, type)                                                                       \
            LOOP(SUB, trm_binary_##suffix, type)                                                                       \
            LOOP(MUL, trm_binary_##suffix, type)                                                                       \
            LOOP(DIV, trm_binary_##suffix, type)                                                                       \
            LOOP(MIN, trm_binary_##suffix, type)                                                                       \
            LOOP(MAX, trm_binary_##suffix, type)                                                                       \
            LOOP(AND, trm_binary_##suffix, type)                                                                       \
            LOOP(OR, trm_binary_##suffix, type)                                                                        \
            LOOP(XOR, trm_binary_##suffix, type)                                                                       \
            LOOP(PRELU, trm_binary_##suffix, type)                                                                     \
        default:                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                z[i] = trm_binary_##suffix(op, px[i * sx], py[i * sy]);                                                \
            }                                                                                                          \
            break;                                                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    TRM_VECTOR_CLONES static void compare_##suffix(trm_elementwise_op op, const type *px, int64_t sx, const type *py,  \
                                                   int64_t sy, bool *z, int64_t n)                                     \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
            LOOP(EQUAL, trm_compare_##suffix, bool)                                                                    \
            LOOP(LESS, trm_compare_##suffix, bool)                                                                     \
            LOOP(LESS_EQUAL, trm_compare_##suffix, bool)                                                               \
            LOOP(GREATER, trm_compare_##suffix, bool)                                                                  \
        default:                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                z[i] = trm_compare_##suffix(TRM_ELEMENTWISE_GREATER_EQUAL, px[i * sx], py[i * sy]);                    \
            }                                                                                                          \
            break;                                                                                                     \
        }                                                                                                              \
    }

LOOPS_OF(f32, float)
LOOPS_OF(f64, double)
LOOPS_OF(i64, int64_t)
LOOPS_OF(u64, uint64_t)

/* n elements from offsets a, b into offset c; strides as above. */
static void compute_run(const trm_kernel_call *call, int64_t a, int64_t sa, int64_t b, int64_t sb, int64_t c, int64_t n)
{
    const trm_elementwise_op op = call->layer->elementwise.op;
    const trm_dtype type = call->inputs[0].dtype;
    const void *x = call->inputs[0].data, *y = call->inputs[1].data;
    void *z = call->outputs[0].data;
    const bool compares = trm_elementwise_is_comparison(op);
    if (type == TRM_F64) {
        const double *px = (const double *)x + a, *py = (const double *)y + b;
        if (compares) {
            compare_f64(op, px, sa, py, sb, (bool *)z + c, n);
        } else {
            compute_f64(op, px, sa, py, sb, (double *)z + c, n);
        }
        return;
    }
    union {
        float f[TRM_HOST_BLOCK];
        int64_t i[TRM_HOST_BLOCK];
        uint64_t u[TRM_HOST_BLOCK];
    } vx, vy, vz;
    for (int64_t i = 0; i < n; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(n - i, TRM_HOST_BLOCK);
        const int64_t nx = sa != 0 ? block : 1, ny = sb != 0 ? block : 1;
        if (trm_host_is_float(type)) {
            const float *px = trm_host_load(type, x, a + i * sa, nx, vx.f);
            const float *py = trm_host_load(type, y, b + i * sb, ny, vy.f);
            if (compares) {
                compare_f32(op, px, sa, py, sb, (bool *)z + c + i, block);
            } else {
                compute_f32(op, px, sa, py, sb, vz.f, block);
                trm_host_store(type, z, c + i, block, vz.f);
            }
            continue;
        }
        trm_host_load_i64(type, x, a + i * sa, nx, vx.i);
        trm_host_load_i64(type, y, b + i * sb, ny, vy.i);
        if (compares && type == TRM_U64) {
            compare_u64(op, vx.u, sa, vy.u, sb, (bool *)z + c + i, block);
            continue;
        }
        if (compares) {
            compare_i64(op, vx.i, sa, vy.i, sb, (bool *)z + c + i, block);
            continue;
        }
        if (type == TRM_U64) {
            compute_u64(op, vx.u, sa, vy.u, sb, vz.u, block);
        } else {
            compute_i64(op, vx.i, sa, vy.i, sb, vz.i, block);
        }
        trm_host_store_i64(type, z, c + i, block, vz.i);
    }
}

/* Elements begin .. end - 1 of the output, run by run along the innermost axis. */
static void compute_range(void *user, int64_t begin, int64_t end)
{
    const broadcast *b = user;
    const int32_t last = b->n - 1;
    const int64_t width = b->dims[last];
    for (int64_t at = begin; at < end;) {
        int64_t rest = at / width, inner = at % width;
        int64_t offset_a = inner * b->a[last], offset_b = inner * b->b[last];
        for (int32_t axis = last - 1; axis >= 0; axis--) {
            const int64_t i = rest % b->dims[axis];
            rest /= b->dims[axis];
            offset_a += i * b->a[axis];
            offset_b += i * b->b[axis];
        }
        const int64_t n = trm_host_min(width - inner, end - at);
        compute_run(b->call, offset_a, b->a[last], offset_b, b->b[last], at, n);
        at += n;
    }
}

trm_status trm_host_elementwise_run(const trm_kernel_call *call)
{
    broadcast b;
    const int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (count > 0 && broadcast_init(&b, call)) {
        trm_host_for(call, count, TRM_HOST_GRAIN, compute_range, &b);
    }
    return TRM_OK;
}

void trm_host_elementwise_block(const trm_kernel_call *call)
{
    broadcast b;
    if (broadcast_init(&b, call)) {
        compute_range(&b, 0, trm_dims_count(&call->outputs[0].dims));
    }
}

bool trm_host_glu_accepts(const trm_kernel_call *call)
{
    const trm_view *gate = &call->inputs[0], *y = &call->outputs[0];
    if (call->n_inputs < 1 || call->n_inputs > 2 || call->n_outputs != 1 || !trm_host_is_float(gate->dtype) ||
        y->dtype != gate->dtype || gate->dims.n < 1 || !trm_host_activation_is_known(call->layer->glu.activation)) {
        return false;
    }
    if (call->n_inputs == 2) {
        return call->inputs[1].dtype == gate->dtype && trm_element_same_dims(&gate->dims, &y->dims) &&
               trm_element_same_dims(&call->inputs[1].dims, &y->dims);
    }
    trm_dims half = gate->dims;
    const bool even = half.d[half.n - 1] % 2 == 0;
    half.d[half.n - 1] /= 2;
    return even && trm_element_same_dims(&half, &y->dims);
}

/* Rows begin .. end - 1 of the output. */
static void glu_rows(void *user, int64_t begin, int64_t end)
{
    const trm_kernel_call *call = user;
    const trm_view *gate = &call->inputs[0], *y = &call->outputs[0];
    const bool joined = call->n_inputs == 1;
    const trm_view *up = joined ? gate : &call->inputs[1];
    const int64_t width = y->dims.d[y->dims.n - 1];
    float g[TRM_HOST_BLOCK], u[TRM_HOST_BLOCK];
    for (int64_t row = begin; row < end; row++) {
        const int64_t gate_row = joined ? row * 2 * width : row * width;
        const int64_t up_row = joined ? gate_row + width : gate_row;
        for (int64_t i = 0; i < width; i += TRM_HOST_BLOCK) {
            const int64_t n = trm_host_min(width - i, TRM_HOST_BLOCK);
            const float *pg = trm_host_load(gate->dtype, gate->data, gate_row + i, n, g);
            const float *pu = trm_host_load(up->dtype, up->data, up_row + i, n, u);
            for (int64_t j = 0; pg != g && j < n; j++) {
                g[j] = pg[j];
            }
            trm_host_activate(call->layer->glu.activation, g, n);
            for (int64_t j = 0; j < n; j++) {
                g[j] *= pu[j];
            }
            trm_host_store(y->dtype, y->data, row * width + i, n, g);
        }
    }
}

trm_status trm_host_glu_run(const trm_kernel_call *call)
{
    const trm_dims *dims = &call->outputs[0].dims;
    const int64_t count = trm_dims_count(dims);
    if (count > 0) {
        const int64_t width = dims->d[dims->n - 1];
        trm_kernel_call copy = *call;
        trm_host_for(call, count / width, 1 + 2048 / width, glu_rows, &copy);
    }
    return TRM_OK;
}
