# Options, settings and what is shown of a model. Chapters of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

case_options() { # help, suggestions, completion
    shows "usage: trireme COMMAND" 0 --help
    shows "trireme " 0 --version
    grep -qE '^trireme [0-9.]+(, commit [0-9a-f]+(-dirty)?)?, (without CUDA|CUDA [0-9.]+ for sm .*)$' "$work/out" || complain "--version: $(cat "$work/out")"
    for command in run serve bench build refit inspect completion; do
        shows "usage: trireme $command" 0 $command --help
        grep -q -- '--help' "$work/out" || complain "$command --help lists no options"
        cp "$work/out" "$work/help"
        shows "usage: trireme $command" 0 help $command
        cmp -s "$work/help" "$work/out" || complain "help $command is not $command --help"
        [ -z "$(grep -E '^[A-Z][A-Za-z]*:$' "$work/out" | sort | uniq -d)" ] || complain "$command --help has a heading twice"
    done
    start 0
    [ $code = 2 ] || complain "without a command: $code"
    grep -q 'usage: trireme' "$work/err" || complain "without a command: $(cat "$work/err")"
    fails 2 "unknown command rum, did you mean run" 0 rum
    fails 2 "unknown command frobnicate, trireme --help lists all commands" 0 frobnicate
    fails 2 "unknown command serve-worke, trireme --help lists all commands" 0 serve-worke # not the hidden one
    fails 2 "unknown option --replica, did you mean --replicas" 0 serve "$model" --replica 1
    fails 2 "unknown command rum, did you mean run" 0 help rum
    shows "usage: trireme bench serve" 0 help bench serve
    shows "usage: trireme COMMAND" 0 help
    refused 2 "unknown option --max-tokenz, did you mean --max-tokens" run "$model" --max-tokenz 3
    fails 2 "option --profile is for bench, not for run" 0 run "$model" --profile
    fails 2 "top-p is \"3\", expected a number from 1e-09 to 1 (--top-p)" 0 run "$model" --top-p 3
    refused 2 "kv cache dtype is \"int8\", expected auto or fp8 (--kv-cache-dtype)" run "$model" -p a --kv-cache-dtype int8
    refused 2 "dtype is \"int3\", expected auto, f32, f16 or bf16 (--dtype)" run "$model" -p a --dtype int3
    fails 2 "backend is \"tpu\"" 0 run "$model" -p a --backend tpu
    fails 2 "run needs one model folder, ONNX or plan file, found 0 arguments" 0 run
    fails 2 "run needs one model folder, ONNX or plan file, found 2 arguments" 0 run "$model" "$model"
    fails 2 "bench needs one model folder, shape, ONNX or plan file" 0 bench
    fails 2 "inspect needs one model" 0 inspect
    # what would have no effect is refused, but where it is for all that comes
    cp "$source/tests/fuzz/corpus/onnx/matmul_2d" "$work/net.onnx"
    refused 2 "option --outputs is for ONNX and plan files, $model is a language model" run "$model" -p a --outputs "$work"
    refused 2 "option --no-capture is for ONNX and plan files" run "$model" -p a --no-capture
    refused 2 "option --duration is for ONNX and plan files" bench "$model" --duration 3
    refused 2 "option --batch is for language models, $work/net.onnx is a network" bench "$work/net.onnx" --batch 8
    refused 2 "option --prompt is for language models" run "$work/net.onnx" -p a
    fails 2 "option --context is for language models" 0 inspect "$work/net.onnx" --context 3
    fails 2 "option --max-trips is for ONNX and plan files" 0 inspect "$model" --max-trips 3
    fails 2 "option --mark is for ONNX and plan files" 0 compare "$model" --ranks 1,2 --mark x
    fails 2 "option --dtype is for language models" 0 compare "$work/net.onnx" --ranks 1,2 --dtype f16
    fails 2 "option --layers is for named shapes, $model is a model folder" 0 inspect "$model" --layers 3
    fails 2 "option --tf32 is for run, bench, inspect, build, compare, serve, not for bench serve" 0 bench serve http://127.0.0.1:1 --tf32
    TRIREME_BATCH=2 shows "1 layers, " 0 bench "$work/net.onnx" --duration 0 --warm-up 0 --iterations 1
    TRIREME_NO_CAPTURE=true TRIREME_LAYERS=3 shows "8 query" 0 inspect "$model"
    TRIREME_TF32=true TRIREME_LAYERS=3 TRIREME_WEIGHTS=int8-weights ASAN_OPTIONS=$leaky \
        shows " of which 0 differ" 0 compare "$model" --ranks 1,2 --prompt-tokens 4 # to its runs by options
    printf 'layers = 3\nweights = int8-weights\n' >"$work/layers.conf"
    ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$model" --ranks 1,2 --prompt-tokens 4 --config "$work/layers.conf"
    fails 2 "option --layers is for named shapes, $model is a model folder" 0 compare "$model" -q --ranks 1,2 --prompt-tokens 4 --layers 3
    shows "8 query" 0 inspect "$model" --config "$work/layers.conf"
    fails 2 "no quantized weights int3, expected fp8" 0 inspect "$model" --weights int3
    refused 2 "option --weights is for plan files and named shapes, $work/net.onnx is an ONNX file" bench "$work/net.onnx" --weights int8
    fails 2 "option --weights is for plan files and named shapes" 0 inspect "$work/net.onnx" --weights int8
    TRIREME_WEIGHTS=int8 TRIREME_SEED=3 shows "nodes           1," 0 inspect "$work/net.onnx"
    refused 2 "option --seed is for language models, $work/net.onnx is a network" run "$work/net.onnx" --seed 3
    # of weights that stream, where none do by what is asked
    for option in "--host-memory 2M" "--weight-compression lossless" "--weight-sharing on" "--host-compute 50%" "--host-compute auto"; do
        local streams="option ${option% *} is for streamed weights, but weight-budget is"
        # shellcheck disable=SC2086
        for command in "run $model -p a" "bench $model" "bench $work/net.onnx" "inspect $model --memory-plan" "serve $model"; do
            fails 2 "$streams \"off\" (default): all weights stay on the device" 0 $command $option
        done
        # shellcheck disable=SC2086
        fails 2 "$streams \"100%\" (--weight-budget): all weights stay on the device" 0 run "$model" -p a $option --weight-budget 100%
    done
    refused 2 "option --host-compute is for streamed weights" run "$model" -p a --host-compute 50% --weight-budget off
    fails 2 "option --host-compute is for streamed weights" 0 compare "$model" --ranks 1,2 --prompt-tokens 4 --host-compute 50%
    TRIREME_WEIGHT_BUDGET=100% fails 2 "weight-budget is \"100%\" (TRIREME_WEIGHT_BUDGET)" 0 bench "$model" --host-memory 2M
    prints " God" 0 run "$model" -p "In the beginning" -n 1 -q --host-compute 0%
    prints " God" 0 run "$model" -p "In the beginning" -n 1 -q --host-compute off --weight-sharing off --weight-compression off --host-memory auto
    for budget in auto 4G 99.9%; do
        prints " God" 0 run "$model" -p "In the beginning" -n 1 -q --weight-budget $budget --host-compute 50% --host-memory 1G
    done
    TRIREME_HOST_COMPUTE=auto TRIREME_WEIGHT_SHARING=on prints " God" 0 run "$model" -p "In the beginning" -n 1 -q
    TRIREME_HOST_COMPUTE=auto ASAN_OPTIONS=$leaky shows " of which 0 differ" 0 compare "$model" --ranks 1,2 --prompt-tokens 4
    refused 2 'weight-sharing is "on" (--weight-sharing), but mesh tp=' run "$model" -p a --weight-budget 0 --weight-sharing on
    for command in "bench $model" "inspect $model --memory-plan" "bench $work/net.onnx" "serve $model"; do
        # shellcheck disable=SC2086
        fails 2 'but mesh tp=1 has no replicas (dp)' 0 $command --weight-budget 0 --weight-sharing on
    done
    TRIREME_WEIGHT_SHARING=on prints " God" 0 run "$model" -p "In the beginning" -n 1 -q --weight-budget 0
    fails 2 'option --draft needs speculative decoding, but speculate is "off" (--speculate)' 0 run "$model" -p a --draft "$model" --speculate off
    fails 2 'option --draft needs speculative decoding' 0 serve "$model" --draft "$model" --speculate off
    fails 2 "option --sequences is for prompts; --chat is one sequence" 0 run "$model" --chat -p a --sequences 3
    # inspect: of what is planned, where no plan is made
    for option in "--ranks 2" "--mesh tp=2" "--context 100" "--weight-budget 0"; do
        # shellcheck disable=SC2086
        fails 2 "option ${option% *} needs a plan: add --memory-plan or --after" 0 inspect "$model" $option
    done
    fails 2 "option --tf32 needs a plan" 0 inspect "$work/net.onnx" --tf32
    fails 2 "option --rank is for --after; --memory-plan shows all ranks" 0 inspect "$model" --memory-plan --ranks 2 --rank 1
    fails 2 "options --memory-plan and --after exclude each other" 0 inspect "$model" --memory-plan --after final
    TRIREME_CONTEXT=100 TRIREME_WEIGHT_BUDGET=0 shows "8 query" 0 inspect "$model"
    start 0 inspect "$model" --memory-plan --context 100 --weight-budget auto
    [ "$code $(grep -c 'free memory at run time decides' "$work/err")" = "0 1" ] || complain "nothing about an automatic budget: $(cat "$work/err")"
    TRIREME_WEIGHT_BUDGET=auto start 0 inspect "$model"
    [ "$code $(grep -c 'weight-budget' "$work/err")" = "0 0" ] || complain "of a budget, where nothing is planned: $(cat "$work/err")"
    fails 2 "option --system needs --chat" 0 run "$model" -p a --system b
    fails 2 "expected a port from 1 to 65535" 0 bench serve http://127.0.0.1:99999
    fails 1 "cannot reach 127.0.0.1 port 1: " 0 bench serve http://127.0.0.1:1
    fails 2 "stop text 2 is empty" 0 run "$model" -p a --stop x --stop ""
    fails 2 "unknown shell \"tcsh\", expected bash, zsh or fish" 0 completion tcsh
    fails 2 "completion needs one of bash, zsh, fish, found 0 arguments" 0 completion
    fails 1 "cannot open $work/absent.txt" 0 run "$model" -f "$work/absent.txt"
    refused 2 "device is 7 (--device), but the host backend has no devices" run "$model" -p a -n 1 --backend host --device 7
    for command in run serve bench "bench serve" build refit quantize compare inspect; do # the manual page has every option, and no other
        # shellcheck disable=SC2086
        start 0 $command --help
        grep -oE '^ {2}(-., | {4})--[a-z-]+' "$work/out" | grep -oE -- '--.*' >>"$work/options"
    done
    sort -u "$work/options" >"$work/options.help"
    start 0 completion man
    grep '^\\fB' "$work/out" | sed 's/\\f.//g; s/\\//g' | grep -oE -- '--[a-z-]+' | sort -u >"$work/options.manual"
    diff "$work/options.help" "$work/options.manual" || complain "help and manual page have different options"
    [ "$(grep -c '^@OPTIONS@$' "$source/docs/trireme.1")" = 1 ] || complain "docs/trireme.1 has no place for the options"
    for shell in bash zsh fish; do
        start 0 completion $shell
        [ $code = 0 ] || complain "completion $shell: $(cat "$work/err")"
        grep -q 'max-tokens' "$work/out" || complain "completion $shell knows no --max-tokens"
        cp "$work/out" "$work/completion.$shell"
    done
    bash -n "$work/completion.bash" || complain "completion bash is no bash"
    (
        # shellcheck disable=SC1091
        source "$work/completion.bash"
        COMP_WORDS=(trireme run --max-to)
        COMP_CWORD=2
        _trireme
        [ "${COMPREPLY[*]}" = --max-tokens ]
    ) || complain "bash does not complete run --max-to to --max-tokens"
    if [ -w /dev/full ]; then
        "$program" run "$model" -p a -n 2 -q >/dev/full 2>"$work/err"
        [ $? = 1 ] && grep -q 'cannot write to stdout: No space left' "$work/err" || complain "a full disk: $(cat "$work/err")"
    fi
}

