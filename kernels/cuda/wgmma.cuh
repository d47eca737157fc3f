/*
 * Hopper's instructions (sm_90a) as device functions: matrix products of a warp group, tensor copies into shared
 * memory, the barriers these complete on, and how registers move between warp groups. PTX ISA 8.0, "Asynchronous
 * Warpgroup Level Matrix Instructions" and "cp.async.bulk.tensor".
 *
 * A warp group is 4 warps whose first index is a multiple of 4; all its threads make each call together. In a tile of
 * 64 rows warp w has rows 16 w .. 16 w + 15, and in a warp accumulators and left operands lie as mma.cuh says for 16
 * rows: accumulator 4 j + i is element i of columns 8 j .. 8 j + 7.
 */
#ifndef TRM_KERNELS_CUDA_WGMMA_CUH
#define TRM_KERNELS_CUDA_WGMMA_CUH

#include <cuda.h>

#include "kernels/cuda/mma.cuh"

/* ---- operands in shared memory ------------------------------------------------------------------ */

/*
 * Operands lie in panels as tensor copies with a swizzle write them: rows of `SWIZZLE` bytes, one after the other. A
 * panel begins at a multiple of 1024 bytes. `leading` is the distance in bytes from one panel to the next along the
 * contiguous dimension and counts for transposed operands alone.
 */
template <int SWIZZLE> static __device__ __forceinline__ uint64_t wgmma_operand(uint32_t address, uint32_t leading)
{
    static_assert(SWIZZLE == 128 || SWIZZLE == 64, "panels have rows of 128 or 64 bytes");
    const uint64_t layout = SWIZZLE == 128 ? 1 : 2, stride = 8 * SWIZZLE; /* from 8 rows to the next 8 */
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | stride >> 4 << 32 | layout << 62;
}

/* ---- products ----------------------------------------------------------------------------------- */

/* Before the first product after registers of accumulators or left operands were written. */
static __device__ __forceinline__ void wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Until at most `left` committed groups are in flight. */
template <int left> static __device__ __forceinline__ void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(left) : "memory");
}

/* Keeps the compiler from moving uses of registers across the point where products own them or give them back. */
template <int N> static __device__ __forceinline__ void wgmma_pin(int32_t (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+r"(d[i]) : : "memory");
    }
}
template <int N> static __device__ __forceinline__ void wgmma_pin(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i]) : : "memory");
    }
}

/* Registers of an accumulator by eights: their names in the text, and their operands. */
#define WGMMA_TEXT_8  "%0,%1,%2,%3"
#define WGMMA_TEXT_16 WGMMA_TEXT_8 ",%4,%5,%6,%7"
#define WGMMA_TEXT_32 WGMMA_TEXT_16 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_TEXT_64                                                                                                  \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"   \
    "%30,%31"
#define WGMMA_TEXT_80  WGMMA_TEXT_64 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define WGMMA_TEXT_96  WGMMA_TEXT_80 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_TEXT_112 WGMMA_TEXT_96 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WGMMA_TEXT_128 WGMMA_TEXT_112 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_TEXT_144 WGMMA_TEXT_128 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define WGMMA_TEXT_160 WGMMA_TEXT_144 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define WGMMA_TEXT_176 WGMMA_TEXT_160 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define WGMMA_TEXT_192 WGMMA_TEXT_176 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_TEXT_224 WGMMA_TEXT_192 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define WGMMA_TEXT_256 WGMMA_TEXT_224 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_EIGHT(d, i)                                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define WGMMA_SUMS_8(d)   "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define WGMMA_SUMS_16(d)  WGMMA_EIGHT(d, 0)
#define WGMMA_SUMS_32(d)  WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8)
#define WGMMA_SUMS_64(d)  WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24)
#define WGMMA_SUMS_80(d)  WGMMA_SUMS_64(d), WGMMA_EIGHT(d, 32)
#define WGMMA_SUMS_96(d)  WGMMA_SUMS_80(d), WGMMA_EIGHT(d, 40)
#define WGMMA_SUMS_112(d) WGMMA_SUMS_96(d), WGMMA_EIGHT(d, 48)
#define WGMMA_SUMS_128(d) WGMMA_SUMS_112(d), WGMMA_EIGHT(d, 56)
#define WGMMA_SUMS_144(d) WGMMA_SUMS_128(d), WGMMA_EIGHT(d, 64)
#define WGMMA_SUMS_160(d) WGMMA_SUMS_144(d), WGMMA_EIGHT(d, 72)
#define WGMMA_SUMS_176(d) WGMMA_SUMS_160(d), WGMMA_EIGHT(d, 80)
#define WGMMA_SUMS_192(d) WGMMA_SUMS_176(d), WGMMA_EIGHT(d, 88)
#define WGMMA_SUMS_224(d) WGMMA_SUMS_192(d), WGMMA_EIGHT(d, 96), WGMMA_EIGHT(d, 104)
#define WGMMA_SUMS_256(d) WGMMA_SUMS_224(d), WGMMA_EIGHT(d, 112), WGMMA_EIGHT(d, 120)

