#!/bin/bash
# How a job ends when one of its ranks goes wrong: exit code, time, and what every rank was told.
# usage: failing_ranks.sh PROGRAM MPIRUN
program=$1
mpirun=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
failures=0
slack=0 # seconds that a job takes on this machine when nothing goes wrong
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# expect NAME RANKS CODE SECONDS TEXT...: runs the job `NAME`, which must end with CODE within SECONDS more than a job takes
# anyway, and have said every TEXT.
expect() {
    local name=$1 ranks=$2 code=$3 seconds=$4 start=$SECONDS found
    shift 4
    timeout 60 "$mpirun" --bind-to none -np "$ranks" "$program" "$name" >"$output" 2>&1
    found=$?
    local took=$((SECONDS - start)) good=1
    [ "$found" = "$code" ] || { echo "$name: exit code $found, expected $code"; good=0; }
    [ "$took" -le $((seconds + slack)) ] || { echo "$name: took $took s, expected at most $((seconds + slack))"; good=0; }
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

began=$SECONDS
expect well 3 0 40 "rank 0 done" "rank 1 done" "rank 2 done"
slack=$((SECONDS - began))
oom="rank 1 failed: out of memory: cannot load shard 7"
expect fails 3 5 8 "[0] log: $oom" "[1] log: $oom" "[2] log: $oom" "[0] error: all_reduce of 1 f32 between 3 ranks: $oom"
expect both-fail 3 5 10 "failed: out of memory: cannot load shard"
expect killed 3 137 8
expect exits 3 3 8
expect absent 3 6 12 "rank 1 did not come within 2 s" "[0] log: rank" "[2] log: rank"
expect stopped 2 6 12 "rank 1 did not come within 2 s"
expect options-differ 3 2 8 "error: rank 1 has other options than rank 0: version"
RANK=0 WORLD_SIZE=3 expect contradiction 3 2 8 "OMPI_COMM_WORLD_RANK and RANK contradict each other"

# The same without MPI: the ranks are started here, as torchrun would.
# expect_torchrun NAME CODES SECONDS TEXT...: CODES are the exit codes of the ranks, "-" for any.
expect_torchrun() {
    local name=$1 codes=($2) seconds=$3 start=$SECONDS good=1 pids=() found rank
    shift 3
    port=$((port + 2))
    : >"$output"
    for rank in "${!codes[@]}"; do
        RANK=$rank WORLD_SIZE=${#codes[@]} MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 15 "$program" "$name" >>"$output" 2>&1 &
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
    [ "$took" -le "$seconds" ] || { echo "torchrun $name: took $took s, expected at most $seconds"; good=0; }
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

port=$((20000 + $$ % 10000))
expect_torchrun well "0 0 0" 8 "rank 0 done" "rank 1 done" "rank 2 done"
expect_torchrun fails "5 5 5" 8 "[0] log: $oom" "[1] log: $oom" "[2] log: $oom"
expect_torchrun killed "6 - 6" 8 "rank 1 closed its connection"
expect_torchrun absent "6 - 6" 12 "rank 1 did not come within 2 s"

if nvidia-smi -L >/dev/null 2>&1; then
    expect one-gpu 2 2 30 "ranks 0 and 1 both use GPU"
    if [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then
        expect gpu-well 2 0 60 "rank 0 done" "rank 1 done"
        expect gpu-fails 2 5 60 "[0] log: $oom"
        expect gpu-absent 2 6 60 "[0] error: "
        expect_torchrun gpu-well "0 0" 60 "rank 0 done" "rank 1 done"
    fi
else
    expect no-device 2 4 8 "no usable CUDA device"
fi
exit $((failures > 0))
