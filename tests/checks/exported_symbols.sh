#!/usr/bin/env bash
# Whether the library exports the functions of the public headers and nothing else, cmake/trireme.map lists them, and each
# is used by the program, the Python package or an example, or is named in the page of the C API.
# usage: exported_symbols.sh libtrireme.so
set -euo pipefail
library=$(realpath "$1")
cd "$(dirname "$0")/../.."
declared=$(cat include/trireme/*.h include/trireme/layers/*.h | tr '\n' ' ' | grep -oE 'TRM_API [^;{(]*\(' | grep -oE 'trm_[a-z0-9_]+\($' | tr -d '(' | sort -u)
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
users=(launcher/cli launcher/serve launcher/llm python/trireme docs/examples docs/reference/c-api.md)
used=$(grep -rohwE --exclude=_c.py 'trm_[a-z0-9_]+' "${users[@]}" | sort -u)
if found=$(comm -23 <(echo "$declared") <(echo "$used")) && [ -n "$found" ]; then
    echo "nobody uses these functions; remove them, or say in docs/reference/c-api.md what for:"
    echo "$found"
    status=1
fi
exit $status
