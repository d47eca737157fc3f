#!/usr/bin/env bash
# Whether the library exports the functions of the public headers and nothing else, and cmake/trireme.map lists them.
# usage: exported_symbols.sh libtrireme.so
set -euo pipefail
library=$(realpath "$1")
cd "$(dirname "$0")/../.."
declared=$(cat include/trireme/*.h | tr '\n' ' ' | grep -oE 'TRM_API [^;{(]*\(' | grep -oE 'trm_[a-z0-9_]+\($' | tr -d '(' | sort -u)
listed=$(grep -oE '\btrm_[a-z0-9_]+;' cmake/trireme.map | tr -d ';' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$3 ~ /./ && $2 != "A" {sub(/@.*/, "", $3); print $3}' | sort -u)
status=0
if ! found=$(diff <(echo "$declared") <(echo "$listed")); then
    echo "declared in include/trireme (<) and listed in cmake/trireme.map (>) differ:"
    echo "$found"
    status=1
fi
if ! found=$(diff <(echo "$declared") <(echo "$exported")); then
    echo "declared in include/trireme (<) and exported by $library (>) differ:"
    echo "$found"
    status=1
fi
exit $status
