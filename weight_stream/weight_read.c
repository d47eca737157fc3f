/*
 * Reading: walks the runs of a view and fetches each run of elements from the base, converting on the way.
 *
 * A run along which the base's elements lie one behind the other is one conversion loop or memcpy. Others are
 * gathered into a buffer on the stack first; a plain transpose is gathered tile by tile, to use each cache line whole.
 */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/half.h"
#include "kernels/random.h"
#include "weight_stream/convert.h"
#include "weight_stream/weight_internal.h"

#define BUFFER_SIZE 8192               /* bytes on the stack */
#define LARGE_RUN   ((size_t)64 << 10) /* bytes from here on are read from the file, not through its mapping */
#define TILE        64 /* rows and columns of a tile: whole cache lines, and no more pages than a small TLB has entries */

/* Of one call. */
typedef struct reading {
    bool direct; /* while weights stream: large runs past the file cache, others through it, none through mappings */
    trm_status status; /* the first failure */
} reading;

typedef struct reader {
    const trm_weight_base *base;
    trm_dtype dtype; /* of the target */
    size_t from_size, to_size;
    reading *call;
} reader;

static void read_view(const trm_weight *weight, trm_dtype dtype, size_t first, size_t count, unsigned char *to,
                      reading *call);
static void read_run(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to);
static void read_numbers_apart(void *call, const trm_weight *part, const size_t *elements, size_t count, float *to);

static void gather(const unsigned char *from, size_t stride, size_t size, size_t count, unsigned char *to)
{
    switch (size) {
#define GATHER(bytes)                                                                                                  \
    case bytes:                                                                                                        \
        for (size_t i = 0; i < count; i++) {                                                                           \
            memcpy(to + i * (bytes), from + i * stride * (bytes), (bytes));                                            \
        }                                                                                                              \
        break;
        GATHER(1)
        GATHER(2)
        GATHER(4)
        GATHER(8)
#undef GATHER
    default:
        assert(false);
    }
}

/* Elements that lie one behind the other, not through the mapping: what the file has lost is an error here. */
static void read_from_file(const reader *read, const unsigned char *from, size_t count, unsigned char *to)
{
    const trm_weight_file *file = read->base->file;
    const size_t begin = (size_t)(from - file->mapping.bytes), size = read->from_size;
    const bool as_stored = read->base->dtype == read->dtype;
    const size_t most = as_stored ? count : BUFFER_SIZE / size;
    unsigned char buffer[BUFFER_SIZE];
    reading *call = read->call;
    for (size_t done = 0; done < count && call->status == TRM_OK;) {
        const size_t n = count - done < most ? count - done : most;
        unsigned char *into = as_stored ? to : buffer;
        call->status = call->direct && n * size >= LARGE_RUN
                           ? trm_weight_file_read_direct(file, begin + done * size, n * size, into)
                           : trm_weight_file_read(file, begin + done * size, n * size, into);
        if (!as_stored && call->status == TRM_OK) {
            trm_convert(read->base->dtype, buffer, read->dtype, to + done * read->to_size, n);
        }
        done += n;
    }
}

/* Whether elements are to be read from the file, not through its mapping. */
static bool avoids_mapping(const reader *read)
{
    return read->base->kind == TRM_WEIGHT_STORED && read->base->file != NULL && read->call->direct;
}

/* Gathers elements that lie apart: as many at a time as the bytes from the first to the last of them fill a window. */
static void gather_from_file(const reader *read, const unsigned char *from, size_t stride, size_t count,
                             unsigned char *to)
{
    const size_t size = read->from_size, begin = (size_t)(from - read->base->file->mapping.bytes);
    const size_t most = 1 + (BUFFER_SIZE - size) / (stride * size);
    unsigned char window[BUFFER_SIZE];
    reading *call = read->call;
    for (size_t done = 0; done < count && call->status == TRM_OK;) {
        const size_t n = count - done < most ? count - done : most;
        call->status =
            trm_weight_file_read(read->base->file, begin + done * stride * size, ((n - 1) * stride + 1) * size, window);
        if (call->status == TRM_OK) {
            gather(window, stride, size, n, to + done * size);
        }
        done += n;
    }
}

