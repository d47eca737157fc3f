/*
 * trm_model_quantize: a model folder with its linear layers quantized, in the format of compressed-tensors.
 *
 * The model is opened with these weights, and every layer that this quantizes is read and written, a few rows at a
 * time. So the folder has the bits that such a model reads.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/half.h"
#include "base/json_writer.h"
#include "base/options.h"
#include "base/recorder.h"
#include "base/temporary.h"
#include "graph/import/hf/folder.h"
#include "graph/import/hf/model.h"
#include "graph/network.h"
#include "kernels/kernel.h"
#include "weight_stream/convert.h"
#include "weight_stream/safetensors_write.h"

#define SHARD_BYTES  ((size_t)5 << 30)
#define CHUNK_BYTES  ((size_t)4 << 20) /* of a weight in memory */
#define CONFIG_LIMIT ((size_t)16 << 20)
#define WORD         4 /* bytes: packed numbers are stored as words */

typedef enum part_kind { COPY, NUMBERS, SCALES, GLOBAL_SCALE, SHAPE } part_kind;

/* A tensor of the new files. */
typedef struct part {
    part_kind kind;
    int32_t stored; /* the tensor that it is made of */
    char *name;
} part;

typedef struct job {
    const trm_hf_quantization *how;
    const trm_quantize_options *options;
    trm_hf_checkpoint *checkpoint;
    part *parts;                     /* [count] */
    trm_safetensors_output *outputs; /* [count] */
    size_t count;
    int64_t done, total;
} job;

/* ---- the tensors of the new files --------------------------------------------------------------------------- */

/* The name of the layer of a weight "<layer>.weight". */
static int layer_length(const char *weight)
{
    return (int)(strlen(weight) - strlen(".weight"));
}

static trm_status add_part(job *j, part_kind kind, int32_t stored, const char *suffix,
                           const trm_safetensors_output *output)
{
    const char *weight = trm_safetensors_name(j->checkpoint->stored, stored);
    char *name = kind == COPY ? strdup(weight) : NULL;
    if (kind != COPY && asprintf(&name, "%.*s%s", layer_length(weight), weight, suffix) < 0) {
        name = NULL;
    }
    if (name == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the name of weight %s", weight);
    }
    j->parts[j->count] = (part){kind, stored, name};
    j->outputs[j->count] = *output;
    j->outputs[j->count++].name = name;
    return TRM_OK;
}

static trm_status take_layer(job *j, int32_t stored, trm_hf_quantized *taken)
{
    char layer[320];
    trm_dtype dtype;
    trm_dims dims = {0};
    const char *weight = trm_safetensors_name(j->checkpoint->stored, stored);
    snprintf(layer, sizeof(layer), "%.*s", layer_length(weight), weight);
    (void)trm_safetensors_describe(j->checkpoint->stored, weight, &dtype, &dims); /* it has been taken */
    return trm_hf_quantized_take(j->checkpoint, j->how, layer, dims.d[0], dims.d[1], taken);
}

/* Floats of 4 bits have scales of 8, and NVFP4 one for all of them. */
static trm_status add_f4_layer(job *j, int32_t stored, const trm_hf_quantized *taken)
{
    const bool has_global = taken->global_scale != NULL;
    const trm_safetensors_output outputs[] = {
        {.type = "U8", .dims = trm_weight_dims(taken->weight), .element_size = 1},
        {.type = has_global ? "F8_E4M3" : "U8", .dims = trm_weight_dims(taken->stored_scale), .element_size = 1},
        {.type = "F32", .dims = trm_dims1(1), .element_size = sizeof(float)}};
    TRM_TRY(add_part(j, NUMBERS, stored, ".weight_packed", &outputs[0]));
    TRM_TRY(add_part(j, SCALES, stored, ".weight_scale", &outputs[1]));
    return has_global ? add_part(j, GLOBAL_SCALE, stored, ".weight_global_scale", &outputs[2]) : TRM_OK;
}

