/*
 * Which keys a query sees, how a packed batch falls into tiles and a sequence into splits. Plain functions for kernels
 * and host alike, tested without a GPU.
 */
#ifndef TRM_ATTENTION_CUDA_GEOMETRY_H
#define TRM_ATTENTION_CUDA_GEOMETRY_H

#include <trireme/layers/attention.h>

#ifdef __CUDACC__
#define TRM_ATTENTION_INLINE __host__ __device__ static __forceinline__
#else
#define TRM_ATTENTION_INLINE static inline
#endif

/* Keys low .. high - 1. */
typedef struct trm_key_range {
    int32_t low, high;
} trm_key_range;

/* What query `query` of a sequence of `queries` sees of its `keys` keys; low == high: nothing. Neither end ever
 * decreases from one query to the next. A negative window means chunks of -window keys. */
TRM_ATTENTION_INLINE trm_key_range trm_attention_range(trm_causal causal, int32_t window, int32_t query,
                                                       int32_t queries, int32_t keys)
{
    trm_key_range range = {0, keys};
    int32_t last = query + (causal == TRM_CAUSAL_LOWER_RIGHT ? keys - queries : 0);
    if (window > 0 && last >= window) {
        range.low = last - window + 1;
    } else if (window < 0 && last >= 0) {
        range.low = last / -window * -window;
    }
    if (causal != TRM_CAUSAL_NONE && last < keys) {
        range.high = last + 1;
    }
    if (range.high < range.low) {
        range.high = range.low; /* before the first key, or past the window of the last */
    }
    return range;
}

/* Keys per split of a range of `keys`: a multiple of `step`, so that at most `splits` splits cover it. */
TRM_ATTENTION_INLINE int32_t trm_attention_split_size(int32_t keys, int32_t splits, int32_t step)
{
    int32_t size = (keys + splits - 1) / splits;
    return (size + step - 1) / step * step;
}

/* How many of the splits hold keys. */
TRM_ATTENTION_INLINE int32_t trm_attention_splits_used(int32_t keys, int32_t splits, int32_t step)
{
    int32_t size = trm_attention_split_size(keys, splits, step);
    return size == 0 ? 0 : (keys + size - 1) / size;
}

/*
 * Decoding in equal shares: all tiles of keys of a step in one order, sequence after sequence, of a sequence group
 * after group of key-value heads, of a group tile after tile. Block b has tiles b * share .. (b + 1) * share - 1, which
 * is a part of one unit (a group of a sequence), or the end of one, whole ones and the beginning of another.
 */
typedef struct trm_key_run {
    int32_t sequence, group;  /* of the unit */
    int32_t tile, end, tiles; /* tiles tile .. end - 1 of the unit's 0 .. tiles - 1 */
    int32_t at;               /* the first one's place in the order */
    int32_t left;             /* tiles of the block's share behind them */
} trm_key_run;

/* Tiles of a unit whose query sees `range`: at least one, so that a block has it to answer for. */
TRM_ATTENTION_INLINE int32_t trm_key_tiles(trm_key_range range, int32_t tile_keys)
{
    int32_t tiles = (range.high + tile_keys - 1) / tile_keys - range.low / tile_keys;
    return tiles < 1 ? 1 : tiles;
}

/* Tiles of a block, for `total` tiles of `units` units of which the longest has `longest`: a multiple of `multiple`, at
 * least `least`. Units of equal lengths are not cut, or each in the same places, where that costs a tenth at most. */
TRM_ATTENTION_INLINE int32_t trm_key_share(int32_t total, int32_t units, int32_t longest, int32_t blocks, int32_t least,
                                           int32_t multiple)
{
    int32_t share = (total + blocks - 1) / blocks, whole = share;
    if (longest > 0 && total / longest == units && total % longest == 0) {
        whole = longest < share ? (share + longest - 1) / longest * longest : longest / (longest / share);
        bool fits = longest < share || longest % whole == 0;
        whole = fits && whole >= least && whole - share <= share / 10 ? whole : share;
    }
    if (whole > share) {
        return whole;
    }
    share = share < least ? least : share;
    return (share + multiple - 1) / multiple * multiple;
}

/* What the share of `count` tiles from place `at` on begins with, in sequence `sequence` of units of `tiles`, `offset`
 * tiles from where the sequence begins. */
TRM_ATTENTION_INLINE trm_key_run trm_key_run_first(int32_t sequence, int32_t tiles, int32_t offset, int32_t at,
                                                   int32_t count)
{
    trm_key_run run;
    run.sequence = sequence;
    run.group = offset / tiles;
    run.tile = offset - run.group * tiles;
    run.end = tiles - run.tile < count ? tiles : run.tile + count;
    run.tiles = tiles;
    run.at = at;
    run.left = count - (run.end - run.tile);
    return run;
}

/* Moves on to the unit that follows in the order. */
TRM_ATTENTION_INLINE void trm_key_run_follow(trm_key_run *run, int32_t sequence, int32_t group, int32_t tiles)
{
    run->at += run->end - run->tile;
    run->sequence = sequence;
    run->group = group;
    run->tiles = tiles;
    run->tile = 0;
    run->end = tiles < run->left ? tiles : run->left;
    run->left -= run->end;
}

/* The blocks that share a run's unit, first .. last. A block has at most two parts of units: part 0 begins where its
 * share begins, part 1 behind. All but the first block have a unit's tiles as their part 0. */
typedef struct trm_key_owners {
    int32_t first, last, first_part;
} trm_key_owners;

TRM_ATTENTION_INLINE trm_key_owners trm_key_run_owners(const trm_key_run *run, int32_t share)
{
    int32_t start = run->at - run->tile;
    trm_key_owners owners;
    owners.first = start / share;
    owners.last = (start + run->tiles - 1) / share;
    owners.first_part = start == owners.first * share ? 0 : 1;
    return owners;
}

/* A tile of neighbouring queries of one sequence. */
typedef struct trm_query_tile {
    int32_t sequence; /* -1: there is no such tile */
    int32_t first;    /* token of the sequence's first query */
    int32_t queries;  /* of the sequence */
    int32_t start;    /* query of the tile's first row */
} trm_query_tile;

/* Tile `tile` of the packed sequences that begin at starts [sequences + 1], in tiles of `rows` queries, the last tile
 * of each sequence first (under a causal mask it has the most keys). Sequences of up to `skipped` queries have no
 * tile. */
TRM_ATTENTION_INLINE trm_query_tile trm_attention_find_tile(const int32_t *starts, int32_t sequences, int32_t rows,
                                                            int32_t skipped, int64_t tile)
{
    trm_query_tile found = {-1, 0, 0, 0};
    for (int32_t s = 0; s < sequences; s++) {
        int32_t first = starts[s], queries = starts[s + 1] - first;
        int32_t tiles = queries <= skipped ? 0 : (queries + rows - 1) / rows;
        if (tile < tiles) {
            found.sequence = s;
            found.first = first;
            found.queries = queries;
            found.start = (tiles - 1 - (int32_t)tile) * rows;
            return found;
        }
        tile -= tiles;
    }
    return found;
}

/* The sequence that token `token` belongs to, or -1: the last one that starts at or before it, if it reaches the token.
 */
TRM_ATTENTION_INLINE int32_t trm_attention_sequence_of(const int32_t *starts, int32_t sequences, int32_t token)
{
    int32_t low = 0, high = sequences; /* starts[low] <= token < starts[high], if any */
    if (sequences == 0 || token < starts[0] || token >= starts[sequences]) {
        return -1;
    }
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (starts[middle] <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

#endif
