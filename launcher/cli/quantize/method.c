/* --method, --samples and --to together. */
#include "launcher/cli/quantize/method.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static trm_status take_word(quantize_method *m, const char *word, size_t size)
{
    static const char *const words[] = {"nearest", "mse", "gptq", "awq", "smoothquant"};
    bool *const flags[] = {NULL, &m->clip, &m->gptq, &m->awq, &m->smooth};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i]) == size && strncmp(words[i], word, size) == 0) {
            if (flags[i] != NULL) {
                *flags[i] = true;
            }
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--method has %.*s, expected nearest, mse, gptq, awq or smoothquant",
             (int)size, word);
}

static trm_status check(const quantize_method *m, const char *weights, bool is_known, bool has_samples)
{
    const bool is_int = is_known && m->form.numbers == NUMBERS_INT;
    const bool has_8_bits = is_known && (m->form.has_int8_x || m->form.has_e4m3_x);
    if (m->awq && m->smooth) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--method has awq and smoothquant, expected one of them");
    }
    if ((m->gptq || m->clip) && !is_int) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--method %s is for int8, int8-weights, int4 and int4-128, --to is %s",
                 m->gptq ? "gptq" : "mse", weights);
    }
    if (m->awq && !is_int && !(is_known && m->form.numbers == NUMBERS_E2M1)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--method awq is for integers, nvfp4 and mxfp4, --to is %s", weights);
    }
    if (m->smooth && !has_8_bits) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "--method smoothquant is for activations of 8 bits, int8 and fp8, --to is %s", weights);
    }
    if ((m->gptq || m->awq || m->smooth) && !has_samples) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--method %s needs inputs of layers: give --samples",
                 m->awq      ? "awq"
                 : m->smooth ? "smoothquant"
                             : "gptq");
    }
    return TRM_OK;
}

static void describe(quantize_method *m)
{
    const struct {
        bool on;
        const char *word;
    } parts[] = {{m->awq, "awq"}, {m->smooth, "smoothquant"}, {m->clip && !m->awq, "mse"}, {m->gptq, "gptq"}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        used += parts[i].on ? (size_t)snprintf(m->text + used, sizeof(m->text) - used, "%s%s", used > 0 ? ", " : "",
                                               parts[i].word)
                            : 0;
    }
    if (used == 0) {
        snprintf(m->text, sizeof(m->text), "nearest");
    }
}

trm_status quantize_method_read(const settings *all, const char *weights, quantize_method *method)
{
    const char *text = settings_text(all, SETTING_METHOD);
    const bool has_samples = settings_text(all, SETTING_SAMPLES) != NULL;
    *method = (quantize_method){0};
    const bool is_known = quantize_form_named(weights, &method->form);
    const bool is_int = is_known && method->form.numbers == NUMBERS_INT;
    for (const char *word = text; word != NULL && *word != '\0';) {
        const size_t size = strcspn(word, ",");
        TRM_TRY(take_word(method, word, size));
        word += size + (word[size] == ',' ? 1 : 0);
    }
    method->gptq = method->gptq || (text == NULL && has_samples && is_int);
    TRM_TRY(check(method, weights, is_known, has_samples));
    method->clip = method->clip || (method->awq && is_int);
    describe(method);
    return TRM_OK;
}
