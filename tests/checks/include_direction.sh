#!/usr/bin/env bash
# Whether every #include keeps the direction of the rooms (docs/design.md), and whether foreign headers stay in the
# files that may use them.
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A may=(
    [base]="base"
    [kernels]="base kernels"
    [attention]="base kernels attention"
    [collectives]="base kernels collectives"
    [weight_stream]="base kernels weight_stream"
    [graph]="base kernels attention collectives weight_stream graph"
    [dist/parallel]="base kernels collectives dist/parallel"
    [launcher]="base launcher"
)
# Each floor stands on the one before it.
floor="${may[graph]} dist/parallel"
for room in dist/partition dist/plan weight_stream/offload dist/runtime dist/llm dist/llm/scheduler; do
    floor+=" $room"
    may[$room]=$floor
done
# The launcher uses the engine through the public API alone.
bad=0
complain() {
    echo "$1"
    bad=1
}

# The room of a path: its longest prefix that is one.
room_of() {
    local path=$1
    while [[ $path == */* ]]; do
        path=${path%/*}
        [ -n "${may[$path]:-}" ] && echo "$path" && return
    done
    echo "${1%%/*}"
}

while IFS=: read -r file line include; do
    target=${include#*\"}
    target=${target%%\"*}
    case "$target" in
    */*) ;;
    *) complain "$file:$line: \"$target\" is not named from the top of the source" && continue ;;
    esac
    room=$(room_of "$file")
    to=$(room_of "$target")
    if [[ " ${may[$room]} " != *" $to "* ]]; then
        complain "$file:$line: $room must not include $target"
    fi
done < <(grep -rnE '^#include "' --include='*.[ch]' --include='*.cu' --include='*.cuh' base kernels attention collectives weight_stream graph dist launcher || true)

# header, and the files that may include it
foreign() {
    local header=$1 allowed=$2
    while IFS=: read -r file line _; do
        if ! [[ "$file" =~ $allowed ]]; then
            complain "$file:$line: $header is not for this file"
        fi
    done < <(grep -rnE "^#include <$header" --include='*.[ch]' --include='*.cu' --include='*.cuh' base kernels attention collectives weight_stream graph dist launcher include || true)
}
foreign 'mpi\.h' '^collectives/mpi_library\.h$'
foreign 'nccl\.h' '^collectives/'
foreign 'hwloc' '^dist/parallel/topology\.c$'
foreign 'cuda' '(^(kernels|attention|collectives)/(.*/)?cuda|^kernels/element\.h$|^dist/parallel/system\.c$)'
foreign 'cublas' '^kernels/matmul/cuda_cublaslt\.c$'
foreign '(cjson|cJSON)' '^base/json\.c$'
foreign 'microhttpd' '^launcher/serve/http/server'
foreign 'nghttp2' '^launcher/serve/grpc/http2_library\.h$'
foreign 'pcre2' '^launcher/text/regex/'
foreign 'utf8proc' '^launcher/text/(strings/unicode|jinja/text)\.c$'
foreign 'onnx\.pb-c' '^graph/import/onnx/'
foreign 'plan_file\.pb-c' '^dist/plan/'
foreign 'protobuf-c' '^(graph/import/onnx/|dist/plan/)'
foreign 'xxhash' '^(dist/plan/|kernels/fused/cuda_nvrtc\.c)'

# Public headers: the C standard's small ones and our own; TRM_PASS_KINDS is defined in the engine's own sources alone.
while IFS=: read -r file line include; do
    if ! [[ "$include" =~ ^#include\ \<(stddef|stdint|stdbool)\.h\>$|^#include\ \<trireme/[a-z_/]+\.h\>$|^#include\ TRM_PASS_KINDS$ ]]; then
        complain "$file:$line: a public header includes ${include#\#include }"
    fi
done < <(grep -nE '^#include' include/trireme/*.h include/trireme/layers/*.h /dev/null)

exit $bad