/*
 * d [64, N] = a b^T + (accumulate ? d : 0) over 16 elements of the inner dimension. wgmma_nt: a [64, 16] and b [N, 16]
 * in shared memory, the inner dimension contiguous; or a in registers. wgmma_nn: a in registers, b [16, N] in shared
 * memory, N contiguous, always accumulating.
 */
#define WGMMA_DEFINE(N, A0, A1, A2, A3, A4, A5)                                                                        \
    WGMMA_DEFINE_TYPE(N, __nv_bfloat16, "bf16", A0, A1, A2, A3, A4, A5)                                                \
    WGMMA_DEFINE_TYPE(N, __half, "f16", A0, A1, A2, A3, A4, A5)
#define WGMMA_DEFINE_TYPE(N, T, TYPE, A0, A1, A2, A3, A4, A5)                                                          \
    static __device__ __forceinline__ void wgmma_nt(float(&d)[N / 2], uint64_t a, uint64_t b, int accumulate, T)       \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " A2 ", 0;\n"                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_TEXT_##N               \
                     "}, " A0 ", " A1 ", p, 1, 1, 0, 0; }"                                                             \
                     : WGMMA_SUMS_##N(d)                                                                               \
                     : "l"(a), "l"(b), "r"(accumulate)                                                                 \
                     : "memory");                                                                                      \
    }                                                                                                                  \
    static __device__ __forceinline__ void wgmma_nt(float(&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2,           \
                                                    uint32_t a3, uint64_t b, int accumulate, T)                        \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " A5 ", 0;\n"                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_TEXT_##N               \
                     "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " A4 ", p, 1, 1, 0; }"                                      \
                     : WGMMA_SUMS_##N(d)                                                                               \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate)                                     \
                     : "memory");                                                                                      \
    }                                                                                                                  \
    static __device__ __forceinline__ void wgmma_nn(float(&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2,           \
                                                    uint32_t a3, uint64_t b, T)                                        \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0;\n"                                                          \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_TEXT_##N               \
                     "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " A4 ", p, 1, 1, 1; }"                                      \
                     : WGMMA_SUMS_##N(d)                                                                               \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b)                                                      \
                     : "memory");                                                                                      \
    }
WGMMA_DEFINE(8, "%4", "%5", "%6", "%7", "%8", "%9")
WGMMA_DEFINE(16, "%8", "%9", "%10", "%11", "%12", "%13")
WGMMA_DEFINE(32, "%16", "%17", "%18", "%19", "%20", "%21")
WGMMA_DEFINE(64, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA_DEFINE(80, "%40", "%41", "%42", "%43", "%44", "%45")
WGMMA_DEFINE(96, "%48", "%49", "%50", "%51", "%52", "%53")
WGMMA_DEFINE(112, "%56", "%57", "%58", "%59", "%60", "%61")
WGMMA_DEFINE(128, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA_DEFINE(144, "%72", "%73", "%74", "%75", "%76", "%77")
WGMMA_DEFINE(160, "%80", "%81", "%82", "%83", "%84", "%85")
WGMMA_DEFINE(176, "%88", "%89", "%90", "%91", "%92", "%93")
WGMMA_DEFINE(192, "%96", "%97", "%98", "%99", "%100", "%101")
WGMMA_DEFINE(224, "%112", "%113", "%114", "%115", "%116", "%117")
WGMMA_DEFINE(256, "%128", "%129", "%130", "%131", "%132", "%133")

/* The same with i8 operands and i32 sums, over 32 elements. */
#define WGMMA_WHOLE_EIGHT(d, i)                                                                                        \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]),        \
        "+r"(d[i + 7])
#define WGMMA_WHOLE_32(d)  WGMMA_WHOLE_EIGHT(d, 0), WGMMA_WHOLE_EIGHT(d, 8)
#define WGMMA_WHOLE_64(d)  WGMMA_WHOLE_32(d), WGMMA_WHOLE_EIGHT(d, 16), WGMMA_WHOLE_EIGHT(d, 24)
#define WGMMA_WHOLE_96(d)  WGMMA_WHOLE_64(d), WGMMA_WHOLE_EIGHT(d, 32), WGMMA_WHOLE_EIGHT(d, 40)
#define WGMMA_WHOLE_128(d) WGMMA_WHOLE_96(d), WGMMA_WHOLE_EIGHT(d, 48), WGMMA_WHOLE_EIGHT(d, 56)
#define WGMMA_WHOLE_192(d)                                                                                             \
    WGMMA_WHOLE_128(d), WGMMA_WHOLE_EIGHT(d, 64), WGMMA_WHOLE_EIGHT(d, 72), WGMMA_WHOLE_EIGHT(d, 80),                  \
        WGMMA_WHOLE_EIGHT(d, 88)
#define WGMMA_WHOLE_256(d)                                                                                             \
    WGMMA_WHOLE_192(d), WGMMA_WHOLE_EIGHT(d, 96), WGMMA_WHOLE_EIGHT(d, 104), WGMMA_WHOLE_EIGHT(d, 112),                \
        WGMMA_WHOLE_EIGHT(d, 120)
#define WGMMA_DEFINE_I8(N, A0, A1, A2)                                                                                 \
    static __device__ __forceinline__ void wgmma_i8(int32_t(&d)[N / 2], uint64_t a, uint64_t b, int accumulate)        \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " A2 ", 0;\n"                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" WGMMA_TEXT_##N "}, " A0 ", " A1 ", p; }" \
                     : WGMMA_WHOLE_##N(d)                                                                              \
                     : "l"(a), "l"(b), "r"(accumulate)                                                                 \
                     : "memory");                                                                                      \
    }