static void read_stored(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to)
{
    const unsigned char *from = read->base->bytes + start * read->from_size;
    const bool is_large = read->base->dtype == read->dtype && count * read->from_size >= LARGE_RUN;
    if (stride == 1 && read->base->file != NULL && (is_large || read->call->direct)) {
        read_from_file(read, from, count, to);
        return;
    }
    if (stride == 1) {
        trm_convert(read->base->dtype, from, read->dtype, to, count);
        return;
    }
    unsigned char buffer[BUFFER_SIZE];
    size_t most = BUFFER_SIZE / read->from_size;
    for (size_t done = 0; done < count && read->call->status == TRM_OK;) {
        size_t n = count - done < most ? count - done : most;
        if (avoids_mapping(read)) {
            gather_from_file(read, from + done * stride * read->from_size, stride, n, buffer);
        } else {
            gather(from + done * stride * read->from_size, stride, read->from_size, n, buffer);
        }
        trm_convert(read->base->dtype, buffer, read->dtype, to + done * read->to_size, n);
        done += n;
    }
}

/* A number as a type of 8 bits, to the nearest, half to even. */
static uint8_t round_to_byte(trm_dtype dtype, float value)
{
    if (dtype == TRM_F8E4M3) {
        return trm_f32_to_f8e4m3(value);
    }
    const float low = dtype == TRM_I8 ? -128.0f : 0.0f, high = dtype == TRM_I8 ? 127.0f : 255.0f;
    return (uint8_t)lrintf(value < low ? low : value > high ? high : value);
}

static void read_random(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to)
{
    const trm_weight_base *base = read->base;
    float values[BUFFER_SIZE / sizeof(float)];
    uint16_t rounded[BUFFER_SIZE / sizeof(float)];
    size_t most = sizeof(values) / sizeof(values[0]);
    for (size_t done = 0; done < count;) {
        size_t n = count - done < most ? count - done : most;
        for (size_t i = 0; i < n; i++) {
            values[i] = trm_random_unit(base->seed, start + (done + i) * stride);
        }
        for (size_t i = 0; i < n; i++) { /* rounded once, as the kernels that make them in place do */
            values[i] = base->mean == 0 ? base->spread * values[i] : fmaf(base->spread, values[i], base->mean);
        }
        if (trm_dtype_size(base->dtype) == 1) {
            for (size_t i = 0; i < n; i++) {
                to[done + i] = round_to_byte(base->dtype, values[i]);
            }
        } else if (base->dtype == TRM_F32) {
            trm_convert(TRM_F32, values, read->dtype, to + done * read->to_size, n);
        } else {
            trm_convert(TRM_F32, values, base->dtype, rounded, n);
            trm_convert(base->dtype, rounded, read->dtype, to + done * read->to_size, n);
        }
        done += n;
    }
}

/* A contiguous range of a join: in each row, everything from the axis inwards, the parts follow each other. */
static void read_joined(const reader *read, size_t start, size_t count, unsigned char *to)
{
    const trm_weight_base *base = read->base;
    size_t row_size = base->part_starts[base->n_parts];
    size_t row = start / row_size, at = start % row_size;
    int32_t low = 0, high = base->n_parts; /* the part that holds `at` */
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        *(base->part_starts[middle] <= at ? &low : &high) = middle;
    }
    for (int32_t part = low; count > 0; part++) {
        if (part == base->n_parts) {
            part = 0;
            at = 0;
            row++;
        }
        size_t part_size = base->part_starts[part + 1] - base->part_starts[part];
        size_t skipped = at - base->part_starts[part];
        size_t n = part_size - skipped < count ? part_size - skipped : count;
        read_view(base->parts[part], read->dtype, row * part_size + skipped, n, to, read->call);
        to += n * read->to_size;
        count -= n;
        at += n;
    }
}

static void read_part(void *call, const trm_weight *part, size_t first, size_t count, void *to)
{
    read_view(part, part->base->dtype, first, count, to, call);
}

