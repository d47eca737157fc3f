/*
 * Reads weights: walks the runs of a view, reads each run of elements from the base and converts it.
 *
 * A contiguous run is one conversion loop or memcpy. Others are gathered into a buffer on the stack first; a plain
 * transpose is done in tiles, to use whole cache lines. While weights stream, all reads go from the file through a
 * window of memory, as many lines as fit, never through the mapping.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "kernels/host/host.h"
#include "kernels/sampling/random.h"
#include "weight_stream/convert.h"
#include "weight_stream/transpose.h"
#include "weight_stream/weight_internal.h"

#define BUFFER_SIZE 8192               /* bytes on the stack */
#define LARGE_RUN   ((size_t)64 << 10) /* bytes from here on are read from the file, not through its mapping */
#define SMALL_GAP   1024 /* bytes: elements of a file that lie this far apart are gathered from all of it */
#define TILE        64 /* rows and columns of a tile: whole cache lines, and no more pages than a small TLB has entries */
#define LEAST_LINES                                                                                                    \
    16 /* that are turned together: with fewer, rows are written in pieces of less than a cache line                   \
        */

/* State of one call. */
typedef struct reading {
    bool direct; /* while weights stream: large runs past the file cache, others through it, none through mappings */
    trm_status status;              /* the first failure */
    unsigned char *window;          /* of TRM_WEIGHT_WINDOW bytes, made when it is first needed */
    const trm_weight_file *checked; /* the last file that still had its bytes */
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

/* ---- from the file, not through the mapping: what the file has lost is an error here ---- */

/* Fails where the file has lost bytes: through its mapping that would be a signal. */
static bool can_read_mapping(const reader *read)
{
    const trm_weight_file *file = read->base->file;
    reading *call = read->call;
    if (file != call->checked && call->status == TRM_OK) {
        call->status = trm_weight_file_check(file);
        call->checked = file;
    }
    return call->status == TRM_OK;
}

/* Whether to read elements in this way, also short runs. */
static bool avoids_mapping(const reader *read)
{
    return read->base->kind == TRM_WEIGHT_STORED && read->base->file != NULL && read->call->direct;
}

/* The file offset of an element of the base. */
static size_t place_in_file(const reader *read, size_t element)
{
    return (size_t)(read->base->bytes - read->base->file->mapping.bytes) + element * read->from_size;
}

static unsigned char *window_of(reading *call)
{
    if (call->window == NULL && call->status == TRM_OK) {
        call->window = aligned_alloc(TRM_WEIGHT_WINDOW_ALIGNMENT, TRM_WEIGHT_WINDOW);
        if (call->window == NULL) {
            call->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a buffer of %zu bytes to read weights",
                                    TRM_WEIGHT_WINDOW);
        }
    }
    return call->window;
}

/* At most TRM_WEIGHT_WINDOW_ROOM bytes of the file, in the window; NULL after a failure. */
static const unsigned char *fetch(const reader *read, size_t begin, size_t bytes)
{
    const trm_weight_file *file = read->base->file;
    reading *call = read->call;
    const unsigned char *fetched = window_of(call);
    if (call->status == TRM_OK && bytes >= LARGE_RUN) {
        call->status = trm_weight_file_read_direct(file, begin, bytes, call->window, &fetched);
    } else if (call->status == TRM_OK) {
        call->status = trm_weight_file_read(file, begin, bytes, call->window);
    }
    return call->status == TRM_OK ? fetched : NULL;
}

/* Reads a contiguous run of elements. */
static void read_run_of_file(const reader *read, size_t start, size_t count, unsigned char *to)
{
    const size_t size = read->from_size, most = TRM_WEIGHT_WINDOW_ROOM / size;
    reading *call = read->call;
    if (read->base->dtype == read->dtype && (!call->direct || count * size < LARGE_RUN)) {
        call->status = trm_weight_file_read(read->base->file, place_in_file(read, start), count * size, to);
        return;
    }
    for (size_t done = 0; done < count && call->status == TRM_OK;) {
        const size_t n = count - done < most ? count - done : most;
        const unsigned char *fetched = fetch(read, place_in_file(read, start + done), n * size);
        if (fetched != NULL) {
            trm_convert(read->base->dtype, fetched, read->dtype, to + done * read->to_size, n);
        }
        done += n;
    }
}