case_settings() { # flag, variable, file, default, and where each value came from
    mkdir -p "$work/config/trireme"
    printf '# mine\nmax-tokens = 3\nstop = heaven\n\nprompt-tokens = 9\n' >"$work/config/trireme/trireme.conf"
    export XDG_CONFIG_HOME=$work/config
    local prompt=(-p "In the beginning" -q)
    prints " God created the" 2 run "$model" "${prompt[@]}"
    prints " God created the " 0 run "$model" "${prompt[@]}" -n 30
    TRIREME_MAX_TOKENS=2 prints " God created" 0 run "$model" "${prompt[@]}"
    TRIREME_MAX_TOKENS=2 prints " God" 0 run "$model" "${prompt[@]}" --max-tokens=1
    TRIREME_MAX_TOKENS=2 TRIREME_SEED=4 start 0 inspect config --json --top-k 7
    value max-tokens.value 2
    value max-tokens.origin TRIREME_MAX_TOKENS
    value stop.origin "$work/config/trireme/trireme.conf:3"
    value prompt-tokens.value 9
    value top-k.origin --top-k
    value backend.origin TRIREME_BACKEND
    value temperature.origin default
    value mesh.origin "not set"
    shows "$work/config/trireme/trireme.conf:2" 0 inspect config
    printf 'max-tokens = lots\n' >"$work/other.conf"
    refused 2 "max-tokens is \"lots\", expected an integer from 0 to 1000000000000000 ($work/other.conf:1)" run "$model" --config "$work/other.conf"
    printf 'max-tokenz = 3\n' >"$work/other.conf"
    fails 2 "$work/other.conf:1: unknown setting \"max-tokenz\", did you mean max-tokens" 0 run "$model" --config "$work/other.conf"
    fails 1 "cannot open $work/none.conf" 0 run "$model" --config "$work/none.conf"
    TRIREME_TOP_P=7 refused 2 "(TRIREME_TOP_P)" run "$model" -p a
    unset XDG_CONFIG_HOME
}

