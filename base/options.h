/*
 * Structs of options and results, of callers that were compiled against another version of the headers. Such a struct
 * begins with its size and grows only at its end; zero in a new option keeps the behavior from before it.
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

/* The reverse, for structs of results: copies the fields of `own` over `given`, except the size. Fields that an older
 * caller lacks are dropped; those that are not known here become zero. */
trm_status trm_options_write(const char *name, const void *own, void *given);

#endif
