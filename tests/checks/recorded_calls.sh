#!/usr/bin/env bash
# Whether every public function that returns a status hands its failures to a recorder: TRM_CALL defines it, or it says
# so itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
declared=$(cat include/trireme/*.h include/trireme/layers/*.h | tr '\n' ' ' | grep -oE 'TRM_API trm_status trm_[a-z0-9_]+\(' | grep -oE 'trm_[a-z0-9_]+\(' | tr -d '(' | sort -u)
recorded=$(find base kernels graph dist weight_stream launcher -name '*.c' -exec cat {} + | tr '\n' ' ' |
    grep -oE 'TRM_CALL\(([a-z_]+\([a-z]+\)|NULL), +trm_[a-z0-9_]+,|trm_call_leave\([^;]*"trm_[a-z0-9_]+"' | grep -oE 'trm_[a-z0-9_]+[,"]$' | tr -d ',"' | sort -u)
if ! found=$(diff <(echo "$declared") <(echo "$recorded")); then
    echo "calls of include/trireme that return a status (<) and those that are recorded (>) differ:"
    echo "$found"
    exit 1
fi
