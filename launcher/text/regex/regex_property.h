/*
 * Sets of characters that a regex escape, property or POSIX bracket of Oniguruma names, as PCRE2 class items.
 */
#ifndef TRM_LAUNCHER_TEXT_REGEX_REGEX_PROPERTY_H
#define TRM_LAUNCHER_TEXT_REGEX_REGEX_PROPERTY_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

typedef struct trm_regex_set {
    char items[128]; /* what stands between the brackets of a PCRE2 class */
    bool property;   /* the items are one \p{...} */
    bool negated;    /* the set is everything else */
} trm_regex_set;

/* The set of a class escape such as \s, \W, \h; false if `letter` is none. */
bool trm_regex_set_escape(char letter, trm_regex_set *set);
/* The set of \p{name}, name[size] without braces and ^. INVALID_MODEL if there is none. */
trm_status trm_regex_set_property(const char *name, size_t size, trm_regex_set *set);
/* The set of [:name:]. */
trm_status trm_regex_set_posix(const char *name, size_t size, trm_regex_set *set);

#endif
