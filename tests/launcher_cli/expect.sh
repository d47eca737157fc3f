# Outputs of `run` and `bench` compared with references. Chapters of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

# misses TEXT RANKS ARGUMENT...: an output differs: exit code 1, a line on stderr that has the text, and the word in the table.
misses() {
    local text=$1
    shift
    start "$@" </dev/null
    [ $code = 1 ] || complain "exit code $code, expected 1: $*: $(head -3 "$work/err")"
    [ "$(grep -c '^trireme: ' "$work/err")" = 1 ] || complain "not one line: $*: $(cat "$work/err")"
    grep "^trireme: .* outputs differ, first output " "$work/err" | grep -qF -- "$text" || complain "nothing about \"$text\": $*: $(cat "$work/err")"
    case " $* " in *" --json "*) return ;; esac
    grep -q "  differs$" "$work/out" || complain "no row differs: $*: $(cat "$work/out")"
}

case_expect() { # reference outputs, in the run that is measured
    local corpus=$source/tests/fuzz/corpus/onnx encoder=$source/tests/goldens/onnx/encoder ranks net threads
    local brief=(--duration 0.02 --warm-up 0)
    cp "$corpus/matmul_2d" "$work/product.onnx"
    npy "3, 4" '\x00\x00\x80\x3f' 12 >"$work/a.npy" # ones
    npy "4, 3" '\x00\x00\x00\x40' 12 >"$work/b.npy" # twos
    npy "3, 3" '\x00\x00\x00\x41' 9 >"$work/c.npy"  # eights
    npy "3, 3" '\x00\x00\x00\x41' 8 >"$work/bad.npy" && printf '\x00\x00\x08\x41' >>"$work/bad.npy" # 8.5
    npy "3, 3" '\x00\x00\x00\x41' 8 >"$work/nan.npy" && printf '\x00\x00\xc0\x7f' >>"$work/nan.npy"
    local inputs=(--input "a=$work/a.npy" --input "b=$work/b.npy") off="output c: 1 of 9 elements differ, at [2, 2] it is 8, expected 8.5"
    for ranks in 0 1 2; do
        start 0 build "$work/product.onnx" --mesh tp=$((ranks > 1 ? 2 : 1)) -o "$work/net.plan" --quiet
        for net in "$work/product.onnx" "$work/net.plan"; do
            shows "1 output compared, of which 0 differ" $ranks run "$net" "${inputs[@]}" --expect "c=$work/c.npy"
            grep -qE "^c +f32 +3x3 .* 0%  holds$" "$work/out" || complain "no row of c: $(cat "$work/out")"
            misses "$off" $ranks run "$net" "${inputs[@]}" --expect "c=$work/bad.npy"
            shows "1 output compared, of which 0 differ" $ranks bench "$net" "${inputs[@]}" "${brief[@]}" --expect "c=$work/c.npy" --streams 2
            grep -q "^latency, ms " "$work/out" || complain "nothing was measured: $(cat "$work/out")"
            misses "$off" $ranks bench "$net" "${inputs[@]}" "${brief[@]}" --expect "c=$work/bad.npy" --streams 2
            grep -q "^latency, ms " "$work/out" || complain "nothing was measured though only elements differ: $(cat "$work/out")"
        done
    done
    # Every output, type and figure as JSON, of `bench` and of `run`.
    misses "$off" 0 bench "$work/product.onnx" "${inputs[@]}" "${brief[@]}" --expect "c=$work/bad.npy" --json
    value compared.0.output c
    value compared.0.reference "$work/bad.npy"
    value compared.0.dims 3x3
    value compared.0.outside 1
    value compared.0.max_absolute 0.5
    value compared.0.holds false
    value holds false
    value first_difference "$off"
    start 2 run "$work/product.onnx" "${inputs[@]}" --expect "c=$work/c.npy" --json
    value outputs.0.mean 8
    value compared.0.cosine 1
    value holds true
    grep -q '"first_difference": null' "$work/out" || complain "a difference where there is none: $(cat "$work/out")"
    # What is near, and what a whole output may have.
    for given in "--atol 0.6" "--rtol 0.06" "--limit outside=0.2" "--limit mean=0.06 --limit max=0.5" "--limit rms=0.17" "--limit cosine=0.0002"; do
        # shellcheck disable=SC2086
        shows "of which 0 differ" 0 bench "$work/product.onnx" "${inputs[@]}" "${brief[@]}" --expect "c=$work/bad.npy" $given
    done
    misses "output c: max is 0.5, the limit 0.4; at [2, 2] it is 8, expected 8.5" 0 run "$work/product.onnx" "${inputs[@]}" --expect "c=$work/bad.npy" --limit max=0.4
    misses "$off" 2 run "$work/product.onnx" "${inputs[@]}" --expect "c=$work/bad.npy" --atol 0.4 --rtol 0
    misses "1 of 9 elements differ, at [2, 2] it is 8, expected nan" 0 run "$work/product.onnx" "${inputs[@]}" --expect "c=$work/nan.npy" --limit outside=1
    # Folders: data sets of ONNX, what --outputs wrote, what compare --save kept; --expect is before them.
    shows "of which 0 differ" 0 bench "$encoder/model.onnx" --inputs "$encoder/test_data_set_1" --against "$encoder/test_data_set_1" "${brief[@]}"
    misses "output" 0 bench "$encoder/model.onnx" --inputs "$encoder/test_data_set_1" --against "$encoder/test_data_set_1" "${brief[@]}" --atol 0 --rtol 0
    start 0 bench "$encoder/model.onnx" --shapes input_ids:4x8 "${brief[@]}" --outputs "$work/good"
    prints "" 0 compare "$encoder/model.onnx" --shapes input_ids:4x8 --save "$work/saved"
    for given in "2 tp=2" "2 dp=2" "2 pp=2" "4 tp=2,dp=2"; do
        for path in good saved; do
            shows "of which 0 differ" "${given% *}" bench "$encoder/model.onnx" --shapes input_ids:4x8 "${brief[@]}" --mesh "${given#* }" --against "$work/$path"
        done
        start 0 build "$encoder/model.onnx" --shapes input_ids:4x8 --mesh "${given#* }" -o "$work/net.plan" --quiet
        shows "of which 0 differ" "${given% *}" bench "$work/net.plan" "${brief[@]}" --against "$work/good"
        misses "output" "${given% *}" bench "$work/net.plan" "${brief[@]}" --against "$work/good" --seed 3
    done
    start 0 bench "$encoder/model.onnx" --shapes input_ids:4x8 "${brief[@]}" --mark "/Add_196_output_0" --against "$work/saved" --json
    value compared.2.output /Add_196_output_0
    value holds true
    start 0 build "$work/product.onnx" --mesh tp=2 -o "$work/two.plan" --quiet
    mkdir "$work/bad" && cp "$work/bad.npy" "$work/bad/output_0.npy"
    misses "$off" 0 run "$work/product.onnx" "${inputs[@]}" --against "$work/bad"
    shows "of which 0 differ" 0 run "$work/product.onnx" "${inputs[@]}" --against "$work/bad" --expect "c=$work/c.npy"
    shows "1 tensor on both sides, of which 0 differ" 2 compare "$work/two.plan" "${inputs[@]}" --against "$work/bad" --atol 1 # of a plan, too
    # Streams with a thread each, and with inputs that are copied anew.
    for threads in --stream-threads --transfers --profile; do
        shows "of which 0 differ" 0 bench "$work/product.onnx" "${inputs[@]}" "${brief[@]}" --streams 3 $threads --expect "c=$work/c.npy"
        misses "$off" 0 bench "$work/product.onnx" "${inputs[@]}" "${brief[@]}" --streams 3 $threads --expect "c=$work/bad.npy"
    done
    # Other types: floats are compared, others are errors. Numbers known only after a run are compared before anything is measured.
    printf '\x93NUMPY\x01\x00v\x00%-117s\n' "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 3), }" >"$work/half.npy"
    for ((i = 0; i < 9; i++)); do printf '\x00\x48'; done >>"$work/half.npy"
    sed "s/<f2/<i2/" "$work/half.npy" >"$work/whole.npy"
    shows "of which 0 differ" 0 run "$work/product.onnx" "${inputs[@]}" --expect "c=$work/half.npy"
    refused 2 "whole.npy holds i16, expected f32 for output c" run "$work/product.onnx" "${inputs[@]}" --expect "c=$work/whole.npy"
    refused 2 "a.npy holds 3x4, expected 3x3 for output c" bench "$work/product.onnx" "${inputs[@]}" --expect "c=$work/a.npy"
    # An input that a plan does not take is the error, not the reference that would fit it.
    npy "6, 4" '\x00\x00\x80\x3f' 24 >"$work/a6.npy"
    npy "6, 3" '\x00\x00\x00\x41' 18 >"$work/c6.npy"
    start 0 build "$work/product.onnx" -o "$work/one.plan" --quiet
    for command in run bench; do
        for net in "0 one" "2 two"; do
            fails 2 "input a is 6x4, expected 3x4 as in the plan" "${net% *}" $command "$work/${net#* }.plan" --input "a=$work/a6.npy" --input "b=$work/b.npy" \
                --expect "c=$work/c6.npy"
        done
    done
    fails 2 "input a is 12, expected 3x4 as in the plan" 0 bench "$work/one.plan" --shapes a:12
    LC_ALL=C sed -z 's/\x0a\x02\x08\x03/\x0a\x02\x12\x00/' "$corpus/matmul_2d" >"$work/open.onnx" # a becomes ?x4
    for ranks in 0 2; do
        start 0 build "$work/open.onnx" --min-shapes a:2x4 --max-shapes a:8x4 --mesh dp=$((ranks > 0 ? 2 : 1)) -o "$work/open.plan" --quiet
        misses "output c: it is 6x3, the reference 3x3" $ranks bench "$work/open.plan" --input "a=$work/a6.npy" --input "b=$work/b.npy" --expect "c=$work/c.npy"
        ! grep -q "^latency, ms " "$work/out" || complain "it was measured: $(cat "$work/out")"
        misses "output c: it is 6x3, the reference 3x3" $ranks run "$work/open.plan" --input "a=$work/a6.npy" --input "b=$work/b.npy" --expect "c=$work/c.npy"
        fails 2 "a.npy holds 3x4, expected ?x3 for output c" $ranks bench "$work/open.plan" --expect "c=$work/a.npy"
    done
    # Networks with collectives of their own: each rank has its own outputs, and its own files.
    mkdir "$work/0" "$work/1"
    for ranks in 0 1; do
        cp "$corpus/collective_all_reduce" "$work/$ranks/net.onnx"
        npy "2, 2" '\x00\x00\x80\x3f' 4 >"$work/$ranks/x.npy"
        npy "2, 2" '\x00\x00\x00\x40' 4 >"$work/$ranks/y.npy"
    done
    cp "$work/0/x.npy" "$work/1/y.npy"
    local each=("$program" run net.onnx --input x=x.npy --expect y=y.npy)
    ASAN_OPTIONS=$leaky timeout 600 "$mpirun" --bind-to none -np 1 -wdir "$work/0" "${each[@]}" : -np 1 -wdir "$work/1" "${each[@]}" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = 1 ] && grep -qF "first output y on rank 1: 4 of 4 elements differ, at [0, 0] it is 2, expected 1" "$work/err" ||
        complain "rank 1 expects something else: exit code $code: $(cat "$work/out" "$work/err")"
    # What cannot be compared is said before anything runs.
    refused 2 '--expect is "z=c.npy", expected NAME=FILE with an output of the model, its outputs are: c' bench "$work/product.onnx" --expect z=c.npy
    refused 2 '--expect is "c=", expected NAME=FILE with an output of the model' run "$work/product.onnx" --expect c=
    refused 1 "cannot open $work/none.npy" bench "$work/product.onnx" --expect "c=$work/none.npy"
    refused 3 "product.onnx" bench "$work/product.onnx" --expect "c=$work/product.onnx"
    refused 2 "--against is \"$work/none\", but there is no such folder" bench "$work/product.onnx" --against "$work/none"
    refused 2 "folder $work/0 has neither a completed run nor output_0.pb" bench "$work/product.onnx" --against "$work/0"
    refused 2 "the run saved in folder $work/saved has none of the outputs of the network" bench "$work/product.onnx" --against "$work/saved"
    refused 2 'limit is "most=1", expected outside, mean, rms, max or cosine, and a number, such as max=0.01 (--limit)' run "$work/product.onnx" \
        --expect "c=$work/c.npy" --limit most=1
    fails 2 'limit is "max", expected' 0 compare "$work/product.onnx" --ranks 1,2 --limit max
    refused 2 "option --rtol needs outputs to compare: add --expect or --against" bench "$work/product.onnx" --rtol 1
    refused 2 "option --expect is for ONNX and plan files, $model is a language model" run "$model" -p a --expect "c=$work/c.npy"
    refused 2 "option --atol is for ONNX and plan files" bench "$model" --atol 1
    TRIREME_ATOL=1 shows "latency, ms" 0 bench "$work/product.onnx" "${brief[@]}"
}
