# Writes OUTPUT, what PROGRAM and LIBRARY are linked with, as SPDX JSON. Versions are those of the Debian packages that libraries are from:
# cmake -DPROGRAM= -DLIBRARY= -DVERSION= -DCUDA= -DARCHIVES= -DOUTPUT= -P. ARCHIVES are linked or compiled in; CUDA is the version
# of its static runtime, or empty.
cmake_minimum_required(VERSION 3.25)
set(licences
    libc:LGPL-2.1-or-later libcjson:MIT libhwloc:BSD-3-Clause libmicrohttpd:LGPL-2.1-or-later libpcre2:BSD-3-Clause
    libprotobuf-c:BSD-2-Clause libutf8proc:MIT libxxhash:BSD-2-Clause)
set(packages)
set(relations)
set(seen)

# Adds a package that trireme has the relation to, once.
function(add_package name version licence relation)
  if(name IN_LIST seen)
    return()
  endif()
  set(seen ${seen} ${name} PARENT_SCOPE)
  string(REGEX REPLACE "[^A-Za-z0-9.-]" "-" id "SPDXRef-${name}")
  set(version_text)
  if(version)
    set(version_text "\"versionInfo\": \"${version}\", ")
  endif()
  string(APPEND packages ",\n    {\"SPDXID\": \"${id}\", \"name\": \"${name}\", ${version_text}\"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, "
                         "\"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"${licence}\", \"copyrightText\": \"NOASSERTION\"}")
  string(APPEND relations ",\n    {\"spdxElementId\": \"SPDXRef-trireme\", \"relationshipType\": \"${relation}\", \"relatedSpdxElement\": \"${id}\"}")
  set(packages "${packages}" PARENT_SCOPE)
  set(relations "${relations}" PARENT_SCOPE)
endfunction()

# Adds the package that a file is from.
function(add_file file relation)
  file(REAL_PATH ${file} file)
  get_filename_component(name ${file} NAME)
  set(version)
  string(REGEX REPLACE "^/usr" "" path ${file}) # /lib and /usr/lib are the same folder, and dpkg knows one of them
  execute_process(COMMAND dpkg-query -S "*${path}" OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND owner MATCHES "^([^:, ]+)")
    set(name ${CMAKE_MATCH_1})
    execute_process(COMMAND dpkg-query -W "-f=\${Version}\n" ${name} OUTPUT_VARIABLE version)
    string(REGEX REPLACE "\n.*" "" version "${version}")
  endif()
  set(licence NOASSERTION)
  foreach(pair IN LISTS licences)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 stem)
    if(name MATCHES "^${stem}[-0-9.]")
      list(GET pair 1 licence)
    endif()
  endforeach()
  add_package(${name} "${version}" ${licence} ${relation})
  set(packages "${packages}" PARENT_SCOPE)
  set(relations "${relations}" PARENT_SCOPE)
  set(seen ${seen} PARENT_SCOPE)
endfunction()

foreach(binary IN ITEMS ${PROGRAM} ${LIBRARY})
  execute_process(COMMAND objdump -p ${binary} OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ldd ${binary} OUTPUT_VARIABLE found COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "NEEDED +[^\n]+" needed "${headers}")
  foreach(line IN LISTS needed)
    string(REGEX REPLACE "NEEDED +" "" soname ${line})
    string(REPLACE "+" "\\+" pattern ${soname})
    if(found MATCHES "${pattern} => ([^ \n]+)")
      add_file(${CMAKE_MATCH_1} DYNAMIC_LINK)
    endif()
  endforeach()
endforeach()
foreach(archive IN LISTS ARCHIVES)
  add_file(${archive} STATIC_LINK)
endforeach()
if(CUDA)
  add_package(cudart_static ${CUDA} NOASSERTION STATIC_LINK)
endif()

string(TIMESTAMP now "%Y-%m-%dT%H:%M:%SZ" UTC)
string(UUID id NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 NAME "${VERSION}${now}${packages}" TYPE SHA1)
file(
  WRITE ${OUTPUT}
  "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"trireme-${VERSION}\",
  \"documentNamespace\": \"urn:uuid:${id}\",
  \"comment\": \"Open MPI, OpenBLAS, NCCL, cuBLASLt, cuDNN and NVRTC are loaded at run time where they are installed.\",
  \"creationInfo\": {\"created\": \"${now}\", \"creators\": [\"Tool: cmake/sbom.cmake\"]},
  \"packages\": [
    {\"SPDXID\": \"SPDXRef-trireme\", \"name\": \"trireme\", \"versionInfo\": \"${VERSION}\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseConcluded\": \"Apache-2.0\", \"licenseDeclared\": \"Apache-2.0\", \"copyrightText\": \"NOASSERTION\"}${packages}
  ],
  \"relationships\": [
    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-trireme\"}${relations}
  ]
}
")
