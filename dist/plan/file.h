/*
 * The form of plan files: what writing and reading share, and reading from a file that is mapped already. The public
 * calls are in <trireme/engine.h>; docs/internals/plan.md describes the file.
 */
#ifndef TRM_DIST_PLAN_FILE_H
#define TRM_DIST_PLAN_FILE_H

#include <protobuf-c/protobuf-c.h>

#include "dist/plan/plan.h"
#include "dist/plan/weight_source.h"

#define TRM_PLAN_FORMAT    2
#define TRM_PLAN_HEADER    64
#define TRM_PLAN_ALIGNMENT 64 /* of blobs */
/* Bytes of an index or a network; elements of constants and weights are not in them. */
#define TRM_PLAN_LARGEST_MESSAGE ((size_t)256 << 20)

typedef struct trm_plan_header {
    uint64_t file_size, index_offset, index_size, index_checksum;
} trm_plan_header;

uint64_t trm_plan_checksum(const void *bytes, size_t size);
/* Checksum of the size and of some of the bytes: of all if there are few. */
uint64_t trm_plan_sample(const unsigned char *bytes, size_t size);

void trm_plan_put_header(const trm_plan_header *header, unsigned char bytes[TRM_PLAN_HEADER]);
/* Fails where the bytes [size] of a file are no plan file of this format, or not all of it. Whether checksums are
 * looked at is up to `trusting`, as below. */
trm_status trm_plan_get_header(const char *name, const unsigned char *bytes, size_t size, bool trusting,
                               trm_plan_header *header);

/* Checks the bytes of a message before protobuf-c unpacks them: lengths, forms of fields, text without control
 * characters, not too many of them. Fields that the schema does not have are refused. */
trm_status trm_plan_check_message(const char *name, const ProtobufCMessageDescriptor *type, const unsigned char *bytes,
                                  size_t size);

/* Reads the plan of a rank from a file; `folder` is where relative paths begin. `trusting`: checksums and the version
 * are not looked at, for tests of what stands behind them. `weights`: of a refit, or NULL. */
trm_status trm_plan_read(trm_weight_file *file, const char *folder, int32_t rank, bool trusting,
                         trm_weight_source *weights, trm_plan **plan);

/* Text that a plan file may hold. */
bool trm_plan_is_text(const char *text, size_t size);

#endif
