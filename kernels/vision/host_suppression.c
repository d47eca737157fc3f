/* Non-maximum suppression: each class of each image on its own, then the selections one after the other. */
#include "kernels/vision/suppression.h"

#include "kernels/host/host.h"
#include "kernels/reduce/order.h"

typedef struct suppression_job {
    trm_suppression_args args;
    float overlap, least;
    bool any_score;
    uint64_t *heaps;   /* [batches * classes, boxes]: candidates, the best on top */
    int64_t *selected; /* [batches * classes, boxes]: by falling score */
    int64_t *counts;   /* [batches * classes] */
} suppression_job;

bool trm_host_non_max_suppression_accepts(const trm_kernel_call *call)
{
    trm_suppression_args args;
    return trm_suppression_args_of(call, &args);
}

size_t trm_host_non_max_suppression_workspace(const trm_kernel_call *call)
{
    const trm_dims *score = &call->inputs[1].dims;
    const size_t lists = (size_t)(score->d[0] * score->d[1]), boxes = (size_t)score->d[2];
    return lists * (boxes + 1) * sizeof(int64_t) + lists * boxes * sizeof(uint64_t);
}

/* ---- the boxes that were taken ---- */

#define PICKED 1024 /* of which this much is known, on the stack */

typedef struct picked {
    int64_t n;
    float top[PICKED], left[PICKED], bottom[PICKED], right[PICKED], area[PICKED];
} picked;

static float area_of(const float *corner)
{
    return (corner[2] - corner[0]) * (corner[3] - corner[1]);
}

static void pick(const float *corner, picked *p)
{
    if (p->n < PICKED) {
        p->top[p->n] = corner[0];
        p->left[p->n] = corner[1];
        p->bottom[p->n] = corner[2];
        p->right[p->n] = corner[3];
        p->area[p->n++] = area_of(corner);
    }
}

/* Whether one of them hides a box: trm_suppression_hides for many. */
TRM_VECTOR_CLONES static bool is_hidden(const float *corner, const picked *p, float most)
{
    const float y0 = corner[0], x0 = corner[1], y1 = corner[2], x1 = corner[3], own = area_of(corner);
    for (int64_t i = 0; i < p->n && own > 0; i += 64) {
        const int64_t n = trm_host_min(p->n - i, 64);
        int32_t hidden = 0;
        for (int64_t k = i; k < i + n; k++) {
            const float top = y0 > p->top[k] ? y0 : p->top[k], left = x0 > p->left[k] ? x0 : p->left[k];
            const float bottom = y1 < p->bottom[k] ? y1 : p->bottom[k], right = x1 < p->right[k] ? x1 : p->right[k];
            const float both = (bottom - top) * (right - left), either = own + p->area[k] - both;
            hidden |=
                (bottom > top) & (right > left) & (both > 0) & (p->area[k] > 0) & (either > 0) & (both / either > most);
        }
        if (hidden != 0) {
            return true;
        }
    }
    return false;
}

/* ---- the order of candidates ---- */

/* Larger for a larger score, then for a lower position. */
static uint64_t rank_of(const float *scores, int64_t i)
{
    return trm_order_key(TRM_F32, scores, i) << 32 | (UINT32_MAX - (uint32_t)i);
}

static void sink(uint64_t *heap, int64_t at, int64_t n)
{
    const uint64_t moved = heap[at];
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && heap[child + 1] > heap[child];
        if (moved >= heap[child]) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Makes a heap of the candidates of a list; returns their number. */
static int64_t gather(const suppression_job *job, const float *scores, uint64_t *heap)
{
    int64_t n = 0;
    for (int64_t i = 0; i < job->args.boxes; i++) {
        if (job->any_score || scores[i] > job->least) {
            heap[n++] = rank_of(scores, i);
        }
    }
    for (int64_t i = n / 2; i-- > 0;) {
        sink(heap, i, n);
    }
    return n;
}

static void run_lists(void *user, int64_t begin, int64_t end)
{
    const suppression_job *job = user;
    const trm_suppression_args *args = &job->args;
    for (int64_t list = begin; list < end; list++) {
        const float *boxes = args->box + list / args->classes * args->boxes * 4;
        uint64_t *heap = job->heaps + list * args->boxes;
        int64_t *selected = job->selected + list * args->boxes;
        int64_t count = 0;
        picked taken;
        taken.n = 0;
        for (int64_t n = gather(job, args->score + list * args->boxes, heap); n > 0 && count < args->most;) {
            const int64_t best = (int64_t)(UINT32_MAX - (uint32_t)heap[0]);
            float corner[4];
            heap[0] = heap[--n];
            sink(heap, 0, n);
            trm_suppression_corners(args->center_point, boxes + 4 * best, corner);
            bool hidden = is_hidden(corner, &taken, job->overlap);
            for (int64_t i = PICKED; i < count && !hidden; i++) {
                hidden =
                    trm_suppression_hides(args->center_point, boxes + 4 * best, boxes + 4 * selected[i], job->overlap);
            }
            if (!hidden) {
                selected[count++] = best;
                pick(corner, &taken);
            }
        }
        job->counts[list] = count;
    }
}

trm_status trm_host_non_max_suppression_run(const trm_kernel_call *call)
{
    suppression_job job;
    if (!trm_suppression_args_of(call, &job.args)) {
        return TRM_OK;
    }
    const trm_suppression_args *args = &job.args;
    const int64_t lists = args->batches * args->classes;
    job.overlap = args->overlap != NULL ? *args->overlap : 0.0f;
    job.least = args->least != NULL ? *args->least : 0.0f;
    job.any_score = args->least == NULL;
    job.selected = call->workspace;
    job.counts = job.selected + lists * args->boxes;
    job.heaps = (uint64_t *)(job.counts + lists);
    trm_host_for(call, lists, trm_host_row_grain(args->boxes * 16), run_lists, &job);
    int64_t n = 0;
    for (int64_t list = 0; list < lists; list++) {
        for (int64_t i = 0; i < job.counts[list]; i++, n++) {
            args->y[3 * n] = list / args->classes;
            args->y[3 * n + 1] = list % args->classes;
            args->y[3 * n + 2] = job.selected[list * args->boxes + i];
        }
    }
    *args->count = n;
    return TRM_OK;
}
