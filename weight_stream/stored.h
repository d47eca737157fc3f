/*
 * The stored form of a weight in host memory: its device form, or that losslessly packed in pieces, which are copied
 * and unpacked separately.
 */
#ifndef TRM_WEIGHT_STREAM_STORED_H
#define TRM_WEIGHT_STREAM_STORED_H

#include "kernels/device/device.h"

/* The most bytes of the device form in a piece (pieces of a weight are nearly equal), and what packed ones are aligned
 * to. Unpacking waits for room on the multiprocessors until a long product ends, and meanwhile the link fills what
 * stages there are: with 32 MiB a prompt waited 10 ms for an 8B model's head, and two GPUs reached 88 to 92 % of their
 * links. A packed piece takes at most TRM_PIECE_PARTS / TRM_PIECE_WHOLE of its device form; a weight with a piece that
 * needs more is stored unpacked. */
#define TRM_PIECE_BYTES     ((size_t)128 << 20)
#define TRM_PIECE_ALIGNMENT ((size_t)256)
#define TRM_PIECE_PARTS     9
#define TRM_PIECE_WHOLE     10

typedef struct trm_stored_weight {
    unsigned char *memory; /* NULL: none */
    size_t bytes;          /* bytes copied to the device; 0: not yet filled */
    size_t *pieces;        /* [n_pieces + 1] offsets of packed pieces and the end; NULL: the device form itself */
    int32_t n_pieces;
    size_t piece_bytes; /* bytes of the device form per piece; the last has the rest */
} trm_stored_weight;

struct trm_pool;

/* Most bytes of a packed piece of `bytes`. */
size_t trm_stored_most_of_piece(size_t bytes);
/* Bytes of the device form in piece i of a weight of `bytes`. */
size_t trm_stored_piece_bytes(const trm_stored_weight *stored, size_t bytes, int32_t i);

/* Reads bytes begin .. begin + size - 1 of a device form. */
typedef trm_status (*trm_stored_read_fn)(void *user, size_t begin, size_t size, void *to);

/*
 * Fills `stored`, whose memory has room for the device form of `bytes`, and frees unused pages. If `piece` is not 0,
 * packs a bf16 weight in pieces of at most that many bytes, a multiple of 2048, on the threads of the pool (may be
 * NULL), and stores it unpacked if that does not save memory. Errors: those of `read`, OUT_OF_MEMORY; the memory is
 * then unchanged.
 */
trm_status trm_stored_fill(trm_stored_weight *stored, size_t bytes, size_t piece, struct trm_pool *pool,
                           trm_stored_read_fn read, void *user);
/* Frees the memory of a weight of `bytes`. */
void trm_stored_drop(trm_stored_weight *stored, size_t bytes);
/* Bytes of host memory of a weight of `bytes`. */
size_t trm_stored_host_bytes(const trm_stored_weight *stored, size_t bytes);

#endif
