/*
 * Bytes per second of encoding bf16 on the host and of decoding it on a GPU.
 *
 *   bench_codec [MiB of bf16] [THREADS]
 *
 * Encodes normal numbers of a spread of 0.02 in pieces of 32 MiB, and decodes them on 4 to all multiprocessors,
 * captured into one graph. Rates are of the decoded bytes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"

#include "base/error.h"
#include "base/half.h"
#include "base/pool.h"
#include "kernels/codec/codec.h"
#include "kernels/sampling/random.h"

#define PIECE ((size_t)16 << 20) /* elements */
#define TIMES 3

typedef struct bench {
    trm_device *device;
    trm_stream *stream;
    size_t pieces;
    uint16_t *numbers;
    unsigned char *encoded, *encoded_there, *there;
    size_t sizes[1024], bound;
} bench;

static void fill(void *user, int64_t begin, int64_t end)
{
    uint16_t *to = user;
    for (int64_t i = begin; i < end; i++) {
        double u = trm_random_uniform(1, (uint64_t)i) + 1e-18, v = trm_random_uniform(2, (uint64_t)i);
        to[i] = trm_f32_to_bf16((float)(0.02 * sqrt(-2 * log(u)) * cos(6.28318530717959 * v)));
    }
}

static void encode_all(bench *b, trm_pool *pool, int threads)
{
    size_t all = 0;
    double best = 0;
    for (int i = 0; i < TIMES; i++) {
        double began = bench_now();
        all = 0;
        for (size_t k = 0; k < b->pieces; k++) {
            b->sizes[k] = trm_bf16_encode(pool, b->numbers + k * PIECE, PIECE, b->encoded + k * b->bound, b->bound);
            all += b->sizes[k];
        }
        double rate = (double)(b->pieces * PIECE * 2) / (bench_now() - began);
        best = rate > best ? rate : best;
    }
    printf("encoding on %d threads: %.2f GB/s, %.3f bits of 16\n", threads, best / 1e9,
           (double)all * 8 / (double)(b->pieces * PIECE));
}

static double decode_rate(bench *b, int multiprocessors)
{
    trm_graph_exec *graph;
    trm_event *start, *end;
    double best = 0;
    bench_check(trm_event_create(b->device, &start), "event");
    bench_check(trm_event_create(b->device, &end), "event");
    bench_check(trm_stream_begin_capture(b->stream), "capture");
    for (size_t k = 0; k < b->pieces; k++) {
        bench_check(trm_bf16_decode(b->stream, b->encoded_there + k * b->bound, b->there + k * PIECE * 2, PIECE,
                                    multiprocessors),
                    "decode");
    }
    bench_check(trm_stream_end_capture(b->stream, &graph), "capture");
    for (int i = 0; i <= TIMES; i++) {
        float milliseconds;
        bench_check(trm_event_record(start, b->stream), "record");
        bench_check(trm_graph_exec_launch(graph, b->stream), "launch");
        bench_check(trm_event_record(end, b->stream), "record");
        bench_check(trm_stream_synchronize(b->stream), "synchronize");
        bench_check(trm_event_elapsed_ms(start, end, &milliseconds), "elapsed");
        double rate = (double)(b->pieces * PIECE * 2) / (milliseconds * 1e-3);
        best = rate > best ? rate : best;
    }
    trm_graph_exec_destroy(graph);
    trm_event_destroy(start);
    trm_event_destroy(end);
    return best;
}

int main(int argc, char **argv)
{
    static bench b;
    int threads = argc > 2 ? atoi(argv[2]) : 16;
    trm_pool *pool;
    b.pieces = ((size_t)(argc > 1 ? atoi(argv[1]) : 1024) << 20) / (PIECE * 2);
    b.bound = trm_bf16_encode_bound(PIECE) / 256 * 256 + 256;
    bench_check(trm_pool_create(threads, &pool), "pool");
    b.numbers = malloc(b.pieces * PIECE * 2);
    b.encoded = malloc(b.pieces * b.bound);
    if (b.numbers == NULL || b.encoded == NULL || b.pieces == 0 || b.pieces > 1024) {
        return 1;
    }
    trm_pool_for(pool, (int64_t)(b.pieces * PIECE), 4096, fill, b.numbers);
    encode_all(&b, pool, threads);
    if (trm_device_cuda_count(NULL, 0) > 0) {
        void *encoded, *there;
        trm_device_info info;
        bench_check(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &b.device), "device");
        bench_check(trm_device_get_info(b.device, &info), "info");
        bench_check(trm_stream_create(b.device, &b.stream), "stream");
        bench_check(trm_device_alloc(b.device, b.pieces * b.bound, &encoded), "memory");
        bench_check(trm_device_alloc(b.device, b.pieces * PIECE * 2, &there), "memory");
        b.encoded_there = encoded;
        b.there = there;
        bench_check(trm_stream_upload(b.stream, encoded, b.encoded, b.pieces * b.bound), "upload");
        for (int n = 4; n <= info.multiprocessors;
             n = n * 2 > info.multiprocessors && n < info.multiprocessors ? info.multiprocessors : n * 2) {
            printf("decoding on %d multiprocessors: %.1f GB/s\n", n, decode_rate(&b, n) / 1e9);
        }
        bench_check(trm_stream_download(b.stream, b.encoded, there, PIECE * 2), "download");
        bench_check(trm_stream_synchronize(b.stream), "synchronize");
        printf("the same: %s\n", memcmp(b.encoded, b.numbers, PIECE * 2) == 0 ? "yes" : "NO");
    }
    return 0;
}
