/*
 * The timing cache: what tactics were timed for a problem and how long they took, in memory and as a file.
 *
 * A file is text, one line per problem:
 *
 *   <device>; trireme <version>; <problem> TAB <tactic> <microseconds> TAB <tactic> <microseconds> ...
 *
 * The tactic that stands first is used. Lines that begin with # are comments. A tuner is used by one thread at a time.
 */
#ifndef TRM_KERNELS_TUNER_TUNER_H
#define TRM_KERNELS_TUNER_TUNER_H

#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_MOST_TACTICS      64  /* kept per problem: the best */
#define TRM_TACTIC_NAME_SIZE  224 /* with the NUL */
#define TRM_PROBLEM_TEXT_SIZE 640 /* with the NUL; of the whole key in a file, too */

typedef struct trm_tactic {
    char name[TRM_TACTIC_NAME_SIZE]; /* printable, no spaces */
    double microseconds;
} trm_tactic;

/* Best first, of equals by name: negative if `a` comes first. */
int trm_tactic_compare(const trm_tactic *a, const trm_tactic *b);
/* Into that order, with times as a file has them, in whole nanoseconds. */
void trm_tactics_sort(trm_tactic *tactics, int32_t n);

/* What was timed for one problem, best first. */
typedef struct trm_timing {
    const char *problem; /* device and versions first */
    int32_t n_tactics;
    trm_tactic *tactics; /* [n_tactics] */
} trm_timing;

typedef struct trm_tuner trm_tuner;

/* For kernels on this device. */
trm_status trm_tuner_create(trm_device *device, trm_tuner **tuner);
void trm_tuner_destroy(trm_tuner *tuner);

/* 0 to 5, as in trm_tune_options (engine.h); 3 at first. */
void trm_tuner_set_level(trm_tuner *tuner, int32_t level);
/* How many of a library's proposals to time; 0: none, what is not known is left to the first of them. With NULL: 8. */
int32_t trm_tuner_proposals(const trm_tuner *tuner);

/* What is known of a problem, NULL if nothing is; also with a NULL tuner. Valid until the next call that changes the
 * tuner. What is found or recorded is what trm_tuner_last gives until trm_tuner_forget_last. */
const trm_timing *trm_tuner_find(trm_tuner *tuner, const char *problem);
/* Called for every problem that is looked up and not known, with NULL, and for every one that a kernel settles, with
 * what it took. */
typedef void (*trm_tuner_fn)(void *user, const char *problem, const trm_timing *taken);
void trm_tuner_set_listener(trm_tuner *tuner, trm_tuner_fn fn, void *user);
/* Tells the listener what a kernel took for a problem: the tactic that it uses, and behind it those by which it may run
 * other sizes of the problem (kernels/tuner/shortlist.h). Nothing happens with a NULL tuner. */
void trm_tuner_take(const trm_tuner *tuner, const char *problem, const trm_tactic *taken, int32_t n);

/* Keeps what was timed, in any order; the best come first. Nothing happens without tactics or with a NULL tuner. */
trm_status trm_tuner_record(trm_tuner *tuner, const char *problem, const trm_tactic *tactics, int32_t n);
/* Keeps tactics [n] that were timed elsewhere as they stand, the first to be used; they go into no file. */
trm_status trm_tuner_put(trm_tuner *tuner, const char *problem, const trm_tactic *tactics, int32_t n);
const trm_timing *trm_tuner_last(const trm_tuner *tuner);
void trm_tuner_forget_last(trm_tuner *tuner);

/* Adds what a file knows; what the tuner knows already stays. No file is no error. Damaged lines are left out, with one
 * warning for all of them. */
trm_status trm_tuner_load(trm_tuner *tuner, const char *path);
/* Merges what was recorded since into the file, under a lock, and replaces it as a whole; makes its folders. Lines of
 * the file that are damaged are dropped, comments stay; beyond 16384 problems the oldest go. */
trm_status trm_tuner_save(trm_tuner *tuner, const char *path);

#ifdef __cplusplus
}
#endif
#endif