static trm_status add_layer(job *j, int32_t stored)
{
    trm_hf_quantized taken;
    TRM_TRY(take_layer(j, stored, &taken));
    if (j->how->format == TRM_HF_QUANT_F4) {
        trm_status status = add_f4_layer(j, stored, &taken);
        trm_hf_quantized_fini(&taken);
        return status;
    }
    const trm_dims numbers = trm_weight_dims(taken.weight), scales = trm_weight_dims(taken.scale);
    const trm_dtype scale = trm_weight_dtype(taken.scale);
    trm_hf_quantized_fini(&taken);
    const bool packed = j->how->bits == 4;
    const trm_safetensors_output outputs[] = {{.type = packed                   ? "I32"
                                                       : j->how->type == TRM_I8 ? "I8"
                                                                                : "F8_E4M3",
                                               .dims = packed ? trm_dims2(numbers.d[0], numbers.d[1] / WORD) : numbers,
                                               .element_size = packed ? WORD : 1},
                                              {.type = scale == TRM_F32   ? "F32"
                                                       : scale == TRM_F16 ? "F16"
                                                                          : "BF16",
                                               .dims = scales,
                                               .element_size = trm_dtype_size(scale)},
                                              {.type = "I64", .dims = trm_dims1(2), .element_size = sizeof(int64_t)}};
    TRM_TRY(add_part(j, NUMBERS, stored, packed ? ".weight_packed" : ".weight", &outputs[0]));
    TRM_TRY(add_part(j, SCALES, stored, ".weight_scale", &outputs[1]));
    return packed ? add_part(j, SHAPE, stored, ".weight_shape", &outputs[2]) : TRM_OK;
}

static trm_status add_copy(job *j, int32_t stored)
{
    const char *name = trm_safetensors_name(j->checkpoint->stored, stored);
    trm_dtype dtype;
    trm_safetensors_output output = {.type = trm_safetensors_type(j->checkpoint->stored, name)};
    (void)trm_safetensors_describe(j->checkpoint->stored, name, &dtype, &output.dims);
    if (dtype == TRM_DTYPE_NONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is %s, which cannot be copied", name, output.type);
    }
    output.element_size = trm_dtype_size(dtype);
    return add_part(j, COPY, stored, "", &output);
}

static trm_status list_parts(job *j)
{
    const int32_t n = trm_safetensors_count(j->checkpoint->stored);
    bool any = false;
    j->parts = calloc(3 * (size_t)n + 1, sizeof(*j->parts));
    j->outputs = calloc(3 * (size_t)n + 1, sizeof(*j->outputs));
    if (j->parts == NULL || j->outputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of %d weights", n);
    }
    for (int32_t i = 0; i < n; i++) {
        any = any || j->checkpoint->quantized[i];
        TRM_TRY(j->checkpoint->quantized[i] ? add_layer(j, i) : add_copy(j, i));
    }
    if (!any) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "it has no layer to quantize");
    }
    j->total = (int64_t)trm_safetensors_bytes(j->checkpoint->stored);
    return TRM_OK;
}

/* ---- their bytes -------------------------------------------------------------------------------------------- */

/* Writes a weight in its own type. */
static trm_status write_whole(const trm_weight *weight, void *buffer, FILE *file)
{
    const trm_dims dims = trm_weight_dims(weight);
    const trm_dtype dtype = trm_weight_dtype(weight);
    const size_t size = trm_dtype_size(dtype), count = (size_t)trm_dims_count(&dims), most = CHUNK_BYTES / size;
    for (size_t done = 0; done < count; done += most) {
        const size_t n = count - done < most ? count - done : most;
        TRM_TRY(trm_weight_read(weight, dtype, done, n, buffer));
        TRM_TRY(trm_safetensors_put(file, buffer, n * size));
    }
    return TRM_OK;
}

/* Rows of a weight as they were and as they are. */
typedef struct rows {
    const trm_weight *before;
    const trm_hf_quantized *taken;
    int64_t columns, rows_at_once, bytes; /* of a row of numbers */
    float *floats, *scales;               /* [rows_at_once, columns], [rows of scales, columns of scales] */
    unsigned char *numbers;               /* [rows_at_once, bytes] */
    double *differences, *squares;        /* [columns] sums of squares */
} rows;

