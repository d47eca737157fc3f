# shellcheck shell=bash disable=SC2154
# trireme quantize: methods that choose numbers, scales and factors by samples, what they refuse, and what a stop leaves.
# Part of cli.sh.

declare -A of # divergences by name

# measured NAME ARGUMENT...: quantizes to a new folder $work/out, and keeps the divergence.
measured() {
    local name=$1
    shift
    rm -rf "$work/out.folder"
    start 0 quantize "$@" -o "$work/out.folder" --json
    [ $code = 0 ] || complain "exit code $code: $*: $(head -3 "$work/err")"
    of[$name]=$("$json_value" text.divergence <"$work/out")
}

# below NAME FACTOR OTHER: fails unless the divergence of NAME is at most FACTOR times that of OTHER.
below() {
    awk -v a="${of[$1]}" -v b="${of[$3]}" -v f="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 <= f * b) }' ||
        complain "divergence of $1 is ${of[$1]}, expected at most $2 of ${of[$3]}, that of $3"
}

# Texts of the model's own: samples.text to choose by, and judge.text to measure by.
make_texts() {
    local seed
    for seed in 0 4 9; do
        start 0 run "$model" -p "And the LORD said" -n 900 --temperature 0.9 --ignore-eos -s $seed -q
        cp "$work/out" "$work/text.$seed"
    done
    cat "$work/text.0" "$work/text.4" >"$work/samples.text"
    cp "$work/text.9" "$work/judge.text"
}

case_quantize_methods() {
    local form makers
    makers=$(dirname "$json_value")
    make_texts
    local both=(--samples "$work/samples.text" --text "$work/judge.text")

    # Factors between what found them and 1.
    for form in int4-128 int4; do
        measured $form.nearest "$model" --to $form --method nearest "${both[@]}"
        value layers_by_samples 0
        measured $form.mse "$model" --to $form --method mse --text "$work/judge.text"
        measured $form.gptq "$model" --to $form "${both[@]}"
        value method gptq
        value layers_by_samples 56
        measured $form.awq "$model" --to $form --method awq "${both[@]}"
        value inputs_with_factors 32
        [ -n "$("$json_value" layers.0.output_error <"$work/out")" ] || complain "no error of outputs"
        measured $form.awq,gptq "$model" --to $form --method awq,gptq "${both[@]}"
        below $form.mse 0.9 $form.nearest
        below $form.gptq 0.95 $form.nearest
        below $form.awq 0.9 $form.nearest
        below $form.awq,gptq 0.95 $form.gptq
    done
    same_text "awq,gptq on 1 and 2 ranks" "$(text_of 0 run "$work/out.folder")" "$(text_of 2 run "$work/out.folder")"
    measured nvfp4.nearest "$model" --to nvfp4 --text "$work/judge.text"
    measured nvfp4.awq "$model" --to nvfp4 --method awq "${both[@]}"
    below nvfp4.awq 1 nvfp4.nearest

    # Outlier channels, which the rounding of activations does not survive.
    "$makers/launcher_cli_outliers" "$model" "$work/outliers" || complain "no model with outliers"
    measured plain "$model" --to int8 --text "$work/judge.text"
    measured outliers "$work/outliers" --to int8 --text "$work/judge.text"
    measured smooth "$work/outliers" --to int8 --method smoothquant "${both[@]}"
    value inputs_with_factors 16
    measured smooth,gptq "$work/outliers" --to int8 --method smoothquant,gptq --alpha 0.7 "${both[@]}"
    below smooth 0.05 outliers
    below smooth 2 plain
    below smooth,gptq 2 plain

    # Streamed weights give the same numbers.
    start 0 quantize "$model" --to int4-128 --method gptq --samples "$work/samples.text" --weight-budget 50% -o "$work/streamed"
    [ $code = 0 ] || complain "exit code $code: $(head -3 "$work/err")"
    start 0 quantize "$model" --to int4-128 --method gptq --samples "$work/samples.text" -o "$work/resident"
    cmp "$work/streamed/model.safetensors" "$work/resident/model.safetensors" || complain "streamed weights give other numbers"
    below plain 0.1 outliers
}

