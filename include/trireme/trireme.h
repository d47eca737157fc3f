/*
 * Trireme: multi-GPU inference for large models. This header is the whole public API.
 */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include <trireme/engine.h>
#include <trireme/generate.h>
#include <trireme/layers.h>
#include <trireme/mesh.h>
#include <trireme/model.h>
#include <trireme/network.h>
#include <trireme/status.h>
#include <trireme/system.h>
#include <trireme/tokenizer.h>
#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
TRM_API const char *trm_version(void);

#ifdef __cplusplus
}
#endif
#endif