/* Number i of a row of numbers. */
static float number_of(const trm_hf_quantization *how, const unsigned char *numbers, int64_t i)
{
    static const float f4[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    if (how->type == TRM_F4E2M1) {
        const int bits = numbers[i / 2] >> (i % 2 * 4) & 15;
        return bits < 8 ? f4[bits] : -f4[bits - 8];
    }
    if (how->bits == 4) {
        return (float)((numbers[i / 2] >> (i % 2 * 4) & 15) - 8);
    }
    return how->type == TRM_I8 ? (float)(int8_t)numbers[i] : trm_f8e4m3_to_f32(numbers[i]);
}

/* Adds the differences of `n` rows from row `first` on. */
static void compare_rows(const trm_hf_quantization *how, rows *r, int64_t first, int64_t n)
{
    const trm_dims scales = trm_weight_dims(r->taken->scale);
    const int64_t block_k = r->taken->block_k > 0 ? r->taken->block_k : r->columns;
    for (int64_t i = 0; i < n; i++) {
        const float *scale = r->scales + (first + i) / r->taken->block_n * scales.d[1];
        for (int64_t c = 0; c < r->columns; c++) {
            const double x = (double)r->floats[i * r->columns + c];
            const double d = x - (double)(number_of(how, r->numbers + i * r->bytes, c) * scale[c / block_k]);
            r->differences[c] += d * d;
            r->squares[c] += x * x;
        }
    }
}

/* Integers as they are stored. */
static void pack_numbers(const trm_hf_quantization *how, const int8_t *chosen, size_t count, unsigned char *numbers)
{
    if (how->bits == 8) {
        memcpy(numbers, chosen, count);
        return;
    }
    for (size_t i = 0; i < count; i += 2) {
        numbers[i / 2] = (unsigned char)((chosen[i] + 8) | (chosen[i + 1] + 8) << 4);
    }
}

/* Asks the caller, and checks the scales, which are rounded to their type. */
static trm_status choose(job *j, const trm_quantize_choice *choice)
{
    TRM_TRY(j->options->choose(j->options->user, choice));
    for (int64_t i = 0; j->options->choose_scales && i < choice->rows * (choice->columns / choice->group); i++) {
        uint16_t half;
        if (choice->scale_type != TRM_F32) {
            trm_convert(TRM_F32, &choice->scales[i], choice->scale_type, &half, 1);
            trm_convert(choice->scale_type, &half, TRM_F32, &choice->scales[i], 1);
        }
        if (!(choice->scales[i] > 0.0f) || isinf(choice->scales[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "layer %s has a scale of %g, expected a number above 0", choice->name,
                     (double)choice->scales[i]);
        }
    }
    return TRM_OK;
}

/* Lets the caller choose the numbers of a whole weight. */
static trm_status choose_numbers(job *j, rows *r, int64_t n, int8_t *chosen, const char *layer)
{
    const bool packed = j->how->bits == 4;
    const trm_quantize_choice choice = {.name = layer,
                                        .rows = n,
                                        .columns = r->columns,
                                        .group = r->taken->block_k > 0 ? r->taken->block_k : r->columns,
                                        .low = packed ? -8 : -128,
                                        .high = packed ? 7 : 127,
                                        .weight = r->floats,
                                        .scales = r->scales,
                                        .numbers = chosen,
                                        .scale_type = trm_weight_dtype(r->taken->scale)};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < r->columns; c++) {
            chosen[i * r->columns + c] = (int8_t)number_of(j->how, r->numbers + i * r->bytes, c);
        }
    }
    TRM_TRY(choose(j, &choice));
    for (int64_t i = 0; i < n * r->columns; i++) {
        if (chosen[i] < choice.low || chosen[i] > choice.high) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "layer %s has number %d, expected %d to %d", layer, (int)chosen[i],
                     (int)choice.low, (int)choice.high);
        }
    }
    pack_numbers(j->how, chosen, (size_t)(n * r->columns), r->numbers);
    return TRM_OK;
}

static bool is_chosen(const job *j)
{
    return j->options->choose != NULL && j->how->type != TRM_F8E4M3 && j->how->type != TRM_F4E2M1;
}

static trm_status take_choice(job *j, rows *r, int64_t n, const char *weight)
{
    char layer[320];
    int8_t *chosen = malloc((size_t)(n * r->columns));
    if (chosen == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the numbers of weight %s", weight);
    }
    snprintf(layer, sizeof(layer), "%.*s", layer_length(weight), weight);
    trm_status status = choose_numbers(j, r, n, chosen, layer);
    free(chosen);
    return status;
}

