/* The marks of the families. */
#include "launcher/serve/requests/infill.h"

#include <string.h>

/* Before the prompt, before the suffix, and before what is filled in. */
typedef struct infill_marks {
    const char *prompt, *suffix, *middle;
    bool suffix_first; /* the suffix comes before the prompt, and nothing is marked behind them */
} infill_marks;

static const infill_marks families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false},    /* Qwen, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", false},          /* StarCoder 2, Granite */
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", false},    /* DeepSeek */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", false}, /* GLM */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", false},          /* SantaCoder */
    {"[PREFIX]", "[SUFFIX]", "", true},                               /* Codestral */
    {"▁<PRE>", "▁<SUF>", "▁<MID>", false},                            /* Code Llama */
};

static const infill_marks *find_marks(const trm_tokenizer *tokenizer)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        const infill_marks *marks = &families[i];
        if (trm_tokenizer_find(tokenizer, marks->prompt) >= 0 && trm_tokenizer_find(tokenizer, marks->suffix) >= 0 &&
            (marks->suffix_first || trm_tokenizer_find(tokenizer, marks->middle) >= 0)) {
            return marks;
        }
    }
    return NULL;
}

bool infill_prompts(const trm_tokenizer *tokenizer, api_request *request, api_error *error)
{
    const infill_marks *marks = find_marks(tokenizer);
    if (marks == NULL) {
        return api_fail(error, 400, "suffix", "unsupported_parameter",
                        "suffix is not supported: the model's tokenizer has no tokens for filling in a text");
    }
    for (int32_t i = 0; i < request->n_prompts; i++) {
        api_prompt *prompt = &request->prompts[i];
        if (prompt->text == NULL) {
            return api_fail(error, 400, "suffix", "unsupported_parameter",
                            "suffix is not supported with a prompt of token ids");
        }
        prompt->text = marks->suffix_first
                           ? trm_arena_printf(&request->arena, "%s%s%s%s", marks->suffix, request->suffix,
                                              marks->prompt, prompt->text)
                           : trm_arena_printf(&request->arena, "%s%s%s%s%s", marks->prompt, prompt->text, marks->suffix,
                                              request->suffix, marks->middle);
        if (prompt->text == NULL) {
            return api_fail(error, 503, NULL, NULL, "cannot allocate the request");
        }
    }
    return true;
}
