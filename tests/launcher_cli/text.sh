# What is generated: text, prompts, sampling, streaming of weights, timing. Chapters of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

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
    for option in -p -f; do
        start 0 run "$model" -n 7 $option - <"$work/genesis.txt"
        [ "$code $(cat "$work/out")" = "0 $first" ] || complain "$option -: $(cat "$work/out" "$work/err")"
    done
    start 2 run "$model" -n 2 -p "And God" --file - <"$work/genesis.txt"
    [ "$code $(cat "$work/out")" = "0 [1]
 spake all

[2]
 God created" ] || complain "-p TEXT -f -: $(cat "$work/out" "$work/err")"
    refused 2 '2 prompts are "-" (stdin), expected at most one' run "$model" -p - -f -

    # closed streams: what is opened later does not take their places
    "$program" run "$model" -n 2 -q <&- >"$work/out" 2>"$work/err"
    [ "$? $(cat "$work/out")" = "0 In the" ] || complain "closed stdin: $(head -c 300 "$work/out" "$work/err")"
    timeout 600 "$program" run "$model" -n 2 -q -i <&- >"$work/out" 2>"$work/err"
    [ "$? $(cat "$work/out")" = "0 " ] || complain "closed stdin, interactive: $(head -c 300 "$work/out" "$work/err")"
    "$program" run "$model" -n 2 -q -p a 2>"$work/err" >&-
    [ "$? $(cat "$work/err")" = "1 trireme: input/output error: cannot write to stdout: Bad file descriptor" ] ||
        complain "closed stdout: $(cat "$work/err")"
    "$program" run "$model" -n 2 -q </ >"$work/out" 2>"$work/err"
    [ "$? $(cat "$work/err")" = "1 trireme: input/output error: cannot read stdin: Is a directory" ] || complain "a folder: $(cat "$work/err")"

    printf 'In the beginning\n\nAnd God\r\nIn the beginning' >"$work/lines"
    for ranks in 0 2; do
        start $ranks run "$model" -i -n 4 <"$work/lines"
        [ "$(cat "$work/out")" = " God created the heaven
 spake all these words
 God created the heaven" ] || complain "interactive on $ranks ranks: $(cat "$work/out" "$work/err")"
    done
    # a conversation: the template sees the messages and answers so far, and its refusal is the error
    printf '%s' '<|begin_of_text|>{{ messages[-1].content }}{% if messages|length > 2 %}{{ raise_exception("after" ~ messages[1].content) }}{% endif %}' >"$work/chat.jinja"
    printf 'In the beginning\nAnd God\n' >"$work/lines"
    for ranks in 0 2; do
        start $ranks run "$model" --chat --chat-template "$work/chat.jinja" -n 4 <"$work/lines"
        [ "$code $(cat "$work/out")" = "0  God created the heaven" ] || complain "chat on $ranks ranks: $(cat "$work/out" "$work/err")"
        grep -q 'chat.jinja line 1: after God created the heaven' "$work/err" || complain "nothing about a refused message: $(cat "$work/err")"
    done
    printf '%s' '<|begin_of_text|>{{ "In the " ~ reasoning_effort }}{# <|channel|>final<|message|> #}' >"$work/chat.jinja"
    for ranks in 0 2; do # text without channels is the answer of a model that knows them
        start $ranks run "$model" --chat --chat-template "$work/chat.jinja" --reasoning-effort beginning -n 4 -p a
        [ "$code $(cat "$work/out")" = "0  God created the heaven" ] || complain "harmony on $ranks ranks: $(cat "$work/out" "$work/err")"
    done
    refused 2 "option --reasoning-effort needs --chat" run "$model" --reasoning-effort low -p a
    printf '{{ raise_exception("no " ~ messages[0].content) }}' >"$work/chat.jinja"
    refused 2 "chat.jinja line 1: no a" run "$model" --chat --chat-template "$work/chat.jinja" -n 4 -p a -p b
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

    # generation_config.json of the model, unless an option says otherwise
    local wants=$work/wants
    mkdir "$wants" && ln -s "$model"/* "$wants" && rm "$wants/generation_config.json"
    printf '{"eos_token_id": 1, "temperature": 3, "top_k": 1, "repetition_penalty": 1.0}' >"$wants/generation_config.json"
    prints "$(echo "$genesis" | head -1)" 0 run "$wants" "${prompt[@]}" -n 8 -s 5
    start 0 run "$wants" "${prompt[@]}" -n 8 --top-k 0 -s 5
    [ "$(cat "$work/out")" != "$(echo "$genesis" | head -1)" ] || complain "the temperature of generation_config.json is not taken"
    prints "$(echo "$genesis" | head -1)" 0 run "$wants" "${prompt[@]}" -n 8 --top-k 0 --no-generation-config -s 5
}

case_streaming() {
    for budget in 0 40% 2M 100% auto; do
        prints "$genesis" 0 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget $budget
    done
    prints "$genesis" 2 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 10%
    prints "$genesis" 4 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 0 --mesh tp=2,pp=2
    prints "$genesis" 2 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 0 --mesh dp=2
    prints "$genesis" 4 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 20% --mesh tp=2,dp=2 --weight-sharing on
    for share in 0 35% 100 auto; do
        prints "$genesis" 0 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 10% --host-compute $share
    done
    prints "$genesis" 2 run "$model" -p "In the beginning" -n 60 --quiet --weight-budget 0 --host-compute 60%
    refused 2 "CPU offload cannot take 50 % of the streamed weights (host compute): the plan is batch invariant" \
        run "$model" -p a --weight-budget 0 --host-compute 50% --batch-invariant
    fails 2 "CPU offload cannot take 50 % of the streamed weights" 0 bench "$model" --weight-budget 0 --host-compute 50% --batch-invariant
    start 0 run "$model" -p a -n 2 --weight-budget 0 --host-compute auto --batch-invariant -v
    [ "$code $(grep -c 'no CPU offload (host compute auto): the plan is batch invariant' "$work/err")" = "0 1" ] ||
        complain "auto says not why it is off: $(cat "$work/err")"
    start 0 run "$model" -p a -n 2 --weight-budget 0 --host-compute auto --batch-invariant
    ! grep -q 'processors' "$work/err" || complain "auto says why it is off: $(cat "$work/err")"
    start 0 run "$model" -p a -n 2 --weight-budget 0 --host-memory 2M --host-compute 50% -q
    [ "$code $(grep -c '^trireme: warning: rank 0: no CPU offload, although 50 % of the streamed weights was asked for: every step reads .* from files' "$work/err")" = "0 1" ] ||
        complain "a share beside files: $(cat "$work/err")"
    shows "the CPU runs" 0 inspect "$model" --memory-plan --context 100 --weight-budget 0 --host-compute 50%
    start 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 1 --weight-budget 0% --host-compute 100 --json
    value streaming.streamed 0
    shows "fetched by others of 2 ranks" 0 inspect "$model" --ranks 2 --memory-plan --context 100 --weight-budget 0 --mesh dp=2
    start 0 run "$model" -p a -n 2 --weight-budget 0
    grep -qE 'of staging at [0-9.]+ GB/s: a step takes at least .* that fills a step \([0-9]+ tokens\) about [0-9.]+ ms; the KV cache' "$work/err" ||
        complain "no plan: $(cat "$work/err")"
    start 0 run "$model" -p a -n 2 --weight-budget 0 --host-memory 2M
    grep -q 'warning: rank 0: host memory has room for 2.00 MiB of weights; every step reads the other [0-9.]* MiB from files' "$work/err" || complain "files: $(cat "$work/err")"
    shows "7.344 million, 14.01 MiB as stored" 0 inspect "$model" --memory-plan --context 100
    grep -qE '^rank 0: [0-9.]+ MiB: weights 28\.[0-9]+, staging 0.000, cache of 112 tokens [0-9.]+' "$work/out" || complain "a small plan: $(cat "$work/out")"
    shows "of staging at an assumed 5.0 GB/s: a step" 0 inspect "$model" --memory-plan --context 100 --weight-budget 0
    shows "a step takes at least" 0 inspect "$source/tests/goldens/onnx/encoder/model.onnx" --memory-plan --weight-budget 0
    ! grep -q 'tokens/s' "$work/out" || complain "a network's plan speaks of tokens: $(cat "$work/out")"
    shows "% of the link" 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 2 --weight-budget 25%
    start 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 2 --weight-budget 0% --json
    value streaming.resident 0
    grep -q '"layer": "model.layers.7.mlp.down_proj"' "$work/out" || complain "no time that layers waited"
    shows "waits for weights in a decode step: " 0 bench "$model" --tokens 4 --prompt-tokens 8 --repeat 1 --weight-budget 0%
    shows "waits for weights in a prompt step: " 0 bench "$model" --tokens 1 --prompt-tokens 8 --repeat 1 --weight-budget 0%
    shows "stream in every step" 0 inspect llama-3-70b --ranks 2 --memory-plan --context 4096 --weight-budget 10G
    grep -qE "a step takes at least [0-9.]+ ms, at most [0-9.]+ tokens/s per sequence; time to first token at least [0-9.]+ ms, for a prompt that fills a step about [0-9.]+ ms\$" "$work/out" ||
        complain "no rates in the plan: $(cat "$work/out")"
    shows "stream in every step" 0 inspect llama-3-70b --memory-plan --context 4096 --weight-budget 0
    grep -qE 'at most 0\.0[0-9]*[1-9][0-9]* tokens/s per sequence' "$work/out" || complain "a small rate has no digits: $(cat "$work/out")"
    start 0 inspect "$model" --json --memory-plan --context 100 --weight-budget 0
    value memory.0.streaming.resident 0
    grep -q '"layer": "model.layers.7.mlp.down_proj"' "$work/out" || complain "no time that layers would wait"
    shows "waits for weights in such a step: " 0 inspect "$model" --memory-plan --context 100 --weight-budget 0
    shows "cache 23 of 128 experts in 36 layers (18.0 % of a token's" 0 inspect gpt-oss-120b --memory-plan --context 4096 --weight-budget 16G
    refused 2 'weight budget is "8T", expected off, auto' run "$model" -p a --weight-budget 8T
    refused 2 'weight sharing is "maybe", expected auto, off or on' run "$model" -p a --weight-budget 0 --weight-sharing maybe
    refused 2 'host compute is "much", expected off, auto, or 0% to 100% (--host-compute)' run "$model" -p a --weight-budget 0 --host-compute much
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
    local mixture="$source/tests/goldens/hf/qwen3-moe" ranks layer expert sum # 3 of 8 experts a token
    for ranks in 0 2; do
        start $ranks bench "$mixture" --tokens 4 --prompt-tokens 8 --repeat 1 --batch 2 --expert-load --json
        [ $code = 0 ] || complain "bench --expert-load: $(cat "$work/err")"
        for layer in 0 1; do
            value expert_load.$layer.layer model.layers.$layer.mlp.gate
            sum=0
            for expert in 0 1 2 3 4 5 6 7; do
                sum=$((sum + $("$json_value" expert_load.$layer.tokens.$expert <"$work/out")))
            done
            # Prompts of 16 tokens and 3 decode steps of 2; of the prompts, the last layer has the last tokens.
            [ $sum = $((layer == 0 ? 3 * (16 + 6) : 3 * (2 + 6))) ] || complain "layer $layer gives $sum tokens to experts"
        done
    done
    shows "max/mean" 0 bench "$mixture" --tokens 4 --prompt-tokens 8 --repeat 1 --expert-load
    refused 2 "has no experts, option --expert-load needs some" bench "$model" --expert-load
    refused 2 "128 prompt tokens and 2000 new tokens exceed the context of 1024 tokens" bench "$model" --tokens 2000
    refused 3 "model nothing" bench nothing
    refused 2 "llama-3-8b is a named shape, which has no tokenizer" run llama-3-8b -p a
}
