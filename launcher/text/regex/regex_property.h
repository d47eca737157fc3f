/*
 * Character sets of Oniguruma's escapes, properties and POSIX brackets, as PCRE2 class items.
 */
#ifndef TRM_LAUNCHER_TEXT_REGEX_REGEX_PROPERTY_H
#define TRM_LAUNCHER_TEXT_REGEX_REGEX_PROPERTY_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

typedef struct trm_regex_set {
    char items[128]; /* the text between the brackets of a PCRE2 class */
    bool property;   /* the items are one \p{...} */
    bool negated;    /* the set is the complement */
} trm_regex_set;

/* The set of a class escape such as \s, \W, \h; false if `letter` is not one. */
bool trm_regex_set_escape(char letter, trm_regex_set *set);
/* The set of \p{name}, name[size] without braces and ^. INVALID_MODEL if there is none. */
trm_status trm_regex_set_property(const char *name, size_t size, trm_regex_set *set);
/* The set of [:name:]. */
trm_status trm_regex_set_posix(const char *name, size_t size, trm_regex_set *set);

#endif
