/*
 * Log messages of the library, passed to the callback of trm_log_set().
 */
#ifndef TRM_BASE_LOG_H
#define TRM_BASE_LOG_H

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

void trm_log(trm_log_level level, const char *format, ...) TRM_PRINTF(2, 3);

#define TRM_WARN(...)  trm_log(TRM_LOG_WARNING, __VA_ARGS__)
#define TRM_INFO(...)  trm_log(TRM_LOG_INFO, __VA_ARGS__)
#define TRM_DEBUG(...) trm_log(TRM_LOG_DEBUG, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
