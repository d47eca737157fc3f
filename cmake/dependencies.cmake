# Libraries linked at build time, all Debian packages. CUDA libraries, Open MPI and OpenBLAS are loaded at run time instead.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
# Its soname is not the same on Debian 12 and Ubuntu 24.04. With the archive one package serves both.
find_library(UTF8PROC_ARCHIVE libutf8proc.a HINTS ${UTF8PROC_LIBRARY_DIRS})
if(UTF8PROC_ARCHIVE)
  set_target_properties(PkgConfig::UTF8PROC PROPERTIES INTERFACE_LINK_LIBRARIES ${UTF8PROC_ARCHIVE})
endif()
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED) # compiled in; no library to link
find_path(NGHTTP2_INCLUDE_DIR nghttp2/nghttp2.h REQUIRED) # launcher/serve/grpc/http2_library.c opens the library
find_program(PROTOC_C protoc-c REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)

add_library(trireme_dependencies INTERFACE)
target_link_libraries(
  trireme_dependencies INTERFACE PkgConfig::CJSON PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::HWLOC
                                 PkgConfig::PROTOBUF_C Threads::Threads m ${CMAKE_DL_LIBS})
# Open MPI's header, and where collectives/mpi_library.c looks for the library that the loader does not find.
target_include_directories(trireme_dependencies SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
list(GET MPI_C_LIBRARIES 0 mpi_library)
get_filename_component(mpi_folder ${mpi_library} DIRECTORY)
string(REPLACE "${CMAKE_SYSROOT}" "" mpi_folder ${mpi_folder})
set_source_files_properties(${PROJECT_SOURCE_DIR}/collectives/mpi_library.c PROPERTIES COMPILE_DEFINITIONS TRM_MPI_LIBRARY="${mpi_folder}/libmpi.so.40")
