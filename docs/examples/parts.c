/*
 * What trm_llm_generate is made of (see generate.c for the short way): world, model, tokenizer, generator and decoder,
 * each with options of its own.
 *
 *   [mpirun -np 2] parts MODEL PROMPT [MESH]      such as: parts configs/models/kjv-7m "In the beginning God" tp=2
 */
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

typedef struct printer {
    trm_decoder *decoder;
    bool talks; /* rank 0 */
    trm_status status;
} printer;

/* Called for every token, on every rank. Text comes out as soon as it is certain, so no character is ever cut. */
static bool print_token(void *user, int32_t request, int32_t token)
{
    printer *p = user;
    const char *text;
    size_t size;
    (void)request; /* there is one only */
    p->status = trm_decoder_push(p->decoder, token, &text, &size);
    if (p->status == TRM_OK && p->talks) {
        fwrite(text, 1, size, stdout);
        fflush(stdout);
    }
    return p->status == TRM_OK; /* false ends the sequence; must be so on every rank */
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: parts MODEL PROMPT [MESH]\n");
        return 2;
    }
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_request request = {.max_tokens = 32, .sampling = TRM_SAMPLING_INIT}; /* greedy */
    trm_world *world = NULL;
    trm_model *model = NULL;
    trm_tokenizer *tokenizer = NULL;
    trm_generator *generator = NULL;
    trm_tokens prompt = {0};
    trm_generate_stats stats;
    trm_model_info info;
    printer out = {NULL, false, TRM_OK};
    const char *rest;
    size_t size;
    trm_status status;
    TRY(trm_world_open(&where, &world));
    out.talks = trm_world_rank(world) == 0;
    TRY(trm_model_open(argv[1], &model));
    trm_model_get_info(model, &info); /* info.path: the folder, where the model was given as org/name */
    TRY(trm_tokenizer_open(info.path, &tokenizer));
    TRY(trm_decoder_create(tokenizer, true, &out.decoder));
    TRY(trm_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), true, &prompt));
    TRY(trm_mesh_parse(argc > 3 ? argv[3] : NULL, trm_world_size(world), &options.mesh));
    TRY(trm_generator_create(model, world, &options, &generator));
    request.prompt = prompt.ids;
    request.n_prompt = (int64_t)prompt.count;
    if (out.talks) {
        printf("%s", argv[2]);
    }
    TRY(trm_generate(generator, &request, 1, print_token, &out, &stats));
    TRY(out.status);
    TRY(trm_decoder_finish(out.decoder, &rest, &size));
    if (out.talks) {
        fwrite(rest, 1, size, stdout);
        printf("\n%lld tokens, %.1f a second\n", (long long)stats.generated_tokens,
               (double)(stats.generated_tokens - 1) / stats.decode_seconds);
    }
done:
    if (status != TRM_OK) {
        fprintf(stderr, "parts: %s: %s\n", trm_status_name(status), trm_last_error());
        trm_world_abort(world, status); /* ends the other ranks too */
    }
    trm_generator_destroy(generator);
    trm_tokens_fini(&prompt);
    trm_decoder_destroy(out.decoder);
    trm_tokenizer_close(tokenizer);
    trm_model_close(model);
    trm_world_close(world);
    return trm_status_exit_code(status);
}
