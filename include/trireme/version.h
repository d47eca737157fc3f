/*
 * The version of these headers, and of the library that the program runs with.
 */
#ifndef TRIREME_VERSION_H
#define TRIREME_VERSION_H

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of the headers that a program is compiled against. */
#define TRM_VERSION_MAJOR 0
#define TRM_VERSION_MINOR 1
#define TRM_VERSION_PATCH 0
#define TRM_VERSION       "0.1.0"

/* The version of the library: "0.1.0". */
TRM_API const char *trm_version(void);

#ifdef __cplusplus
}
#endif
#endif
