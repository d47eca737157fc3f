# Headers that kernels compiled at run time include, as text in the program (kernels/fused/cuda_headers.h).
set(device_headers include/trireme/status.h include/trireme/types.h include/trireme/layers/common.h
                   include/trireme/layers/pointwise.h kernels/pointwise/element.h kernels/pointwise/element_real.h
                   kernels/fused/cuda_args.h kernels/fused/cuda_device.cuh)
list(TRANSFORM device_headers PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE device_header_paths)
add_custom_command(
  OUTPUT ${TRM_GENERATED}/device_headers.c
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} "-DFILES=${device_headers}" -DOUTPUT=${TRM_GENERATED}/device_headers.c -P
          ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/cmake/embed.cmake ${device_header_paths}
  VERBATIM)
