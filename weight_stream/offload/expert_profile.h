/*
 * The expert profile: how often each expert of a mixture was used, learned in runs and kept in a file for the next. The
 * expert cache starts with the most used experts, and its hit rate is predicted from it.
 *
 * A file is text, in a folder of such files, named by a hash of the mixture's identity: its layers, their shapes and
 * the first elements of their routers. Ranks that hold other experts have other files:
 *
 *   # trireme expert profile
 *   <hash> <layers> <experts of all layers>
 *   <uses of each expert of a layer> ...                  one line a layer
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_PROFILE_H
#define TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_PROFILE_H

#include "dist/plan/plan.h"
#include "dist/plan/streaming_plan.h"

/* Finds the profile of the plan's cached layers in the folder of s->asked, which is copied, into s->expert_uses. No
 * file is no error; a damaged or foreign one is left alone, with a line in the log. */
trm_status trm_expert_profile_load(const trm_plan *plan, trm_streaming_plan *s);
/* Adds uses [all experts], and writes the file if there is a folder. A failure is logged. */
void trm_expert_profile_add(trm_streaming_plan *s, const int64_t *uses);

/* Whether the plan has a profile in which experts were used. */
bool trm_expert_profile_is_known(const trm_streaming_plan *s);

/* The experts of a cached layer [experts], the least used first. */
void trm_expert_profile_order(const trm_streaming_plan *s, int32_t layer, int32_t *experts);

/* Predicts a cache of `slots` experts, the most recently used, of a layer with `experts`, of which a token uses `used`
 * on average, by their uses (NULL: all alike): the share of a token's experts that are found, and how often each
 * expert is missed in a step, into misses [experts]. After Che, Tung and Wang, "Hierarchical web caching systems:
 * modeling, design and experimental results", IEEE JSAC 2002. */
double trm_expert_profile_predict(const double *uses, int32_t experts, double used, int32_t slots, double *misses);

#endif
