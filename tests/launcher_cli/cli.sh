#!/bin/bash
# The built program from outside: what it prints, its exit codes, and one line for every failure.
# usage: cli.sh CHAPTER PROGRAM MPIRUN JSON_VALUE
chapter=$1
program=$2
mpirun=$3
json_value=$4
source=$(cd "$(dirname "$0")/../.." && pwd)
model=$source/configs/models/kjv-7m
tiny=$source/tests/goldens/hf/llama
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OPENBLAS_NUM_THREADS=1
export OMPI_MCA_odls_base_sigkill_timeout=0 # seconds that mpirun gives a failed job before it kills the rest
export TRIREME_BACKEND=host
export HOME=/nonexistent
unset XDG_CONFIG_HOME
leaky=detect_leaks=0 # Open MPI leaks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

complain() {
    echo "FAIL $chapter: $*"
    failures=$((failures + 1))
}

# start RANKS ARGUMENT...: runs the program on so many ranks, 0 without mpirun; leaves $code, $took, $work/out, $work/err.
start() {
    local ranks=$1 began=$SECONDS
    shift
    if [ "$ranks" = 0 ]; then
        timeout 60 "$program" "$@" >"$work/out" 2>"$work/err"
    else
        ASAN_OPTIONS=$leaky timeout 60 "$mpirun" --bind-to none -np "$ranks" "$program" "$@" >"$work/out" 2>"$work/err"
    fi
    code=$?
    took=$((SECONDS - began))
}

# prints TEXT RANKS ARGUMENT...: the program succeeds and prints just this (less the last newline).
prints() {
    local expected=$1
    shift
    start "$@" </dev/null
    [ $code = 0 ] || complain "exit code $code: $*: $(head -3 "$work/err")"
    [ "$(cat "$work/out")" = "$expected" ] || complain "$*: printed \"$(cat "$work/out")\", expected \"$expected\""
}

# shows TEXT RANKS ARGUMENT...: the program succeeds and the text is somewhere in what it prints.
shows() {
    local expected=$1
    shift
    start "$@" </dev/null
    [ $code = 0 ] || complain "exit code $code: $*: $(head -3 "$work/err")"
    grep -qF -- "$expected" "$work/out" || complain "$*: \"$expected\" is not in: $(head -5 "$work/out")"
}

# value PATH EXPECTED: of the JSON that the last program printed.
value() {
    local found
    found=$("$json_value" "$1" <"$work/out") || complain "no $1 in: $(head -c 300 "$work/out")"
    [ "$found" = "$2" ] || complain "$1 is \"$found\", expected \"$2\""
}

# fails CODE TEXT RANKS ARGUMENT...: the program fails with this code, in good time, with one line that has the text.
fails() {
    local expected=$1 text=$2 lines
    shift 2
    start "$@" </dev/null
    [ $code = "$expected" ] || complain "exit code $code, expected $expected: $*: $(head -3 "$work/err")"
    [ $took -le 20 ] || complain "took $took s: $*"
    lines=$(grep -c '^trireme: ' "$work/err")
    [ "$lines" = 1 ] || complain "$lines lines, expected 1: $*: $(cat "$work/err")"
    [ "$1" != 0 ] || [ "$(wc -l <"$work/err")" = 1 ] || complain "more than one line: $*: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || complain "nothing about \"$text\": $*: $(cat "$work/err")"
    [ ! -s "$work/out" ] || complain "printed \"$(head -3 "$work/out")\" though it failed: $*"
}

# refused CODE TEXT ARGUMENT...: alone and on two ranks.
refused() {
    local expected=$1 text=$2
    shift 2
    fails "$expected" "$text" 0 "$@"
    fails "$expected" "$text" 2 "$@"
}

genesis=" God created the heaven and the earth.
And the earth was without form, and void; and darkness was upon the face of the deep. And the Spirit of God moved upon the \
face of the waters.
And God said, Let there be light: and there was light.
And God saw"

