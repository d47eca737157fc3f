/*
 * The stored form of a weight in host memory: its device form, or that packed without loss in pieces, each of which is
 * copied and unpacked by itself.
 */
#ifndef TRM_WEIGHT_STREAM_STORED_H
#define TRM_WEIGHT_STREAM_STORED_H

#include "kernels/device/device.h"

/* The most bytes of the device form in a piece (pieces of a weight are nearly equal), and what packed ones are aligned
 * to. Unpacking waits for room on the multiprocessors until a long product ends, and meanwhile the link fills what
 * stages there are: with 32 MiB a prompt waited 10 ms for an 8B model's head, and two GPUs reached 88 to 92 % of their
 * links. Packed, one takes TRM_PIECE_PARTS of TRM_PIECE_WHOLE of its device form at most: a weight with one that needs
 * more is stored as it is. */
#define TRM_PIECE_BYTES     ((size_t)128 << 20)
#define TRM_PIECE_ALIGNMENT ((size_t)256)
#define TRM_PIECE_PARTS     9
#define TRM_PIECE_WHOLE     10

typedef struct trm_stored_weight {
    unsigned char *memory; /* NULL: there is none */
    size_t bytes;          /* that are copied to the device; 0: it is not filled yet */
    size_t *pieces;        /* [n_pieces] where each packed piece begins, then the end; NULL: the device form itself */
    int32_t n_pieces;
    size_t piece_bytes; /* of the device form; the last has the rest */
} trm_stored_weight;

struct trm_pool;

/* The most bytes that a packed piece of `bytes` takes. */
size_t trm_stored_most_of_piece(size_t bytes);
/* Bytes of the device form in piece i of a weight of `bytes`. */
size_t trm_stored_piece_bytes(const trm_stored_weight *stored, size_t bytes, int32_t i);

/* Reads bytes begin .. begin + size - 1 of a device form. */
typedef trm_status (*trm_stored_read_fn)(void *user, size_t begin, size_t size, void *to);

/*
 * Fills `stored`, whose memory is pages that have room for the device form, of `bytes`; what it does not need of them
 * is given back. Where `piece` is not 0, a bf16 weight is packed in pieces of at most so many bytes, a multiple of
 * 2048, on the threads of the pool (may be NULL), and stored as it is where that does not gain. Errors: those of
 * `read`, OUT_OF_MEMORY; the memory is then as large as before.
 */
trm_status trm_stored_fill(trm_stored_weight *stored, size_t bytes, size_t piece, struct trm_pool *pool,
                           trm_stored_read_fn read, void *user);
/* Gives the memory back, of a weight of `bytes`. */
void trm_stored_drop(trm_stored_weight *stored, size_t bytes);
/* Bytes of host memory that it takes, for a weight of `bytes`. */
size_t trm_stored_host_bytes(const trm_stored_weight *stored, size_t bytes);

#endif
