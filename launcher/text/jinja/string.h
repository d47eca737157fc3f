/*
 * Shared by methods and filters of strings.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_STRING_H
#define TRM_LAUNCHER_TEXT_JINJA_STRING_H

#include "launcher/text/jinja/value.h"

/* A part that shares the memory; chars NULL: white space. */
trm_jinja_value trm_jinja_strip(const trm_jinja_value *string, const trm_jinja_value *chars, bool left, bool right);
/* The last position of `part` in the text, or SIZE_MAX. */
size_t trm_jinja_find_last(const trm_jinja_value *text, const trm_jinja_value *part);
trm_status trm_jinja_split_lines(trm_jinja_run *run, const trm_jinja_value *string, bool keep_ends,
                                 trm_jinja_value *list);
/* most < 0: all. */
trm_status trm_jinja_replace(trm_jinja_run *run, const trm_jinja_value *string, const trm_jinja_value *from,
                             const trm_jinja_value *to, int64_t most, trm_jinja_value *result);
/* str() of the items, joined by a separator. */
trm_status trm_jinja_join(trm_jinja_run *run, const trm_jinja_list *items, const trm_jinja_value *separator,
                          trm_jinja_value *result);
typedef enum trm_jinja_casing {
    TRM_JINJA_UPPER,
    TRM_JINJA_LOWER,
    TRM_JINJA_TITLE,
    TRM_JINJA_CAPITALIZE,
    TRM_JINJA_SWAP
} trm_jinja_casing;
trm_status trm_jinja_recase(trm_jinja_run *run, const trm_jinja_value *string, trm_jinja_casing casing,
                            trm_jinja_value *result);
/* side -1: the string at the left, 0: in the middle, 1: at the right. */
trm_status trm_jinja_pad(trm_jinja_run *run, const trm_jinja_value *string, int64_t width, const trm_jinja_value *fill,
                         int side, trm_jinja_value *result);

#endif
