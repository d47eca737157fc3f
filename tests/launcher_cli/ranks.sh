# Several ranks, one of which is wrong or dies. Chapters of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

# each RANK-0-ARGUMENTS -- RANK-1-ARGUMENTS: rank 0 and rank 1 are given different command lines.
each() {
    local first=()
    while [ "$1" != -- ]; do
        first+=("$1")
        shift
    done
    shift
    ASAN_OPTIONS=$leaky timeout 600 "$mpirun" --bind-to none -np 1 "$program" "${first[@]}" : -np 1 "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
}

# each_fails CODE TEXT...: how the last `each` must have ended.
each_fails() {
    [ $code = "$1" ] || complain "exit code $code, expected $1: $(cat "$work/err")"
    [ "$(grep -c '^trireme: ' "$work/err")" = 1 ] || complain "more or less than one line: $(cat "$work/err")"
    shift
    for text in "$@"; do
        grep '^trireme: ' "$work/err" | grep -qF -- "$text" || complain "nothing about \"$text\": $(cat "$work/err")"
    done
}

# as_torchrun PORT RANK COMMAND..., as_srun: starts one of two ranks as these launchers do.
as_torchrun() {
    RANK=$2 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 exec "${@:3}"
}

as_srun() {
    SLURM_STEP_ID=0 SLURM_JOB_ID=7 SLURM_PROCID=$2 SLURM_NTASKS=2 SLURM_LOCALID=$2 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2 \
        SLURM_STEP_NODELIST=nowhere.invalid TRIREME_PORT=$1 exec "${@:3}"
}

case_ranks() { # without mpirun, and one rank alone is wrong
    local as rank port ids=()
    for as in as_torchrun as_srun; do
        port=$(free_ports)
        for rank in 0 1; do
            $as "$port" $rank "$program" run "$model" -p "In the beginning" -n 3 -q >"$work/out.$rank" 2>"$work/err.$rank" </dev/null &
            ids[rank]=$!
        done
        for rank in 0 1; do
            wait "${ids[rank]}" || complain "$as: rank $rank: exit code $?: $(cat "$work/err.$rank")"
        done
        [ "$(cat "$work/out.0")" = " God created the" ] || complain "$as: $(cat "$work/out.0" "$work/err.0")"
        [ ! -s "$work/out.1" ] || complain "$as: rank 1 printed $(cat "$work/out.1")"
    done
    each run "$model" -p "In the beginning" -n 3 -q -- run "$model" -p "Another" -n 3 --threads 1
    [ "$code $(cat "$work/out")" = "0  God created the" ] || complain "prompts are rank 0's: $(cat "$work/out" "$work/err")"
    each run "$model" -p a -- run "$work/nowhere" -p a
    each_fails 3 "rank 1: " "$work/nowhere"
    copy truncated && truncate -s 50000 "$work/truncated/model.safetensors"
    each run "$work/truncated" -p a -- run "$tiny" -p a
    each_fails 3 "$work/truncated" "is it truncated?"
    each run "$model" -p a -- run "$tiny" -p a
    each_fails 3 "rank 1: " "tokenizer.json"
    each run "$model" -p a -- run "$model" -p a --top-p 3
    each_fails 2 "rank 1: top-p is \"3\""
    each run "$model" -p a --top-p 3 -- run "$model" -p a
    each_fails 2 "top-p is \"3\""
    each run "$model" -p a -n 5 -- run "$model" -p a -n 50
    each_fails 2 "rank 1: setting \"max-tokens = 50\", expected \"max-tokens = 5\" as on rank 0"
    each run "$model" -p a --stop x -- run "$model" -p a --stop x --stop y
    each_fails 2 "rank 1: setting \"stop = y\""
    each run "$model" -p a --deadline 30 -- run "$model" -p a
    each_fails 2 "rank 1 has options that differ from rank 0"
    each run "$model" -f "$work/absent.txt" -- run "$model"
    each_fails 1 "cannot open $work/absent.txt"
    each bench "$model" --tokens 4 --repeat 1 -- run "$model" -p a
    each_fails 2 "rank 1: setting"
}

