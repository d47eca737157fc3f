# Messages of the ONNX format, generated from our schema; <onnx.pb-c.h> is for graph/import/onnx and its tests alone.
set(TRM_GENERATED ${PROJECT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${TRM_GENERATED})
add_custom_command(
  OUTPUT ${TRM_GENERATED}/onnx.pb-c.c ${TRM_GENERATED}/onnx.pb-c.h
  COMMAND ${PROTOC_C} --c_out=${TRM_GENERATED} --proto_path=${PROJECT_SOURCE_DIR}/graph/import/onnx onnx.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/graph/import/onnx/onnx.proto
  VERBATIM)
set_source_files_properties(${TRM_GENERATED}/onnx.pb-c.c PROPERTIES COMPILE_OPTIONS -w)

# Messages of plan files; <plan_file.pb-c.h> is for dist/plan alone.
add_custom_command(
  OUTPUT ${TRM_GENERATED}/plan_file.pb-c.c ${TRM_GENERATED}/plan_file.pb-c.h
  COMMAND ${PROTOC_C} --c_out=${TRM_GENERATED} --proto_path=${PROJECT_SOURCE_DIR}/dist/plan plan_file.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/dist/plan/plan_file.proto
  VERBATIM)
set_source_files_properties(${TRM_GENERATED}/plan_file.pb-c.c PROPERTIES COMPILE_OPTIONS -w)
