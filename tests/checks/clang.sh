#!/usr/bin/env bash
# Whether clang, which the fuzz preset compiles with, takes the sources of the host as gcc does, without a warning.
# usage: clang.sh CLANG GENERATED_FOLDER
set -euo pipefail
clang=$1
generated=$2
cd "$(dirname "$0")/../.."
mapfile -t files < <(find base kernels attention collectives weight_stream graph dist launcher tests -name '*.c' ! -path '*/cuda*' | sort)
flags=$(pkg-config --cflags libcjson libpcre2-8 libutf8proc hwloc libmicrohttpd libprotobuf-c cmocka ompi-c)
read -ra flags <<<"$flags"
"$clang" -fsyntax-only -Werror -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wno-missing-field-initializers \
    -std=c17 -D_GNU_SOURCE -DTRM_HAVE_CUDA=0 -DTRM_HAVE_SM90A=0 '-DTRM_PASS_KINDS="kernels/pass_kinds.h"' '-DTRM_SOURCE_DIR="."' '-DTRM_BINARY_DIR="."' '-DTRM_MPI_LIBRARY="."' \
    -I. -Iinclude -Itests "-I$generated" "${flags[@]}" "${files[@]}"
echo "${#files[@]} files are good C for clang"
