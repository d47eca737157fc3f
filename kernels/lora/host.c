/*
 * The reference of LORA: token by token, so that steps of any cut have the same bits.
 */
#include "kernels/host/host.h"
#include "kernels/lora/lora.h"

#define MAX_RANK 1024

bool trm_host_lora_accepts(const trm_kernel_call *call)
{
    trm_lora_args args;
    return trm_lora_args_of(call, &args) && args.rank <= MAX_RANK;
}

TRM_VECTOR_CLONES static float dot(const float *a, const float *b, int64_t n)
{
    float sum[8] = {0};
    for (int64_t i = 0; i < n; i++) {
        sum[i % 8] += a[i] * b[i];
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* inner [rank] = A x of one token. */
static void shrink(const trm_lora_args *a, const trm_lora_pair *pair, int64_t adapter, int64_t token, float *inner)
{
    float x_buffer[TRM_HOST_BLOCK], a_buffer[TRM_HOST_BLOCK];
    for (int64_t r = 0; r < pair->rank; r++) {
        inner[r] = 0.0f;
    }
    for (int64_t k = 0; k < a->k; k += TRM_HOST_BLOCK) {
        const int64_t n = trm_host_min(TRM_HOST_BLOCK, a->k - k);
        const float *x = trm_host_load(a->dtype, a->x, token * a->k + k, n, x_buffer);
        for (int64_t r = 0; r < pair->rank; r++) {
            const int64_t at = (adapter * pair->rank + r) * a->k + k;
            inner[r] += dot(x, trm_host_load(a->dtype, pair->a, at, n, a_buffer), n);
        }
    }
}

static void run_token(const trm_lora_args *a, int64_t token)
{
    const int64_t adapter = a->slots[token], row = token * a->columns;
    float inner[MAX_RANK], b_buffer[MAX_RANK], out[TRM_HOST_BLOCK], y_buffer[TRM_HOST_BLOCK];
    const bool has = adapter >= 0 && adapter < a->adapters;
    for (int32_t i = 0; i < a->n_pairs; i++) {
        const trm_lora_pair *pair = &a->pairs[i];
        if (has) {
            shrink(a, pair, adapter, token, inner);
        }
        for (int64_t n = 0; n < pair->columns; n += TRM_HOST_BLOCK) {
            const int64_t count = trm_host_min(TRM_HOST_BLOCK, pair->columns - n);
            const float *y = trm_host_load(a->dtype, a->y, row + pair->first + n, count, y_buffer);
            for (int64_t j = 0; j < count; j++) {
                const int64_t at = (adapter * pair->columns + n + j) * pair->rank;
                out[j] = y[j];
                if (has) {
                    out[j] += dot(inner, trm_host_load(a->dtype, pair->b, at, pair->rank, b_buffer), pair->rank);
                }
            }
            trm_host_store(a->dtype, a->out, row + pair->first + n, count, out);
        }
    }
}

static void run_tokens(void *user, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        run_token(user, t);
    }
}

trm_status trm_host_lora_run(const trm_kernel_call *call)
{
    trm_lora_args args;
    if (trm_lora_args_of(call, &args)) {
        trm_host_for(call, args.tokens, 1, run_tokens, &args);
    }
    return TRM_OK;
}
