/*
 * Weights whose integers are stored differently from how kernels read them, as in quantized checkpoints: the result of
 * a code, and reading its elements. Each code is one step; a checkpoint format is a few codes and views.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "weight_stream/weight_internal.h"

#define WORDS     512 /* read at a time */
#define WORD_ROWS ((size_t)16)

static const struct {
    const char *name;
    trm_dtype from, to;
    int32_t rows, columns; /* that one becomes */
    int32_t multiple;      /* columns must be one of this */
} codes[TRM_WEIGHT_CODE_COUNT] = {
    [TRM_WEIGHT_CODE_BYTES] = {"bytes", TRM_I32, TRM_U8, 1, 4, 1},
    [TRM_WEIGHT_CODE_SIGNED] = {"signed", TRM_U8, TRM_I8, 1, 1, 1},
    [TRM_WEIGHT_CODE_NEXT] = {"next", TRM_I32, TRM_I32, 1, 1, 1},
    [TRM_WEIGHT_CODE_HALVES] = {"halves", TRM_U8, TRM_U8, 1, 2, 1},
    [TRM_WEIGHT_CODE_PAIRS] = {"pairs", TRM_U8, TRM_U8, 1, 1, 2},
    [TRM_WEIGHT_CODE_WORDS] = {"words", TRM_I32, TRM_U8, 8, 1, 1},
    [TRM_WEIGHT_CODE_AWQ_WORDS] = {"awq_words", TRM_I32, TRM_U8, 8, 1, 1},
    [TRM_WEIGHT_CODE_REPEAT] = {"repeat", TRM_DTYPE_NONE, TRM_DTYPE_NONE, 1, 1, 1},
    [TRM_WEIGHT_CODE_LARGEST] = {"largest", TRM_DTYPE_NONE, TRM_F32, 1, 1, 1},
    [TRM_WEIGHT_CODE_E2M1] = {"e2m1", TRM_U8, TRM_F4E2M1, 1, 1, 1},
    [TRM_WEIGHT_CODE_TWICE] = {"twice", TRM_F4E2M1, TRM_I8, 1, 2, 1},
    [TRM_WEIGHT_CODE_POWERS] = {"powers", TRM_U8, TRM_F32, 1, 1, 1},
};

const char *trm_weight_code_name(trm_weight_code code)
{
    return (unsigned)code < TRM_WEIGHT_CODE_COUNT ? codes[code].name : "unknown";
}

static trm_status check_repeat(const trm_weight *weight, int32_t times, const char *source, trm_dtype *dtype,
                               trm_dims *dims)
{
    if (weight->count != 1 || times < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "weight %s has %zu elements to be repeated %d times, expected 1 and 1 or more", source, weight->count,
                 times);
    }
    *dtype = weight->base->dtype;
    *dims = (trm_dims){2, {times, 1}};
    return TRM_OK;
}

static trm_status check_largest(const trm_weight *weight, const char *source, trm_dtype *dtype, trm_dims *dims)
{
    const trm_dtype type = weight->base->dtype;
    if (weight->view.dims.n != 2 || (type != TRM_F32 && type != TRM_F16 && type != TRM_BF16)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "weight %s of type %s with %d dimensions has no largest magnitudes of rows, expected f32, f16 or bf16 "
                 "with 2",
                 source, trm_dtype_name(type), weight->view.dims.n);
    }
    *dtype = TRM_F32;
    *dims = (trm_dims){2, {weight->view.dims.d[0], 1}};
    return TRM_OK;
}