static trm_status write_rows(job *j, rows *r, const char *weight, FILE *file)
{
    const trm_hf_quantization *how = j->how;
    const trm_dims dims = trm_weight_dims(r->before), scales = trm_weight_dims(r->taken->scale);
    TRM_TRY(trm_weight_read(r->taken->scale, TRM_F32, 0, (size_t)trm_dims_count(&scales), r->scales));
    for (int64_t first = 0; first < dims.d[0]; first += r->rows_at_once) {
        const int64_t n = dims.d[0] - first < r->rows_at_once ? dims.d[0] - first : r->rows_at_once;
        TRM_TRY(trm_weight_read(r->before, TRM_F32, (size_t)(first * r->columns), (size_t)(n * r->columns), r->floats));
        TRM_TRY(trm_weight_read(r->taken->weight, trm_weight_dtype(r->taken->weight), (size_t)(first * r->bytes),
                                (size_t)(n * r->bytes), r->numbers));
        TRM_TRY(is_chosen(j) ? take_choice(j, r, n, weight) : TRM_OK);
        TRM_TRY(trm_safetensors_put(file, r->numbers, (size_t)(n * r->bytes)));
        compare_rows(how, r, first, n);
    }
    return TRM_OK;
}

/* Tells the caller about a layer that has been written. */
static trm_status note_layer(job *j, const char *weight, const rows *r)
{
    char layer[320];
    const trm_dims before = trm_weight_dims(r->before), numbers = trm_weight_dims(r->taken->weight),
                   scales = trm_weight_dims(r->taken->scale);
    double difference = 0.0, square = 0.0;
    for (int64_t c = 0; c < r->columns; c++) {
        difference += r->differences[c];
        square += r->squares[c];
    }
    if (!isfinite(difference)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s has numbers that are not finite", weight);
    }
    snprintf(layer, sizeof(layer), "%.*s", layer_length(weight), weight);
    const trm_quantized_layer note = {
        .name = layer,
        .rows = before.d[0],
        .columns = before.d[1],
        .bytes_before = trm_dims_count(&before) * (int64_t)trm_dtype_size(trm_weight_dtype(r->before)),
        .bytes_after =
            trm_dims_count(&numbers) +
            trm_dims_count(&scales) * (int64_t)trm_dtype_size(trm_weight_dtype(
                                          r->taken->stored_scale != NULL ? r->taken->stored_scale : r->taken->scale)),
        .error = square > 0.0 ? sqrt(difference / square) : 0.0,
        .done = j->done,
        .total = j->total,
        .differences = r->differences,
        .squares = r->squares};
    if (j->options->on_layer != NULL && !j->options->on_layer(j->options->user, &note)) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "quantizing was stopped");
    }
    return TRM_OK;
}

static trm_status write_numbers(job *j, const char *weight, const trm_hf_quantized *taken, const trm_weight *before,
                                FILE *file)
{
    const trm_dims dims = trm_weight_dims(before), numbers = trm_weight_dims(taken->weight),
                   scales = trm_weight_dims(taken->scale);
    const int64_t fitting = (int64_t)CHUNK_BYTES / (dims.d[1] * (int64_t)sizeof(float));
    const int64_t some = fitting < taken->block_n ? taken->block_n : fitting, at_once = is_chosen(j) ? dims.d[0] : some;
    rows r = {.before = before,
              .taken = taken,
              .columns = dims.d[1],
              .bytes = numbers.d[1],
              .rows_at_once = at_once < dims.d[0] ? at_once : dims.d[0]};
    r.floats = malloc((size_t)(r.rows_at_once * r.columns) * sizeof(float));
    r.numbers = malloc((size_t)(r.rows_at_once * r.bytes));
    r.scales = malloc((size_t)trm_dims_count(&scales) * sizeof(float));
    r.differences = calloc(2 * (size_t)r.columns, sizeof(double));
    r.squares = r.differences != NULL ? r.differences + r.columns : NULL;
    trm_status status = r.floats == NULL || r.numbers == NULL || r.scales == NULL || r.differences == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for rows of weight %s", weight)
                            : write_rows(j, &r, weight, file);
    j->done += trm_dims_count(&dims) * (int64_t)trm_dtype_size(trm_weight_dtype(before));
    status = status == TRM_OK ? note_layer(j, weight, &r) : status;
    free(r.floats);
    free(r.numbers);
    free(r.scales);
    free(r.differences);
    return status;
}

