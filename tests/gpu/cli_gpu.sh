#!/usr/bin/env bash
# The command line on a machine with GPUs: texts, and the failures that only a GPU can have. Prints PASS, FAIL or SKIP per case;
# exits 1 if a case failed.
#
#   tests/gpu/cli_gpu.sh PROGRAM MODEL [MPIRUN]      MODEL: the folder configs/models/kjv-7m
set -u

if [ $# -lt 2 ]; then
    sed -n '5p' "$0" | sed 's/^# */usage: /' >&2
    exit 2
fi
program=$1
model=$2
mpirun=${3:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "no GPU was found"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# start RANKS ARGUMENT...: runs the program on so many ranks, 0 without mpirun; leaves $code, $took, $work/out, $work/err.
start() {
    local ranks=$1 began=$SECONDS
    shift
    if [ "$ranks" = 0 ]; then
        timeout 120 "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    else
        timeout 120 "$mpirun" --bind-to none -np "$ranks" "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    fi
    code=$?
    took=$((SECONDS - began))
}

pass() {
    echo "PASS $1 ($took s)"
}

fail() {
    echo "FAIL $1: exit code $code after $took s"
    head -c 1000 "$work/out" | sed 's/^/    out: /'
    head -c 2000 "$work/err" | sed 's/^/    err: /'
    failures=$((failures + 1))
}

# prints NAME TEXT RANKS ARGUMENT...
prints() {
    local name=$1 expected=$2
    shift 2
    start "$@"
    [ $code = 0 ] && [ "$(cat "$work/out")" = "$expected" ] && pass "$name" || fail "$name"
}

# refused NAME CODE PATTERN SECONDS RANKS ARGUMENT...: one line that matches, the exit code, nothing on stdout.
refused() {
    local name=$1 expected=$2 pattern=$3 seconds=$4
    shift 4
    start "$@"
    [ $code = "$expected" ] && [ "$(grep -c '^trireme: ' "$work/err")" = 1 ] && grep '^trireme: ' "$work/err" | grep -qE -- "$pattern" &&
        [ ! -s "$work/out" ] && [ $took -le "$seconds" ] && pass "$name" || fail "$name"
}

genesis=" God created the heaven and the earth.
And the earth was without form, and void; and darkness was upon the face of the deep. And the Spirit of God moved upon the \
face of the waters.
And God said, Let there be light: and there was light.
And God saw"
prompt=(run "$model" -p "In the beginning")

# The passage by heart, on 1 to 4 GPUs, in every type, also from steps that are not captured alike.
for ((ranks = 1; ranks <= gpus && ranks <= 4; ranks++)); do
    prints "passage-$ranks-gpus" "$genesis" $ranks "${prompt[@]}" -n 60 --backend cuda
done
[ "$gpus" -lt 2 ] || prints passage-pp2 "$genesis" 2 "${prompt[@]}" -n 60 --backend cuda --mesh pp=2
[ "$gpus" -lt 4 ] || prints passage-tp2-pp2 "$genesis" 4 "${prompt[@]}" -n 60 --backend cuda --mesh tp=2,pp=2
for dtype in f32 f16 bf16; do
    prints "passage-$dtype" "$genesis" 0 "${prompt[@]}" -n 60 --backend cuda --dtype $dtype
done
prints passage-auto "$genesis" 0 "${prompt[@]}" -n 60
prints passage-small-steps "$genesis" 0 run "$model" -p "In the beginning" -n 60 --step-tokens 2
prints passage-on-the-host "$genesis" 0 "${prompt[@]}" -n 60 --backend host

# Draws at a temperature that unsettles what it knows by heart depend on the seed alone.
start 0 "${prompt[@]}" -n 40 -t 3 -s 3
drawn=$(cat "$work/out")
prints seed-again "$drawn" 0 "${prompt[@]}" -n 40 -t 3 -s 3
start 0 "${prompt[@]}" -n 40 -t 3 -s 4
[ $code = 0 ] && [ "$(cat "$work/out")" != "$drawn" ] && pass another-seed || fail another-seed

# What only GPUs can refuse.
refused two-ranks-on-one-gpu 2 'ranks 0 and 1 both use GPU' 40 2 "${prompt[@]}" --backend cuda --device 0
refused more-ranks-than-gpus 2 'both use GPU' 60 $((gpus + 1)) "${prompt[@]}" --backend cuda
refused no-such-device 4 'device 99' 30 0 "${prompt[@]}" --backend cuda --device 99
refused more-replicas-than-gpus 4 "64 replicas of 1 ranks need 64 GPUs, this machine has $gpus" 30 0 serve-worker "$model" --backend cuda --replicas 64
plan='needs [0-9.]+ GiB of memory on .* \(weights [0-9.]+, staging [0-9.]+, cache of [0-9]+ tokens [0-9.]+, activations [0-9.]+, .*\), [0-9.]+ GiB of [0-9.]+ GiB are free; with a weight budget'
refused out-of-device-memory 5 "$plan" 60 0 bench llama-3-70b --batch 1024 --prompt-tokens 8000 --backend cuda
[ "$gpus" -lt 2 ] || refused out-of-device-memory-2 5 "$plan" 60 2 bench llama-3-70b --batch 1024 --prompt-tokens 8000 --backend cuda
CUDA_VISIBLE_DEVICES='' refused hidden-gpus 4 'no usable CUDA device' 30 0 "${prompt[@]}" --backend cuda

# Bench and its profile.
start 0 bench "$model" --tokens 16 --prompt-tokens 32 --repeat 2 --profile --json
[ $code = 0 ] && grep -q '"backend": "cuda"' "$work/out" && grep -qE '"kind": "(qkv_)?attention"' "$work/out" && pass bench || fail bench

# Timelines: captured steps without layers, some steps with them, and copies of weights.
file=$work/t.json
start 0 bench "$model" --tokens 16 --prompt-tokens 32 --repeat 2 --timeline "$file"
captured=$(grep -c '"cat":"step","name":"decode".*"captured":"yes"' "$file")
[ $code = 0 ] && [ "$captured" -gt 30 ] && grep -q '"cat":"layer".*"kernel":"cuda' "$file" && pass timeline || fail timeline
start 0 bench "$model" --tokens 16 --prompt-tokens 32 --repeat 2 --weight-budget 0% --timeline "$file"
[ $code = 0 ] && grep -q '"cat":"weights","name":"model.layers.0.mlp' "$file" && grep -q '"cat":"wait"' "$file" && pass timeline-streaming || fail timeline-streaming

# A rank that is killed in the middle of the text ends the job.
if [ "$gpus" -ge 2 ]; then
    for ((i = 0; i < 2000; i++)); do echo "In the beginning"; done >"$work/lines"
    rm -f "$work/out"
    # shellcheck disable=SC2016
    timeout 120 "$mpirun" --bind-to none -np 2 sh -c 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work/pid" \
        "$program" run "$model" -i -n 1000 --ignore-eos --backend cuda >"$work/out" 2>"$work/err" <"$work/lines" &
    job=$!
    for ((i = 0; i < 600; i++)); do
        [ -s "$work/out" ] && break
        sleep 0.1
    done
    began=$SECONDS
    kill -9 "$(cat "$work/pid.1")"
    wait $job
    code=$?
    took=$((SECONDS - began))
    [ $code = 137 ] && [ $took -le 20 ] && grep -q 'rank 1 ' "$work/err" && pass killed-rank || fail killed-rank
else
    echo "SKIP killed-rank, meshes: one GPU only"
fi

[ $failures = 0 ] && echo "all passed on $gpus GPUs"
exit $((failures > 0))