case_quantize_experts() {
    local makers golden ids
    makers=$(dirname "$json_value")
    "$makers/launcher_cli_experts" "$work/moe" || complain "no model with experts"
    ids=$work/moe/ids.npy
    measured nearest "$work/moe" --to int4 --text "$ids"
    measured gptq "$work/moe" --to int4 --samples "$ids" --text "$ids"
    value layers_by_samples 52
    value layers_without_samples 0
    measured awq,gptq "$work/moe" --to int4 --method awq,gptq --samples "$ids" --text "$ids"
    value inputs_with_factors 22
    below gptq 0.8 nearest
    below awq,gptq 1 gptq
    grep -q '"model.layers.0.block_sparse_moe.gate"' "$work/out.folder/config.json" || complain "a router is not ignored"
    shows "got no token, as their expert was not chosen" 0 quantize "$work/moe" --to int4 --samples "$work/moe/few.npy" -o "$work/few"
    mkdir "$work/ids" && cp "$ids" "$work/ids/a.npy" && cp "$work/moe/few.npy" "$work/ids/b.npy"
    shows "with 403 tokens" 0 quantize "$work/moe" --to int4 --samples "$work/ids" -o "$work/folder"
    shows "with 100 tokens" 0 quantize "$work/moe" --to int4 --samples "$work/ids" --sample-tokens 100 -o "$work/hundred"
    start 0 quantize "$work/moe" --to int4 --text "$ids" --sensitivity --report "$work/moe.html" -o "$work/parts" --json
    [ "$("$json_value" sensitivity.5.layers <"$work/out")" != "" ] || complain "not 6 parts in $(tail -5 "$work/out")"
    grep -q "block_sparse_moe.experts.\*" "$work/out" || complain "no experts in $(tail -5 "$work/out")"
    grep -q "Divergence with this layer quantized alone" "$work/moe.html" || complain "no plot in the page"
    [ "$(grep -c "<svg" "$work/moe.html")" = 2 ] || complain "$(grep -c "<svg" "$work/moe.html") plots in the page"
    grep -qE "https?:|src=|href=" "$work/moe.html" && complain "the page needs other files"

    # Norms with an offset or a bias, parts of one weight, interleaved rope: factors leave what a model computes.
    for golden in gemma2 gpt-neox phi3 glm4 nemotron deepseek-v3 qwen3-next; do
        measured nearest "$source/tests/goldens/hf/$golden" --to int8-weights --text "$ids"
        measured awq "$source/tests/goldens/hf/$golden" --to int8-weights --method awq --samples "$ids" --text "$ids"
        measured smooth "$source/tests/goldens/hf/$golden" --to int8 --method smoothquant --samples "$ids" --text "$ids"
        measured plain "$source/tests/goldens/hf/$golden" --to int8 --text "$ids"
        below awq 3 nearest
        below smooth 3 plain
    done
}

case_quantize_refusals() {
    local before
    "$(dirname "$json_value")/launcher_cli_experts" "$work/moe" || complain "no model with experts"
    : >"$work/empty"
    mkdir "$work/none"
    local to=(-o "$work/x")
    fails 2 "text $work/empty has 1 tokens, expected 2 or more" 0 quantize "$model" --to int4 --samples "$work/empty" "${to[@]}"
    fails 2 "text $work/empty has 1 tokens, expected 2 or more" 0 quantize "$model" --to int4 --text "$work/empty" "${to[@]}"
    fails 2 "folder $work/none has no .npy file" 0 quantize "$model" --to int4 --samples "$work/none" "${to[@]}"
    fails 1 "$work/missing" 0 quantize "$model" --to int4 --samples "$work/missing" "${to[@]}"
    fails 2 "sample $work/moe/bad.npy has token 96, expected 0 to 95" 0 quantize "$work/moe" --to int4 --samples "$work/moe/bad.npy" "${to[@]}"
    fails 2 "--method has rtn, expected nearest, mse, gptq, awq or smoothquant" 0 quantize "$model" --to int4 --method rtn "${to[@]}"
    fails 2 "--method has awq and smoothquant, expected one of them" 0 quantize "$model" --to int8 --method awq,smoothquant "${to[@]}"
    fails 2 "--method awq needs inputs of layers: give --samples" 0 quantize "$model" --to int4 --method awq "${to[@]}"
    fails 2 "--method gptq is for int8, int8-weights, int4 and int4-128, --to is fp8" 0 quantize "$model" --to fp8 --method gptq --samples "$work/moe/ids.npy" "${to[@]}"
    fails 2 "--method awq is for integers, nvfp4 and mxfp4, --to is fp8-block" 0 quantize "$model" --to fp8-block --method awq --samples "$work/moe/ids.npy" "${to[@]}"
    fails 2 "--method smoothquant is for activations of 8 bits, int8 and fp8, --to is int4" 0 quantize "$model" --to int4 --method smoothquant --samples "$work/moe/ids.npy" "${to[@]}"
    fails 2 "--sensitivity measures layers on a text: give --text" 0 quantize "$model" --to int4 --sensitivity "${to[@]}"

    # A disk that is full, as far as a limit on the size of files shows it.
    (
        trap '' XFSZ
        ulimit -f 2000
        "$program" quantize "$model" --to int8 "${to[@]}" >"$work/out" 2>"$work/err"
    )
    grep -qF "cannot write weights: File too large" "$work/err" || complain "a full disk: $(cat "$work/err")"

    # A signal while it works.
    before=$(find "$work" -mindepth 1 | wc -l)
    for _ in 1 2 3 4; do cat "$source/README.md"; done >"$work/long"
    timeout -s INT 1 "$program" quantize "$model" --to int4 --method awq,gptq --samples "$work/long" "${to[@]}" >/dev/null 2>&1
    [ "$(find "$work" -mindepth 1 | wc -l)" = $((before + 1)) ] || complain "files are left: $(find "$work" -mindepth 1)"
    [ ! -e "$work/x" ] || complain "a refused folder is there"
}

