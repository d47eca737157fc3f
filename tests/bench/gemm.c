/* Products of matrices on one thread of the host: OpenBLAS, if there is one, and our own loops. The sizes are those of
 * the tiles that kernels cut. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kernels/host/gemm.h"

#define REPEATS 20

int main(void)
{
    static const int64_t depths[] = {256, 1024, 4096};
    char path[1024];
    float *a = calloc(64 * 4096, sizeof(*a)), *b = calloc(256 * 4096, sizeof(*b)), *c = calloc(64 * 256, sizeof(*c));
    if (a == NULL || b == NULL || c == NULL) {
        return 1;
    }
    printf("OpenBLAS: %s\n%-24s %10s %10s\n", trm_host_gemm_load(path, sizeof(path)), "f32, GFLOP/s", "chosen", "own");
    for (size_t i = 0; i < 6; i++) {
        const int64_t k = depths[i / 2];
        const bool transposed = i % 2;
        const trm_gemm g = {
            .transpose_b = transposed, .m = 64, .n = 256, .k = k, .lda = k, .ldb = transposed ? k : 256, .ldc = 256};
        double best[2] = {1e9, 1e9};
        for (int repeat = 0; repeat < 2 * REPEATS; repeat++) {
            const double start = trm_clock_seconds();
            (repeat % 2 ? trm_host_gemm_own_f32 : trm_host_gemm_f32)(&g, a, b, c);
            const double seconds = trm_clock_seconds() - start;
            best[repeat % 2] = seconds < best[repeat % 2] ? seconds : best[repeat % 2];
        }
        const double work = 2e-9 * 64 * 256 * (double)k;
        printf("64 x 256 x %-5d%-9s %10.1f %10.1f\n", (int)k, transposed ? " b^T" : "", work / best[0], work / best[1]);
    }
    free(a);
    free(b);
    free(c);
    return 0;
}
