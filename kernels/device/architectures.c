/* Architectures of a build against the compute capability of a GPU. */
#include "kernels/device/architectures.h"

#include <stdlib.h>
#include <string.h>

bool trm_architectures_run_on(const char *architectures, int32_t major, int32_t minor)
{
    const long capability = 10L * major + minor;
    for (const char *at = architectures; *at != '\0'; at += *at == ',') {
        char *rest;
        const long of = strtol(at, &rest, 10);
        const size_t left = strcspn(rest, ",");
        const bool same = of / 10 == major && capability >= of,
                   real = left >= 5 && strncmp(rest + left - 5, "-real", 5) == 0;
        const bool runs = *rest == 'a' ? capability == of : *rest == 'f' || real ? same : capability >= of;
        if (rest > at && runs) {
            return true;
        }
        at = rest + left;
    }
    return false;
}
