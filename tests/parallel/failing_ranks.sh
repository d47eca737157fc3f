#!/bin/bash
# How a job ends when one of its ranks goes wrong: exit code, and what every rank was told. Deadlines that are not to end
# a job are longer than it may take here.
# usage: failing_ranks.sh PROGRAM MPIRUN
program=$1
mpirun=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# shellcheck source=/dev/null
. "$(dirname "$0")/../support/ports.sh"
failures=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# expect NAME RANKS CODE TEXT...: runs the job `NAME`, which must end with CODE, and have said every TEXT.
expect() {
    local name=$1 ranks=$2 code=$3 start=$SECONDS found
    shift 3
    timeout 300 "$mpirun" --bind-to none -np "$ranks" "$program" "$name" >"$output" 2>&1
    found=$?
    local took=$((SECONDS - start)) good=1
    [ "$found" = "$code" ] || { echo "$name: exit code $found, expected $code"; good=0; }
    for text in "$@"; do
        grep -qF -- "$text" "$output" || { echo "$name: nobody said \"$text\""; good=0; }
    done
    if [ $good = 0 ]; then
        sed 's/^/    /' "$output"
        failures=$((failures + 1))
    else
        echo "$name: ok, $took s"
    fi
}

expect well 3 0 "rank 0 done" "rank 1 done" "rank 2 done"
oom="rank 1 failed: out of memory: cannot load shard 7"
export OMPI_MCA_odls_base_sigkill_timeout=5 # these ranks do not mind being told to end before they have said why
expect fails 3 5 "[0] log: $oom" "[1] log: $oom" "[2] log: $oom" "[0] error: all_reduce of 1 f32 between 3 ranks: $oom"
expect absent 3 6 "rank 1 did not arrive within 6 s" "[0] log: rank" "[2] log: rank"
unset OMPI_MCA_odls_base_sigkill_timeout
for ((i = 0; i < 5; i++)); do # at the same time: each rank tells of one failure, once
    expect both-fail 3 5 "failed: out of memory: cannot load shard"
    twice=$(grep -o '^\[.\] log: rank' "$output" | sort | uniq -d)
    [ -z "$twice" ] || { echo "both-fail: told more than once:"; sed 's/^/    /' "$output"; failures=$((failures + 1)); }
done
expect killed 3 137
expect exits 3 3
expect stopped 2 6 "rank 1 did not arrive within 6 s"
expect options-differ 3 2 "error: rank 1 has options that differ from rank 0: version"
RANK=0 WORLD_SIZE=3 expect contradiction 3 2 "OMPI_COMM_WORLD_RANK and RANK contradict each other"

# The same without MPI: the ranks are started here, as torchrun would.
# expect_torchrun NAME CODES TEXT...: CODES are the exit codes of the ranks, "-" for any.
expect_torchrun() {
    local name=$1 codes=($2) start=$SECONDS good=1 pids=() found rank port
    shift 2
    port=$(free_ports)
    : >"$output"
    for rank in "${!codes[@]}"; do
        RANK=$rank WORLD_SIZE=${#codes[@]} MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 300 "$program" "$name" >>"$output" 2>&1 &
        pids+=($!)
    done
    for rank in "${!codes[@]}"; do
        [ "${codes[$rank]}" = - ] && continue
        wait "${pids[$rank]}"
        found=$?
        [ "$found" = "${codes[$rank]}" ] || { echo "torchrun $name: rank $rank has exit code $found, expected ${codes[$rank]}"; good=0; }
    done 2>/dev/null
    local took=$((SECONDS - start))
    kill "${pids[@]}" 2>/dev/null
    wait 2>/dev/null
    for text in "$@"; do
        grep -qF -- "$text" "$output" || { echo "torchrun $name: nobody said \"$text\""; good=0; }
    done
    if [ $good = 0 ]; then
        sed 's/^/    /' "$output"
        failures=$((failures + 1))
    else
        echo "torchrun $name: ok, $took s"
    fi
}

expect_torchrun well "0 0 0" "rank 0 done" "rank 1 done" "rank 2 done"
expect_torchrun fails "5 5 5" "[0] log: $oom" "[1] log: $oom" "[2] log: $oom"
expect_torchrun killed "6 - 6" "rank 1 closed its connection"
expect_torchrun absent "6 - 6" "rank 1 did not arrive within 6 s"

if nvidia-smi -L >/dev/null 2>&1; then
    expect one-gpu 2 2 "ranks 0 and 1 both use GPU"
    if [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then
        expect gpu-well 2 0 "rank 0 done" "rank 1 done"
        expect gpu-fails 2 5 "[0] log: $oom"
        expect gpu-absent 2 6 "[0] error: "
        expect_torchrun gpu-well "0 0" "rank 0 done" "rank 1 done"
    fi
else
    expect no-device 2 4 "no usable CUDA device"
fi
exit $((failures > 0))