static void read_numbers(void *call, const trm_weight *part, size_t first, size_t count, float *to)
{
    read_view(part, TRM_F32, first, count, (unsigned char *)to, call);
}

/* A contiguous range. */
static void read_computed(const reader *read, size_t start, size_t count, unsigned char *to)
{
    unsigned char buffer[BUFFER_SIZE];
    const size_t most = BUFFER_SIZE / read->from_size;
    if (read->base->dtype == read->dtype) {
        trm_weight_read_computed(read->base, start, count, to, read_numbers, read->call);
        return;
    }
    for (size_t done = 0; done < count;) {
        const size_t n = count - done < most ? count - done : most;
        trm_weight_read_computed(read->base, start + done, n, buffer, read_numbers, read->call);
        trm_convert(read->base->dtype, buffer, read->dtype, to + done * read->to_size, n);
        done += n;
    }
}

/* At most TRM_WEIGHT_MOST_APART elements of a base, wherever they are. */
static void read_places(const reader *read, const size_t *places, size_t count, unsigned char *to)
{
    unsigned char buffer[TRM_WEIGHT_MOST_APART * sizeof(float)];
    if (read->base->kind == TRM_WEIGHT_COMPUTED) {
        trm_weight_compute_apart(read->base, places, count, buffer, read_numbers_apart, read->call);
        trm_convert(read->base->dtype, buffer, read->dtype, to, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        read_run(read, places[i], 1, 1, to + i * read->to_size);
    }
}

/* The same of a weight, as numbers. */
static void read_numbers_apart(void *call, const trm_weight *part, const size_t *elements, size_t count, float *to)
{
    const reader read = {part->base, TRM_F32, trm_dtype_size(part->base->dtype), sizeof(float), call};
    size_t places[TRM_WEIGHT_MOST_APART];
    for (size_t i = 0; i < count; i++) {
        size_t left = elements[i];
        places[i] = (size_t)part->view.offset;
        for (int32_t k = part->runs.n - 1; k >= 0; k--) {
            const trm_weight_step *run = &part->runs.steps[k];
            places[i] += left % (size_t)run->size * (size_t)run->stride;
            left /= (size_t)run->size;
        }
    }
    read_places(&read, places, count, (unsigned char *)to);
}

static void read_computed_apart(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to)
{
    size_t places[TRM_WEIGHT_MOST_APART];
    for (size_t done = 0; done < count;) {
        const size_t n = count - done < TRM_WEIGHT_MOST_APART ? count - done : TRM_WEIGHT_MOST_APART;
        for (size_t i = 0; i < n; i++) {
            places[i] = start + (done + i) * stride;
        }
        read_places(read, places, n, to + done * read->to_size);
        done += n;
    }
}

static void read_run(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to)
{
    switch (read->base->kind) {
    case TRM_WEIGHT_STORED:
        read_stored(read, start, stride, count, to);
        return;
    case TRM_WEIGHT_RANDOM:
        read_random(read, start, stride, count, to);
        return;
    case TRM_WEIGHT_ZEROS:
        memset(to, 0, count * read->to_size);
        return;
    case TRM_WEIGHT_JOINED:
        if (stride == 1) {
            read_joined(read, start, count, to);
            return;
        }
        for (size_t i = 0; i < count; i++) {
            read_joined(read, start + i * stride, 1, to + i * read->to_size);
        }
        return;
    case TRM_WEIGHT_COMPUTED:
        if (stride == 1) {
            read_computed(read, start, count, to);
        } else {
            read_computed_apart(read, start, stride, count, to);
        }
        return;
    case TRM_WEIGHT_RECODED:
        if (read->base->code == TRM_WEIGHT_CODE_REPEAT) {
            for (size_t i = 0; i < count; i++) {
                if (i == 0) {
                    read_view(read->base->parts[0], read->dtype, 0, 1, to, read->call);
                } else {
                    memcpy(to + i * read->to_size, to, read->to_size);
                }
            }
            return;
        }
        for (size_t i = 0; i < (stride == 1 ? 1 : count); i++) {
            trm_weight_read_recoded(read->base->parts[0], read->base->code, start + i * stride, stride == 1 ? count : 1,
                                    to + i * read->to_size, read_part, read->call);
        }
        return;
    }
}

/* A few elements, as they are stored. After a failure they are zeros. */
static void read_line(const reader *read, size_t start, size_t count, unsigned char *to)
{
    const reader as_stored = {read->base, read->base->dtype, read->from_size, read->from_size, read->call};
    memset(to, 0, count * read->from_size);
    read_from_file(&as_stored, read->base->bytes + start * read->from_size, count, to);
}

/* So many lines (at most TILE) of elements, as they are stored, not by touching the mapping: the kernel copies them all
 * at once, and says where the file has lost some. Where it does not, or may not, each is read by itself. */
static void read_lines(const reader *read, size_t start, size_t stride, size_t n, size_t count, unsigned char *to)
{
    const size_t size = count * read->from_size;
    struct iovec lines[TILE], into = {to, n * size};
    for (size_t k = 0; k < n; k++) {
        lines[k] =
            (struct iovec){(void *)(uintptr_t)(read->base->bytes + (start + k * stride) * read->from_size), size};
    }
    if (process_vm_readv(getpid(), &into, 1, lines, n, 0) == (ssize_t)into.iov_len) {
        return;
    }
    for (size_t k = 0; k < n && read->call->status == TRM_OK; k++) {
        read_line(read, start + k * stride, count, to + k * size);
    }
}

/* Rows of a transposed matrix: element (r, c) of the target lies at start + r + c * stride. */
static void read_transposed(const reader *read, size_t start, size_t stride, size_t rows, size_t columns,
                            unsigned char *to)
{
    unsigned char tile[TILE * TILE * 8], fetched[TILE * TILE * 8];
    const size_t size = read->from_size;
    const bool is_stored = read->base->kind == TRM_WEIGHT_STORED, avoids = avoids_mapping(read);
    const size_t block = TILE * 8 / size; /* rows that are fetched together */
    size_t n_fetched = 0;
    reading *call = read->call;
    for (size_t c = 0; c < columns && call->status == TRM_OK; c += TILE) {
        size_t width = columns - c < TILE ? columns - c : TILE;
        for (size_t r = 0; r < rows; r += TILE) {
            size_t height = rows - r < TILE ? rows - r : TILE;
            if (avoids && r % block == 0) {
                n_fetched = rows - r < block ? rows - r : block;
                read_lines(read, start + r + c * stride, stride, width, n_fetched, fetched);
            }
            for (size_t k = 0; k < width; k++) { /* tile[r][c] from stored [c][r] */
                const size_t at = start + r + (c + k) * stride;
                const unsigned char *line = avoids      ? fetched + (k * n_fetched + r % block) * size
                                            : is_stored ? read->base->bytes + at * size
                                                        : fetched;
                if (!is_stored) {
                    trm_weight_read_computed(read->base, at, height, fetched, read_numbers, call);
                }
                switch (size) {
#define SCATTER(bytes)                                                                                                 \
    case bytes:                                                                                                        \
        for (size_t i = 0; i < height; i++) {                                                                          \
            memcpy(tile + (i * TILE + k) * (bytes), line + i * (bytes), (bytes));                                      \
        }                                                                                                              \
        break;
                    SCATTER(1)
                    SCATTER(2)
                    SCATTER(4)
                    SCATTER(8)
#undef SCATTER
                default:
                    assert(false);
                }
            }
            for (size_t i = 0; i < height; i++) {
                trm_convert(read->base->dtype, tile + i * TILE * size, read->dtype,
                            to + ((r + i) * columns + c) * read->to_size, width);
            }
        }
    }
}

/* Reads as many whole rows of the two innermost runs as the range has at this place, if that is a plain transpose
 * of stored elements or of what is computed; returns the number of rows, 0 if it is not. */
static size_t read_rows(const reader *read, const trm_weight *weight, const int64_t *index, size_t start, size_t count,
                        unsigned char *to)
{
    int32_t last = weight->runs.n - 1;
    const bool has_tiles = read->base->kind == TRM_WEIGHT_STORED || read->base->kind == TRM_WEIGHT_COMPUTED;
    if (last < 1 || !has_tiles || weight->runs.steps[last - 1].stride != 1 || index[last] != 0) {
        return 0;
    }
    size_t columns = (size_t)weight->runs.steps[last].size;
    size_t rows = (size_t)(weight->runs.steps[last - 1].size - index[last - 1]);
    rows = count / columns < rows ? count / columns : rows;
    if (rows < 4) {
        return 0;
    }
    read_transposed(read, start, (size_t)weight->runs.steps[last].stride, rows, columns, to);
    return rows;
}

static void read_view(const trm_weight *weight, trm_dtype dtype, size_t first, size_t count, unsigned char *to,
                      reading *call)
{
    const trm_weight_base *base = weight->base;
    reader read = {base, dtype, trm_dtype_size(base->dtype), trm_dtype_size(dtype), call};
    int32_t n = weight->runs.n;
    const trm_weight_step *runs = weight->runs.steps;
    if (n == 0) {
        read_run(&read, (size_t)weight->view.offset, 1, count, to);
        return;
    }
    int64_t index[TRM_WEIGHT_MAX_STEPS];
    int64_t start = weight->view.offset;
    for (int32_t i = n - 1; i >= 0; i--) {
        index[i] = (int64_t)(first % (size_t)runs[i].size);
        first /= (size_t)runs[i].size;
        start += index[i] * runs[i].stride;
    }
    while (count > 0) {
        /* From here to the end of the innermost run, or several of them. */
        int32_t moved = n - 1; /* the run whose index goes on by `steps` */
        size_t steps = read_rows(&read, weight, index, (size_t)start, count, to), taken;
        if (steps > 0) {
            moved = n - 2;
            taken = steps * (size_t)runs[n - 1].size;
        } else {
            size_t left = (size_t)(runs[n - 1].size - index[n - 1]);
            taken = steps = left < count ? left : count;
            read_run(&read, (size_t)start, (size_t)runs[n - 1].stride, taken, to);
        }
        to += taken * read.to_size;
        count -= taken;
        index[moved] += (int64_t)steps;
        start += (int64_t)steps * runs[moved].stride;
        for (int32_t i = moved; i > 0 && index[i] == runs[i].size; i--) {
            start += runs[i - 1].stride - runs[i].size * runs[i].stride;
            index[i] = 0;
            index[i - 1]++;
        }
    }
}

/* While weights are loaded all but large runs are read through mappings, where what a file has lost since would be a
 * signal. */
static trm_status check_files(const trm_weight_base *base)
{
    if (base->kind == TRM_WEIGHT_STORED) {
        return trm_weight_file_check(base->file);
    }
    for (int32_t i = 0; i < base->n_parts; i++) {
        TRM_TRY(check_files(base->parts[i]->base));
    }
    return TRM_OK;
}

static trm_status read_elements(const trm_weight *weight, trm_dtype dtype, size_t first, size_t count, void *to,
                                bool direct)
{
    char source[256];
    if (!trm_convertible(weight->base->dtype, dtype)) {
        trm_weight_describe(weight, source, sizeof(source));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s has type %s, cannot be read as %s", source,
                 trm_dtype_name(weight->base->dtype), trm_dtype_name(dtype));
    }
    if (first > weight->count || count > weight->count - first) {
        trm_weight_describe(weight, source, sizeof(source));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s has %zu elements, cannot read %zu from %zu on", source,
                 weight->count, count, first);
    }
    reading call = {.direct = direct, .status = count > 0 ? check_files(weight->base) : TRM_OK};
    if (count > 0 && call.status == TRM_OK) {
        read_view(weight, dtype, first, count, to, &call);
    }
    return call.status;
}

trm_status trm_weight_read(const trm_weight *weight, trm_dtype dtype, size_t first, size_t count, void *to)
{
    return read_elements(weight, dtype, first, count, to, false);
}

trm_status trm_weight_read_direct(const trm_weight *weight, trm_dtype dtype, size_t first, size_t count, void *to)
{
    return read_elements(weight, dtype, first, count, to, true);
}
