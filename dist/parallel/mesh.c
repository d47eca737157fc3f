/* Meshes: the ranks of a world along named axes. */
#include <trireme/mesh.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/layers.h>

#include "base/error.h"
#include "base/recorder.h"
#include "dist/parallel/world.h"

/* Innermost first: the digits of a rank. ep lies over dp and is not a digit. */
static const trm_axis digits[] = {TRM_AXIS_TP, TRM_AXIS_CP, TRM_AXIS_PP, TRM_AXIS_DP};
#define N_DIGITS (sizeof(digits) / sizeof(digits[0]))

static const char *const axis_names[TRM_AXIS_COUNT] = {"tp", "pp", "cp", "ep", "dp"};

static int find_axis(const char *name, size_t length)
{
    for (int axis = 0; axis < TRM_AXIS_COUNT; axis++) {
        if (strlen(axis_names[axis]) == length && strncmp(axis_names[axis], name, length) == 0) {
            return axis;
        }
    }
    return -1;
}

/* Parses one "tp=2" of `length` characters. */
static trm_status parse_axis(const char *text, size_t length, bool *given, trm_mesh *mesh)
{
    const char *equals = memchr(text, '=', length);
    int axis = equals != NULL ? find_axis(text, (size_t)(equals - text)) : -1;
    if (axis < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mesh has \"%.*s\", expected an axis among tp, pp, cp, ep, dp, as in tp=2",
                 (int)length, text);
    }
    if (given[axis]) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mesh gives axis %s twice", axis_names[axis]);
    }
    const char *digit = equals + 1;
    long value = 0;
    bool number = digit < text + length;
    for (; digit < text + length && number; digit++) {
        number = *digit >= '0' && *digit <= '9' && value <= TRM_MAX_RANKS;
        value = value * 10 + (*digit - '0');
    }
    if (!number || value < 1 || value > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mesh has \"%.*s\", expected a size from 1 to %d", (int)length, text,
                 TRM_MAX_RANKS);
    }
    given[axis] = true;
    mesh->size[axis] = (int32_t)value;
    return TRM_OK;
}

trm_mesh trm_mesh_resolve(const trm_mesh *wanted, int32_t n_ranks)
{
    trm_mesh mesh = *wanted;
    bool is_given = false;
    for (int32_t i = 0; i < TRM_AXIS_COUNT; i++) {
        is_given = is_given || mesh.size[i] != 0;
        mesh.size[i] = mesh.size[i] == 0 ? 1 : mesh.size[i];
    }
    mesh.size[TRM_AXIS_TP] = is_given ? mesh.size[TRM_AXIS_TP] : n_ranks;
    return mesh;
}

TRM_CALL(NULL, trm_mesh_parse, (const char *text, int32_t world_size, trm_mesh *mesh), (text, world_size, mesh))
{
    if (mesh == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot parse a mesh: mesh is NULL");
    }
    if (world_size < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "world has %d ranks, expected at least 1", (int)world_size);
    }
    trm_mesh read = {{1, 1, 1, 1, 1}};
    if (text == NULL || text[0] == '\0') {
        read.size[TRM_AXIS_TP] = world_size;
        *mesh = read;
        return TRM_OK;
    }
    bool given[TRM_AXIS_COUNT] = {false};
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        TRM_TRY(parse_axis(at, length, given, &read));
        if (at[length] == '\0') {
            break;
        }
        at += length + 1;
    }
    if (read.size[TRM_AXIS_DP] % read.size[TRM_AXIS_EP] != 0) {
        TRM_FAIL(
            TRM_ERROR_INVALID_ARGUMENT,
            "mesh %s has ep=%d, which does not divide dp=%d: experts are split over the ranks of dp, as in dp=%d,ep=%d",
            text, (int)read.size[TRM_AXIS_EP], (int)read.size[TRM_AXIS_DP], (int)read.size[TRM_AXIS_EP],
            (int)read.size[TRM_AXIS_EP]);
    }
    int64_t product = 1;
    for (size_t i = 0; i < N_DIGITS; i++) {
        product *= read.size[digits[i]];
    }
    if (product != world_size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mesh %s has %lld ranks, but the world has %d", text, (long long)product,
                 (int)world_size);
    }
    *mesh = read;
    return TRM_OK;
}

void trm_mesh_format(const trm_mesh *mesh, char *text, size_t size)
{
    size_t used = 0;
    for (int axis = 0; axis < TRM_AXIS_COUNT; axis++) {
        if (mesh->size[axis] > 1 && used < size) {
            int n = snprintf(text + used, size - used, "%s%s=%d", used > 0 ? "," : "", axis_names[axis],
                             (int)mesh->size[axis]);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (used == 0) {
        snprintf(text, size, "tp=1");
    }
}

/* Whether the mesh has this rank and axis. */
static bool is_member(const trm_mesh *mesh, trm_axis axis, int32_t rank)
{
    bool member = (unsigned)axis < TRM_AXIS_COUNT && rank >= 0;
    int64_t size = 1;
    for (int32_t i = 0; i < TRM_AXIS_COUNT; i++) {
        member = member && mesh->size[i] >= 1 && mesh->size[i] <= TRM_MAX_RANKS;
        size *= member && i != TRM_AXIS_EP ? mesh->size[i] : 1;
    }
    return member && rank < size;
}

/* Distance between neighbours along a digit. */
static int32_t stride_of(const trm_mesh *mesh, trm_axis axis)
{
    int32_t stride = 1;
    for (size_t i = 0; i < N_DIGITS && digits[i] != axis; i++) {
        stride *= mesh->size[digits[i]];
    }
    return stride;
}

int32_t trm_mesh_coordinate(const trm_mesh *mesh, trm_axis axis, int32_t rank)
{
    if (!is_member(mesh, axis, rank)) {
        return -1;
    }
    trm_axis digit = axis == TRM_AXIS_EP ? TRM_AXIS_DP : axis;
    return rank / stride_of(mesh, digit) % mesh->size[digit] % mesh->size[axis];
}

void trm_mesh_group(const trm_mesh *mesh, trm_axis axis, int32_t rank, int32_t *ranks)
{
    if (!is_member(mesh, axis, rank)) {
        return;
    }
    trm_axis digit = axis == TRM_AXIS_EP ? TRM_AXIS_DP : axis;
    int32_t stride = stride_of(mesh, digit);
    int32_t first = rank - trm_mesh_coordinate(mesh, axis, rank) * stride;
    for (int32_t i = 0; i < mesh->size[axis]; i++) {
        ranks[i] = first + i * stride;
    }
}

int32_t trm_mesh_tensor_ranks(const trm_mesh *mesh)
{
    return mesh->size[TRM_AXIS_TP] * mesh->size[TRM_AXIS_CP];
}

int32_t trm_mesh_ranks(const trm_mesh *mesh)
{
    int32_t ranks = 1;
    for (size_t i = 0; i < N_DIGITS; i++) {
        ranks *= mesh->size[digits[i]];
    }
    return ranks;
}
