# What `cmake --install` and `cpack` (a Debian package) put where; tests/install builds against it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(trireme::trireme ALIAS trireme_library) # the same name in this build and in an installed one
# Libraries that lie outside of the system's folders are found when installed as they are in the build.
set_target_properties(trireme trireme_library PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)

install(TARGETS trireme_library EXPORT triremeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
install(EXPORT triremeTargets NAMESPACE trireme:: DESTINATION ${package_dir})
configure_package_config_file(cmake/triremeConfig.cmake.in ${PROJECT_BINARY_DIR}/triremeConfig.cmake INSTALL_DESTINATION ${package_dir})
# Until 1.0 a new minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/triremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/triremeConfig.cmake ${PROJECT_BINARY_DIR}/triremeConfigVersion.cmake DESTINATION ${package_dir})

# The folder of trireme.pc leads to the prefix, so that what is installed can be moved.
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/trireme.pc.in ${PROJECT_BINARY_DIR}/trireme.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Completions come from the program's own table of settings, written whenever the program is built.
add_custom_command(TARGET trireme POST_BUILD COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/completions)
foreach(shell bash fish)
  add_custom_command(TARGET trireme POST_BUILD COMMAND trireme completion ${shell} > ${PROJECT_BINARY_DIR}/completions/trireme.${shell} VERBATIM)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/completions/trireme.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trireme)
install(FILES ${PROJECT_BINARY_DIR}/completions/trireme.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# The manual page has its options from there, too.
set(run_trireme ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:trireme>)
add_custom_command(
  OUTPUT ${PROJECT_BINARY_DIR}/trireme.1
  COMMAND ${CMAKE_COMMAND} "-DPROGRAM=${run_trireme}" -DFILE=${PROJECT_SOURCE_DIR}/docs/trireme.1
          -DOUTPUT=${PROJECT_BINARY_DIR}/trireme.1 -P ${PROJECT_SOURCE_DIR}/cmake/manual.cmake
  DEPENDS trireme ${PROJECT_SOURCE_DIR}/docs/trireme.1 ${PROJECT_SOURCE_DIR}/cmake/manual.cmake
  VERBATIM)
add_custom_target(trireme_manual ALL DEPENDS ${PROJECT_BINARY_DIR}/trireme.1)
install(FILES ${PROJECT_BINARY_DIR}/trireme.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme)

# What it is linked with, in which versions; ldd tells that of this machine's programs alone.
if(NOT CMAKE_CROSSCOMPILING)
  set(cuda_runtime)
  if(TRM_HAVE_CUDA)
    set(cuda_runtime ${CUDAToolkit_VERSION})
  endif()
  add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/trireme.spdx.json
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:trireme> -DLIBRARY=$<TARGET_FILE:trireme_library> -DVERSION=${PROJECT_VERSION} -DCUDA=${cuda_runtime}
            "-DARCHIVES=$<$<BOOL:${UTF8PROC_ARCHIVE}>:${UTF8PROC_ARCHIVE}>;${XXHASH_INCLUDE_DIR}/xxhash.h" -DOUTPUT=${PROJECT_BINARY_DIR}/trireme.spdx.json
            -P ${PROJECT_SOURCE_DIR}/cmake/sbom.cmake
    DEPENDS trireme trireme_library ${PROJECT_SOURCE_DIR}/cmake/sbom.cmake
    VERBATIM)
  add_custom_target(trireme_sbom ALL DEPENDS ${PROJECT_BINARY_DIR}/trireme.spdx.json)
  install(FILES ${PROJECT_BINARY_DIR}/trireme.spdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

# The Python package with this build's library in it (docs/guides/python.md).
add_custom_target(
  wheel
  COMMAND ${PROJECT_SOURCE_DIR}/python/make_wheel.sh $<TARGET_FILE:trireme_library> ${PROJECT_BINARY_DIR}/wheel
  DEPENDS trireme_library
  VERBATIM)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "Trireme developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Multi-GPU inference engine for large models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # what it links with; CUDA libraries are looked for when it runs
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, libnghttp2-14, libedit2")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS libopenblas0)
if(TRM_HAVE_CUDA) # from NVIDIA's repository
  set(cuda_release ${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  string(APPEND CPACK_DEBIAN_PACKAGE_SUGGESTS
         ", libnccl2, libcublas-${cuda_release}, cuda-nvrtc-${cuda_release}, libcudnn9-cuda-${CUDAToolkit_VERSION_MAJOR}")
endif()
include(CPack)
