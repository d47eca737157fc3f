/* Products over tiles of sorted tokens with weights of MXFP4. */
#include "kernels/moe/cuda_grouped.cuh"

trm_status trm_cuda_moe_grouped_f4_run(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                                       cudaStream_t stream)
{
    typedef __nv_bfloat16 T;
    const trm_moe_format format = TRM_MOE_MXFP4;
    const bool split = room->units != NULL;
    switch (plan->rows) {
    case 16:
        return split ? launch_products<T, tile_form<16, 6, format, 1, true>>(p, room, stream)
                     : launch_products<T, tile_form<16, 8, format>>(p, room, stream);
    case 32:
        return split ? launch_products<T, tile_form<32, 4, format, 1, true>>(p, room, stream)
                     : launch_products<T, tile_form<32, 5, format>>(p, room, stream);
    case 64:
        return launch_products<T, tile_form<64, 3, format>>(p, room, stream);
    default:
        return launch_products<T, tile_form<256, 4, format>>(p, room, stream);
    }
}
