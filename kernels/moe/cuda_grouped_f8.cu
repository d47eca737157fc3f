/* Products over tiles of sorted tokens with weights of e4m3 and bf16. */
#include "kernels/moe/cuda_grouped.cuh"

trm_status trm_cuda_moe_grouped_f8_run(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                                       cudaStream_t stream)
{
    typedef __nv_bfloat16 T;
    const trm_moe_format format = TRM_MOE_F8_ROWS; /* or blocks */
    switch (plan->rows) {
    case 16:
        return launch_products<T, tile_form<16, 5, format, 1, true>>(p, room, stream);
    case 32:
        return launch_products<T, tile_form<32, 4, format, 1, true>>(p, room, stream);
    case 64:
        return launch_products<T, tile_form<64, 2, format, 1, true>>(p, room, stream);
    default:
        return launch_products<T, tile_form<256, 5, format>>(p, room, stream);
    }
}