# A job that would take minutes, for ranks to die in: waits until its first text has come, or it has ended. $starts is
# the most seconds that has taken.
starts=0
await_text() {
    local i began=$SECONDS
    for ((i = 0; i < 6000; i++)); do
        if [ -s "$work/out" ]; then
            starts=$((SECONDS - began > starts ? SECONDS - began : starts))
            return 0
        fi
        kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    complain "no text came: $(cat "$work/err")"
}

# Whether a process is there and not a zombie, after giving it 300 s to go.
lives_on() {
    local i
    for ((i = 0; i < 3000; i++)); do
        grep -qs '^State:.[^ZX]' "/proc/$1/status" || return 1
        sleep 0.1
    done
}

case_failing_ranks() { # a rank dies in the middle of the text
    local job victim rank port deadline as ids=()
    for ((i = 0; i < 1000; i++)); do echo "In the beginning"; done >"$work/lines"
    local arguments=(run "$model" -i -n 1000 --ignore-eos)
    for victim in 1 0; do
        rm -f "$work/out"
        # shellcheck disable=SC2016
        ASAN_OPTIONS=$leaky timeout 900 "$mpirun" --bind-to none -np 2 sh -c 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work/pid" \
            "$program" "${arguments[@]}" >"$work/out" 2>"$work/err" <"$work/lines" &
        job=$!
        await_text
        kill -9 "$(cat "$work/pid.$victim")"
        wait $job
        code=$?
        [ $code = 137 ] || complain "rank $victim was killed: exit code $code, expected 137: $(tail -9 "$work/err")"
        grep -q "rank $victim " "$work/err" && grep -q 'signal 9' "$work/err" ||
            complain "nobody named rank $victim: $(tail -9 "$work/err")"
        for rank in 0 1; do
            lives_on "$(cat "$work/pid.$rank")" && complain "rank $rank lives on after rank $victim was killed"
        done
    done

    # a rank that stands still: the other one does not wait for ever
    rm -f "$work/out"
    deadline=$((8 + 4 * starts)) # also for a rank that only starts late
    # shellcheck disable=SC2016
    ASAN_OPTIONS=$leaky timeout 900 "$mpirun" --bind-to none -np 2 sh -c 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work/pid" \
        "$program" "${arguments[@]}" --deadline $deadline >"$work/out" 2>"$work/err" <"$work/lines" &
    job=$!
    await_text
    kill -STOP "$(cat "$work/pid.1")"
    wait $job
    code=$?
    [ $code = 6 ] || complain "rank 1 was stopped: exit code $code, expected 6: $(tail -9 "$work/err")"
    grep '^trireme: ' "$work/err" | grep -q "rank 1 did not arrive within $deadline s" || complain "stopped rank: $(tail -9 "$work/err")"

    # without mpirun, as torchrun and srun start ranks: the survivor finds out by itself
    for as in "as_torchrun 1" "as_torchrun 0" "as_srun 1"; do
        victim=${as#* }
        rm -f "$work/out"
        port=$(free_ports)
        for rank in 0 1; do
            ${as% *} "$port" $rank "$program" "${arguments[@]}" \
                >"$work/out$([ $rank = 0 ] || echo .$rank)" 2>"$work/err.$rank" <"$work/lines" &
            ids[rank]=$!
        done
        await_text
        kill -9 "${ids[$victim]}"
        { wait "${ids[$((1 - victim))]}" && code=0 || code=$?; } 2>/dev/null
        [ $code = 6 ] || complain "exit code $code of the survivor, expected 6: $(tail -9 "$work/err.$((1 - victim))")"
        grep -q "^trireme: .*rank $victim" "$work/err.$((1 - victim))" ||
            complain "the survivor of rank $victim said: $(tail -9 "$work/err.$((1 - victim))")"
    done
}
