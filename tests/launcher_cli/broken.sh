# Models that are broken, and requests that do not fit. Chapters of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

# Broken copies of a tiny model in $work/<name>.
le64() {
    local number=$1 i
    for i in 1 2 3 4 5 6 7 8; do
        # shellcheck disable=SC2059
        printf "\\x$(printf %02x $((number & 255)))"
        number=$((number >> 8))
    done
}

copy() {
    rm -rf "${work:?}/$1"
    mkdir "$work/$1"
    cp "$tiny"/*.json "$tiny/model.safetensors" "$model"/tokenizer*.json "$work/$1/"
}

edit_header() { # NAME SED-SCRIPT: the header of the weight file changed
    local file=$tiny/model.safetensors size header
    size=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    header=$(tail -c +9 "$file" | head -c "$size" | sed "$2")
    copy "$1"
    { le64 ${#header} && printf %s "$header" && tail -c +$((9 + size)) "$file"; } >"$work/$1/model.safetensors"
}

edit_config() { # NAME SED-SCRIPT
    copy "$1"
    sed -i "$2" "$work/$1/config.json"
}

nest() { # DEPTH OPEN MIDDLE CLOSE
    local i
    for ((i = 0; i < $1; i++)); do printf %s "$2"; done
    printf %s "$3"
    for ((i = 0; i < $1; i++)); do printf %s "$4"; done
}

case_broken_models() {
    local prompt=(-p a -n 2)
    refused 3 "$work/nowhere" run "$work/nowhere" "${prompt[@]}"
    copy no-weights && rm "$work/no-weights/model.safetensors"
    refused 3 "has neither model.safetensors nor model.safetensors.index.json" run "$work/no-weights" "${prompt[@]}"
    copy no-config && rm "$work/no-config/config.json"
    refused 3 "config.json" run "$work/no-config" "${prompt[@]}"
    copy no-tokenizer && rm "$work/no-tokenizer/tokenizer.json"
    refused 3 "tokenizer.json" run "$work/no-tokenizer" "${prompt[@]}"
    cp -r "$source/tests/goldens/hf/llama-sharded" "$work/no-shard" && rm "$work/no-shard/model-00003-of-00005.safetensors"
    refused 3 "model-00003-of-00005.safetensors" run "$work/no-shard" "${prompt[@]}"
    copy truncated && truncate -s 50000 "$work/truncated/model.safetensors"
    refused 3 "is it truncated?" run "$work/truncated" "${prompt[@]}"
    copy cut_off && truncate -s 5 "$work/cut_off/model.safetensors"
    refused 3 "model.safetensors" run "$work/cut_off" "${prompt[@]}"
    local file
    for file in config.json generation_config.json tokenizer.json model.safetensors; do
        copy pipe && rm -f "$work/pipe/$file" && mkfifo "$work/pipe/$file"
        refused 3 "$file: not a regular file" run "$work/pipe" "${prompt[@]}"
        copy device && rm -f "$work/device/$file" && ln -s /dev/zero "$work/device/$file"
        refused 3 "$file: not a regular file" run "$work/device" "${prompt[@]}"
    done
    copy pipe && rm "$work/pipe/model.safetensors" && mkfifo "$work/pipe/model.safetensors.index.json"
    refused 3 "model.safetensors.index.json: not a regular file" run "$work/pipe" "${prompt[@]}"
    copy pipe && rm -f "$work/pipe/tokenizer_config.json" && mkfifo "$work/pipe/tokenizer_config.json"
    refused 1 "tokenizer_config.json: not a regular file" run "$work/pipe" "${prompt[@]}" --chat
    mkfifo "$work/pipe.onnx" "$work/pipe.plan"
    refused 3 "pipe.onnx: not a regular file" inspect "$work/pipe.onnx"
    refused 3 "pipe.plan: not a regular file" inspect "$work/pipe.plan"
    start 0 run "$tiny" "${prompt[@]}" --prompt-file <(printf a)
    edit_header overlapping 's/\[12288,24576\]/[12284,24572]/'
    refused 3 "tensors lm_head.weight and model.embed_tokens.weight overlap" run "$work/overlapping" "${prompt[@]}"
    copy long-header && { le64 200000000 && cat "$tiny/model.safetensors"; } >"$work/long-header/model.safetensors"
    refused 3 "the header has 200000000 bytes, more than the limit of 100000000" run "$work/long-header" "${prompt[@]}"
    edit_header unknown-dtype '0,/"F32"/s//"Q32"/'
    refused 3 "tensor lm_head.weight has unknown dtype Q32" run "$work/unknown-dtype" "${prompt[@]}"
    edit_header integer-weight '0,/"F32"/s//"I32"/'
    refused 3 "weight lm_head.weight is i32, expected f32, f16 or bf16" run "$work/integer-weight" "${prompt[@]}"
    edit_header shape 's/\[96,32\]/[32,96]/'
    refused 3 "weight lm_head.weight has shape [32, 96], expected [96, 32]" run "$work/shape" "${prompt[@]}"
    edit_header missing 's/model.layers.1.mlp.up_proj.weight/model.layers.1.mlp.sideways.weight/'
    refused 3 "weight model.layers.1.mlp.up_proj.weight" run "$work/missing" "${prompt[@]}"
    edit_config architecture 's/LlamaForCausalLM/LemmaForCausalLM/'
    refused 3 "architecture LemmaForCausalLM is not supported, expected one of" run "$work/architecture" "${prompt[@]}"
    edit_config rope 's/"default"/"spiral"/'
    refused 3 'rope_type is "spiral", expected one of' run "$work/rope" "${prompt[@]}"
    copy deep-config && nest 5000 '{"a":' 1 '}' >"$work/deep-config/config.json"
    refused 3 "nested more than 64 levels deep" run "$work/deep-config" "${prompt[@]}"
    copy deep-tokenizer
    { printf '{"decoder":' && nest 60 '{"type":"Sequence","decoders":[' '' ']}' && printf '}'; } >"$work/deep-tokenizer/tokenizer.json"
    refused 3 "tokenizer.json: line 1" run "$work/deep-tokenizer" "${prompt[@]}"
    edit_config latin1 's/silu/s\xeflu/'
    refused 3 "line 11 column 19: invalid UTF-8" run "$work/latin1" "${prompt[@]}"
}

case_refusals() { # requests that do not fit the model or the machine
    refused 2 "tokens, the context holds 1024" run "$model" -p "$(head -c 5000 /dev/zero | tr '\0' '~')"
    refused 2 "max_context is 4000 tokens, the model has 1024" run "$model" -p a --context 4000
    refused 2 "tp=5" run "$model" -p a --mesh tp=5
    refused 2 "mesh" run "$model" -p a --mesh bogus
    fails 3 "cp shares the tokens of attention" 2 bench "$source/tests/goldens/hf/deepseek-v2-lite" --prompt-tokens 8 -n 2 --mesh cp=2
    fails 2 "ep" 2 run "$model" -p a --mesh ep=2
    # terabytes of cache: what is needed and what there is are both told
    refused 5 "rank 0 needs" bench llama-3-70b --batch 1024 --prompt-tokens 8000
    grep -qE 'needs [0-9.]+ GiB of memory on .* \(weights [0-9.]+, staging [0-9.]+, cache of [0-9]+ tokens [0-9.]+, activations [0-9]+\.[0-9]{3}, .*\), [0-9.]+ GiB of [0-9.]+ GiB are free$' \
        "$work/err" || complain "no plan: $(cat "$work/err")"
    if "$program" inspect system | grep -q 'cuda runtime *none'; then
        fails 3 "has no cuda kernel: this build has no CUDA backend" 0 inspect llama-3-8b --memory-plan --backend cuda
    fi
    if ! nvidia-smi -L >/dev/null 2>&1; then
        refused 4 "no usable CUDA device" run "$model" -p a --backend cuda
    fi
}