case_text() { # the shipped model knows the passage, on any number of ranks
    for ranks in 0 1 2 3 4; do
        prints "$genesis" $ranks run "$model" -p "In the beginning" -n 60
    done
    for mesh in 2,pp=2 4,tp=2,pp=2 2,dp=2; do
        prints "$genesis" ${mesh%%,*} run "$model" -p "In the beginning" -n 60 --mesh ${mesh#*,}
    done
    prints "In the beginning$genesis" 2 run "$model" -p "In the beginning" -n 60 --echo --quiet
    [ ! -s "$work/err" ] || complain "--quiet said: $(cat "$work/err")"
}

case_prompts() { # where prompts come from
    local first=" God created the heaven and the earth" law="And God spake all these words, saying,"
    printf 'In the beginning' >"$work/genesis.txt"
    prints "$first" 0 run "$model" -f "$work/genesis.txt" -n 7
    prints "[1]
$first

[2]
 spake all these words, saying," 2 run "$model" -p "In the beginning" -p "And God" -n 7
    shows "[2]
$law" 0 run "$model" -f "$work/genesis.txt" -p "And God" -n 7 --echo

    for ranks in 0 2; do
        start $ranks run "$model" -n 7 <"$work/genesis.txt"
        [ "$code $(cat "$work/out")" = "0 $first" ] || complain "stdin on $ranks ranks: $(cat "$work/out" "$work/err")"
    done
    start 0 run "$model" -n 7 -p - <"$work/genesis.txt"
    [ "$code $(cat "$work/out")" = "0 $first" ] || complain "-p -: $(cat "$work/out" "$work/err")"

    printf 'In the beginning\n\nAnd God\r\nIn the beginning' >"$work/lines"
    for ranks in 0 2; do
        start $ranks run "$model" -i -n 4 <"$work/lines"
        [ "$(cat "$work/out")" = " God created the heaven
 spake all these words
 God created the heaven" ] || complain "interactive on $ranks ranks: $(cat "$work/out" "$work/err")"
    done
    # a conversation: the template sees the messages and answers so far, and what it refuses is told
    printf '%s' '<|begin_of_text|>{{ messages[-1].content }}{% if messages|length > 2 %}{{ raise_exception("after" ~ messages[1].content) }}{% endif %}' >"$work/chat.jinja"
    printf 'In the beginning\nAnd God\n' >"$work/lines"
    for ranks in 0 2; do
        start $ranks run "$model" --chat --chat-template "$work/chat.jinja" -n 4 <"$work/lines"
        [ "$code $(cat "$work/out")" = "0  God created the heaven" ] || complain "chat on $ranks ranks: $(cat "$work/out" "$work/err")"
        grep -q 'chat.jinja line 1: after God created the heaven' "$work/err" || complain "nothing about a refused message: $(cat "$work/err")"
    done
    { head -c 5000 /dev/zero | tr '\0' '~' && printf '\nIn the beginning\n'; } >"$work/lines"
    start 2 run "$model" -i -n 7 <"$work/lines"
    [ "$code $(cat "$work/out")" = "0 $first" ] || complain "after a prompt too long: $(cat "$work/out" "$work/err")"
    grep -q 'tokens, the context holds 1024' "$work/err" || complain "nothing about a prompt too long: $(cat "$work/err")"

    # a pile of prompts over fewer slots, in order
    for ranks in 0 3; do
        start $ranks run "$model" -n 3 --json --sequences 2 -p "In the beginning" -p "And God" -p "In the beginning" -p "In the" -p "And God"
        value results 5
        for i in 0 2; do value results.$i.text " God created the"; done
        for i in 1 4; do value results.$i.text " spake all these"; done
    done

    # bytes that are no text do no harm, also in JSON
    start 2 run "$model" -n 4 --json -p $'a\xff\xfeb \xe6\xbc'
    [ $code = 0 ] || complain "invalid UTF-8: $(cat "$work/err")"
    value results.0.prompt $'a\xef\xbf\xbd\xef\xbf\xbdb \xef\xbf\xbd'
    printf 'a\0b\n' >"$work/lines"
    start 0 run "$model" -n 4 --json <"$work/lines"
    [ $code = 0 ] || complain "NUL in a prompt: $(cat "$work/err")"
    grep -qF 'a\u0000b\n' "$work/out" || complain "NUL in a prompt: $(cat "$work/out")"
    start 0 run "$model" -p "" -n 4
    [ $code = 0 ] || complain "empty prompt: $(cat "$work/err")"
}

case_sampling() { # how tokens are chosen and where they end
    local prompt=(-p "In the beginning" -q) one two
    prints " God created the heaven and the " 2 run "$model" "${prompt[@]}" -n 60 --stop earth --stop nowhere
    prints " God created the heaven and the earth" 0 run "$model" "${prompt[@]}" -n 60 --stop "$(printf '.\nAnd the earth was')"
    prints " God created the heaven and the earth." 0 run "$model" "${prompt[@]}" -n 8 --stop "earth. And"
    prints "" 0 run "$model" "${prompt[@]}" -n 0
    start 0 run "$model" "${prompt[@]}" -n 30 --stop void --json
    value results.0.finish stop_string
    value results.0.prompt_tokens 4
    start 2 run "$model" "${prompt[@]}" -n 5 --json
    value results.0.finish length
    value results.0.generated_tokens 5
    value timing.ranks 2
    start 0 run "$model" -p "Surely goodness and mercy shall follow me all the days of my life: and I will dwell in the house of the LORD for" -n 20 --json
    value results.0.finish stop # the end of a psalm
    start 0 run "$model" "${prompt[@]}" -n 2000 --context 64 --json
    value results.0.finish length
    value results.0.generated_tokens 60

    # draws depend on the seed and on nothing else
    for draw in "--temperature 1.5" "-t 2 --top-k 50 --top-p 0.95" "-t 1 --min-p 0.01 --repetition-penalty 1.3"; do
        # shellcheck disable=SC2086
        start 0 run "$model" "${prompt[@]}" -n 30 $draw -s 11 && one=$(cat "$work/out")
        for ranks in 0 2; do
            # shellcheck disable=SC2086
            prints "$one" $ranks run "$model" "${prompt[@]}" -n 30 $draw -s 11
        done
        # shellcheck disable=SC2086
        start 0 run "$model" "${prompt[@]}" -n 30 $draw -s 12 && two=$(cat "$work/out")
        [ "$one" != "$two" ] || complain "seeds 11 and 12 draw alike: $draw"
    done
    prints "$(echo "$genesis" | head -1)" 0 run "$model" "${prompt[@]}" -n 8 -t 3 --top-k 1 -s 5
    start 0 run "$model" "${prompt[@]}" -n 60 --repetition-penalty 2
    [ "$(cat "$work/out")" != "$genesis" ] || complain "a repetition penalty changes nothing"
}

case_options() { # help, suggestions, completion
    shows "usage: trireme COMMAND" 0 --help
    shows "trireme " 0 --version
    for command in run serve bench build refit inspect completion; do
        shows "usage: trireme $command" 0 $command --help
        grep -q -- '--help' "$work/out" || complain "$command --help lists no options"
    done
    start 0
    [ $code = 2 ] || complain "without a command: $code"
    grep -q 'usage: trireme' "$work/err" || complain "without a command: $(cat "$work/err")"
    fails 2 "unknown command rum, did you mean run" 0 rum
    fails 2 "unknown command frobnicate, trireme --help lists them" 0 frobnicate
    refused 2 "unknown option --max-tokenz, did you mean --max-tokens" run "$model" --max-tokenz 3
    fails 2 "option --profile is not for this command but for bench" 0 run "$model" --profile
    fails 2 "top-p is \"3\", expected a number from 1e-09 to 1 (--top-p)" 0 run "$model" --top-p 3
    refused 2 "dtype is \"int3\", expected auto, f32, f16 or bf16 (--dtype)" run "$model" -p a --dtype int3
    fails 2 "backend is \"tpu\"" 0 run "$model" -p a --backend tpu
    fails 2 "run needs one model folder, ONNX or plan file, found 0 arguments" 0 run
    fails 2 "run needs one model folder, ONNX or plan file, found 2 arguments" 0 run "$model" "$model"
    fails 2 "bench needs one model folder, shape, ONNX or plan file" 0 bench
    fails 2 "inspect needs one model" 0 inspect
    fails 2 "stop text 2 is empty" 0 run "$model" -p a --stop x --stop ""
    fails 2 "completion is asked for \"tcsh\", expected bash, zsh or fish" 0 completion tcsh
    fails 2 "completion needs one of bash, zsh, fish, found 0 arguments" 0 completion
    fails 1 "cannot open $work/absent.txt" 0 run "$model" -f "$work/absent.txt"
    for command in run serve bench "bench serve" build refit compare inspect; do # the manual page has every option, and no other
        # shellcheck disable=SC2086
        start 0 $command --help
        grep -oE '^ {2}(-., | {4})--[a-z-]+' "$work/out" | grep -oE -- '--.*' >>"$work/options"
    done
    sort -u "$work/options" >"$work/options.help"
    sed -n '/^\.SH OPTIONS/,/^\.SH SETTINGS/p' "$source/docs/trireme.1" | grep '^\\fB' | sed 's/\\f.//g; s/\\//g' | grep -oE -- '--[a-z-]+' |
        sort -u >"$work/options.manual"
    diff "$work/options.help" "$work/options.manual" || complain "help and docs/trireme.1 have different options"
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
    refused 2 "max-tokens is \"lots\", expected an integer from 0 to 1e+15 ($work/other.conf:1)" run "$model" --config "$work/other.conf"
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
    shows "libraries" 0 inspect system
    start 0 inspect system --json
    value build.0.name version
    start 2 inspect "$model"
    [ "$code $(grep -c architecture "$work/out")" = "0 1" ] || complain "on two ranks: $(cat "$work/out" "$work/err")"
    fails 2 "after is \"lunch\", expected import, passes, partition or final (--after)" 0 inspect "$model" --after lunch
    fails 2 "rank is 2, expected less than 2 (--ranks)" 0 inspect "$model" --after final --ranks 2 --rank 2
    refused 2 "mesh" inspect "$model" --memory-plan --json --ranks 2 --mesh tp=3
}

case_streaming() {
    for budget in 0 40% 2M 100% auto; do
        prints "$genesis" 0 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget $budget
    done
    prints "$genesis" 2 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 10%
    prints "$genesis" 4 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 0 --mesh tp=2,pp=2
    start 0 run "$model" -p a -n 2 --weight-budget 0
    grep -q 'of staging at .* GB/s: a step takes at least' "$work/err" || complain "no plan: $(cat "$work/err")"
    shows "% of the link" 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 2 --weight-budget 25%
    start 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 2 --weight-budget 0% --json
    value streaming.resident 0
    shows "stream in every step" 0 inspect llama-3-70b --ranks 2 --memory-plan --context 4096 --weight-budget 10G
    start 0 inspect "$model" --json --memory-plan --context 100 --weight-budget 0
    value memory.0.streaming.resident 0
    refused 2 'weight budget is "8T", expected off, auto' run "$model" -p a --weight-budget 8T
    refused 2 'weight budget is "101%"' bench "$model" --weight-budget 101%
}

case_bench() {
    shows "decode, tok/s" 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 2
    start 2 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 2 --batch 3 --profile --json
    [ $code = 0 ] || complain "bench: $(cat "$work/err")"
    value ranks 2
    value mesh tp=2
    value backend host
    value batch 3
    value runs 2
    value generated_tokens 4
    for path in prefill_tokens_per_second.median decode_tokens_per_second.min decode_step_seconds.max first_token_seconds.median \
        token_seconds_p99 profile_compute_ms profile_communication_ms load_seconds startup.join_seconds startup.weights_seconds startup.weight_bytes \
        startup.first_token_after_start_seconds device_bytes_per_rank; do
        "$json_value" $path <"$work/out" | awk '{ exit !($1 > 0) }' || complain "$path is not positive"
    done
    local kinds row=0
    while kinds=$("$json_value" profile.$row.kind <"$work/out" 2>/dev/null); do
        echo "$kinds" >>"$work/kinds"
        row=$((row + 1))
    done
    grep -qxE '(qkv_)?attention' "$work/kinds" && grep -qx matmul "$work/kinds" || complain "profile has kinds $(sort -u "$work/kinds")"
    start 0 bench llama-3.2-1b --layers 1 --dtype bf16 --tokens 2 --prompt-tokens 2 --repeat 1 --json
    [ $code = 0 ] || complain "bench of a shape: $(cat "$work/err")"
    value layers 1
    value model llama-3.2-1b
    refused 2 "128 prompt tokens and 2000 new ones are more than the context of 1024 tokens" bench "$model" --tokens 2000
    refused 3 "model nothing" bench nothing
    refused 2 "llama-3-8b is a shape with random weights and no text" run llama-3-8b -p a
}

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
    copy stub && truncate -s 5 "$work/stub/model.safetensors"
    refused 3 "model.safetensors" run "$work/stub" "${prompt[@]}"
    edit_header overlapping 's/\[12288,24576\]/[12284,24572]/'
    refused 3 "tensors lm_head.weight and model.embed_tokens.weight overlap" run "$work/overlapping" "${prompt[@]}"
    copy long-header && { le64 200000000 && cat "$tiny/model.safetensors"; } >"$work/long-header/model.safetensors"
    refused 3 "the header has 200000000 bytes, more than the limit of 100000000" run "$work/long-header" "${prompt[@]}"
    edit_header unknown-dtype '0,/"F32"/s//"Q32"/'
    refused 3 "tensor lm_head.weight has dtype Q32" run "$work/unknown-dtype" "${prompt[@]}"
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
    refused 2 "a context of 4000 tokens was asked for, the model has 1024" run "$model" -p a --context 4000
    refused 2 "tp=5" run "$model" -p a --mesh tp=5
    refused 2 "mesh" run "$model" -p a --mesh bogus
    fails 2 "cp" 2 run "$model" -p a --mesh cp=2
    fails 2 "ep" 2 run "$model" -p a --mesh ep=2
    # terabytes of cache: what is needed and what there is are both told
    refused 5 "rank 0 needs" bench llama-3-70b --batch 1024 --prompt-tokens 8000
    grep -qE 'needs [0-9.]+ GiB of memory on .* \(weights [0-9.]+, staging [0-9.]+, cache of [0-9]+ tokens [0-9.]+, activations [0-9.]+, .*\), [0-9.]+ GiB of [0-9.]+ GiB are free$' \
        "$work/err" || complain "no plan: $(cat "$work/err")"
    if ! nvidia-smi -L >/dev/null 2>&1; then
        refused 4 "no usable CUDA device" run "$model" -p a --backend cuda
    fi
}

# each RANK-0-ARGUMENTS -- RANK-1-ARGUMENTS: rank 0 and rank 1 are given different command lines.
each() {
    local first=() began=$SECONDS
    while [ "$1" != -- ]; do
        first+=("$1")
        shift
    done
    shift
    ASAN_OPTIONS=$leaky timeout 60 "$mpirun" --bind-to none -np 1 "$program" "${first[@]}" : -np 1 "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    took=$((SECONDS - began))
}

# each_fails CODE TEXT...: how the last `each` must have ended.
each_fails() {
    [ $code = "$1" ] || complain "exit code $code, expected $1: $(cat "$work/err")"
    [ $took -le 20 ] || complain "took $took s: $(cat "$work/err")"
    [ "$(grep -c '^trireme: ' "$work/err")" = 1 ] || complain "more or less than one line: $(cat "$work/err")"
    shift
    for text in "$@"; do
        grep '^trireme: ' "$work/err" | grep -qF -- "$text" || complain "nothing about \"$text\": $(cat "$work/err")"
    done
}

case_ranks() { # one rank alone is wrong
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
    each_fails 2 "rank 1 has other options than rank 0"
    each run "$model" -f "$work/absent.txt" -- run "$model"
    each_fails 1 "cannot open $work/absent.txt"
    each bench "$model" --tokens 4 --repeat 1 -- run "$model" -p a
    each_fails 2 "rank 1: setting"
}

# A job that would take minutes, for ranks to die in: waits until its first text has come.
await_text() {
    local i
    for ((i = 0; i < 300; i++)); do
        [ -s "$work/out" ] && return 0
        sleep 0.1
    done
    complain "no text came: $(cat "$work/err")"
}

# Whether a process is there and not a zombie, after giving it 5 s to go.
lives_on() {
    local i
    for ((i = 0; i < 50; i++)); do
        grep -qs '^State:.[^ZX]' "/proc/$1/status" || return 1
        sleep 0.1
    done
}

case_failing_ranks() { # a rank dies in the middle of the text
    local began job victim rank port=$((20000 + $$ % 10000)) ids=()
    for ((i = 0; i < 1000; i++)); do echo "In the beginning"; done >"$work/lines"
    local arguments=(run "$model" -i -n 1000 --ignore-eos)
    for victim in 1 0; do
        rm -f "$work/out"
        # shellcheck disable=SC2016
        ASAN_OPTIONS=$leaky timeout 60 "$mpirun" --bind-to none -np 2 sh -c 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work/pid" \
            "$program" "${arguments[@]}" >"$work/out" 2>"$work/err" <"$work/lines" &
        job=$!
        await_text
        began=$SECONDS
        kill -9 "$(cat "$work/pid.$victim")"
        wait $job
        code=$?
        [ $code = 137 ] || complain "rank $victim was killed: exit code $code, expected 137: $(tail -9 "$work/err")"
        [ $((SECONDS - began)) -le 15 ] || complain "took $((SECONDS - began)) s after rank $victim was killed"
        grep -q "rank $victim " "$work/err" && grep -q 'signal 9' "$work/err" ||
            complain "nobody named rank $victim: $(tail -9 "$work/err")"
        for rank in 0 1; do
            lives_on "$(cat "$work/pid.$rank")" && complain "rank $rank lives on after rank $victim was killed"
        done
    done

    # a rank that stands still: the other one does not wait for ever
    rm -f "$work/out"
    # shellcheck disable=SC2016
    ASAN_OPTIONS=$leaky timeout 60 "$mpirun" --bind-to none -np 2 sh -c 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work/pid" \
        "$program" "${arguments[@]}" --deadline 5 >"$work/out" 2>"$work/err" <"$work/lines" &
    job=$!
    await_text
    began=$SECONDS
    kill -STOP "$(cat "$work/pid.1")"
    wait $job
    code=$?
    [ $code = 6 ] || complain "rank 1 was stopped: exit code $code, expected 6: $(tail -9 "$work/err")"
    [ $((SECONDS - began)) -le 20 ] || complain "took $((SECONDS - began)) s after rank 1 was stopped"
    grep '^trireme: ' "$work/err" | grep -q 'rank 1 did not come within 5 s' || complain "stopped rank: $(tail -9 "$work/err")"

    # without mpirun, as torchrun starts ranks: the survivor finds out by itself
    for victim in 1 0; do
        rm -f "$work/out"
        port=$((port + 2))
        for rank in 0 1; do
            RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$program" "${arguments[@]}" \
                >"$work/out$([ $rank = 0 ] || echo .$rank)" 2>"$work/err.$rank" <"$work/lines" &
            ids[rank]=$!
        done
        await_text
        began=$SECONDS
        kill -9 "${ids[$victim]}"
        { wait "${ids[$((1 - victim))]}" && code=0 || code=$?; } 2>/dev/null
        [ $code = 6 ] || complain "exit code $code of the survivor, expected 6: $(tail -9 "$work/err.$((1 - victim))")"
        [ $((SECONDS - began)) -le 15 ] || complain "the survivor of rank $victim took $((SECONDS - began)) s"
        grep -q "^trireme: .*rank $victim" "$work/err.$((1 - victim))" ||
            complain "the survivor of rank $victim said: $(tail -9 "$work/err.$((1 - victim))")"
    done
}

# npy DIMS WORD COUNT: a .npy file of COUNT f32 elements whose bytes printf makes of WORD.
npy() {
    printf '\x93NUMPY\x01\x00v\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1), }"
    for ((i = 0; i < $3; i++)); do printf "$2"; done
}

case_plans() { # networks built once, into plan files
    local corpus=$source/tests/fuzz/corpus/onnx ranks count=0
    cp "$corpus/matmul_2d" "$work/product.onnx"
    npy "3, 4" '\x00\x00\x80\x3f' 12 >"$work/a.npy" # ones
    npy "4, 3" '\x00\x00\x00\x40' 12 >"$work/b.npy" # twos
    npy "3, 3" '\x00\x00\x00\x41' 9 >"$work/expected.npy"
    local inputs=(--input "a=$work/a.npy" --input "b=$work/b.npy")
    for ranks in 1 2; do
        rm -f "$work/c.npy" "$work/moved.onnx"
        shows "host, $ranks rank" 0 build "$work/product.onnx" --mesh tp=$ranks -o "$work/net.plan"
        mv "$work/product.onnx" "$work/moved.onnx" # not looked at again
        shows "c f32 3x3: min 8, mean 8, max 8, written to" $ranks run "$work/net.plan" "${inputs[@]}" --output "c=$work/c.npy"
        cmp -s "$work/c.npy" "$work/expected.npy" || complain "a plan on $ranks ranks: c.npy is not what was expected"
        start $ranks bench "$work/net.plan" --duration 0.05 --warm-up 0 --profile --json
        [ $code = 0 ] || complain "bench of a plan on $ranks ranks: exit code $code: $(head -3 "$work/err")"
        value profile.0.layer c
        value mesh tp=$ranks
        mv "$work/moved.onnx" "$work/product.onnx"
    done
    shows "mesh tp=2; rank 1: " 0 inspect "$work/net.plan" --rank 1
    fails 2 "net.plan: the plan is for a mesh of 2 ranks, there is none for rank 2" 0 inspect "$work/net.plan" --rank 2
    fails 2 "the plan is for a mesh of 2 ranks, the world has 1" 0 run "$work/net.plan" "${inputs[@]}"
    fails 2 "rank 2: net.plan: the plan is for a mesh of 2 ranks" 3 run "$work/net.plan" "${inputs[@]}"
    fails 2 "mesh is \"dp=2\", the plan was built for \"tp=2\"" 2 run "$work/net.plan" "${inputs[@]}" --mesh dp=2
    fails 2 "--value is for building a plan" 2 run "$work/net.plan" --value "a=$work/a.npy"
    fails 2 "expected final: a plan file has no other stage" 0 inspect "$work/net.plan" --after import
    # Dims that differ from run to run: the usual ones where none are given.
    start 0 build "$work/product.onnx" --min-shapes a:1x4 --shapes a:3x4 --max-shapes a:8x4 --json
    value plan "$work/product.plan"
    shows "a f32 ?x4, profile 0: 1x4, 3x4, 8x4" 0 inspect "$work/product.plan"
    start 0 inspect "$work/product.plan" --json
    value profiles 1
    start 0 inspect "$work/product.plan" --after final --json # the inspector
    value profiles.0.a.min.0 1
    value profiles.0.a.max.0 8
    value tensors.0.name a
    value tensors.0.role input
    value tensors.0.dims.0 -1
    value tensors.0.usual_dims.0 3
    value tensors.0.largest_dims.0 8
    value layers.0.kind matmul
    value layers.0.inputs.1 b
    grep -q '"kernel": "host.matmul' "$work/out" || complain "no kernel of the product: $(cat "$work/out")"
    value layers.0.parameters.transpose_b false
    for rows in 1 3 8; do
        start 0 bench "$work/product.plan" --shapes a:${rows}x4 --duration 0 --warm-up 0 --iterations 1 --json
        value inputs.a ${rows}x4
    done
    shows "  a f32 3x4, random" 0 bench "$work/product.plan" --duration 0 --warm-up 0 --iterations 1
    start 0 bench "$work/product.plan" --shapes a:9x4
    [ $code = 2 ] || complain "dims past a plan's bounds: exit code $code: $(cat "$work/err")"
    fails 2 "of input a do not grow in this order" 0 build "$work/product.onnx" --min-shapes a:2x4 --max-shapes a:1x4
    # What is given again for an input is the next profile's.
    start 0 build "$work/product.onnx" --min-shapes a:1x4 --shapes a:2x4 --max-shapes a:3x4 --shapes a:20x4 --min-shapes a:10x4 -o "$work/two.plan" --json
    shows "a f32 ?x4, profile 0: 1x4, 2x4, 3x4, profile 1: 10x4, 20x4, 20x4" 0 inspect "$work/two.plan"
    shows "  a f32 20x4, random" 0 bench "$work/two.plan" --opt-profile 1 --duration 0 --warm-up 0 --iterations 1
    start 0 bench "$work/two.plan" --opt-profile 0 --shapes a:12x4
    [ $code = 2 ] || complain "dims of another profile: exit code $code: $(cat "$work/err")"
    fails 2 "cannot set profile 2: the plan does not have it" 0 run "$work/two.plan" --opt-profile 2 "${inputs[@]}"
    # Plans without weights, and with other ones.
    cp "$corpus/hostile_stored_floats" "$work/stored.onnx"
    cp "$work/stored.onnx" "$work/other.onnx"
    start 0 build "$work/stored.onnx" --refittable --strip-weights -o "$work/bare.plan" --json
    fails 3 "bare.plan was saved without its 1 weights: give them" 0 inspect "$work/bare.plan"
    shows "other.onnx" 0 refit "$work/bare.plan" --weights "$work/other.onnx" -o "$work/full.plan"
    start 0 build "$work/other.onnx" --refittable -o "$work/same.plan" --json
    cmp -s "$work/full.plan" "$work/same.plan" || complain "a plan that was refitted has other bytes than one that was built"
    shows "x f32 300" 0 inspect "$work/bare.plan" --weights "$work/other.onnx"
    fails 2 "lacks 1 weights of plan bare.plan" 0 bench "$work/bare.plan" --weights "$work/product.onnx"
    fails 2 "refit takes a .plan file, --weights and --out" 0 refit "$work/bare.plan" -o "$work/full.plan"
    fails 2 "expected one of them" 0 build "$work/product.onnx" --strip-weights --embed-weights
    # A plan for a GPU can be built without one, by a program that was built with CUDA, and says what it lacks.
    if ! "$program" inspect system | grep -qi '^gpu 0\|"gpus": \[{\|CUDA *not built'; then
        CUDA_VISIBLE_DEVICES= start 0 build "$work/product.onnx" --backend cuda -o "$work/gpu.plan" --json
        [ $code = 0 ] || complain "build for CUDA without a GPU: exit code $code: $(cat "$work/err")"
        grep -q "the plan has no tactics, and runs tune themselves: " "$work/err" || complain "build for CUDA without a GPU: $(cat "$work/err")"
        value backend cuda
        value tactics 0
        start 0 build "$work/product.onnx" --backend cuda -o "$work/gpu.plan" --no-tune
        [ ! -s "$work/err" ] || complain "build for CUDA without tuning: $(cat "$work/err")"
    fi
    # Every network that can be imported is the same from its plan.
    for model in "$corpus"/*; do
        cp "$model" "$work/any.onnx"
        rm -f "$work/any.plan"
        start 0 build "$work/any.onnx" --quiet
        [ $code = 0 ] || continue
        count=$((count + 1))
        cp "$work/any.plan" "$work/again.plan"
        start 0 build "$work/any.onnx" --quiet
        cmp -s "$work/any.plan" "$work/again.plan" || complain "$model: two builds have different bytes"
        start 0 inspect "$work/any.plan" --after final
        sed 's/= weight any.onnx:/= weight /' "$work/out" >"$work/from-plan"
        start 0 inspect "$work/any.onnx" --after final
        sed 's/= weight any.onnx:/= weight /' "$work/out" | diff -q - "$work/from-plan" >/dev/null || complain "$model: the plan has another network"
    done
    [ $count -ge 30 ] || complain "only $count networks could be built"
    # Inputs whose elements decide dims: memory is planned from the usual, the least and the most of them.
    cp "$corpus/tile" "$work/tile.onnx"
    npy "2, 3, 4, 5" '\x00\x00\x80\x3f' 120 >"$work/x.npy"
    shows "z f32 2x6x4x5: min 1, mean 1, max 1" 0 run "$work/tile.onnx" --input "x=$work/x.npy" --elements y:1x2x1x1
    shows "tile.plan" 0 build "$work/tile.onnx" --min-elements y:1x1x1x1 --elements y:1x2x1x1 --max-elements y:2x2x3x1
    shows "z f32 2x6x4x5: min 1, mean 1, max 1" 0 run "$work/tile.plan" --input "x=$work/x.npy" --elements y:1x2x1x1
    shows "z f32 4x6x12x5: min 1, mean 1, max 1" 0 run "$work/tile.plan" --input "x=$work/x.npy" --elements y:2x2x3x1
    start 0 inspect "$work/tile.plan" --json
    [ "$("$json_value" memory.activations <"$work/out")" -ge $((4 * 6 * 12 * 5 * 4)) ] || complain "memory is not planned for the most: $(cat "$work/out")"
    [ "$("$json_value" memory.activations <"$work/out")" -le $((4 * 6 * 12 * 5 * 4 + 2048)) ] || complain "too much memory is planned: $(cat "$work/out")"
    shows "y i64 4, given" 0 bench "$work/tile.plan" --elements y:1x2x3x1 --duration 0 --warm-up 0 --iterations 1
    fails 2 "3.5 is no element of input y, which is i64" 0 run "$work/tile.onnx" --elements y:1x2x3.5x1
    fails 2 "expected NAME:2x3 with at most 32 numbers" 0 run "$work/tile.onnx" --elements y:1xx2
    fails 2 "input y has 4 elements given once and 2 another time" 0 build "$work/tile.onnx" --elements y:1x2x1x1 --max-elements y:2x2
    fails 2 "is given both by" 0 run "$work/tile.onnx" --elements y:1x2x1x1 --input "y=$work/x.npy"
    # Damaged files, and files that are none.
    head -c 200 "$work/net.plan" >"$work/short.plan"
    fails 3 "short.plan: the plan file has 200 bytes, expected" 0 inspect "$work/short.plan"
    echo "plan" >"$work/text.plan"
    fails 3 "text.plan is no plan file" 0 bench "$work/text.plan"
    fails 3 "cannot open $work/none.plan" 0 run "$work/none.plan"
    fails 2 "build takes a .onnx file" 0 build "$work/net.plan"
    fails 2 "expected a name that ends in .plan" 0 build "$work/product.onnx" -o "$work/net.engine"
    fails 3 "cannot open $work/none.onnx" 0 build "$work/none.onnx"
}

# departs PART ARGUMENT...: a comparison fails with exit code 1, and this is in what it says of the first departure.
departs() {
    local part=$1
    shift
    start "$@" </dev/null
    [ $code = 1 ] || complain "exit code $code, expected 1: $*: $(head -3 "$work/err")"
    grep -F "first in" "$work/err" | grep -qF -- "$part" || complain "no departure \"$part\": $*: $(cat "$work/err")"
}

case_compare() { # one network in two ways, tensor by tensor
    export TMPDIR=$work
    local networks=$source/tests/goldens/onnx/compare shapes=(--shapes x0:3x64) ranks
    local net=$networks/perceptron.onnx changed=$networks/changed.onnx
    # One rank and several: parts are joined, summands added up.
    ASAN_OPTIONS=$leaky shows "12 tensors on both sides, of which 0 depart; 0 only in host on 2 ranks, 0 only in the reference" 0 compare "$net" --ranks 1,2 "${shapes[@]}"
    grep -q "^b0.relu  .* split 2  .* 3x512 " "$work/out" || complain "b0.relu is not shown as split: $(cat "$work/out")"
    grep -q "^b0.down  .* sum 2  .* 3x64 " "$work/out" || complain "b0.down is not shown as a sum: $(cat "$work/out")"
    ASAN_OPTIONS=$leaky shows " of which 0 depart" 0 compare "$net" --ranks 1,2,3 --every-layer "${shapes[@]}"
    grep -q "^b0.up  " "$work/out" || complain "--every-layer has no b0.up: $(cat "$work/out")"
    ASAN_OPTIONS=$leaky shows " of which 0 depart" 0 compare "$source/tests/goldens/onnx/encoder/model.onnx" --ranks 1,4 --mesh tp=2,pp=2 --seed 3
    ASAN_OPTIONS=$leaky shows " of which 0 depart" 0 compare "$net" --ranks 1,2 --mark b0.up "${shapes[@]}"
    grep -q "^b0.up  " "$work/out" && ! grep -q "^b1.up" "$work/out" || complain "--mark b0.up does not keep just that: $(cat "$work/out")"
    fails 2 '--mark: the network has no tensor "b9"' 0 run "$net" --mark b9 "${shapes[@]}"
    # A network that is another: what departs first is the layer that is another.
    prints "" 0 compare "$net" --save "$work/good" "${shapes[@]}"
    departs "layer b1.scaled (elementwise, host.elementwise after host.elementwise), tensor b1.scaled: 192 of 192 elements are off" \
        0 compare "$changed" --against "$work/good" "${shapes[@]}"
    for ranks in 1 2; do
        shows "$ranks.plan" 0 build "$net" --mesh tp=$ranks -o "$work/$ranks.plan" "${shapes[@]}"
        shows " of which 0 depart" $ranks compare "$work/$ranks.plan" --against "$work/good"
        departs "layer b1.scaled" $ranks compare "$changed" --against "$work/good" "${shapes[@]}"
    done
    # Two folders; a copy that is another on one rank only, an exchange that went wrong.
    ASAN_OPTIONS=$leaky shows " of which 0 depart" 0 compare "$net" --ranks 1,2 --save "$work/both" "${shapes[@]}"
    shows " of which 0 depart" 0 compare "$work/both/host-2" --against "$work/good"
    fails 2 "is what a run left: it is not run again" 0 compare "$work/both/host-2" --against "$work/good" --ranks 1,2
    file() { # RANK TENSOR: its file
        grep -A4 "\"name\": \"$2\"" "$work/both/host-2/rank-$1/tensors.json" | sed -n 's/.*"file": "\(.*\)",/\1/p' | head -1
    }
    cp -r "$work/both" "$work/kept"
    cp "$work/both/host-2/rank-1/$(file 1 x2:1)" "$work/both/host-2/rank-1/$(file 1 x2)"
    departs "rank 1: layer x2 (norm" 0 compare "$work/both/host-2" --against "$work/good"
    grep -q "^x2  .*on rank 1  departs" "$work/out" || complain "the copy on rank 1 is not shown: $(cat "$work/out")"
    rm -r "$work/both" && cp -r "$work/kept" "$work/both"
    for ranks in 0 1; do
        cp "$work/both/host-2/rank-$ranks/$(file $ranks b0.down)" "$work/both/host-2/rank-$ranks/$(file $ranks b0.down.all_reduce)"
    done
    departs "layer b0.down.all_reduce (dist_collective" 0 compare "$work/both/host-2" --against "$work/good"
    cp "$work/both/host-2/rank-1/$(file 1 b0.down)" "$work/both/host-2/rank-1/$(file 1 b0.relu)"
    start 0 compare "$work/both/host-2" --against "$work/good"
    [ $code = 3 ] && grep -q "is not the tensor that tensors.json tells of" "$work/err" || complain "a file of other dims: exit code $code: $(cat "$work/err")"
    departs "b1.scaled" 0 compare "$changed" --against "$work/good" "${shapes[@]}" --json
    value holds false
    value comparisons.0.compared 10
    value comparisons.0.departed 3
    value comparisons.0.tensors.7.tensor b1.scaled
    value comparisons.0.tensors.7.outside 192
    value comparisons.0.tensors.7.holds false
    value comparisons.0.tensors.6.holds true
    shows " of which 0 depart" 0 compare "$changed" --against "$work/good" "${shapes[@]}" --rtol 0.1 --atol 0.01
    departs "it is 2x512, the reference 3x512" 0 compare "$net" --against "$work/good" --shapes x0:2x64
    # References and inputs that are given as files.
    mkdir "$work/data" "$work/other"
    npy "2, 64" '\x00\x00\x80\x3f' 128 >"$work/data/input_0.npy"
    shows "b1.up f32 2x512" 0 run "$net" --inputs "$work/data" --mark b1.up --output "x2=$work/data/output_0.npy"
    cp "$work/data/input_0.npy" "$work/other/output_0.npy"
    shows "1 tensor on both sides, of which 0 depart" 0 compare "$net" --inputs "$work/data" --against "$work/data"
    shows "1 tensor on both sides, of which 0 depart" 2 compare "$net" --inputs "$work/data" --against "$work/data"
    ASAN_OPTIONS=$leaky shows "1 tensor on both sides, of which 0 depart" 0 compare "$net" --ranks 2 --inputs "$work/data" --expect "x2=$work/data/output_0.npy"
    departs "tensor x2: " 0 compare "$net" --inputs "$work/data" --against "$work/other"
    departs "tensor x1: " 0 compare "$net" --inputs "$work/data" --expect "x1=$work/data/output_0.npy"
    # Language models: one prompt.
    ASAN_OPTIONS=$leaky shows " of which 0 depart" 0 compare "$model" --ranks 1,2 --prompt-tokens 20
    grep -q "^model.layers.7.self_attn.o_proj .* sum 2 " "$work/out" || complain "the last block's projection is no sum: $(cat "$work/out")"
    ASAN_OPTIONS=$leaky shows " of which 0 depart" 0 compare "$tiny" --ranks 1,2 --prompt-tokens 1
    prints "" 0 compare "$model" --prompt-tokens 20 --save "$work/f32" # bf16 is near f32, and so are the f32 logits of bf16
    shows " of which 0 depart" 0 compare "$model" --prompt-tokens 20 --dtype bf16 --against "$work/f32"
    departs "layer model." 0 compare "$model" --prompt-tokens 20 --dtype bf16 --against "$work/f32" --rtol 0.001
    fails 2 "2000 prompt tokens are more than the context of 1024 tokens" 0 compare "$model" --prompt-tokens 2000 --save "$work/none"
    # What cannot be compared.
    fails 2 "there is nothing to compare with" 0 compare "$net"
    fails 2 "backend is \"gpu\", expected auto, cuda or host, or several" 0 compare "$net" --backend host,gpu
    fails 2 "ranks is \"1,x\", expected integers from 1 to" 0 compare "$net" --ranks 1,x
    fails 2 "host is compared with itself" 0 compare "$net" --backend host,host
    fails 2 "not under mpirun" 2 compare "$net" --ranks 1,2
    fails 2 "there are 2 backends and 3 numbers of ranks" 0 compare "$net" --backend host,cuda --ranks 1,2,3
    fails 2 "tensor b0.up, for which a reference is given, is not made by the network" 0 compare "$net" --expect "b0.up=$work/data/output_0.npy" "${shapes[@]}"
    fails 2 "has neither tensors of a run that ended well nor output_0.pb" 0 compare "$net" --against "$work" "${shapes[@]}"
    fails 3 "model /nonexistent/model: it is not a folder" 0 compare /nonexistent/model --save "$work/none"
    fails 2 "ranks is \"1,2\", expected an integer" 0 inspect "$net" --ranks 1,2
    rm "$work/good/rank-0/tensors.json"
    fails 2 "has neither tensors of a run that ended well" 0 compare "$net" --against "$work/good" "${shapes[@]}"
    [ -z "$(ls -d "${TMPDIR:-/tmp}"/trireme-compare-* 2>/dev/null)" ] || complain "folders are left in ${TMPDIR:-/tmp}"
}

case_interrupt() { # Ctrl-C while algorithms are timed; the program has kernels that take half a second each
    local net=$source/tests/goldens/onnx/compare/perceptron.onnx cache=$work/timing/cache.txt mark=$work/mark process tries
    local arguments=(bench "$net" --timing-cache "$cache" --duration 0 --warm-up 0 --iterations 1)
    SLOW_TUNING_MARK=$mark "$program" "${arguments[@]}" >"$work/out" 2>"$work/err" &
    process=$!
    for ((tries = 0; tries < 300; tries++)); do
        [ ! -f "$mark" ] || break
        sleep 0.1
    done
    [ -f "$mark" ] || complain "nothing was timed in 30 s: $(cat "$work/err")"
    kill -INT $process
    wait $process
    code=$?
    [ $code = 130 ] || complain "exit code $code after SIGINT, expected 130: $(cat "$work/err")"
    [ ! -s "$work/out" ] || complain "it printed results though it was interrupted: $(head -3 "$work/out")"
    grep -v '^#' "$cache" >"$work/first"
    local known
    known=$(wc -l <"$work/first")
    [ "$known" -ge 1 ] && [ "$known" -le 3 ] || complain "$known of 4 problems are in the cache: $(cat "$cache")"
    grep -q "; slow product 0	hasty 2.250	patient 7.500$" "$work/first" || complain "what was timed is not in the cache: $(cat "$cache")"
    # The cache is whole: the next run goes on where this one ended, without a warning.
    start 0 "${arguments[@]}" --tactics --json
    [ $code = 0 ] || complain "exit code $code with the cache that was left: $(cat "$work/err")"
    ! grep -q warning "$work/err" || complain "a warning about the cache that was left: $(cat "$work/err")"
    value tactics.0.tactic hasty
    value tactics.0.used true
    grep -v '^#' "$cache" >"$work/second"
    [ "$(wc -l <"$work/second")" = 4 ] || complain "not all 4 problems are in the cache: $(cat "$cache")"
    grep -qxF -f "$work/first" "$work/second" || complain "what was known is gone: $(cat "$cache")"
    start 0 "${arguments[@]}"
    [ $code = 0 ] && [ $took -le 1 ] || complain "exit code $code after $took s, though all is known: $(cat "$work/err")"
}

case_onnx() { # ONNX models: run once, measured, shown
    local corpus=$source/tests/fuzz/corpus/onnx
    cp "$corpus/matmul_2d" "$work/product.onnx"
    cp "$corpus/hostile_missing" "$work/missing.onnx"
    npy "3, 4" '\x00\x00\x80\x3f' 12 >"$work/a.npy" # ones
    npy "4, 3" '\x00\x00\x00\x40' 12 >"$work/b.npy" # twos
    npy "3, 3" '\x00\x00\x00\x41' 9 >"$work/expected.npy"
    local inputs=(--input "a=$work/a.npy" --input "b=$work/b.npy")
    for ranks in 0 1 2; do
        rm -f "$work/c.npy"
        shows "c f32 3x3: min 8, mean 8, max 8, written to" $ranks run "$work/product.onnx" "${inputs[@]}" --output "c=$work/c.npy"
        cmp -s "$work/c.npy" "$work/expected.npy" || complain "on $ranks ranks: c.npy is not what was expected"
    done
    start 0 run "$work/product.onnx" "${inputs[@]}" --json
    value outputs.0.name c
    value outputs.0.mean 8
    shows "8 8 8" 0 run "$work/product.onnx" --value "a=$work/a.npy" --input "b=$work/b.npy"
    shows "it can be imported: 1 layers" 0 inspect "$work/product.onnx"
    shows "c: f32 [3, 3] = matmul(a, b)" 0 inspect "$work/product.onnx" --after final
    start 0 inspect "$work/product.onnx" --json
    value operators.0.operator MatMul
    value inputs.1.dims 4x3
    for ranks in 0 2; do
        start $ranks bench "$work/product.onnx" --duration 0.05 --warm-up 0 --profile --json
        [ $code = 0 ] || complain "bench on $ranks ranks: exit code $code: $(head -3 "$work/err")"
        value profile.0.layer c
        value backend host
    done
    # Several runs at a time, transfers, percentiles, files; the outputs are still right.
    start 0 bench "$work/product.onnx" "${inputs[@]}" --duration 0.05 --warm-up 0 --streams 3 --transfers --percentiles 10,99.9 --json \
        --export-times "$work/times.json" --export-profile "$work/profile.json" --export-layers "$work/layers.json" --outputs "$work/outputs"
    [ $code = 0 ] || complain "bench with streams: exit code $code: $(head -3 "$work/err")"
    value streams 3
    value transfers true
    for path in latency_ms.p10 latency_ms.p99.9 per_rank.0.compute_ms per_rank.0.enqueue_ms; do
        [ "$path" = latency_ms.p99.9 ] || "$json_value" $path <"$work/out" | awk '{ exit !($1 > 0) }' || complain "$path is not positive"
    done
    grep -q '"p99.9"' "$work/out" || complain "no percentile 99.9: $(cat "$work/out")"
    ! grep -q '"p50"' "$work/out" || complain "percentile 50 was not asked for: $(cat "$work/out")"
    local runs
    runs=$("$json_value" runs <"$work/out")
    [ "$("$json_value" runs <"$work/times.json")" = "$runs" ] || complain "times of other than $runs runs"
    [ "$("$json_value" runs.2.stream <"$work/times.json")" = 2 ] || complain "the third run is not of the third stream"
    [ "$("$json_value" layers.0.layer <"$work/profile.json")" = c ] || complain "no layer c in the profile: $(cat "$work/profile.json")"
    [ "$("$json_value" layers.0.kind <"$work/layers.json")" = matmul ] || complain "no product in the layers: $(cat "$work/layers.json")"
    cmp -s "$work/outputs/output_0.npy" "$work/expected.npy" || complain "bench wrote another output than was expected"
    start 2 bench "$work/product.onnx" --duration 0.05 --warm-up 0 --streams 2 --json
    [ $code = 0 ] || complain "bench with streams on 2 ranks: exit code $code: $(head -3 "$work/err")"
    value per_rank 2
    value per_rank.1.rank 1
    "$json_value" per_rank.1.layers_ms <"$work/out" | awk '{ exit !($1 > 0) }' || complain "rank 1 has no time in layers"
    fails 2 'percentiles is "50,101", expected at most 16 numbers to 100' 0 bench "$work/product.onnx" --percentiles 50,101
    fails 1 "cannot write /nonexistent/x: No such file" 0 bench "$work/product.onnx" --duration 0 --warm-up 0 --export-times /nonexistent/x
    cp "$corpus/collective_all_reduce" "$work/sum.onnx"
    cp "$corpus/collective_all_gather" "$work/all.onnx"
    npy "2, 2" '\x00\x00\x80\x3f' 4 >"$work/x.npy"
    shows "y f32 2x2: min 1, mean 1, max 1" 0 run "$work/sum.onnx" --input "x=$work/x.npy"
    shows "y f32 2x2: min 2, mean 2, max 2" 2 run "$work/sum.onnx" --input "x=$work/x.npy"
    shows "y f32 4x2: min 1, mean 1, max 1" 2 run "$work/all.onnx" --input "x=$work/x.npy"
    fails 3 'node 0 (Add, opset 17): its input "nope" is not defined' 0 run "$work/missing.onnx"
    fails 2 "input b is not given (--input b=FILE)" 0 run "$work/product.onnx" --input "a=$work/a.npy"
    fails 2 "--input: the model has no input \"z\", its inputs are: a, b" 0 run "$work/product.onnx" --input "z=$work/a.npy"
    fails 2 "the dims given for input a do not fit" 0 bench "$work/product.onnx" --shapes a:3x5
    npy "4, 4" '\x00\x00\x80\x3f' 12 >"$work/short.npy"
    fails 3 "short.npy has 48 bytes of elements, expected 64" 0 run "$work/product.onnx" --input "a=$work/short.npy"
    fails 3 "cannot open $work/none.onnx" 0 inspect "$work/none.onnx"
    start 0 inspect "$work/missing.onnx"
    [ $code = 3 ] || complain "inspect of a broken model: exit code $code"
    grep -q "1 issue$" "$work/out" || complain "inspect does not list the issue: $(tail -3 "$work/out")"
}

"case_$chapter"
[ $failures = 0 ] && echo "$chapter: ok"
exit $((failures > 0))
