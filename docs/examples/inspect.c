/*
 * What a model is and what it would need, without a device: its shape, and the memory of every rank of a mesh.
 *
 *   inspect MODEL [RANKS [MESH]]     MODEL: a folder, or a well-known shape such as llama-3-8b
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

static bool is_preset(const char *name)
{
    for (int32_t i = 0; trm_model_preset_name(i) != NULL; i++) {
        if (strcmp(trm_model_preset_name(i), name) == 0) {
            return true;
        }
    }
    return false;
}

static void show_model(const trm_model_info *m)
{
    printf("%s (%s), weights in %s\n", m->path, m->architecture, trm_dtype_name(m->weight_dtype));
    printf("%lld parameters, %lld layers of width %lld, %lld query and %lld key-value heads, vocabulary of %lld\n",
           (long long)m->parameters, (long long)m->layers, (long long)m->hidden, (long long)m->heads,
           (long long)m->kv_heads, (long long)m->vocab);
}

/* The plan of one rank. Plans need no peers and no device: every rank's can be made here. */
static trm_status show_rank(trm_model *model, const trm_generator_options *options, int32_t rank)
{
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan = NULL;
    trm_memory_plan memory;
    int64_t cache_tokens;
    trm_status status;
    build.mesh = options->mesh;
    build.rank = rank;
    TRY(trm_generator_plan(model, options, &build, &plan, &cache_tokens));
    trm_plan_memory(plan, &memory);
    printf("rank %d: %.1f MiB: weights %.1f, cache of %lld tokens %.1f, activations %.1f, workspace %.1f\n", (int)rank,
           (double)memory.total / 0x1p20, (double)memory.weights / 0x1p20, (long long)cache_tokens,
           (double)memory.state / 0x1p20, (double)memory.activations / 0x1p20, (double)memory.workspace / 0x1p20);
done:
    trm_plan_destroy(plan);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: inspect MODEL [RANKS [MESH]]\n");
        return 2;
    }
    int32_t ranks = argc > 2 ? atoi(argv[2]) : 1;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_model *model = NULL;
    trm_model_info info;
    char mesh[64];
    trm_status status;
    printf("trireme %s\n", trm_version());
    TRY(trm_mesh_parse(argc > 3 ? argv[3] : NULL, ranks, &options.mesh));
    trm_mesh_format(&options.mesh, mesh, sizeof(mesh));
    TRY(is_preset(argv[1]) ? trm_model_open_preset(argv[1], 0, 0, &model) : trm_model_open(argv[1], &model));
    trm_model_get_info(model, &info);
    show_model(&info);
    options.dtype = info.weight_dtype; /* what a GPU would compute in; the host's own choice is f32 */
    printf("on mesh %s:\n", mesh);
    for (int32_t rank = 0; rank < ranks; rank++) {
        TRY(show_rank(model, &options, rank));
    }
done:
    if (status != TRM_OK) {
        fprintf(stderr, "inspect: %s: %s\n", trm_status_name(status), trm_last_error());
    }
    trm_model_close(model);
    return trm_status_exit_code(status);
}
