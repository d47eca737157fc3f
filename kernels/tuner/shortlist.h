/*
 * Which of the tactics that were timed for a problem are remembered beside the one in use, for other batches of it, and
 * in which order those try them.
 *
 * Only engines of cuDNN have such rivals; their names are "cudnn.GRAPH:ENGINE,KNOB=VALUE,...", with "wide." before it
 * where the convolution is widened. A shortlist follows from the tactics alone, whatever their order, so that it is the
 * same in a process that timed them, one that read them from a timing cache, and one that has them from a plan.
 */
#ifndef TRM_KERNELS_TUNER_SHORTLIST_H
#define TRM_KERNELS_TUNER_SHORTLIST_H

#include <stdbool.h>

#include "kernels/tuner/tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_MOST_SHORTLISTED 4

typedef struct trm_shortlist {
    int32_t n;
    trm_tactic tactics[TRM_MOST_SHORTLISTED]; /* the one in use, then others, best first */
} trm_shortlist;

/* Of tactics [n], whose number `used` is in use: that, and the fastest of each other engine of the same form, of equals
 * the first by name. A shortlist's own shortlist is the same. */
void trm_shortlist_make(const trm_tactic *tactics, int32_t n, int32_t used, trm_shortlist *list);
/* The same in the order in which another batch tries them: first those that load no kernel of their own for a batch, if
 * they are nearly as fast as the one in use. */
void trm_shortlist_order(const trm_shortlist *list, bool (*loads_kernels)(const char *tactic), trm_shortlist *ordered);

#ifdef __cplusplus
}
#endif
#endif
