/*
 * The format of plan files, for writing and reading, and reading from a mapped file. The public calls are in
 * <trireme/engine.h>; docs/internals/plan.md describes the file.
 */
#ifndef TRM_DIST_PLAN_FILE_H
#define TRM_DIST_PLAN_FILE_H

#include <protobuf-c/protobuf-c.h>

#include "dist/plan/plan.h"
#include "dist/plan/weight_source.h"

#define TRM_PLAN_FORMAT    2
#define TRM_PLAN_HEADER    64
#define TRM_PLAN_ALIGNMENT 64 /* of blobs */
/* Most bytes of an index or a network, which do not hold elements of constants and weights. */
#define TRM_PLAN_LARGEST_MESSAGE ((size_t)256 << 20)

typedef struct trm_plan_header {
    uint64_t file_size, index_offset, index_size, index_checksum;
} trm_plan_header;

uint64_t trm_plan_checksum(const void *bytes, size_t size);
/* Checksum of the size and a sample of the bytes; of all bytes if there are few. */
uint64_t trm_plan_sample(const unsigned char *bytes, size_t size);

void trm_plan_put_header(const trm_plan_header *header, unsigned char bytes[TRM_PLAN_HEADER]);
/* Reads and checks the header of a file's bytes [size]: a plan file of this format, and complete. `trusting` as below.
 */
trm_status trm_plan_get_header(const char *name, const unsigned char *bytes, size_t size, bool trusting,
                               trm_plan_header *header);

/* Checks the bytes of a message before protobuf-c unpacks them: lengths, wire types, text without control characters,
 * number of messages. Fails on fields that the schema lacks. */
trm_status trm_plan_check_message(const char *name, const ProtobufCMessageDescriptor *type, const unsigned char *bytes,
                                  size_t size);

/* Reads the plan of a rank from a file; relative paths start at `folder`. `trusting` skips checksums and the version,
 * so that fuzzers reach the rest. `weights`: of a refit, or NULL. */
trm_status trm_plan_read(trm_weight_file *file, const char *folder, int32_t rank, bool trusting,
                         trm_weight_source *weights, trm_plan **plan);

/* Whether a plan file may hold this text. */
bool trm_plan_is_text(const char *text, size_t size);

#endif
