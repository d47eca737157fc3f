#!/usr/bin/env bash
# Whether every #include keeps the direction of the rooms: include, base <- kernels <- attention, collectives, weight_stream
# <- graph <- dist <- launcher; and whether foreign headers stay in the files that may use them.
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A may=(
    [base]="base"
    [kernels]="base kernels"
    [attention]="base kernels attention"
    [collectives]="base kernels collectives"
    [weight_stream]="base kernels weight_stream"
    [graph]="base kernels attention collectives weight_stream graph"
    [dist]="base kernels attention collectives weight_stream graph dist"
    [launcher]="base launcher"
)
# The launcher uses the engine through the public API alone.
bad=0
complain() {
    echo "$1"
    bad=1
}

for room in "${!may[@]}"; do
    while IFS=: read -r file line include; do
        target=${include#*\"}
        target=${target%%\"*}
        case "$target" in
        */*) ;;
        *) complain "$file:$line: \"$target\" is not named from the top of the source" && continue ;;
        esac
        to=${target%%/*}
        if [[ " ${may[$room]} " != *" $to "* ]]; then
            complain "$file:$line: $room must not include $target"
        fi
    done < <(grep -rnE '^#include "' --include='*.[ch]' --include='*.cu' --include='*.cuh' "$room" || true)
done

# header, and the files that may include it
foreign() {
    local header=$1 allowed=$2
    while IFS=: read -r file line _; do
        if ! [[ "$file" =~ $allowed ]]; then
            complain "$file:$line: $header is not for this file"
        fi
    done < <(grep -rnE "^#include <$header" --include='*.[ch]' --include='*.cu' --include='*.cuh' "${!may[@]}" include || true)
}
foreign 'mpi\.h' '^(dist/|collectives/mpi\.c$)'
foreign 'nccl\.h' '^collectives/'
foreign 'hwloc' '^dist/topology\.c$'
foreign 'cuda' '^(kernels/cuda/|kernels/element/element\.h$|attention/cuda/|collectives/cuda/|dist/system\.c$)'
foreign 'cublas' '^kernels/cuda/'
foreign '(cjson|cJSON)' '^base/json\.c$'
foreign 'microhttpd' '^launcher/serve/server'
foreign 'pcre2' '^launcher/text/'
foreign 'utf8proc' '^launcher/text/'
foreign 'onnx\.pb-c' '^graph/import/onnx/'
foreign 'plan_file\.pb-c' '^dist/plan_'
foreign 'protobuf-c' '^(graph/import/onnx/|dist/plan_)'
foreign 'xxhash' '^(dist/plan_|kernels/cuda/nvrtc\.c)'

# Public headers: the C standard's small ones and our own.
while IFS=: read -r file line include; do
    if ! [[ "$include" =~ ^#include\ \<(stddef|stdint|stdbool)\.h\>$|^#include\ \<trireme/[a-z_]+\.h\>$ ]]; then
        complain "$file:$line: a public header includes ${include#\#include }"
    fi
done < <(grep -nE '^#include' include/trireme/*.h /dev/null)

exit $bad
