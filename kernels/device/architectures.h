/* Which GPUs the code of a build runs on. */
#ifndef TRM_KERNELS_DEVICE_ARCHITECTURES_H
#define TRM_KERNELS_DEVICE_ARCHITECTURES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a GPU of compute capability major.minor runs code for one of the architectures, named as CMake does and
 * separated by commas: "80-virtual,90a-real". PTX (-virtual) is compiled for every newer GPU, machine code (-real) runs
 * on later GPUs of its generation; without either there are both. 90a runs on 9.0 alone, 100f on its generation. */
bool trm_architectures_run_on(const char *architectures, int32_t major, int32_t minor);

#ifdef __cplusplus
}
#endif
#endif
