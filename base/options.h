/*
 * Option structs of callers that were compiled against another version of the headers. Such a struct begins with its
 * size and grows at its end alone; zero in a new field means what was so without it.
 */
#ifndef TRM_BASE_OPTIONS_H
#define TRM_BASE_OPTIONS_H

#include "base/error.h"

/*
 * Copies what `given` has over `own`, which begins with its own size and holds the defaults; NULL has nothing. A
 * smaller struct is an older caller's, whose missing fields keep their defaults. A larger one is a newer caller's:
 * INVALID_ARGUMENT unless the part that is not known here is zero. `name` stands in errors: "build options".
 */
trm_status trm_options_read(const char *name, const void *given, void *own);

#endif
