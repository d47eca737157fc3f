/* Makes the stored form of a weight: reads and packs it piece by piece. */
#include "weight_stream/stored.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/codec/codec.h"

size_t trm_stored_most_of_piece(size_t bytes)
{
    return bytes / TRM_PIECE_WHOLE * TRM_PIECE_PARTS;
}

size_t trm_stored_piece_bytes(const trm_stored_weight *stored, size_t bytes, int32_t i)
{
    size_t left = bytes - (size_t)i * stored->piece_bytes;
    return left < stored->piece_bytes ? left : stored->piece_bytes;
}

size_t trm_stored_host_bytes(const trm_stored_weight *stored, size_t bytes)
{
    return stored->memory == NULL ? 0 : stored->pieces == NULL ? bytes : stored->pieces[stored->n_pieces];
}

void trm_stored_drop(trm_stored_weight *stored, size_t bytes)
{
    trm_pages_free(stored->memory, trm_stored_host_bytes(stored, bytes));
    free(stored->pieces);
    *stored = (trm_stored_weight){0};
}

/* *packed says whether every piece became smaller. */
static trm_status pack_pieces(trm_stored_weight *stored, size_t bytes, struct trm_pool *pool, trm_stored_read_fn read,
                              void *user, void *plain, bool *packed)
{
    size_t at = 0;
    *packed = true;
    for (int32_t i = 0; *packed && i < stored->n_pieces; i++) {
        size_t size = trm_stored_piece_bytes(stored, bytes, i);
        TRM_TRY(read(user, (size_t)i * stored->piece_bytes, size, plain));
        size_t most = trm_stored_most_of_piece(size);
        size_t took = trm_bf16_encode(pool, plain, size / sizeof(uint16_t), stored->memory + at, most);
        stored->pieces[i] = at;
        stored->bytes += took;
        at = trm_align_up(at + took, TRM_PIECE_ALIGNMENT);
        *packed = took > 0;
    }
    stored->pieces[stored->n_pieces] = at;
    return TRM_OK;
}

/* Packs the weight; *packed says whether it became smaller. */
static trm_status fill_packed(trm_stored_weight *stored, size_t bytes, size_t piece, struct trm_pool *pool,
                              trm_stored_read_fn read, void *user, bool *packed)
{
    size_t n = (bytes + piece - 1) / piece;
    void *plain = NULL;
    stored->n_pieces = (int32_t)n;
    stored->piece_bytes = trm_align_up((bytes + n - 1) / n, TRM_CODEC_BLOCK * sizeof(uint16_t));
    stored->pieces = calloc(n + 1, sizeof(*stored->pieces));
    trm_status status = stored->pieces == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %zu pieces", n)
                            : trm_pages_alloc(stored->piece_bytes, &plain);
    status = status == TRM_OK ? pack_pieces(stored, bytes, pool, read, user, plain, packed) : status;
    trm_pages_free(plain, stored->piece_bytes);
    if (status != TRM_OK || !*packed) {
        free(stored->pieces);
        *stored = (trm_stored_weight){.memory = stored->memory};
    }
    return status;
}

trm_status trm_stored_fill(trm_stored_weight *stored, size_t bytes, size_t piece, struct trm_pool *pool,
                           trm_stored_read_fn read, void *user)
{
    bool packed = false;
    if (piece > 0) {
        TRM_TRY(fill_packed(stored, bytes, piece, pool, read, user, &packed));
    }
    if (packed) {
        trm_pages_trim(stored->memory, bytes, stored->pieces[stored->n_pieces]);
        return TRM_OK;
    }
    TRM_TRY(read(user, 0, bytes, stored->memory));
    stored->bytes = bytes;
    return TRM_OK;
}
