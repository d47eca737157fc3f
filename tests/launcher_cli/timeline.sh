# What tools see: timelines of --timeline, and ranges of NVTX. A chapter of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

# rows FILE: checks a timeline; its rows are then in $work/rows.
rows() {
    "$(dirname "$json_value")/launcher_cli_timeline_rows" "$1" >"$work/rows" || complain "$1: $(grep BAD "$work/rows" | head -5) $(tail -1 "$1" | head -c 200)"
}

# has_row LINE: a row that the last timeline has, with at least one span.
has_row() {
    grep -q "^$1|[1-9][0-9]*\$" "$work/rows" || complain "no $1 in: $(head -20 "$work/rows")"
}

case_timeline() {
    local ranks rank process tries file=$work/t.json
    for ranks in 0 2; do
        start $ranks run "$model" -p "In the beginning" -p "And God" -n 8 --timeline "$file"
        [ $code = 0 ] || complain "run on $ranks ranks: exit code $code: $(cat "$work/err")"
        rows "$file"
        [ "$(ls "$work" | grep -c rank)" = 0 ] || complain "files of ranks are left: $(ls "$work")"
        for ((rank = 0; rank < (ranks == 0 ? 1 : ranks); rank++)); do
            grep -q "^rank $rank|steps|step|8\$" "$work/rows" || complain "not 8 steps on rank $rank: $(cat "$work/rows")"
            has_row "rank $rank|layers|layer"
            [ $ranks = 0 ] || has_row "rank $rank|layers|exchange"
        done
        [ "$(grep -c '^rank 0|request||queued prefill decode $' "$work/rows")" = 2 ] || complain "not two requests: $(cat "$work/rows")"
        ! grep -q '^rank 1|request' "$work/rows" || complain "requests on rank 1: $(cat "$work/rows")"
    done
    local n
    n=$(grep -c '"tokens":1,' "$file")
    [ "$n" = 0 ] || grep -q '"name":"decode"' "$file" || complain "no decode steps: $(grep '"step"' "$file" | head -3)"

    # weights that stream
    start 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 1 --weight-budget 0% --timeline "$file"
    [ $code = 0 ] || complain "bench: exit code $code: $(cat "$work/err")"
    rows "$file"
    has_row "rank 0|weight copies|weights"
    has_row "rank 0|layers|wait"
    grep -q '"cat":"weights","name":"model.layers.0.mlp.' "$file" || complain "no copy has a weight's name: $(grep '"weights"' "$file" | head -3)"

    # networks
    for ranks in 0 2; do
        start $ranks bench "$source/tests/goldens/onnx/compare/perceptron.onnx" --duration 0 --warm-up 0 --iterations 3 --timeline "$file"
        [ $code = 0 ] || complain "bench of a network on $ranks ranks: exit code $code: $(cat "$work/err")"
        rows "$file"
        has_row "rank 0|runs|step"
        has_row "rank 0|layers|layer"
    done
    has_row "rank 1|runs|step"
    start 0 run "$source/tests/goldens/onnx/compare/perceptron.onnx" --elements none:1 --timeline "$file" # refused, but a timeline
    rows "$file"

    # a file that cannot be written is refused before anything loads
    fails 1 "cannot write timeline $work/none/t.json: No such file or directory" 0 run "$model" -p a -n 1 --timeline "$work/none/t.json"
    fails 1 "cannot write timeline $work/none/t.json: No such file or directory" 2 run "$model" -p a -n 1 --timeline "$work/none/t.json"

    # Ctrl-C
    for ranks in 1 2; do
        rm -f "$file"
        mkfifo "$work/hold.$ranks"
        ASAN_OPTIONS=$leaky OMPI_MCA_odls_base_sigkill_timeout=3 "$mpirun" --bind-to none -np $ranks "$program" run "$model" -i -n 8 --timeline "$file" \
            <"$work/hold.$ranks" >"$work/out" 2>"$work/err" &
        process=$!
        exec 9>"$work/hold.$ranks"
        echo "In the beginning" >&9
        for ((tries = 0; tries < 600; tries++)); do
            ! grep -q God "$work/out" || break
            sleep 0.1
        done
        kill -INT $process
        wait $process
        exec 9>&-
        rows "$file"
        for ((rank = 0; rank < ranks; rank++)); do
            has_row "rank $rank|steps|step"
        done
        [ "$(ls "$work" | grep -c 'json.rank')" = 0 ] || complain "files of ranks are left after SIGINT: $(ls "$work")"
    done
}

case_nvtx() { # ranges come only if a tool is named
    local out=$work/ranges pushes pops deepest names
    export NVTX_COUNTER_OUT=$out
    start 0 run "$model" -p "In the beginning" -n 4
    [ $code = 0 ] && [ ! -e "$out" ] || complain "without a tool: exit code $code: $(cat "$work/err" "$out")"
    NVTX_INJECTION64_PATH=$(dirname "$json_value")/liblauncher_cli_nvtx_counter.so start 0 run "$model" -p "In the beginning" -n 4
    read -r pushes pops deepest names <"$out"
    [ $code = 0 ] && [ "$pushes" = "$pops" ] && [ "$pushes" -gt 100 ] || complain "$pushes ranges began and $pops ended: $(cat "$work/err")"
    [ "$deepest" = 2 ] || complain "ranges are $deepest deep, expected layers in steps"
    [[ $names == *step,* && $names == *model.layers.0.attention,* && $names == *logits,* ]] || complain "no such ranges: $names"
    NVTX_INJECTION64_PATH=$(dirname "$json_value")/liblauncher_cli_nvtx_counter.so start 0 run "$model" -p "In the beginning" -n 4 --weight-budget 0% --timeline "$work/t.json"
    read -r pushes pops deepest names <"$out"
    [ $code = 0 ] && [ "$pushes" = "$pops" ] && [[ $names == *"weight fetch,"* ]] || complain "streaming: $pushes $pops $names: $(cat "$work/err")"
    NVTX_INJECTION64_PATH=$(dirname "$json_value")/liblauncher_cli_nvtx_counter.so start 2 run "$model" -p "In the beginning" -n 4
    read -r pushes pops deepest names <"$out"
    [ $code = 0 ] && [[ $names == *all_reduce,* ]] || complain "two ranks have no ranges of exchanges: $names: $(cat "$work/err")"
    NVTX_INJECTION64_PATH=/nonexistent.so start 0 run "$model" -p "In the beginning" -n 4
    [ $code = 0 ] && grep -q "no NVTX ranges: cannot use the tool of NVTX_INJECTION64_PATH, /nonexistent.so" "$work/err" || complain "a tool that is not there: $code $(cat "$work/err")"
}
