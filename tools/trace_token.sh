#!/usr/bin/env bash
# What the program does between two tokens that it decodes on the host: calls, functions, files and rooms of the main thread, and
# searches for kernels. Inner arithmetic is left out: headers of kernels, base/half.h, checks that only sanitized builds make,
# functions without a name (clones for other processors), and of the host kernels all but their entry points.
#   tools/trace_token.sh [BUILD_DIR]    with --calls: every call, too, with how often it was made
set -euo pipefail
calls=
[ "${1-}" = --calls ] && { calls=1; shift; }
cd "$(dirname "$0")/.."
build=${1-build/trace}
mkdir -p "$build"
cmake -G Ninja -S . -B "$build" -DTRM_CUDA=OFF -DBUILD_TESTING=OFF -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_C_FLAGS="-O0 -g1 -finstrument-functions" >"$build.log"
cmake --build "$build" --target trireme >>"$build.log"
cc -O2 -shared -fPIC -o "$build/trace_token.so" tools/trace_token.c
OMPI_MCA_btl=self TRACE_TOKEN=$build/events LD_PRELOAD=$PWD/$build/trace_token.so \
    "$build/trireme" run configs/models/kjv-7m -p "In the beginning" -n 12 --threads 1 >/dev/null 2>&1

# One line a function: its address, name and file from the root.
cut -d' ' -f2 "$build/events" | sort -u >"$build/addresses"
addr2line -f -e "$build/trireme" <"$build/addresses" | sed "s|:[0-9?]*\( .*\)\?$||; s|^/.*/\.\./||; s|^$PWD/||; s|^$build/||" |
    paste -d' ' - - | paste -d' ' "$build/addresses" - >"$build/functions"

awk -v calls="$calls" '
function is_inner(name, file) {
    return file == "??" || file ~ /^kernels\/.*\.h$|^base\/(half|range_check)\.h/ ||
           (file ~ /^(kernels|attention)\/(.*\/)?host(\/|\.c|_)/ && name !~ /_run$/)
}
function enter_file(file) {
    if (file != here) {
        walls++
        if (room_of(file) != room_of(here)) rooms++
        here = file
    }
}
function room_of(file, part) {
    split(file, part, "/")
    return part[1] ~ /^(dist|launcher)$/ ? part[1] "/" part[2] : part[1]
}
FNR == NR { name[$1] = $2; file[$1] = $3; next }
$1 == "+" && name[$2] == "take_token" && file[$2] == "launcher/cli/run.c" { if (++token == 8) exit; here = file[$2]; next }
token != 7 || is_inner(name[$2], file[$2]) { next }
$1 == "-" { depth--; enter_file(depth in stack ? stack[depth] : here); next }
{
    stack[++depth] = file[$2]
    enter_file(file[$2])
    n++
    by_function[name[$2] " " file[$2]]++
    by_file[file[$2]]++
    searches += name[$2] == "trm_kernel_find"
    apart += name[$2] ~ /take_apart/
    partition += file[$2] ~ /partition/
}
END {
    for (f in by_function) functions++
    for (f in by_file) files++
    printf "calls %d\nfunctions %d\nfiles %d\ncrossings of files %d\ncrossings of rooms %d\n", n, functions, files, walls, rooms
    printf "kernel searches %d\nlayers taken apart %d\ncalls into dist/partition %d\n", searches, apart, partition
    if (calls) for (f in by_function) print by_function[f], f | "sort -rn"
}' "$build/functions" "$build/events"