case_inspect() {
    shows "8 query, 4 key-value, of 32" 0 inspect "$model"
    start 0 inspect "$model" --json --memory-plan --ranks 3 --context 100
    value model.architecture LlamaForCausalLM
    value model.layers 8
    value memory 3
    value memory.2.rank 2
    value memory.0.cache_tokens 112
    state=$("$json_value" memory.0.state <"$work/out")
    start 0 inspect "$model" --json --memory-plan --ranks 3 --context 100 --kv-cache-dtype fp8 --dtype bf16
    value memory.0.cache_tokens 112
    value memory.0.state $((state / 4))
    for stage in import passes partition final; do
        for rank in 0 1; do
            shows "logits" 0 inspect "$model" --after $stage --ranks 2 --rank $rank
            cp "$work/out" "$work/$stage.$rank"
        done
    done
    cmp -s "$work/import.0" "$work/import.1" || complain "ranks import different networks"
    cmp -s "$work/final.0" "$work/final.1" && complain "both ranks have the same slices"
    grep -q all_reduce "$work/import.0" && complain "collectives before the partition"
    for rank in 0 1; do
        grep -q all_reduce "$work/partition.$rank" || complain "no collective after the partition"
    done
    [ "$(wc -l <"$work/passes.0")" -lt "$(wc -l <"$work/import.0")" ] || complain "the passes took nothing away"
    start 0 inspect "$model" --after partition --ranks 2 --rank 1 --json
    value stage partition
    [ "$("$json_value" network <"$work/out" | sed '$d')" = "$(cat "$work/partition.1")" ] || complain "JSON has another network"
    start 0 inspect "$model" --after final --ranks 2 --rank 1 --json
    value rank 1
    value mesh tp=2
    value layers "$(grep -c ' = [a-z_]*(' "$work/final.1")"
    value layers.0.kind embedding
    value layers.0.kernel host.embedding
    shows "llama-3-70b" 0 inspect llama-3-70b --ranks 4 --memory-plan --context 8192
    [ "$(grep -c '^rank ' "$work/out")" = 4 ] || complain "memory of four ranks: $(cat "$work/out")"
    start 0 inspect llama-3-8b --layers 2 --json
    value model.layers 2
    value model.n_experts 0
    value model.decode_steps 4
    [ "$("$json_value" model.decode_steps.3.weight_bytes <"$work/out")" = "$("$json_value" model.active_bytes <"$work/out")" ] || complain "a dense model reads more for more tokens"
    shows "experts         128 of width 768 in 48 layers, 8 chosen per token" 0 inspect qwen3-30b-a3b
    shows "active          3.353 billion parameters per token" 0 inspect qwen3-30b-a3b
    shows "     8    51.6 of  128     24.07 GiB" 0 inspect qwen3-30b-a3b
    cp "$work/out" "$work/shape"
    start 0 inspect system --json
    if [ "$("$json_value" gpus <"$work/out")" = 0 ]; then
        grep -q "at most" "$work/shape" && complain "a roof without a GPU: $(cat "$work/shape")"
    else
        grep -q "at most, tok/s" "$work/shape" || complain "no roof of the GPU: $(cat "$work/shape")"
    fi
    shows "shared ones of width 1536" 0 inspect glm-4.5
    start 0 inspect mixtral-8x7b --json
    value model.n_experts 8
    value model.experts_per_token 2
    value model.active_parameters 12879925248
    value model.decode_steps.0.weight_bytes "$("$json_value" model.active_bytes <"$work/out")"
    value model.decode_steps.1.experts_read 7.19909668 # 8 (1 - (3/4)^8)
    shows "libraries" 0 inspect system
    start 0 inspect system --json
    value build.version "$("$program" --version | sed 's/^trireme //; s/[ ,].*//')"
    value machine.ranks 1
    value libraries.0.name NCCL
    [ "$("$json_value" machine.hardware_threads <"$work/out")" -ge 1 ] || complain "no hardware threads: $(cat "$work/out")"
    start 2 inspect "$model"
    [ "$code $(grep -c architecture "$work/out")" = "0 1" ] || complain "on two ranks: $(cat "$work/out" "$work/err")"
    fails 2 "after is \"lunch\", expected import, passes, partition or final (--after)" 0 inspect "$model" --after lunch
    fails 2 "rank is 2, expected less than 2 (--ranks)" 0 inspect "$model" --after final --ranks 2 --rank 2
    refused 2 "mesh" inspect "$model" --memory-plan --json --ranks 2 --mesh tp=3
}