/* Gathers elements that are apart; near ones from one read of all between them. */
static void gather_from_file(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to)
{
    const size_t size = read->from_size;
    const size_t most = stride * size > SMALL_GAP ? 1 : (TRM_WEIGHT_WINDOW_ROOM - size) / (stride * size) + 1;
    for (size_t done = 0; done < count && read->call->status == TRM_OK;) {
        const size_t n = count - done < most ? count - done : most;
        const unsigned char *fetched =
            fetch(read, place_in_file(read, start + done * stride), ((n - 1) * stride + 1) * size);
        if (fetched != NULL) {
            gather(fetched, stride, size, n, to + done * size);
        }
        done += n;
    }
}

/* Lines of `width` elements, `stride` apart, are read with what lies between them if that is little. */
static bool lie_close(size_t stride, size_t width)
{
    return width >= stride / 4 * 3;
}

/* Number of lines that fit the window; 0 if a line does not. */
static size_t lines_at_once(const reader *read, size_t stride, size_t width)
{
    const size_t room = TRM_WEIGHT_WINDOW_ROOM / read->from_size;
    return width > room ? 0 : lie_close(stride, width) ? (room - width) / stride + 1 : room / width;
}

/* Reads lines one after the other through the system's cache. All are announced first, so that they are read together,
 * and the cache then has their neighbours for others: ranks of this machine, the next columns. */
static void read_lines_apart(const reader *read, size_t start, size_t stride, size_t lines, size_t width,
                             unsigned char *to)
{
    const trm_weight_file *file = read->base->file;
    const size_t bytes = width * read->from_size;
    trm_weight_file_expect(file, place_in_file(read, start), stride * read->from_size, lines, bytes);
    for (size_t k = 0; k < lines && read->call->status == TRM_OK; k++) {
        read->call->status = trm_weight_file_read(file, place_in_file(read, start + k * stride), bytes, to + k * bytes);
    }
}

/* Reads this many lines into the window and returns their distance in bytes; NULL after a failure. */
static const unsigned char *fetch_lines(const reader *read, size_t start, size_t stride, size_t lines, size_t width,
                                        size_t *pitch)
{
    const size_t size = read->from_size;
    const bool close = lie_close(stride, width);
    reading *call = read->call;
    *pitch = (close ? stride : width) * size;
    if (close || lines == 1) {
        return fetch(read, place_in_file(read, start), ((lines - 1) * stride + width) * size);
    }
    unsigned char *window = window_of(call);
    read_lines_apart(read, start, stride, lines, width, window);
    return call->status == TRM_OK ? window : NULL;
}

/* Rows of a part of the columns of a matrix, each shorter than a large run. */
static void read_lines(const reader *read, size_t start, size_t stride, size_t rows, size_t columns, unsigned char *to)
{
    const size_t most = lines_at_once(read, stride, columns);
    const bool as_stored = read->base->dtype == read->dtype && !lie_close(stride, columns);
    for (size_t done = 0; done < rows && read->call->status == TRM_OK;) {
        const size_t n = rows - done < most ? rows - done : most;
        size_t pitch;
        if (as_stored) {
            read_lines_apart(read, start + done * stride, stride, n, columns, to + done * columns * read->to_size);
            done += n;
            continue;
        }
        const unsigned char *fetched = fetch_lines(read, start + done * stride, stride, n, columns, &pitch);
        for (size_t k = 0; fetched != NULL && k < n; k++) {
            trm_convert(read->base->dtype, fetched + k * pitch, read->dtype, to + (done + k) * columns * read->to_size,
                        columns);
        }
        done += n;
    }
}

/* ---- runs of each kind of base ---- */

