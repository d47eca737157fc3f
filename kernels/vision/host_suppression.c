/* Non-maximum suppression: each class of each image on its own, then the selections one after the other. */
#include "kernels/vision/suppression.h"

#include "kernels/host/host.h"

typedef struct suppression_job {
    trm_suppression_args args;
    float overlap, least;
    bool any_score;
    uint8_t *gone;     /* [batches * classes, boxes]: taken or hidden */
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
    return lists * (boxes + 1) * sizeof(int64_t) + lists * boxes;
}

/* The best box of a list that is left, or -1. */
static int64_t best_of(const suppression_job *job, int64_t list)
{
    const float *scores = job->args.score + list * job->args.boxes;
    const uint8_t *gone = job->gone + list * job->args.boxes;
    int64_t best = -1;
    for (int64_t i = 0; i < job->args.boxes; i++) {
        const bool counts = gone[i] == 0 && (job->any_score || scores[i] > job->least);
        if (counts && (best < 0 || scores[i] > scores[best])) {
            best = i;
        }
    }
    return best;
}

static void run_lists(void *user, int64_t begin, int64_t end)
{
    const suppression_job *job = user;
    const trm_suppression_args *args = &job->args;
    for (int64_t list = begin; list < end; list++) {
        const float *boxes = args->box + list / args->classes * args->boxes * 4;
        uint8_t *gone = job->gone + list * args->boxes;
        int64_t count = 0;
        for (int64_t i = 0; i < args->boxes; i++) {
            gone[i] = 0;
        }
        while (count < args->most) {
            const int64_t best = best_of(job, list);
            if (best < 0) {
                break;
            }
            job->selected[list * args->boxes + count++] = best;
            gone[best] = 1;
            for (int64_t i = 0; i < args->boxes; i++) {
                if (gone[i] == 0 &&
                    trm_suppression_hides(args->center_point, boxes + 4 * i, boxes + 4 * best, job->overlap)) {
                    gone[i] = 1;
                }
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
    job.gone = (uint8_t *)(job.counts + lists);
    trm_pool_for(trm_host_pool(call), lists, trm_host_row_grain(args->boxes * (args->most + 1)), run_lists, &job);
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