trm_status trm_weight_check_recode(const trm_weight *weight, trm_weight_code code, int32_t times, trm_dtype *dtype,
                                   trm_dims *dims)
{
    char source[256];
    trm_weight_describe(weight, source, sizeof(source));
    if (code == TRM_WEIGHT_CODE_REPEAT) {
        return check_repeat(weight, times, source, dtype, dims);
    }
    if (code == TRM_WEIGHT_CODE_LARGEST) {
        return check_largest(weight, source, dtype, dims);
    }
    if ((unsigned)code >= TRM_WEIGHT_CODE_COUNT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s: code %d, expected 0 to %d", source, (int)code,
                 TRM_WEIGHT_CODE_COUNT - 1);
    }
    const trm_dtype from = weight->base->dtype;
    const bool quantized =
        (code == TRM_WEIGHT_CODE_PAIRS && from == TRM_F4E2M1) || (code == TRM_WEIGHT_CODE_POWERS && from == TRM_F8E8M0);
    if ((from != codes[code].from && !quantized) || weight->view.dims.n != 2 ||
        weight->view.dims.d[1] % codes[code].multiple != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "weight %s of type %s with %d dimensions cannot be read as %s, which are of %s with 2 dimensions%s",
                 source, trm_dtype_name(weight->base->dtype), weight->view.dims.n, codes[code].name,
                 trm_dtype_name(codes[code].from), codes[code].multiple > 1 ? ", the second even" : "");
    }
    trm_dims result = weight->view.dims;
    if (__builtin_mul_overflow(result.d[0], codes[code].rows, &result.d[0]) ||
        __builtin_mul_overflow(result.d[1], codes[code].columns, &result.d[1])) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s exceeds the address space as %s", source, codes[code].name);
    }
    result.d[1] /= codes[code].multiple;
    *dtype = from == TRM_F4E2M1 && quantized ? TRM_F4E2M1 : codes[code].to;
    *dims = result;
    return TRM_OK;
}

typedef struct source {
    const trm_weight *part;
    trm_weight_read_part_fn read;
    void *call;
} source;

static void read_bytes(const source *from, size_t start, size_t count, unsigned char *to)
{
    uint32_t words[WORDS];
    while (count > 0) {
        const size_t skipped = start % 4;
        size_t n = sizeof(words) - skipped < count ? sizeof(words) - skipped : count;
        if (skipped == 0 && count >= sizeof(words)) { /* as long a run as there is: files are read in long ones */
            n = count / 4 * 4;
            from->read(from->call, from->part, start / 4, n / 4, to);
        } else {
            from->read(from->call, from->part, start / 4, (skipped + n + 3) / 4, words);
            memcpy(to, (const unsigned char *)words + skipped, n);
        }
        start += n;
        to += n;
        count -= n;
    }
}

static void read_next(const source *from, size_t start, size_t count, unsigned char *to)
{
    from->read(from->call, from->part, start, count, to);
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, to + 4 * i, sizeof(word));
        word += 0x11111111u;
        memcpy(to + 4 * i, &word, sizeof(word));
    }
}

static void read_halves(const source *from, size_t start, size_t count, unsigned char *to)
{
    uint8_t bytes[WORDS];
    while (count > 0) {
        const size_t skipped = start % 2, n = 2 * WORDS - skipped < count ? 2 * WORDS - skipped : count;
        from->read(from->call, from->part, start / 2, (skipped + n + 1) / 2, bytes);
        for (size_t i = 0; i < n; i++) {
            const size_t at = skipped + i;
            to[i] = at % 2 == 0 ? bytes[at / 2] & 15 : bytes[at / 2] >> 4;
        }
        start += n;
        to += n;
        count -= n;
    }
}

static void read_twice(const source *from, size_t start, size_t count, unsigned char *to)
{
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    read_halves(from, start, count, to);
    for (size_t i = 0; i < count; i++) {
        to[i] = (unsigned char)twice[to[i]];
    }
}

static void read_powers(const source *from, size_t start, size_t count, unsigned char *to)
{
    float powers[WORDS];
    uint8_t bytes[WORDS];
    for (size_t done = 0; done < count; done += WORDS) {
        const size_t n = count - done < WORDS ? count - done : WORDS;
        from->read(from->call, from->part, start + done, n, bytes);
        for (size_t i = 0; i < n; i++) {
            powers[i] = bytes[i] == 255 ? NAN : ldexpf(1.0f, (int)bytes[i] - 127);
        }
        memcpy(to + done * sizeof(*powers), powers, n * sizeof(*powers));
    }
}

