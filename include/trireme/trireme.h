/*
 * Trireme: multi-GPU inference for large models. This header is the whole public API.
 *
 * Rules for all of it. Option structs start from their ..._INIT macro. In them zero is the default, where the field
 * says nothing else. Those that begin with `size` may get more fields at their end: programs compiled against older
 * headers go on working, with the defaults of what they do not know, and newer ones work as long as they ask for
 * nothing that the library lacks. Structs without a `size` keep their fields. What a create, open or build call hands
 * over belongs to the caller, who ends it with the destroy, close or fini call of its name, which ignores NULL. Calls
 * that return a trm_status set their results only when they succeed, and refuse NULL objects with INVALID_ARGUMENT;
 * calls that return something else must not be given NULL, where nothing else is said. Strings and arrays given to a
 * call are copied if they are needed after it.
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
#include <trireme/recorder.h>
#include <trireme/serving.h>
#include <trireme/status.h>
#include <trireme/system.h>
#include <trireme/tokenizer.h>
#include <trireme/types.h>
#include <trireme/version.h>

#endif
