/*
 * Trireme: multi-GPU inference for large models. This header is the whole public API.
 *
 * Rules for all of it:
 *   - Option structs start from their ..._INIT macro, which sets `size` alone. Zero is the default of every field.
 *   - Structs that begin with `size` may get more fields at their end. Programs compiled against older headers keep
 *     working and get the defaults of the new fields; newer programs work unless they set a field that the library
 *     lacks. Structs without a `size` never change.
 *   - The caller owns what a create, open or build call returns, and ends it with the destroy, close or fini call of
 *     the same name, which ignores NULL.
 *   - Calls that return a trm_status set their results only on success, and refuse NULL objects with INVALID_ARGUMENT.
 *     Other calls must not get NULL unless their comment allows it.
 *   - A call copies the strings and arrays that it needs later.
 */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include <trireme/chat.h>
#include <trireme/engine.h>
#include <trireme/generate.h>
#include <trireme/grammar.h>
#include <trireme/layers.h>
#include <trireme/llm.h>
#include <trireme/mesh.h>
#include <trireme/model.h>
#include <trireme/network.h>
#include <trireme/onnx.h>
#include <trireme/plugin.h>
#include <trireme/recorder.h>
#include <trireme/serving.h>
#include <trireme/status.h>
#include <trireme/system.h>
#include <trireme/timeline.h>
#include <trireme/tokenizer.h>
#include <trireme/types.h>
#include <trireme/version.h>

#endif