static void read_pairs(const source *from, size_t start, size_t count, unsigned char *to)
{
    /* As many rows at a time as words are read in, where there is memory for them. */
    const size_t rows = 8 * WORD_ROWS * ((size_t)from->part->view.dims.d[1] / 2);
    uint8_t few[2 * WORDS], *many = count > WORDS ? malloc(2 * (rows < count ? rows : count)) : NULL;
    uint8_t *halves = many != NULL ? many : few;
    const size_t most = many != NULL ? rows : WORDS;
    while (count > 0) {
        const size_t n = most < count ? most : count;
        from->read(from->call, from->part, 2 * start, 2 * n, halves);
        for (size_t i = 0; i < n; i++) {
            to[i] = (unsigned char)((halves[2 * i] & 15) | halves[2 * i + 1] << 4);
        }
        start += n;
        to += n;
        count -= n;
    }
    free(many);
}

/* Whole rows that eight by eight are in the words of one, WORD_ROWS rows of words at a time: those often lie in columns
 * of a file, and one at a time would touch all its pages. Returns how many elements they have. */
static size_t read_word_rows(const source *from, const int *bits, size_t start, size_t count, unsigned char *to)
{
    const size_t columns = (size_t)from->part->view.dims.d[1], rows = count / (8 * columns);
    if (start % (8 * columns) != 0 || rows < 2) {
        return 0;
    }
    uint32_t *words = malloc((rows < WORD_ROWS ? rows : WORD_ROWS) * columns * sizeof(*words));
    for (size_t done = 0; words != NULL && done < rows; done += WORD_ROWS) {
        const size_t n = rows - done < WORD_ROWS ? rows - done : WORD_ROWS;
        from->read(from->call, from->part, start / 8 + done * columns, n * columns, words);
        for (size_t i = 0; i < 8 * n; i++, to += columns) {
            for (size_t c = 0; c < columns; c++) {
                to[c] = words[i / 8 * columns + c] >> bits[i % 8] & 15;
            }
        }
    }
    const size_t read = words != NULL ? rows * 8 * columns : 0;
    free(words);
    return read;
}

static void read_words(const source *from, const int *bits, size_t start, size_t count, unsigned char *to)
{
    uint32_t words[WORDS];
    const size_t columns = (size_t)from->part->view.dims.d[1];
    while (count > 0) {
        const size_t row = start / columns, column = start % columns;
        size_t n = read_word_rows(from, bits, start, count, to);
        if (n == 0) {
            n = columns - column < count ? columns - column : count;
            n = n < WORDS ? n : WORDS;
            from->read(from->call, from->part, row / 8 * columns + column, n, words);
            for (size_t i = 0; i < n; i++) {
                to[i] = words[i] >> bits[row % 8] & 15;
            }
        }
        start += n;
        to += n;
        count -= n;
    }
}

void trm_weight_read_recoded(const trm_weight *part, trm_weight_code code, size_t start, size_t count,
                             unsigned char *to, trm_weight_read_part_fn read, void *call)
{
    static const int in_order[8] = {0, 4, 8, 12, 16, 20, 24, 28}, awq[8] = {0, 16, 4, 20, 8, 24, 12, 28};
    const source from = {part, read, call};
    switch (code) {
    case TRM_WEIGHT_CODE_BYTES:
        read_bytes(&from, start, count, to);
        break;
    case TRM_WEIGHT_CODE_SIGNED:
        read(call, part, start, count, to);
        for (size_t i = 0; i < count; i++) {
            to[i] = (unsigned char)(to[i] + 128);
        }
        break;
    case TRM_WEIGHT_CODE_NEXT:
        read_next(&from, start, count, to);
        break;
    case TRM_WEIGHT_CODE_HALVES:
        read_halves(&from, start, count, to);
        break;
    case TRM_WEIGHT_CODE_E2M1:
        read(call, part, start, count, to);
        break;
    case TRM_WEIGHT_CODE_TWICE:
        read_twice(&from, start, count, to);
        break;
    case TRM_WEIGHT_CODE_POWERS:
        read_powers(&from, start, count, to);
        break;
    case TRM_WEIGHT_CODE_PAIRS:
        read_pairs(&from, start, count, to);
        break;
    case TRM_WEIGHT_CODE_WORDS:
    case TRM_WEIGHT_CODE_AWQ_WORDS:
        read_words(&from, code == TRM_WEIGHT_CODE_WORDS ? in_order : awq, start, count, to);
        break;
    case TRM_WEIGHT_CODE_REPEAT: /* weight_read.c: they may convert */
    case TRM_WEIGHT_CODE_LARGEST:
    case TRM_WEIGHT_CODE_COUNT:
        break;
    }
}
