# Writes FILE's bytes as the C array NAME [NAME_size] into OUTPUT: cmake -DFILE=... -DNAME=... -DOUTPUT=... -P embed_page.cmake
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"launcher/serve/http/page.h\"\nconst unsigned char ${NAME}[] = {\n${bytes}};\nconst size_t ${NAME}_size = sizeof(${NAME});\n")
