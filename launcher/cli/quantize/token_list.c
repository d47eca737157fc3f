/* Passages of tokens. */
#include "launcher/cli/quantize/token_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/file.h"
#include "launcher/cli/tensors/npy.h"

#define TEXT_LIMIT  ((size_t)1 << 30)
#define TOKEN_BYTES 64 /* a text of this many bytes for each token has enough of them */

typedef struct reader {
    const char *folder;
    int64_t most, longest, vocab;
    token_list *to;
} reader;

void token_list_fini(token_list *list)
{
    free(list->ids);
    free(list->starts);
    *list = (token_list){0};
}

static int64_t count_tokens(const token_list *list)
{
    return list->n > 0 ? list->starts[list->n] : 0;
}

/* Adds a run of tokens in passages, as far as there is room. */
static trm_status add_tokens(const reader *r, const int32_t *ids, int64_t n)
{
    token_list *to = r->to;
    const int64_t used = count_tokens(to);
    n = n < r->most - used ? n : r->most - used;
    int64_t passages = n > 0 ? (n + r->longest - 1) / r->longest : 0;
    int32_t *more = realloc(to->ids, (size_t)(used + n + 1) * sizeof(*more));
    to->ids = more != NULL ? more : to->ids;
    int64_t *starts = realloc(to->starts, (size_t)(to->n + passages + 1) * sizeof(*starts));
    to->starts = starts != NULL ? starts : to->starts;
    if (more == NULL || starts == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)(used + n));
    }
    memcpy(to->ids + used, ids, (size_t)n * sizeof(*ids));
    to->starts[to->n] = used;
    for (int64_t done = 0; done < n; done += r->longest) {
        to->starts[++to->n] = used + (n - done < r->longest ? n : done + r->longest);
    }
    return TRM_OK;
}

static trm_status read_text(const reader *r, const char *path)
{
    char *text;
    size_t size;
    const size_t enough = (size_t)r->most * TOKEN_BYTES;
    trm_tokens tokens = {0};
    trm_tokenizer *tokenizer;
    TRM_TRY(trm_tokenizer_open(r->folder, &tokenizer));
    trm_status status = trm_file_read(path, TEXT_LIMIT, &text, &size);
    if (status == TRM_OK) {
        const bool is_cut = size > enough;
        size = is_cut ? enough : size;
        while (size > 0 && is_cut && ((unsigned char)text[size] & 0xc0u) == 0x80u) {
            size--; /* not within a character */
        }
        status = trm_tokenizer_encode(tokenizer, text, size, true, &tokens);
        free(text);
    }
    trm_tokenizer_close(tokenizer);
    status = status == TRM_OK ? add_tokens(r, tokens.ids, (int64_t)tokens.count) : status;
    trm_tokens_fini(&tokens);
    return status;
}

static trm_status add_rows(const reader *r, const char *path, const npy_array *array)
{
    const int64_t n = array->dims.d[array->dims.n - 1], rows = array->dims.n == 2 ? array->dims.d[0] : 1;
    int32_t *ids = malloc((size_t)n * sizeof(*ids) + 1);
    trm_status status =
        ids == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)n) : TRM_OK;
    for (int64_t row = 0; status == TRM_OK && row < rows; row++) {
        for (int64_t i = 0; status == TRM_OK && i < n; i++) {
            const int64_t id = array->dtype == TRM_I64 ? ((const int64_t *)array->data)[row * n + i]
                                                       : ((const int32_t *)array->data)[row * n + i];
            ids[i] = (int32_t)id;
            status = id >= 0 && id < r->vocab
                         ? TRM_OK
                         : trm_fail(TRM_ERROR_INVALID_ARGUMENT, "sample %s has token %lld, expected 0 to %lld", path,
                                    (long long)id, (long long)r->vocab - 1);
        }
        status = status == TRM_OK ? add_tokens(r, ids, n) : status;
    }
    free(ids);
    return status;
}

static trm_status read_array(const reader *r, const char *path)
{
    npy_array array;
    TRM_TRY(npy_read(path, &array));
    trm_status status;
    if ((array.dtype != TRM_I32 && array.dtype != TRM_I64) || array.dims.n < 1 || array.dims.n > 2) {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                          "sample %s is %s with %d dims, expected token ids i32 or i64, [n] or [passages, n]", path,
                          trm_dtype_name(array.dtype), (int)array.dims.n);
    } else {
        status = add_rows(r, path, &array);
    }
    free(array.data);
    return status;
}

static int is_array(const struct dirent *entry)
{
    const size_t size = strlen(entry->d_name);
    return size > 4 && strcmp(entry->d_name + size - 4, ".npy") == 0;
}

static trm_status read_folder(const reader *r, const char *path)
{
    char file[4096];
    struct dirent **entries;
    const int n = scandir(path, &entries, is_array, alphasort);
    trm_status status = n < 0    ? trm_fail(TRM_ERROR_IO, "cannot read folder %s: %s", path, strerror(errno))
                        : n == 0 ? trm_fail(TRM_ERROR_INVALID_ARGUMENT, "folder %s has no .npy file", path)
                                 : TRM_OK;
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof(file), "%.3800s/%s", path, entries[i]->d_name);
        status = status == TRM_OK ? read_array(r, file) : status;
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return status;
}

trm_status token_list_read(const char *path, const char *folder, int64_t most, int64_t longest, int64_t vocab,
                           token_list *list)
{
    struct stat info;
    *list = (token_list){0};
    const reader r = {folder, most, longest, vocab, list};
    const size_t size = strlen(path);
    const bool is_npy = size > 4 && strcmp(path + size - 4, ".npy") == 0;
    const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    trm_status status = is_folder ? read_folder(&r, path) : is_npy ? read_array(&r, path) : read_text(&r, path);
    if (status == TRM_OK && count_tokens(list) < 2) {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "%s %s has %lld tokens, expected 2 or more",
                          is_folder || is_npy ? "sample" : "text", path, (long long)count_tokens(list));
    }
    if (status != TRM_OK) {
        token_list_fini(list);
    }
    return status;
}
