/*
 * Text from a model: opens a Hugging Face folder and continues a prompt.
 *
 *   [mpirun -np 2] generate MODEL PROMPT      such as: generate configs/models/kjv-7m "In the beginning God"
 */
#include <stdio.h>

#include <trireme/llm.h>

static bool print_text(void *user, const char *text, size_t size)
{
    return fwrite(text, 1, size, user) == size && fflush(user) == 0; /* false would end it */
}

int main(int argc, char **argv)
{
    trm_llm *llm = NULL;
    trm_llm_params params = TRM_LLM_PARAMS_INIT;
    params.max_tokens = 32;
    trm_status status = trm_llm_open(argc > 1 ? argv[1] : ".", NULL, &llm);
    if (status == TRM_OK) {
        status = trm_llm_generate(llm, argc > 2 ? argv[2] : "", &params, print_text, stdout);
    }
    if (status != TRM_OK) {
        fprintf(stderr, "generate: %s\n", trm_last_error());
    }
    trm_llm_close(llm);
    return trm_status_exit_code(status);
}
