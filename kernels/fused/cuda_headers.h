/* Headers of ours as text, for kernels that are compiled at run time; cmake/embed.cmake writes them into the build. */
#ifndef TRM_KERNELS_FUSED_CUDA_HEADERS_H
#define TRM_KERNELS_FUSED_CUDA_HEADERS_H

typedef struct trm_device_header {
    const char *name, *text;
} trm_device_header;

extern const trm_device_header trm_device_headers[];
extern const int trm_device_headers_count;

#endif
