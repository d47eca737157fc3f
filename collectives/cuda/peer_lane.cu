/* Where the ranks of a lane meet between its copies, see collectives/peer_lane.h. */
#include "collectives/cuda/peer.cuh"
#include "collectives/peer_lane.h"

typedef struct meeting {
    uint32_t *theirs[TRM_PEER_RANKS]; /* this rank's word, in the mailbox of each */
    const uint32_t *mine;             /* [size] the others' words */
    uint32_t epoch;
} meeting;

/* One warp, a thread per peer, with few registers and no shared memory of its own: it takes what room a product leaves,
 * or waits for the end of one of its blocks. */
static __global__ void __launch_bounds__(32)
    meet(const __grid_constant__ trm_peer_link link, const __grid_constant__ meeting m)
{
    const int peer = (int)threadIdx.x;
    const volatile trm_peer_state *state = link.state;
    bool lost = state->dead != 0;
    if (peer >= link.size || peer == link.rank || lost) {
        return;
    }
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(m.theirs[peer]), "r"(m.epoch) : "memory");
    long_wait wait = {0, 0};
    bool seen = false;
    for (unsigned turn = 1; !seen && !lost; turn++) {
        uint32_t found;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(m.mine + peer) : "memory");
        seen = (int32_t)(found - m.epoch) >= 0;
        if (turn % TURNS_PER_LOOK == 0 && !seen) {
            lost = give_up(link, peer, &wait);
        }
    }
}

trm_status trm_cuda_peer_meet(const trm_peer_link *link, uint32_t *const *theirs, const uint32_t *mine, uint32_t epoch,
                              void *cuda_stream)
{
    meeting m = {};
    for (int32_t r = 0; r < link->size; r++) {
        m.theirs[r] = theirs[r];
    }
    m.mine = mine;
    m.epoch = epoch;
    meet<<<1, 32, 0, (cudaStream_t)cuda_stream>>>(*link, m);
    return trm_cuda_launched("a meeting of peers");
}
