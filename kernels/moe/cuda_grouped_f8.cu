/* Products over tiles of sorted tokens with weights of e4m3 and bf16. */
#include "kernels/moe/cuda_grouped.cuh"

trm_status trm_cuda_moe_grouped_f8_run(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                                       cudaStream_t stream)
{
    typedef __nv_bfloat16 T;
    switch (plan->rows) {
    case 16:
        return launch_products<T, tile_form<16, 10, TRM_MOE_F8_ROWS>>(p, room, stream);
    case 32:
        return launch_products<T, tile_form<32, 8, TRM_MOE_F8_ROWS>>(p, room, stream);
    case 64:
        return launch_products<T, tile_form<64, 5, TRM_MOE_F8_ROWS>>(p, room, stream);
    default:
        return launch_products<T, tile_form<256, 5, TRM_MOE_F8_ROWS>>(p, room, stream);
    }
}