case_quantize_network() {
    local net=$source/tests/goldens/onnx/detector_trace/model.onnx rule
    "$(dirname "$json_value")/launcher_cli_samples" "$work/samples" || complain "no samples"
    for rule in minmax percentile mse entropy; do
        form=$rule
        start 0 quantize "$net" --to int8 --samples "$work/samples" --calibration $rule --calibration-cache "$work/cache.$rule" -o "$work/$rule.onnx" --json
        value products 6
        value outputs.1.name scores
        within outputs.1.error 0.01
        within largest_error 0.01
        start 0 inspect "$work/$rule.onnx"
        grep -qE "QuantizeLinear +opset [0-9]+ +5$" "$work/out" || complain "$rule: not 5 inputs are quantized: $(grep Linear "$work/out")"
        grep -qE "DequantizeLinear +opset [0-9]+ +11$" "$work/out" || complain "$rule: not 11 are read: $(grep Linear "$work/out")"
        [ "$(wc -l <"$work/cache.$rule")" = 5 ] || complain "$rule: the cache is $(cat "$work/cache.$rule")"
    done
    cmp -s "$work/cache.minmax" "$work/cache.mse" && complain "two rules give the same ranges"
    # Without samples, by the cache.
    shows "6 products in int8" 0 quantize "$net" --to int8 --calibration-cache "$work/cache.mse" -o "$work/again.onnx"
    cmp "$work/mse.onnx" "$work/again.onnx" || complain "the cache gives another network"
    shows "4 products in int8" 0 quantize "$net" --to int8 --samples "$work/samples" --keep '/scores*' --keep '/sizes*' -o "$work/kept.onnx"

    local to=(--to int8 -o "$work/x.onnx")
    mkdir "$work/none"
    fails 2 "folder $work/none has no samples" 0 quantize "$net" "${to[@]}" --samples "$work/none"
    fails 2 "give --samples" 0 quantize "$net" "${to[@]}"
    fails 2 "file $work/mse.onnx is there already" 0 quantize "$net" --to int8 --samples "$work/samples" -o "$work/mse.onnx"
    fails 2 "takes --to int8 and --out, the new file" 0 quantize "$net" --to int4 --samples "$work/samples" -o "$work/x.onnx"
    fails 2 "--calibration is none, expected minmax, percentile, mse or entropy" 0 quantize "$net" "${to[@]}" --samples "$work/samples" --calibration none
    echo "0.5 other" >"$work/wrong"
    fails 2 "it is of another network, remove it" 0 quantize "$net" "${to[@]}" --calibration-cache "$work/wrong"
    fails 2 "the network has 3 inputs: expected a folder with a .npy file for each" 0 quantize "$source/tests/goldens/onnx/bert_export/model.onnx" "${to[@]}" --samples "$work/samples"
    fails 2 "to quantize" 0 quantize "$net" "${to[@]}" --samples "$work/samples" --keep '*'
    [ ! -e "$work/x.onnx" ] || complain "a refused file is there"
    [ "$(find "$work" -name '*.onnx.*' | wc -l)" = 0 ] || complain "files are left: $(ls "$work")"
}
