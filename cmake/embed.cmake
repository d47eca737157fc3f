# Writes OUTPUT, a C file with the text of FILES (relative to ROOT) as trm_device_headers[]: cmake -DROOT= -DFILES= -DOUTPUT= -P
set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS FILES)
  file(READ ${ROOT}/${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "^include/" "" name ${file})
  string(APPEND arrays "static const char text_${number}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", text_${number}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"kernels/fused/cuda_headers.h\"\n\n${arrays}\nconst trm_device_header trm_device_headers[] = {\n${rows}};\n"
     "const int trm_device_headers_count = ${number};\n")
