# One network in two ways, tensor by tensor. Chapters of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

# differs PART ARGUMENT...: a comparison fails with exit code 1, and this is in what it says of the first difference.
differs() {
    local part=$1
    shift
    start "$@" </dev/null
    [ $code = 1 ] || complain "exit code $code, expected 1: $*: $(head -3 "$work/err")"
    grep -F "first in" "$work/err" | grep -qF -- "$part" || complain "no difference \"$part\": $*: $(cat "$work/err")"
}

case_compare() { # one network in two ways, tensor by tensor
    export TMPDIR=$work
    local networks=$source/tests/goldens/onnx/compare shapes=(--shapes x0:3x64) ranks
    local net=$networks/perceptron.onnx changed=$networks/changed.onnx
    # One rank and several: parts are joined, summands added up.
    ASAN_OPTIONS=$leaky shows "12 tensors on both sides, of which 0 differ; 0 only in host on 2 ranks, 0 only in the reference" 0 compare "$net" --ranks 1,2 "${shapes[@]}"
    grep -q "^b0.relu  .* split 2  .* 3x512 " "$work/out" || complain "b0.relu is not shown as split: $(cat "$work/out")"
    grep -q "^b0.down  .* sum 2  .* 3x64 " "$work/out" || complain "b0.down is not shown as a sum: $(cat "$work/out")"
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$net" --ranks 1,2,3 --every-layer "${shapes[@]}"
    grep -q "^b0.up  " "$work/out" || complain "--every-layer has no b0.up: $(cat "$work/out")"
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$source/tests/goldens/onnx/encoder/model.onnx" --ranks 1,4 --mesh tp=2,pp=2 --seed 3
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$source/tests/goldens/onnx/encoder/model.onnx" --ranks 1,2 --mesh dp=2 \
        --shapes input_ids:4x8
    grep -qE "^/Add_196_output_0 +norm +split 2 +4x8x16 " "$work/out" || complain "shares of a batch are not joined: $(cat "$work/out")"
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$net" --ranks 1,2 --mark b0.up "${shapes[@]}"
    grep -q "^b0.up  " "$work/out" && ! grep -q "^b1.up" "$work/out" || complain "--mark b0.up does not keep just that: $(cat "$work/out")"
    fails 2 '--mark: the network has no tensor "b9"' 0 run "$net" --mark b9 "${shapes[@]}"
    # Another network: the first difference is the layer that was changed.
    prints "" 0 compare "$net" --save "$work/good" "${shapes[@]}"
    differs "layer b1.scaled (elementwise, host.elementwise after host.elementwise), tensor b1.scaled: 192 of 192 elements differ" \
        0 compare "$changed" --against "$work/good" "${shapes[@]}"
    for ranks in 1 2; do
        shows "$ranks.plan" 0 build "$net" --mesh tp=$ranks -o "$work/$ranks.plan" "${shapes[@]}"
        shows " of which 0 differ" $ranks compare "$work/$ranks.plan" --against "$work/good"
        differs "layer b1.scaled" $ranks compare "$changed" --against "$work/good" "${shapes[@]}"
    done
    # Two folders; a copy that is another on one rank only, an exchange that went wrong.
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$net" --ranks 1,2 --save "$work/both" "${shapes[@]}"
    shows " of which 0 differ" 0 compare "$work/both/host-2" --against "$work/good"
    fails 2 "is a saved run and cannot be run again" 0 compare "$work/both/host-2" --against "$work/good" --ranks 1,2
    file() { # RANK TENSOR: its file
        grep -A4 "\"name\": \"$2\"" "$work/both/host-2/rank-$1/tensors.json" | sed -n 's/.*"file": "\(.*\)",/\1/p' | head -1
    }
    cp -r "$work/both" "$work/kept"
    cp "$work/both/host-2/rank-1/$(file 1 x2:1)" "$work/both/host-2/rank-1/$(file 1 x2)"
    differs "rank 1: layer x2 (norm" 0 compare "$work/both/host-2" --against "$work/good"
    grep -q "^x2  .*on rank 1  differs" "$work/out" || complain "the copy on rank 1 is not shown: $(cat "$work/out")"
    rm -r "$work/both" && cp -r "$work/kept" "$work/both"
    for ranks in 0 1; do
        cp "$work/both/host-2/rank-$ranks/$(file $ranks b0.down)" "$work/both/host-2/rank-$ranks/$(file $ranks b0.down.all_reduce)"
    done
    differs "layer b0.down.all_reduce (dist_collective" 0 compare "$work/both/host-2" --against "$work/good"
    cp "$work/both/host-2/rank-1/$(file 1 b0.down)" "$work/both/host-2/rank-1/$(file 1 b0.relu)"
    start 0 compare "$work/both/host-2" --against "$work/good"
    [ $code = 3 ] && grep -q "is not the tensor that tensors.json tells of" "$work/err" || complain "a file of other dims: exit code $code: $(cat "$work/err")"
    differs "b1.scaled" 0 compare "$changed" --against "$work/good" "${shapes[@]}" --json
    value holds false
    value comparisons.0.compared 10
    value comparisons.0.differing 3
    value comparisons.0.tensors.7.tensor b1.scaled
    value comparisons.0.tensors.7.outside 192
    value comparisons.0.tensors.7.holds false
    value comparisons.0.tensors.6.holds true
    shows " of which 0 differ" 0 compare "$changed" --against "$work/good" "${shapes[@]}" --rtol 0.1 --atol 0.01
    differs "it is 2x512, the reference 3x512" 0 compare "$net" --against "$work/good" --shapes x0:2x64
    # References and inputs that are given as files.
    mkdir "$work/data" "$work/other"
    npy "2, 64" '\x00\x00\x80\x3f' 128 >"$work/data/input_0.npy"
    shows "b1.up f32 2x512" 0 run "$net" --inputs "$work/data" --mark b1.up --output "x2=$work/data/output_0.npy"
    cp "$work/data/input_0.npy" "$work/other/output_0.npy"
    shows "1 tensor on both sides, of which 0 differ" 0 compare "$net" --inputs "$work/data" --against "$work/data"
    shows "1 tensor on both sides, of which 0 differ" 2 compare "$net" --inputs "$work/data" --against "$work/data"
    ASAN_OPTIONS=$leaky shows "1 tensor on both sides, of which 0 differ" 0 compare "$net" --ranks 2 --inputs "$work/data" --expect "x2=$work/data/output_0.npy"
    differs "tensor x2: " 0 compare "$net" --inputs "$work/data" --against "$work/other"
    differs "tensor x1: " 0 compare "$net" --inputs "$work/data" --expect "x1=$work/data/output_0.npy"
    # Language models: one prompt.
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$model" --ranks 1,2 --prompt-tokens 20
    grep -q "^model.layers.7.self_attn.o_proj .* sum 2 " "$work/out" || complain "the last block's projection is no sum: $(cat "$work/out")"
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$tiny" --ranks 1,2 --prompt-tokens 1
    prints "" 0 compare "$model" --prompt-tokens 20 --save "$work/f32" # bf16 is near f32, and so are the f32 logits of bf16
    shows " of which 0 differ" 0 compare "$model" --prompt-tokens 20 --dtype bf16 --against "$work/f32"
    differs "layer model." 0 compare "$model" --prompt-tokens 20 --dtype bf16 --against "$work/f32" --rtol 0.001
    fails 2 "2000 prompt tokens exceed the context of 1024 tokens" 0 compare "$model" --prompt-tokens 2000 --save "$work/none"
    # What cannot be compared.
    fails 2 "nothing to compare" 0 compare "$net"
    fails 2 "backend is \"gpu\", expected auto, cuda or host, or several" 0 compare "$net" --backend host,gpu
    fails 2 "ranks is \"1,x\", expected integers from 1 to" 0 compare "$net" --ranks 1,x
    fails 2 "host cannot be compared with itself" 0 compare "$net" --backend host,host
    fails 2 "run compare without mpirun" 2 compare "$net" --ranks 1,2
    fails 2 "there are 2 backends and 3 numbers of ranks" 0 compare "$net" --backend host,cuda --ranks 1,2,3
    fails 2 "the network has no tensor b0.up, or fuses it away" 0 compare "$net" --expect "b0.up=$work/data/output_0.npy" "${shapes[@]}"
    fails 2 "has neither a completed run nor output_0.pb" 0 compare "$net" --against "$work" "${shapes[@]}"
    fails 3 "model /nonexistent/model: there is no such folder" 0 compare /nonexistent/model --save "$work/none"
    # a model as it is run where bits do not follow from the batch: norms are layers by themselves
    TRIREME_MARK=none prints "" 0 compare "$model" --prompt-tokens 4 --save "$work/usual" # a mark is for other files, and ignored
    prints "" 0 compare "$model" --prompt-tokens 4 --save "$work/invariant" --batch-invariant
    shows "of which 0 differ; 25 only in $work/invariant, 8 only in the reference" 0 compare "$work/invariant" --against "$work/usual"
    fails 2 "option --draft is for run, bench, serve, not for compare" 0 compare "$model" --ranks 1,2 --draft "$model"
    fails 2 "ranks is \"1,2\", expected an integer" 0 inspect "$net" --ranks 1,2
    rm "$work/good/rank-0/tensors.json"
    fails 2 "has neither a completed run" 0 compare "$net" --against "$work/good" "${shapes[@]}"
    [ -z "$(ls -d "${TMPDIR:-/tmp}"/trireme-compare-* 2>/dev/null)" ] || complain "folders are left in ${TMPDIR:-/tmp}"
}
