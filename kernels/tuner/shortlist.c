#include "kernels/tuner/shortlist.h"

#include <string.h>

#define MOST_SLOWER 1.3 /* than the one in use, for what loads no kernel */

/* How long the name of a tactic is up to that of the library that has engines; -1: it is none of those. */
static long form_size(const char *name)
{
    const char *library = strstr(name, "cudnn.");
    return library != NULL ? (long)(library - name) : -1;
}

static bool is_of_same_form(const char *a, const char *b)
{
    const long n = form_size(a);
    return n >= 0 && n == form_size(b) && strncmp(a, b, (size_t)n) == 0;
}

/* Whether two names are of one engine and graph, whatever their knobs. */
static bool is_same_engine(const char *a, const char *b)
{
    const size_t n = strcspn(a, ",");
    return n == strcspn(b, ",") && strncmp(a, b, n) == 0;
}

static bool may_join(const trm_shortlist *list, const trm_tactic *tactic)
{
    bool may = is_of_same_form(list->tactics[0].name, tactic->name);
    for (int32_t i = 0; i < list->n && may; i++) {
        may = !is_same_engine(list->tactics[i].name, tactic->name);
    }
    return may;
}

void trm_shortlist_make(const trm_tactic *tactics, int32_t n, int32_t used, trm_shortlist *list)
{
    const trm_tactic *next = &tactics[used];
    list->n = 0;
    while (next != NULL) {
        list->tactics[list->n++] = *next;
        next = NULL;
        for (int32_t i = 0; i < n && list->n < TRM_MOST_SHORTLISTED; i++) {
            const bool is_better = next == NULL || trm_tactic_compare(&tactics[i], next) < 0;
            next = is_better && may_join(list, &tactics[i]) ? &tactics[i] : next;
        }
    }
}

void trm_shortlist_order(const trm_shortlist *list, bool (*loads_kernels)(const char *tactic), trm_shortlist *ordered)
{
    ordered->n = 0;
    for (int32_t late = 0; late < 2; late++) {
        for (int32_t i = 0; i < list->n; i++) {
            const trm_tactic *tactic = &list->tactics[i];
            const bool is_slow = tactic->microseconds > MOST_SLOWER * list->tactics[0].microseconds;
            if ((is_slow || loads_kernels(tactic->name)) == (late != 0)) {
                ordered->tactics[ordered->n++] = *tactic;
            }
        }
    }
}
