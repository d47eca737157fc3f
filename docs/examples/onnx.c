/*
 * An ONNX file: what it asks for, what cannot be imported and why, a plan of it in a file, and runs of that plan on
 * inputs whose dims differ from run to run.
 *
 *   onnx NET.onnx NET.plan [cuda]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

enum { LEAST = 1, USUAL = 3, MOST = 6, MOST_INPUTS = 8 }; /* what dims that the file leaves open may be */

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

static trm_dims with_open_dims(trm_dims dims, int64_t size)
{
    for (int32_t i = 0; i < dims.n; i++) {
        dims.d[i] = dims.d[i] < 0 ? size : dims.d[i];
    }
    return dims;
}

static bool same_dims(const trm_dims *one, const trm_dims *other)
{
    bool same = one->n == other->n;
    for (int32_t i = 0; same && i < one->n; i++) {
        same = one->d[i] == other->d[i];
    }
    return same;
}

static void print_port(const char *role, const trm_onnx_port *port)
{
    printf("%s %s: %s", role, port->name, port->type);
    for (int32_t i = 0; port->has_dims && i < port->dims.n; i++) {
        const char *between = i == 0 ? " " : "x";
        if (port->dims.d[i] >= 0) {
            printf("%s%lld", between, (long long)port->dims.d[i]);
        } else {
            printf("%s%s", between, port->dim_names[i] != NULL ? port->dim_names[i] : "?");
        }
    }
    printf("\n");
}

/* All nodes that cannot be imported but the first, which trm_last_error tells of. */
static void print_issues(const trm_onnx *model)
{
    trm_onnx_issue issue;
    for (int32_t i = 1; i < trm_onnx_issue_count(model) && trm_onnx_get_issue(model, i, &issue); i++) {
        fprintf(stderr, "%s\n", issue.text);
    }
}

/* Plans for every size from LEAST to MOST of the dims that are open, and writes the plan. Weights stay in the ONNX
 * file. */
static trm_status build(trm_onnx *model, const char *path, trm_backend backend, trm_plan **plan)
{
    trm_shape_bound bounds[MOST_INPUTS] = {{0}};
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    trm_network *network = NULL;
    trm_onnx_port port;
    trm_status status;
    TRY(trm_onnx_build_network(model, NULL, &network));
    how.backend = backend;
    for (int32_t i = 0; i < MOST_INPUTS && trm_onnx_get_input(model, i, &port); i++) {
        bounds[how.n_bounds++] = (trm_shape_bound){.tensor = port.name,
                                                   .min = with_open_dims(port.dims, LEAST),
                                                   .opt = with_open_dims(port.dims, USUAL),
                                                   .max = with_open_dims(port.dims, MOST)};
    }
    how.bounds = bounds;
    TRY(trm_build(network, &how, plan));
    const trm_plan *of_all_ranks[] = {*plan};
    TRY(trm_plan_save(of_all_ranks, 1, TRM_PLAN_WEIGHTS_REFERENCED, path));
done:
    trm_network_destroy(network);
    return status;
}

/* Numbers that are the same in every run: floats from -1 to 1, integers and bools of 0 and 1. */
static trm_status set_input(trm_context *context, const trm_onnx_port *port, int64_t size)
{
    const trm_dims dims = with_open_dims(port->dims, size);
    size_t count = 1, element = trm_dtype_size(port->dtype);
    for (int32_t i = 0; i < dims.n; i++) {
        count *= (size_t)dims.d[i];
    }
    unsigned char *data = calloc(count + 1, element);
    if (data == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned bits = ((unsigned)i + 1) * 2654435761u;
        const float number = (float)(bits >> 8) / (float)(1 << 23) - 1.0f;
        if (port->dtype == TRM_F32) {
            memcpy(data + i * element, &number, sizeof(number));
        } else if (port->dtype != TRM_F16 && port->dtype != TRM_BF16 && port->dtype != TRM_F64) {
            data[i * element] = (unsigned char)(bits >> 31); /* little-endian; other floats stay 0 */
        }
    }
    trm_status status = trm_context_set_input(context, port->name, dims, data); /* copied */
    free(data);
    return status;
}

