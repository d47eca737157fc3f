# shellcheck shell=bash disable=SC2154
# trireme quantize, and --weights of model folders. Part of cli.sh.

# same_text WHAT FIRST SECOND: two texts.
same_text() {
    [ -n "$2" ] && [ "$2" = "$3" ] || complain "$1: \"$2\" and \"$3\""
}

text_of() {
    start "$@" -p "In the beginning" -n 24 -q </dev/null
    [ $code = 0 ] || complain "exit code $code: $*: $(head -3 "$work/err")"
    cat "$work/out"
}

# within PATH MOST: a number of the JSON that the last program printed.
within() {
    local found
    found=$("$json_value" "$1" <"$work/out")
    awk -v found="$found" -v most="$2" 'BEGIN { exit !(found != "" && found + 0 >= 0 && found + 0 <= most) }' ||
        complain "$form: $1 is \"$found\", expected at most $2"
}

# Limits of divergence and perplexity are about twice what was found.
case_quantize() {
    local form alone pair seed
    local -A divergence=([fp8]=0.1 [fp8-weights]=0.05 [fp8-block]=0.1 [fp8-block-weights]=0.05 [int8]=0.06 [int8-weights]=0.005 [int4]=1 [int4-128]=0.8 [nvfp4]=0.6 [mxfp4]=0.8)
    local -A perplexity=([fp8]=6.5 [fp8-weights]=6 [fp8-block]=6.8 [fp8-block-weights]=6 [int8]=6 [int8-weights]=5.6 [int4]=9 [int4-128]=9 [nvfp4]=8.5 [mxfp4]=8.5)
    cat >"$work/verses" <<'VERSES'
In the beginning God created the heaven and the earth.
And the earth was without form, and void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters.
And God said, Let there be light: and there was light.
And God saw the light, that it was good: and God divided the light from the darkness.
And God called the light Day, and the darkness he called Night. And the evening and the morning were the first day.
The LORD is my shepherd; I shall not want.
He maketh me to lie down in green pastures: he leadeth me beside the still waters.
He restoreth my soul: he leadeth me in the paths of righteousness for his name's sake.
Yea, though I walk through the valley of the shadow of death, I will fear no evil: for thou art with me; thy rod and thy staff they comfort me.
To every thing there is a season, and a time to every purpose under the heaven:
A time to be born, and a time to die; a time to plant, and a time to pluck up that which is planted;
Blessed are the poor in spirit: for theirs is the kingdom of heaven.
Blessed are they that mourn: for they shall be comforted.
Blessed are the meek: for they shall inherit the earth.
VERSES
    for form in fp8 fp8-weights fp8-block fp8-block-weights int8 int8-weights int4 int4-128 nvfp4 mxfp4; do
        start 0 quantize "$model" --to "$form" -o "$work/$form" --text "$work/verses" --json
        value text.tokens 281
        within text.divergence "${divergence[$form]}"
        within text.perplexity_before 5.5
        within text.perplexity_after "${perplexity[$form]}"
        alone=$(text_of 0 run "$work/$form")
        same_text "$form, read so" "$alone" "$(text_of 0 run "$model" --weights "$form")"
        pair=$(text_of 2 run "$work/$form")
        same_text "$form, read so on 2 ranks" "$pair" "$(text_of 2 run "$model" --weights "$form")"
        # With a scale a token each rank has its own for its columns.
        [ "$form" = fp8 ] || [ "$form" = int8 ] || same_text "$form on 1 and 2 ranks" "$alone" "$pair"
        cmp -s "$model/tokenizer.json" "$work/$form/tokenizer.json" || complain "$form: the tokenizer is another one"
    done
    [ "$(find "$work" -name '.trireme-quantize*' | wc -l)" = 0 ] || complain "folders are left: $(ls -a "$work")"
    start 0 run "$model" --weights fp8 -p a -n 1
    grep -qF "weights of $model become fp8 as they are read" "$work/err" || complain "nothing is said: $(cat "$work/err")"
    shows "7.344 million" 0 inspect "$model" --weights int4-128
    shows "decode, tok/s" 0 bench "$model" --weights int8 --prompt-tokens 4 --tokens 2 --repeat 1

    start 0 quantize "$model" --to int4-128 --keep '*.down_proj' --keep '*.k_proj' -o "$work/kept" --json --report "$work/report.html"
    value weights int4-128
    value layers.0.name model.layers.0.mlp.gate_proj
    value layers.0.bytes_before 393216
    value layers.0.bytes_after 101376
    grep -q down_proj "$work/out" && complain "a kept layer is quantized"
    grep -q "<td>model.layers.7.self_attn.v_proj</td>" "$work/report.html" || complain "no layer in the page"
    grep -q '"model.layers.3.mlp.down_proj"' "$work/kept/config.json" || complain "a kept layer is not ignored"
    shows "56 layers in int8: 12.00 MiB became" 0 quantize "$model" --to int8 -o "$work/sizes" --report "$work/report.txt"
    grep -q "256 x 768 .* model.layers.0.mlp.down_proj$" "$work/report.txt" || complain "no layer in: $(cat "$work/report.txt")"

    fails 2 "quantize takes --to and --out, the new folder" 0 quantize "$model" -o "$work/x"
    fails 2 "no quantized weights int3, expected fp8" 0 quantize "$model" --to int3 -o "$work/x"
    fails 2 "folder $work/fp8 is there already" 0 quantize "$model" --to fp8 -o "$work/fp8"
    fails 3 "model $work/fp8: its weights are quantized already, by compressed-tensors" 0 quantize "$work/fp8" --to int8 -o "$work/x"
    fails 3 "are quantized already, by compressed-tensors" 0 run "$work/fp8" --weights int8 -p a
    fails 2 "no layer is named *.no_proj, expected a pattern such as *.down_proj" 0 quantize "$model" --to fp8 --keep '*.no_proj' -o "$work/x"
    fails 2 "it has no layer to quantize" 0 quantize "$model" --to fp8 --keep '*' -o "$work/x"
    fails 2 "report is a.csv, expected a name that ends in .json, .html or .txt" 0 quantize "$model" --to fp8 -o "$work/x" --report a.csv
    fails 2 "--text and --samples run on one rank" 1 quantize "$model" --to fp8 -o "$work/x" --text "$work/verses"
    fails 1 "cannot make a folder in $work/none/" 0 quantize "$model" --to fp8 -o "$work/none/x"
    [ ! -e "$work/x" ] || complain "a refused folder is there"
}