static void read_stored(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to)
{
    const unsigned char *from = read->base->bytes + start * read->from_size;
    const bool is_large = read->base->dtype == read->dtype && count * read->from_size >= LARGE_RUN;
    if (stride == 1 && read->base->file != NULL && (is_large || read->call->direct)) {
        read_run_of_file(read, start, count, to);
        return;
    }
    if (stride == 1) {
        if (can_read_mapping(read)) {
            trm_convert(read->base->dtype, from, read->dtype, to, count);
        }
        return;
    }
    unsigned char buffer[BUFFER_SIZE];
    size_t most = BUFFER_SIZE / read->from_size;
    for (size_t done = 0; done < count && read->call->status == TRM_OK;) {
        size_t n = count - done < most ? count - done : most;
        if (avoids_mapping(read)) {
            gather_from_file(read, start + done * stride, stride, n, buffer);
        } else if (can_read_mapping(read)) {
            gather(from + done * stride * read->from_size, stride, read->from_size, n, buffer);
        }
        if (read->call->status == TRM_OK) {
            trm_convert(read->base->dtype, buffer, read->dtype, to + done * read->to_size, n);
        }
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
        trm_random_numbers(base->seed, base->mean, base->spread, start + done * stride, stride, n, values);
        if (trm_dtype_size(base->dtype) == 1) {
            for (size_t i = 0; i < n; i++) {
                to[done + i] = round_to_byte(base->dtype, values[i]);
            }
        } else if (base->dtype == TRM_F32) {
            trm_convert(TRM_F32, values, read->dtype, to + done * read->to_size, n);
        } else {
            trm_host_store(base->dtype, rounded, 0, (int64_t)n, values);
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

/* A row of zeros has a scale, too, and one that f16 holds. */
static float least_largest(trm_dtype dtype)
{
    return dtype == TRM_F16 ? 0x1p-14f : 0x1p-100f;
}

/* The largest magnitude of a row, which is read once. */
static float find_largest(const reader *read, size_t row)
{
    const trm_weight *part = read->base->parts[0];
    const size_t columns = (size_t)part->view.dims.d[1], most = BUFFER_SIZE / sizeof(float);
    float numbers[BUFFER_SIZE / sizeof(float)], largest;
    uint32_t bits = atomic_load_explicit(&read->base->memo[row], memory_order_relaxed);
    memcpy(&largest, &bits, sizeof(largest));
    if (bits != 0) {
        return largest;
    }
    largest = least_largest(part->base->dtype);
    for (size_t done = 0; done < columns && read->call->status == TRM_OK; done += most) {
        const size_t n = columns - done < most ? columns - done : most;
        read_view(part, TRM_F32, row * columns + done, n, (unsigned char *)numbers, read->call);
        for (size_t i = 0; i < n; i++) {
            const float size = fabsf(numbers[i]);
            largest = size > largest ? size : largest;
        }
    }
    if (read->call->status == TRM_OK) {
        memcpy(&bits, &largest, sizeof(bits));
        atomic_store_explicit(&read->base->memo[row], bits, memory_order_relaxed);
    }
    return largest;
}

static void read_largest(const reader *read, size_t start, size_t stride, size_t count, unsigned char *to)
{
    for (size_t i = 0; i < count; i++) {
        const float largest = find_largest(read, start + i * stride);
        trm_convert(TRM_F32, &largest, read->dtype, to + i * read->to_size, 1);
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
        if (read->base->code == TRM_WEIGHT_CODE_LARGEST) {
            read_largest(read, start, stride, count, to);
            return;
        }
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

/* ---- transposes: element (r, c) of the target lies at start + r + c * stride ---- */

/* Of stored elements, from the file: as many lines at a time as the window has room for, parts of lines where that
 * would be few. */
static void turn_file(const reader *read, size_t start, size_t stride, size_t rows, size_t columns, unsigned char *to)
{
    const size_t least = columns < LEAST_LINES ? columns : LEAST_LINES;
    const size_t most_rows = lines_at_once(read, stride, rows) >= least
                                 ? rows
                                 : TRM_WEIGHT_WINDOW_ROOM / read->from_size / (columns < TILE ? columns : TILE);
    for (size_t c = 0; c < columns;) {
        size_t width = columns - c;
        for (size_t r = 0; r < rows && read->call->status == TRM_OK; r += most_rows) {
            const size_t height = rows - r < most_rows ? rows - r : most_rows,
                         most = lines_at_once(read, stride, most_rows);
            size_t pitch;
            width = width < most ? width : most > TILE ? most / TILE * TILE : most;
            const unsigned char *fetched = fetch_lines(read, start + r + c * stride, stride, width, height, &pitch);
            if (fetched != NULL) {
                trm_transpose(read->base->dtype, fetched, pitch, width, height, read->dtype,
                              to + (r * columns + c) * read->to_size, columns * read->to_size);
            }
        }
        c += width;
    }
}

/* Reads computed elements. */
static void turn_computed(const reader *read, size_t start, size_t stride, size_t rows, size_t columns,
                          unsigned char *to)
{
    unsigned char lines[TILE * TILE * 8];
    const size_t size = read->from_size;
    for (size_t c = 0; c < columns && read->call->status == TRM_OK; c += TILE) {
        const size_t width = columns - c < TILE ? columns - c : TILE;
        for (size_t r = 0; r < rows; r += TILE) {
            const size_t height = rows - r < TILE ? rows - r : TILE;
            for (size_t k = 0; k < width; k++) {
                trm_weight_read_computed(read->base, start + r + (c + k) * stride, height, lines + k * TILE * size,
                                         read_numbers, read->call);
            }
            trm_transpose(read->base->dtype, lines, TILE * size, width, height, read->dtype,
                          to + (r * columns + c) * read->to_size, columns * read->to_size);
        }
    }
}

static void read_transposed(const reader *read, size_t start, size_t stride, size_t rows, size_t columns,
                            unsigned char *to)
{
    if (read->base->kind == TRM_WEIGHT_COMPUTED) {
        turn_computed(read, start, stride, rows, columns, to);
    } else if (avoids_mapping(read)) {
        turn_file(read, start, stride, rows, columns, to);
    } else if (can_read_mapping(read)) {
        trm_transpose(read->base->dtype, read->base->bytes + start * read->from_size, stride * read->from_size, columns,
                      rows, read->dtype, to, columns * read->to_size);
    }
}

/* Reads as many whole rows of the two innermost runs as the range has at this place, if that is a plain transpose of
 * stored elements or of what is computed, or lines of a file; returns the number of rows, 0 if it is neither. */
static size_t read_rows(const reader *read, const trm_weight *weight, const int64_t *index, size_t start, size_t count,
                        unsigned char *to)
{
    int32_t last = weight->runs.n - 1;
    const bool has_tiles = read->base->kind == TRM_WEIGHT_STORED || read->base->kind == TRM_WEIGHT_COMPUTED;
    if (last < 1 || !has_tiles || index[last] != 0) {
        return 0;
    }
    const trm_weight_step *outer = &weight->runs.steps[last - 1], *inner = &weight->runs.steps[last];
    size_t columns = (size_t)inner->size;
    size_t rows = (size_t)(outer->size - index[last - 1]);
    rows = count / columns < rows ? count / columns : rows;
    if (outer->stride == 1 && rows >= 4) {
        read_transposed(read, start, (size_t)inner->stride, rows, columns, to);
        return rows;
    }
    if (inner->stride == 1 && rows >= 2 && avoids_mapping(read) && columns * read->from_size < LARGE_RUN) {
        read_lines(read, start, (size_t)outer->stride, rows, columns, to);
        return rows;
    }
    return 0;
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
        /* Reads to the end of the innermost run, or several runs. */
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
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s has %zu elements, cannot read %zu from offset %zu", source,
                 weight->count, count, first);
    }
    reading call = {.direct = direct, .status = TRM_OK};
    if (count > 0) {
        read_view(weight, dtype, first, count, to, &call);
    }
    free(call.window);
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

trm_status trm_weight_read_box_direct(const trm_weight *weight, trm_dtype dtype, int64_t row, int64_t rows,
                                      int64_t column, int64_t columns, void *to)
{
    trm_weight *high = NULL, *box = NULL;
    trm_status status = trm_weight_slice(weight, 1, column, columns, &high);
    status = status == TRM_OK ? trm_weight_slice(high, 0, row, rows, &box) : status;
    status = status == TRM_OK ? read_elements(box, dtype, 0, box->count, to, true) : status;
    trm_weight_destroy(high);
    trm_weight_destroy(box);
    return status;
}

bool trm_weight_is_turned(const trm_weight *weight)
{
    const trm_weight_base *base = weight->base;
    const trm_weight_runs *runs = &weight->runs;
    if (weight->view.dims.n != 2) {
        return false;
    }
    if (base->kind == TRM_WEIGHT_JOINED && trm_weight_is_join(weight) && base->axis == 0) {
        return trm_weight_is_turned(base->parts[0]); /* mixed ones are read either way */
    }
    return base->kind == TRM_WEIGHT_STORED && runs->n == 2 && runs->steps[0].stride == 1;
}
