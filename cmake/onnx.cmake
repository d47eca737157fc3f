# Messages of the ONNX format, generated from our schema; <onnx.pb-c.h> is for graph/import/onnx and its tests alone.
set(TRM_ONNX_GENERATED ${PROJECT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${TRM_ONNX_GENERATED})
add_custom_command(
  OUTPUT ${TRM_ONNX_GENERATED}/onnx.pb-c.c ${TRM_ONNX_GENERATED}/onnx.pb-c.h
  COMMAND ${PROTOC_C} --c_out=${TRM_ONNX_GENERATED} --proto_path=${PROJECT_SOURCE_DIR}/graph/import/onnx onnx.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/graph/import/onnx/onnx.proto
  VERBATIM)
set_source_files_properties(${TRM_ONNX_GENERATED}/onnx.pb-c.c PROPERTIES COMPILE_OPTIONS -w)
