/* Checks and comparison of parameters. */
#include "graph/params.h"

#include <string.h>

#include "base/error.h"
#include "graph/network.h"

/* Whether the value of an ENUM field, or each of them, has a name. */
static bool enum_is_known(const trm_field *field, const int32_t *values)
{
    int32_t names = 0;
    while (field->values[names] != NULL) {
        names++;
    }
    for (int32_t i = 0; i == 0 || i < field->count; i++) {
        if (values[i] < 0 || values[i] >= names) {
            return false;
        }
    }
    return true;
}

trm_status trm_layer_check_fields(const trm_layer_desc *desc)
{
    int32_t n;
    const trm_field *fields = trm_layer_fields(desc->kind, &n);
    for (int32_t i = 0; i < n; i++) {
        const void *at = (const unsigned char *)desc + fields[i].offset;
        const trm_dims *dims = at;
        if ((fields[i].type == TRM_FIELD_ENUM && !enum_is_known(&fields[i], at)) ||
            (fields[i].type == TRM_FIELD_DIMS && (dims->n < 0 || dims->n > TRM_MAX_DIMS))) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "parameter %s has an unknown value", fields[i].name);
        }
    }
    return TRM_OK;
}

/* Bytes of a field that count for equality; 0 for dims, which are compared separately. */
static size_t field_size(const trm_field *field, const trm_layer_desc *desc, int32_t rank)
{
    switch (field->type) {
    case TRM_FIELD_BOOL:
        return sizeof(bool);
    case TRM_FIELD_INT64:
        return sizeof(int64_t);
    case TRM_FIELD_PERM:
        return (size_t)rank * sizeof(int32_t);
    case TRM_FIELD_GROUPS:
        return (size_t)desc->collective.n_groups * (size_t)desc->collective.group_size * sizeof(int32_t);
    case TRM_FIELD_DIMS:
        return 0;
    case TRM_FIELD_PROGRAM:
        return sizeof(desc->fused_elementwise);
    case TRM_FIELD_INT32:
    case TRM_FIELD_FLOAT:
    case TRM_FIELD_DTYPE:
    case TRM_FIELD_ENUM:
    case TRM_FIELD_PLUGIN:
        break;
    }
    return field->count == 0 ? 4 : 4 * (size_t)field->count;
}

bool trm_layer_desc_equal(const trm_layer_desc *a, const trm_layer_desc *b, int32_t rank)
{
    if (a->kind != b->kind) {
        return false;
    }
    int32_t n;
    const trm_field *fields = trm_layer_fields(a->kind, &n);
    for (int32_t i = 0; i < n; i++) {
        const unsigned char *of_a = (const unsigned char *)a + fields[i].offset;
        const unsigned char *of_b = (const unsigned char *)b + fields[i].offset;
        bool equal = fields[i].type == TRM_FIELD_DIMS
                         ? trm_dims_equal((const trm_dims *)(const void *)of_a, (const trm_dims *)(const void *)of_b)
                         : memcmp(of_a, of_b, field_size(&fields[i], a, rank)) == 0;
        if (!equal) {
            return false;
        }
    }
    return true;
}
