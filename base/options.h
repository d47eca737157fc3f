/*
 * Option structs of callers that were compiled against another version of the headers. Such a struct begins with its
 * size and grows only at its end; zero in a new field keeps the behavior from before it.
 */
#ifndef TRM_BASE_OPTIONS_H
#define TRM_BASE_OPTIONS_H

#include "base/error.h"

/*
 * Copies the fields of `given` (may be NULL) over `own`, which begins with its own size and holds the defaults. A
 * smaller struct comes from an older caller: missing fields keep their defaults. A larger one comes from a newer
 * caller: INVALID_ARGUMENT unless the part unknown here is zero. Errors mention `name`, such as "build options".
 */
trm_status trm_options_read(const char *name, const void *given, void *own);

#endif
