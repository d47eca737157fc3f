#!/usr/bin/env bash
# The example plugin by the program: run, build, inspect, refit and compare, on one rank and two, streamed.
# usage: cli.sh TRIREME PLUGIN MPIRUN [BACKEND]
set -euo pipefail
trireme=$1 plugin=$2 mpirun=$3 backend=${4:-host}
cd "$(dirname "$0")/../goldens/onnx/plugin"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TRIREME_BACKEND=$backend TRIREME_TIMING_CACHE=off XDG_CONFIG_HOME=$work

# fails CODE TEXT COMMAND...
fails() {
    local code=$1 text=$2 status=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ $status != "$code" ] || ! grep -qF -- "$text" "$work/err"; then
        echo "$*: exit code $status, expected $code and \"$text\":" >&2
        cat "$work/out" "$work/err" >&2
        exit 1
    fi
}
# gives WEIGHTS COMMAND...: the program's output is that of one.onnx or two.onnx
gives() {
    local weights=$1
    shift
    "$@" --plugin "$plugin" --input x=x.npy --expect "y=$weights.npy" >"$work/out" 2>&1 || {
        echo "$*: not the output of $weights.onnx:" >&2
        cat "$work/out" >&2
        exit 1
    }
}
two=("$mpirun" --bind-to none -np 2 "$trireme")

gives one "$trireme" run one.onnx
gives one "${two[@]}" run one.onnx
gives one "$trireme" run one.onnx --weight-budget 0
gives two "${two[@]}" run two.onnx --weight-budget 0
gives one "$trireme" bench one.onnx --iterations 3 --duration 0

# a plan, with other weights, on two ranks, streamed
"$trireme" build one.onnx --plugin "$plugin" --refittable --shapes x:5x8 -o "$work/one.plan" >/dev/null 2>&1
"$trireme" refit "$work/one.plan" --plugin "$plugin" --weights two.onnx -o "$work/two.plan" >/dev/null 2>&1
"$trireme" build one.onnx --plugin "$plugin" --mesh tp=2 --shapes x:5x8 -o "$work/ranks.plan" >/dev/null 2>&1
gives one "$trireme" run "$work/one.plan"
gives two "$trireme" run "$work/two.plan" --weight-budget 0
gives one "${two[@]}" run "$work/ranks.plan"
gives one "${two[@]}" run "$work/ranks.plan" --weight-budget 0
"$trireme" inspect "$work/one.plan" --plugin "$plugin" --after final | grep -qF 'of="com.example.GainSwish 1" sharpness=1.5'
"$trireme" compare one.onnx --plugin "$plugin" --ranks 1,2 --mpirun "$mpirun" --input x=x.npy >/dev/null

# without the plugin, or with something else
fails 3 "operator com.example.GainSwish is not supported, and no plugin of this name and version is loaded" "$trireme" run one.onnx --input x=x.npy
fails 3 "layer s needs plugin com.example.GainSwish 1 of gain_swish.so, which is not loaded" "$trireme" run "$work/one.plan" --input x=x.npy
fails 3 "which is not loaded" "$trireme" inspect "$work/one.plan"
fails 1 "cannot load plugins from nothing.so: No such file or directory" "$trireme" run one.onnx --plugin nothing.so --input x=x.npy
fails 1 "cannot load plugins from " "$trireme" run one.onnx --plugin x.npy --input x=x.npy
echo "plugins work on the $backend"