/* Writes the scales that the caller chooses. */
static trm_status write_chosen_scales(job *j, const char *weight, const trm_hf_quantized *taken,
                                      const trm_weight *before, FILE *file)
{
    char layer[320];
    const trm_dims dims = trm_weight_dims(before), scales = trm_weight_dims(taken->scale);
    const size_t count = (size_t)trm_dims_count(&dims), n = (size_t)trm_dims_count(&scales);
    const trm_dtype type = trm_weight_dtype(taken->scale);
    const trm_quantize_choice choice = {.name = layer,
                                        .rows = dims.d[0],
                                        .columns = dims.d[1],
                                        .group = taken->block_k > 0 ? taken->block_k : dims.d[1],
                                        .low = j->how->bits == 4 ? -8 : -128,
                                        .high = j->how->bits == 4 ? 7 : 127,
                                        .weight = malloc(count * sizeof(float)),
                                        .scales = malloc(2 * n * sizeof(float)),
                                        .scale_type = type};
    void *rounded = choice.scales != NULL ? choice.scales + n : NULL;
    trm_status status = TRM_OK;
    snprintf(layer, sizeof(layer), "%.*s", layer_length(weight), weight);
    if (choice.weight == NULL || choice.scales == NULL) {
        TRM_TRY_GOTO(status, trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for weight %s", weight), done);
    }
    TRM_TRY_GOTO(status, trm_weight_read(before, TRM_F32, 0, count, (float *)choice.weight), done);
    TRM_TRY_GOTO(status, trm_weight_read(taken->scale, TRM_F32, 0, n, choice.scales), done);
    TRM_TRY_GOTO(status, choose(j, &choice), done);
    trm_convert(TRM_F32, choice.scales, type, rounded, n);
    status = trm_safetensors_put(file, rounded, n * trm_dtype_size(type));
done:
    free((float *)choice.weight);
    free(choice.scales);
    return status;
}

static trm_status write_quantized(job *j, const part *p, const trm_weight *before, void *buffer, FILE *file)
{
    trm_hf_quantized taken;
    const trm_dims dims = trm_weight_dims(before);
    const int64_t shape[] = {dims.d[0], dims.d[1]};
    const char *weight = trm_safetensors_name(j->checkpoint->stored, p->stored);
    if (p->kind == SHAPE) {
        return trm_safetensors_put(file, shape, sizeof(shape));
    }
    TRM_TRY(take_layer(j, p->stored, &taken));
    const trm_weight *scale = taken.stored_scale != NULL ? taken.stored_scale : taken.scale;
    trm_status status;
    if (p->kind == NUMBERS) {
        status = write_numbers(j, weight, &taken, before, file);
    } else if (p->kind == SCALES && is_chosen(j) && j->options->choose_scales) {
        status = write_chosen_scales(j, weight, &taken, before, file);
    } else {
        status = write_whole(p->kind == GLOBAL_SCALE ? taken.global_scale : scale, buffer, file);
    }
    trm_hf_quantized_fini(&taken);
    return status;
}

static trm_status write_part(void *user, size_t index, FILE *file)
{
    job *j = user;
    const part *p = &j->parts[index];
    trm_weight *before = NULL;
    void *buffer = malloc(CHUNK_BYTES);
    trm_status status = buffer == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for a buffer of %zu bytes", CHUNK_BYTES)
                            : trm_safetensors_weight(j->checkpoint->stored,
                                                     trm_safetensors_name(j->checkpoint->stored, p->stored), &before);
    if (status == TRM_OK && p->kind == COPY) {
        status = write_whole(before, buffer, file);
        const trm_dims dims = trm_weight_dims(before);
        j->done += trm_dims_count(&dims) * (int64_t)trm_dtype_size(trm_weight_dtype(before));
    } else if (status == TRM_OK) {
        status = write_quantized(j, p, before, buffer, file);
    }
    trm_weight_destroy(before);
    free(buffer);
    return status;
}

/* ---- config.json -------------------------------------------------------------------------------------------- */

static void write_numbers_format(trm_json_writer *w, const trm_hf_quantization *how)
{
    const bool blocks = how->block_n > 1, groups = !blocks && how->block_k > 0, is_f4 = how->type == TRM_F4E2M1;
    const char *by_group = is_f4 && how->block_k == 16 ? "tensor_group" : "group";
    trm_json_writer_open(w, "weights", '{');
    trm_json_writer_text(w, "actorder", NULL);
    if (blocks) {
        trm_json_writer_open(w, "block_structure", '[');
        trm_json_writer_integer(w, NULL, how->block_n);
        trm_json_writer_integer(w, NULL, how->block_k);
        trm_json_writer_close(w);
    } else {
        trm_json_writer_text(w, "block_structure", NULL);
    }
    trm_json_writer_bool(w, "dynamic", false);
    if (groups) {
        trm_json_writer_integer(w, "group_size", how->block_k);
    } else {
        trm_json_writer_text(w, "group_size", NULL);
    }
    trm_json_writer_integer(w, "num_bits", how->bits);
    trm_json_writer_text(w, "observer", "minmax");
    trm_json_writer_open(w, "observer_kwargs", '{');
    trm_json_writer_close(w);
    if (is_f4) {
        trm_json_writer_text(w, "scale_dtype", how->block_k == 16 ? "torch.float8_e4m3fn" : "torch.uint8");
    }
    trm_json_writer_text(w, "strategy", blocks ? "block" : groups ? by_group : "channel");
    trm_json_writer_bool(w, "symmetric", true);
    trm_json_writer_text(w, "type", how->type == TRM_F8E4M3 || is_f4 ? "float" : "int");
    trm_json_writer_close(w);
}

/* Activations of 8 bits like their weights, with a scale for each token, or for each of its groups of a block's width.
 */
static void write_activations_format(trm_json_writer *w, const trm_hf_quantization *how)
{
    const bool blocks = how->block_k > 0;
    if (how->x == TRM_X_AS_IS) {
        trm_json_writer_text(w, "input_activations", NULL);
        return;
    }
    trm_json_writer_open(w, "input_activations", '{');
    trm_json_writer_text(w, "actorder", NULL);
    trm_json_writer_text(w, "block_structure", NULL);
    trm_json_writer_bool(w, "dynamic", true);
    if (blocks) {
        trm_json_writer_integer(w, "group_size", how->block_k);
    } else {
        trm_json_writer_text(w, "group_size", NULL);
    }
    trm_json_writer_integer(w, "num_bits", 8);
    trm_json_writer_text(w, "observer", NULL);
    trm_json_writer_open(w, "observer_kwargs", '{');
    trm_json_writer_close(w);
    trm_json_writer_text(w, "strategy", blocks ? "group" : "token");
    trm_json_writer_bool(w, "symmetric", true);
    trm_json_writer_text(w, "type", how->type == TRM_F8E4M3 ? "float" : "int");
    trm_json_writer_close(w);
}

/* Matrices that stay as they are, and the output projection, which may be the embedding. */
static void write_ignored(trm_json_writer *w, const job *j)
{
    const trm_safetensors *stored = j->checkpoint->stored;
    char layer[320];
    bool has_head = false;
    trm_json_writer_open(w, "ignore", '[');
    for (int32_t i = 0; i < trm_safetensors_count(stored); i++) {
        const char *name = trm_safetensors_name(stored, i);
        const size_t size = strlen(name), end = strlen(".weight");
        trm_dtype dtype;
        trm_dims dims = {0};
        (void)trm_safetensors_describe(stored, name, &dtype, &dims);
        if (dims.n == 2 && !j->checkpoint->quantized[i] && size > end && strcmp(name + size - end, ".weight") == 0) {
            snprintf(layer, sizeof(layer), "%.*s", layer_length(name), name);
            has_head = has_head || strcmp(layer, "lm_head") == 0;
            trm_json_writer_text(w, NULL, layer);
        }
    }
    if (!has_head) {
        trm_json_writer_text(w, NULL, "lm_head");
    }
    trm_json_writer_close(w);
}

/* {"quantization_config": ...}, as compressed-tensors 0.20 writes it. */
static void write_quantization(const job *j, FILE *file)
{
    const char *format = j->how->type == TRM_F4E2M1
                             ? j->how->block_k == 16 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized"
                         : j->how->bits == 4          ? "pack-quantized"
                         : j->how->type == TRM_F8E4M3 ? "float-quantized"
                                                      : "int-quantized";
    trm_json_writer w;
    trm_json_writer_begin(&w, file);
    trm_json_writer_open(&w, "quantization_config", '{');
    trm_json_writer_open(&w, "config_groups", '{');
    trm_json_writer_open(&w, "group_0", '{');
    trm_json_writer_text(&w, "format", format);
    write_activations_format(&w, j->how);
    trm_json_writer_text(&w, "output_activations", NULL);
    trm_json_writer_open(&w, "targets", '[');
    trm_json_writer_text(&w, NULL, "Linear");
    trm_json_writer_close(&w);
    write_numbers_format(&w, j->how);
    trm_json_writer_close(&w);
    trm_json_writer_close(&w);
    trm_json_writer_text(&w, "format", format);
    trm_json_writer_text(&w, "global_compression_ratio", NULL);
    write_ignored(&w, j);
    trm_json_writer_text(&w, "kv_cache_scheme", NULL);
    trm_json_writer_text(&w, "quant_method", "compressed-tensors");
    trm_json_writer_text(&w, "quantization_status", "compressed");
    trm_json_writer_end(&w);
}

/* The text of config.json, which has been read as an object, with one more member. */
static trm_status write_config(const job *j, const char *from, const char *folder)
{
    char path[4096], *text, *added = NULL;
    size_t size, added_size = 0;
    FILE *file;
    snprintf(path, sizeof(path), "%s/config.json", from);
    TRM_TRY(trm_file_read(path, CONFIG_LIMIT, &text, &size));
    while (size > 0 && text[size - 1] != '}') {
        size--;
    }
    size -= size > 0 ? 1 : 0;
    while (size > 0 && isspace((unsigned char)text[size - 1])) {
        size--;
    }
    trm_status status = TRM_OK;
    FILE *memory = open_memstream(&added, &added_size);
    if (memory != NULL) {
        write_quantization(j, memory);
    }
    if (memory == NULL || fclose(memory) != 0 || added == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for config.json");
    }
    status = status == TRM_OK ? trm_hf_folder_create(folder, "config.json", path, &file) : status;
    if (status == TRM_OK) {
        fwrite(text, 1, size, file);
        fputc(',', file);
        fwrite(added + 1, 1, added_size - 1, file); /* without its brace */
        status = trm_hf_folder_close(file, path, TRM_OK);
    }
    free(added);
    free(text);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------------------------ */

static trm_status write_model(job *j, const char *from, const char *folder)
{
    TRM_TRY(list_parts(j));
    TRM_TRY(trm_safetensors_write(folder, j->outputs, j->count, SHARD_BYTES, write_part, j));
    TRM_TRY(trm_hf_folder_copy_files(from, folder));
    return write_config(j, from, folder);
}

static trm_status quantize(trm_model *model, const trm_hf_quantization *how, const char *folder,
                           const trm_quantize_options *options)
{
    trm_model_info info;
    char parent[512];
    trm_temporary made = TRM_TEMPORARY_NONE;
    trm_model_get_info(model, &info);
    job j = {.how = how, .options = options, .checkpoint = trm_hf_model_checkpoint(model)};
    TRM_TRY(trm_hf_folder_parent(folder, parent));
    TRM_TRY(trm_temporary_create(parent, ".trireme-quantize", &made));
    trm_status status = write_model(&j, info.path, made.path);
    status = status == TRM_OK ? trm_hf_folder_publish(&made, folder) : status;
    trm_temporary_remove(&made); /* what has been renamed is not there */
    for (size_t i = 0; i < j.count; i++) {
        free(j.parts[i].name);
    }
    free(j.parts);
    free(j.outputs);
    return status;
}

TRM_CALL(NULL, trm_model_quantize,
         (const char *path, const char *weights, const char *folder, const trm_quantize_options *options),
         (path, weights, folder, options))
{
    trm_quantize_options own = TRM_QUANTIZE_OPTIONS_INIT;
    trm_hf_quantization how;
    struct stat info;
    trm_model *model;
    TRM_TRY(trm_options_read("quantize options", options, &own));
    if (weights == NULL || folder == NULL || folder[0] == '\0') {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot quantize a model: weights or folder is NULL");
    }
    TRM_TRY(trm_hf_quantization_named(weights, &how));
    if (lstat(folder, &info) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "folder %s is there already, expected the name of a new one", folder);
    }
    how.online = true;
    how.keep = own.keep;
    how.n_keep = own.n_keep;
    TRM_TRY(trm_hf_open(path, &how, &model));
    trm_status status = quantize(model, &how, folder, &own);
    trm_model_close(model);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "quantizing model %s", path);
}
