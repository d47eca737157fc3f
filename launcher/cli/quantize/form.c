/* The same rules as graph/import/hf/quantization/quantized.c has, number by number. */
#include "launcher/cli/quantize/form.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

bool quantize_form_named(const char *weights, quantize_form *form)
{
    static const struct {
        const char *name;
        quantize_form form;
    } known[] = {
        {"int8", {NUMBERS_INT, 8, 0, true, false}},     {"int8-weights", {NUMBERS_INT, 8, 0, false, false}},
        {"int4", {NUMBERS_INT, 4, 0, false, false}},    {"int4-128", {NUMBERS_INT, 4, 128, false, false}},
        {"nvfp4", {NUMBERS_E2M1, 4, 16, false, false}}, {"mxfp4", {NUMBERS_E2M1, 4, 32, false, false}},
        {"fp8", {NUMBERS_E4M3, 8, 0, false, true}},     {"fp8-weights", {NUMBERS_E4M3, 8, 0, false, false}},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, weights) == 0) {
            *form = known[i].form;
            return true;
        }
    }
    return false;
}

float quantize_form_scale(const quantize_form *form, float largest)
{
    largest = largest > 0x1p-100f ? largest : 0x1p-100f;
    switch (form->numbers) {
    case NUMBERS_INT:
        return largest / (form->bits == 4 ? 7.5f : 127.5f);
    case NUMBERS_E4M3:
        return largest / 448.0f;
    default:
        break;
    }
    if (form->group == 32) { /* the power of two by which the largest is 3.5 to 7 */
        return exp2f(floorf(log2f(largest / 3.5f)));
    }
    int exponent; /* e4m3 has 4 bits of a scale */
    const float fraction = frexpf(largest / 6.0f, &exponent);
    return ldexpf(rintf(fraction * 16.0f) / 16.0f, exponent);
}

static float round_e2m1(float x)
{
    const float size = fabsf(x), step = size < 2.0f ? 0.5f : size < 4.0f ? 1.0f : 2.0f;
    const float rounded = rintf(size / step) * step;
    return copysignf(rounded > 6.0f ? 6.0f : rounded, x);
}

float quantize_form_round(const quantize_form *form, float x, float scale)
{
    const float number = x / scale;
    if (form->numbers == NUMBERS_E4M3) {
        return trm_f8e4m3_to_f32(trm_f32_to_f8e4m3(number)) * scale;
    }
    if (form->numbers == NUMBERS_E2M1) {
        return round_e2m1(number) * scale;
    }
    const float low = form->bits == 4 ? -8.0f : -128.0f, high = form->bits == 4 ? 7.0f : 127.0f;
    const float rounded = rintf(number);
    return (rounded < low ? low : rounded > high ? high : rounded) * scale;
}
