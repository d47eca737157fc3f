#!/usr/bin/env bash
# Whether every source file is as clang-format 14 writes it. --fix rewrites them.
set -euo pipefail
cd "$(dirname "$0")/../.."
tool=clang-format-14
command -v $tool >/dev/null || { echo "$tool is not installed"; exit 1; }
mode=(--dry-run --Werror)
[ "${1:-}" = --fix ] && mode=(-i)
find include base kernels attention collectives weight_stream graph dist launcher tests \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 $tool "${mode[@]}"