WGMMA_DEFINE_I8(32, "%16", "%17", "%18")
WGMMA_DEFINE_I8(64, "%32", "%33", "%34")
WGMMA_DEFINE_I8(128, "%64", "%65", "%66")
WGMMA_DEFINE_I8(256, "%128", "%129", "%130")

/* ---- barriers in shared memory ------------------------------------------------------------------ */

static __device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}

/* After barrier_init, before other threads or copies use them. */
static __device__ __forceinline__ void barrier_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

/* Arrives, and lets the phase wait for `bytes` more that copies bring. */
static __device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

/* Until the phase of this parity has ended; of a new barrier the phase of parity 1 has. */
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{ .reg .pred p;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\n"
                 "bra again;\n"
                 "done: }"
                 :
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

/* The hardware's numbered barriers, for a part of the block: `threads` of sync and arrive together. */
static __device__ __forceinline__ void named_sync(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}
static __device__ __forceinline__ void named_arrive(int barrier, int threads)
{
    asm volatile("bar.arrive %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

/* Makes this thread's writes to shared memory visible to products and copies. */
static __device__ __forceinline__ void fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/* ---- tensor copies ------------------------------------------------------------------------------ */

/* One box of a tensor of three dimensions into shared memory; the bytes count towards `barrier`. Elements outside
 * the tensor become zeros. */
static __device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int32_t x, int32_t y, int32_t z,
                                                uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];"
        :
        : "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

/* The same of five dimensions, from the first of the three between on. */
static __device__ __forceinline__ void copy_groups(uint32_t to, const CUtensorMap *map, int32_t x, int32_t group,
                                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %4, %4, "
                 "%4, %3}], [%5];"
                 :
                 : "r"(to), "l"(map), "r"(x), "r"(group), "r"(0), "r"(barrier)
                 : "memory");
}

/* The same into the same place of both blocks of a cluster. */
static __device__ __forceinline__ void copy_shared_groups(uint32_t to, const CUtensorMap *map, int32_t x, int32_t group,
                                                          uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %4, %4, %4, %3}], [%5], %6;"
                 :
                 : "r"(to), "l"(map), "r"(x), "r"(group), "r"(0), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

/* Boxes of channels `c` on at the positions of a window's tap (`by_x`, `by_y`) over an image [n, y, x, c], from the
 * window that begins at (x, y) on; positions outside the image become zeros. */
static __device__ __forceinline__ void copy_windows(uint32_t to, const CUtensorMap *map, int32_t c, int32_t x,
                                                    int32_t y, int32_t n, uint16_t by_x, uint16_t by_y,
                                                    uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                 "%3, %4, %5}], [%6], {%7, %8};"
                 :
                 : "r"(to), "l"(map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier), "h"(by_x), "h"(by_y)
                 : "memory");
}

static __device__ __forceinline__ void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

/* ---- registers ---------------------------------------------------------------------------------- */

/* Every warp of a warp group, in a kernel whose launch bounds fix the registers it starts with. */
template <int registers> static __device__ __forceinline__ void registers_shrink(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(registers));
}
template <int registers> static __device__ __forceinline__ void registers_grow(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(registers));
}

#endif