static trm_status run(trm_context *context, trm_onnx *model, int64_t size)
{
    trm_onnx_port port;
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && trm_onnx_get_input(model, i, &port); i++) {
        status = set_input(context, &port, size);
    }
    return status != TRM_OK ? status : trm_context_start(context); /* comes back at once on a GPU */
}

/* Whether all outputs of two contexts have the same bytes. */
static trm_status compare(trm_onnx *model, trm_context *one, trm_context *other, bool *equal)
{
    trm_onnx_port port;
    trm_dims dims[2];
    const void *data[2];
    trm_status status;
    TRY(trm_context_finish(one));
    TRY(trm_context_finish(other));
    for (int32_t i = 0; trm_onnx_get_output(model, i, &port); i++) {
        TRY(trm_context_output(one, port.name, &dims[0], &data[0]));
        TRY(trm_context_output(other, port.name, &dims[1], &data[1]));
        size_t bytes = trm_dtype_size(port.dtype);
        printf("%s", port.name);
        for (int32_t k = 0; k < dims[0].n; k++) {
            bytes *= (size_t)dims[0].d[k];
            printf("%s%lld", k == 0 ? " " : "x", (long long)dims[0].d[k]);
        }
        printf("\n");
        *equal = *equal && same_dims(&dims[0], &dims[1]) && memcmp(data[0], data[1], bytes) == 0;
    }
done:
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: onnx NET.onnx NET.plan [cuda]\n");
        return 2;
    }
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    where.backend = argc > 3 && strcmp(argv[3], "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    trm_world *world = NULL;
    trm_onnx *model = NULL;
    trm_plan *built = NULL, *loaded = NULL;
    trm_engine *engines[2] = {NULL, NULL};
    trm_context *contexts[2] = {NULL, NULL};
    trm_onnx_port port;
    bool equal = true;
    trm_status status;
    TRY(trm_world_open(&where, &world));
    TRY(trm_onnx_open(argv[1], &model));
    for (int32_t i = 0; trm_onnx_get_input(model, i, &port); i++) {
        print_port("input", &port);
        if (!port.has_dims) { /* not a scalar: even how many it has is open */
            fprintf(stderr, "onnx: input %s has no dims in the file, expected some\n", port.name);
            status = TRM_ERROR_UNSUPPORTED;
            goto closed;
        }
    }
    for (int32_t i = 0; trm_onnx_get_output(model, i, &port); i++) {
        print_port("output", &port);
    }
    status = build(model, argv[2], where.backend, &built);
    print_issues(model);
    TRY(status);
    TRY(trm_plan_load(argv[2], 0, &loaded)); /* another process would begin here */
    for (int32_t i = 0; i < 2; i++) {
        trm_plan **plan = i == 0 ? &built : &loaded;
        status = trm_engine_create(*plan, world, NULL, NULL, &engines[i]);
        *plan = NULL; /* the engine has taken it over, also where it fails */
        TRY(status);
        TRY(trm_context_create(engines[i], &contexts[i]));
        TRY(trm_context_set_capture(contexts[i], true)); /* on a GPU: shapes that come again are one launch */
    }
    for (int64_t size = LEAST; size <= MOST; size++) {
        TRY(run(contexts[0], model, size));
        TRY(run(contexts[1], model, size));
        TRY(compare(model, contexts[0], contexts[1], &equal));
    }
    printf("the plan from the file gives what the one that was built gives: %s\n", equal ? "equal" : "different");
done:
    if (status != TRM_OK) {
        fprintf(stderr, "onnx: %s: %s\n", trm_status_name(status), trm_last_error());
    }
closed:
    for (int32_t i = 0; i < 2; i++) {
        trm_context_destroy(contexts[i]);
        trm_engine_destroy(engines[i]);
    }
    trm_plan_destroy(built); /* those that no engine has taken */
    trm_plan_destroy(loaded);
    trm_onnx_close(model);
    trm_world_close(world);
    return status != TRM_OK ? trm_status_exit_code(status) : equal ? 0 : 1;
}
