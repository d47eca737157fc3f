/* Any bytes as a safetensors file: the tensors of an accepted header lie in the file and can be read. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "weight_stream/safetensors_header.h"
#include "weight_stream/weight_internal.h"

static void read_tensor(trm_weight_file *file, const trm_safetensors_entry *entry)
{
    trm_weight *weight = NULL, *turned = NULL;
    int32_t perm[TRM_MAX_DIMS];
    for (int32_t i = 0; i < entry->dims.n; i++) {
        perm[i] = entry->dims.n - 1 - i;
    }
    /* The bytes are there, so only dims of an empty tensor can be too much. */
    if (trm_weight_from_file(file, entry->begin, entry->name, entry->dtype, &entry->dims, &weight) != TRM_OK) {
        FUZZ_REQUIRE(entry->begin == entry->end);
        return;
    }
    size_t bytes = entry->end - entry->begin;
    size_t count = bytes / trm_dtype_size(entry->dtype);
    unsigned char *values = malloc(bytes + 1);
    FUZZ_REQUIRE(values != NULL);
    FUZZ_REQUIRE(trm_weight_read(weight, entry->dtype, 0, count, values) == TRM_OK);
    FUZZ_REQUIRE(memcmp(values, file->mapping.bytes + entry->begin, bytes) == 0);
    FUZZ_REQUIRE(trm_weight_transpose(weight, perm, &turned) == TRM_OK);
    FUZZ_REQUIRE(trm_weight_read(turned, entry->dtype, 0, count, values) == TRM_OK);
    FUZZ_REQUIRE(trm_weight_read(turned, entry->dtype, 1, count, values) != TRM_OK);
    free(values);
    trm_weight_destroy(turned);
    trm_weight_destroy(weight);
}

static void read_file(const uint8_t *data, size_t size)
{
    trm_arena arena = {0};
    trm_safetensors_entry *entries = NULL;
    size_t count = 0;
    trm_status status = trm_safetensors_header_read("input", data, size, &arena, &entries, &count);
    if (status == TRM_OK) {
        /* Never released to zero: the bytes are not a mapping of ours. */
        trm_weight_file file = {
            .mapping = {.bytes = data, .size = size}, .descriptor = -1, .name = (char *)(uintptr_t) "input"};
        atomic_init(&file.references, 1);
        for (size_t i = 0; i < count; i++) {
            FUZZ_REQUIRE(entries[i].begin <= entries[i].end && entries[i].end <= size);
            FUZZ_REQUIRE(i == 0 || entries[i].begin == entries[i - 1].end);
            if (entries[i].dtype != TRM_DTYPE_NONE) {
                read_tensor(&file, &entries[i]);
            }
        }
        FUZZ_REQUIRE(atomic_load(&file.references) == 1);
    } else {
        FUZZ_REQUIRE(status == TRM_ERROR_INVALID_MODEL || status == TRM_ERROR_UNSUPPORTED);
        FUZZ_REQUIRE(strncmp(trm_last_error(), "input: ", 7) == 0);
    }
    trm_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    /* Once more with the right length, which mutations seldom hit: the header ends at the last brace. */
    size_t end = size;
    while (end > 8 && data[end - 1] != '}') {
        end--;
    }
    uint8_t *fixed = malloc(size + 1);
    FUZZ_REQUIRE(fixed != NULL);
    if (end > 8) {
        memcpy(fixed, data, size);
        for (int i = 0; i < 8; i++) {
            fixed[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
        }
        read_file(fixed, size);
    }
    free(fixed);
    return 0;
}
