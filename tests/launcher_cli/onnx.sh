# ONNX models and plan files: run, measured, shown, built, compared, tuned. Chapters of cli.sh, which has what they share.
# shellcheck shell=bash disable=SC2154

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
        mv "$work/product.onnx" "$work/moved.onnx" # not read again
        shows "c f32 3x3: min 8, mean 8, max 8, written to" $ranks run "$work/net.plan" "${inputs[@]}" --output "c=$work/c.npy"
        cmp -s "$work/c.npy" "$work/expected.npy" || complain "a plan on $ranks ranks: c.npy is not what was expected"
        start $ranks bench "$work/net.plan" --duration 0.05 --warm-up 0 --profile --json
        [ $code = 0 ] || complain "bench of a plan on $ranks ranks: exit code $code: $(head -3 "$work/err")"
        value profile.0.layer c
        value mesh tp=$ranks
        mv "$work/moved.onnx" "$work/product.onnx"
    done
    shows "mesh tp=2; rank 1: " 0 inspect "$work/net.plan" --rank 1
    fails 2 "net.plan: the plan is for a mesh of 2 ranks and has no rank 2" 0 inspect "$work/net.plan" --rank 2
    fails 2 "the plan is for a mesh of 2 ranks, the world has 1" 0 run "$work/net.plan" "${inputs[@]}"
    fails 2 "rank 2: net.plan: the plan is for a mesh of 2 ranks" 3 run "$work/net.plan" "${inputs[@]}"
    fails 2 "mesh is \"dp=2\", but the plan was built for \"tp=2\"" 2 run "$work/net.plan" "${inputs[@]}" --mesh dp=2
    fails 2 "--value is for building a plan" 2 run "$work/net.plan" --value "a=$work/a.npy"
    fails 2 "expected final: a plan file has no other stage" 0 inspect "$work/net.plan" --after import
    # Dims that differ from run to run: the usual ones where none are given. Those that the file has cannot differ.
    fails 2 "dimension 0 of input a is 3 in the model and cannot differ from run to run" 0 build "$work/product.onnx" --min-shapes a:1x4 --max-shapes a:8x4
    LC_ALL=C sed -z 's/\x0a\x02\x08\x03/\x0a\x02\x12\x00/' "$corpus/matmul_2d" >"$work/open.onnx" # a becomes ?x4
    start 0 build "$work/open.onnx" --min-shapes a:1x4 --shapes a:3x4 --max-shapes a:8x4 --json
    value plan "$work/open.plan"
    shows "a f32 ?x4, profile 0: 1x4, 3x4, 8x4" 0 inspect "$work/open.plan"
    start 0 inspect "$work/open.plan" --json
    value profiles 1
    start 0 inspect "$work/open.plan" --after final --json # the inspector
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
        start 0 bench "$work/open.plan" --shapes a:${rows}x4 --duration 0 --warm-up 0 --iterations 1 --json
        value inputs.a ${rows}x4
    done
    shows "  a f32 3x4, random" 0 bench "$work/open.plan" --duration 0 --warm-up 0 --iterations 1
    start 0 bench "$work/open.plan" --shapes a:9x4
    [ $code = 2 ] || complain "dims past a plan's bounds: exit code $code: $(cat "$work/err")"
    fails 2 "of input a do not increase in this order" 0 build "$work/open.onnx" --min-shapes a:2x4 --max-shapes a:1x4
    # What is given again for an input is the next profile's.
    start 0 build "$work/open.onnx" --min-shapes a:1x4 --shapes a:2x4 --max-shapes a:3x4 --shapes a:20x4 --min-shapes a:10x4 -o "$work/two.plan" --json
    shows "a f32 ?x4, profile 0: 1x4, 2x4, 3x4, profile 1: 10x4, 20x4, 20x4" 0 inspect "$work/two.plan"
    shows "  a f32 20x4, random" 0 bench "$work/two.plan" --opt-profile 1 --duration 0 --warm-up 0 --iterations 1
    start 0 bench "$work/two.plan" --opt-profile 0 --shapes a:12x4
    [ $code = 2 ] || complain "dims of another profile: exit code $code: $(cat "$work/err")"
    fails 2 "cannot set profile 2: the plan has no such profile" 0 run "$work/two.plan" --opt-profile 2 "${inputs[@]}"
    # Ranks that share a batch: of a, whose rows are unknown until a run; those of b are no batch.
    npy "6, 4" '\x00\x00\x80\x3f' 24 >"$work/a6.npy"
    fails 2 "profile 0 at its min dims: input a has a batch of 1, expected a multiple of 2, the ranks of mesh axis dp" 0 build "$work/open.onnx" \
        --mesh dp=2 --min-shapes a:1x4 --max-shapes a:8x4
    shows "host, 2 ranks (dp=2), 1 collectives" 0 build "$work/open.onnx" --mesh dp=2 --min-shapes a:2x4 --max-shapes a:8x4 -o "$work/shared.plan"
    shows "c f32 6x3: min 8, mean 8, max 8" 2 run "$work/shared.plan" --input "a=$work/a6.npy" --input "b=$work/b.npy"
    fails 2 "input a has a batch of 3, expected a multiple of 2, the ranks of mesh axis dp that share it" 2 run "$work/shared.plan" "${inputs[@]}"
    fails 2 "input a has a batch of 3, expected a multiple of 2, the ranks of mesh axis dp that share it" 2 run "$work/product.onnx" "${inputs[@]}" --mesh dp=2
    start 2 bench "$work/open.onnx" --mesh dp=2 --shapes a:1x4 --duration 0 --warm-up 0 --iterations 1
    grep -q "mesh axis dp splits nothing, all its ranks compute the same: the first input" "$work/err" || complain "no warning: $(cat "$work/err")"
    # Plans without weights, and with other ones.
    cp "$corpus/hostile_stored_floats" "$work/stored.onnx"
    cp "$work/stored.onnx" "$work/other.onnx"
    # What stands in a plan: what wrote it, how it has weights, memory and exchanges of every rank.
    local version kind
    version=$("$program" --version | sed 's/^trireme \([^ ,]*\).*/\1/')
    for kind in referenced embedded; do
        start 0 build "$work/stored.onnx" $([ $kind = referenced ] || echo --embed-weights) -o "$work/kind.plan" --quiet
        start 0 inspect "$work/kind.plan" --json
        value format 2
        value library "$version"
        for found in referenced embedded stripped; do
            value weights.$found $([ $found = $kind ] && echo 1 || echo 0)
        done
        shows "format 2, built by trireme $version; weights 1 $kind" 0 inspect "$work/kind.plan"
    done
    start 0 build "$source/tests/goldens/onnx/compare/perceptron.onnx" --shapes x0:3x64 --mesh tp=2,pp=2 -o "$work/four.plan" --quiet
    start 0 inspect "$work/four.plan" --json
    value ranks 4
    value ranks.2.rank 2
    value ranks.0.collectives.0.operation all_reduce
    value ranks.0.collectives.0.reduce sum
    value ranks.0.collectives.0.among 2
    value ranks.1.collectives.0.layer "$("$json_value" ranks.0.collectives.0.layer <"$work/out")"
    value ranks.2.collectives.0.operation recv
    value memory.total "$("$json_value" ranks.0.memory.total <"$work/out")"
    start 0 inspect "$work/four.plan"
    [ "$(grep -c '^rank [0-3]: .* MiB: weights' "$work/out")" = 4 ] || complain "not the memory of four ranks: $(cat "$work/out")"
    grep -q "^  rank 1: same as rank 0$" "$work/out" && grep -q "^  rank 2:$" "$work/out" && grep -q "^  rank 3: same as rank 2$" "$work/out" ||
        complain "not the exchanges of four ranks: $(cat "$work/out")"
    grep -Eq "^    [^ ]+ +all_reduce sum f32 3x64 among 2$" "$work/out" || complain "no sum is shown: $(cat "$work/out")"
    grep -Eq "^    [^ ]+ +recv f32 3x64 among 2$" "$work/out" || complain "nothing that a stage receives is shown: $(cat "$work/out")"
    shows "0.00 stay on the device and 0.13 stream in every step" 0 inspect "$work/four.plan" --weight-budget 0
    [ "$(grep -c ' of weights, 0.00 stay on the device and ' "$work/out")" = 4 ] || complain "not the streaming of four ranks: $(cat "$work/out")"
    start 0 inspect "$work/four.plan" --weight-budget 0 --json
    value ranks.3.memory.streaming.resident 0
    value memory.streaming.budget 0
    fails 2 "weight budget is \"9X\"" 0 inspect "$work/four.plan" --weight-budget 9X
    start 0 inspect "$work/four.plan" --weight-budget 0 --after final --json
    streamed=$("$json_value" memory.weights <"$work/out")
    start 0 inspect "$work/four.plan" --after final --json
    [ "$code" = 0 ] && [ "$streamed" -lt "$("$json_value" memory.weights <"$work/out")" ] || complain "the inspector of a plan follows no budget"
    # What was decided when a plan was built, and what is of another kind of file.
    for option in --tf32 "--max-trips 3" "--workspace 3" "--max-aux-streams 1" "--dim a=3"; do
        for command in bench run inspect; do
            # shellcheck disable=SC2086
            fails 2 "option ${option% *} is for building a plan, not for running it" 0 $command "$work/four.plan" $option
        done
    done
    fails 2 "option --tf32 is for building a plan" 0 compare "$work/net.plan" --tf32 --ranks 1,2
    printf 'dim = nowhere=3\nmark = nothing\nvalue = a=absent.npy\nio-type = a=bool\ntf32 = true\n' >"$work/decided.conf" # of other files
    shows "outputs" 0 inspect "$work/four.plan" --config "$work/decided.conf"
    shows "per second" 4 bench "$work/four.plan" --config "$work/decided.conf" --duration 0 --warm-up 0 --iterations 1
    fails 2 "option --allow-other-device is for plan files" 0 bench "$work/product.onnx" --allow-other-device
    TRIREME_TF32=true TRIREME_WORKSPACE=3 shows "rank 3: 0." 0 inspect "$work/four.plan" --ranks 4 --mesh tp=2,pp=2
    fails 2 "ranks is 2, but the plan was built for 4" 0 inspect "$work/four.plan" --ranks 2
    fails 2 'mesh is "tp=4", but the plan was built for "tp=2,pp=2"' 0 inspect "$work/four.plan" --mesh tp=4
    fails 2 "option --shapes is for building or running a plan" 0 inspect "$work/four.plan" --shapes a:3x4
    shows "rank 3: 0." 0 inspect "$work/four.plan" --rank 3
    grep -q "mesh tp=2,pp=2; rank 3: " "$work/out" || complain "the rank that was asked for is not shown: $(cat "$work/out")"
    start 0 inspect "$work/open.plan" --json
    value weights.referenced 0
    shows "; weights constants only" 0 inspect "$work/open.plan"
    ! grep -q collectives$ "$work/out" || complain "exchanges of one rank: $(cat "$work/out")"
    start 0 build "$work/stored.onnx" --refittable --strip-weights -o "$work/bare.plan" --json
    fails 3 "bare.plan was saved without its 1 weights: supply them" 0 inspect "$work/bare.plan"
    shows "other.onnx" 0 refit "$work/bare.plan" --weights "$work/other.onnx" -o "$work/full.plan"
    start 0 build "$work/other.onnx" --refittable -o "$work/same.plan" --json
    cmp -s "$work/full.plan" "$work/same.plan" || complain "a plan that was refitted has other bytes than one that was built"
    shows "x f32 300" 0 inspect "$work/bare.plan" --weights "$work/other.onnx"
    grep -q ", refittable; weights 1 stripped$" "$work/out" || complain "it does not say that its weight is stripped: $(cat "$work/out")"
    fails 2 "lacks 1 weights of plan bare.plan" 0 bench "$work/bare.plan" --weights "$work/product.onnx"
    fails 2 "refit takes a .plan file, --weights, and --out" 0 refit "$work/bare.plan" -o "$work/full.plan"
    fails 2 "expected at most one" 0 build "$work/product.onnx" --strip-weights --embed-weights
    # A plan for a GPU can be built without one, by a program that was built with CUDA, and says what it lacks.
    if ! "$program" inspect system | grep -qi '^gpu 0\|"gpus": \[{\|cuda runtime *none'; then
        CUDA_VISIBLE_DEVICES= start 0 build "$work/product.onnx" --backend cuda -o "$work/gpu.plan" --json
        [ $code = 0 ] || complain "build for CUDA without a GPU: exit code $code: $(cat "$work/err")"
        grep -q "the plan has no tactics and is tuned when it runs: " "$work/err" || complain "build for CUDA without a GPU: $(cat "$work/err")"
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
    fails 2 "element 3.5 of input y cannot be represented as i64" 0 run "$work/tile.onnx" --elements y:1x2x3.5x1
    fails 2 "expected NAME:2x3 with at most 32 numbers" 0 run "$work/tile.onnx" --elements y:1xx2
    fails 2 "input y has 4 elements given once and 2 another time" 0 build "$work/tile.onnx" --elements y:1x2x1x1 --max-elements y:2x2
    fails 2 "is given by both" 0 run "$work/tile.onnx" --elements y:1x2x1x1 --input "y=$work/x.npy"
    # Damaged files, and files that are none.
    head -c 200 "$work/net.plan" >"$work/short.plan"
    fails 3 "short.plan: the plan file has 200 bytes, expected" 0 inspect "$work/short.plan"
    echo "plan" >"$work/text.plan"
    fails 3 "text.plan is not a plan file" 0 bench "$work/text.plan"
    fails 3 "cannot open $work/none.plan" 0 run "$work/none.plan"
    fails 2 "build takes a .onnx file" 0 build "$work/net.plan"
    fails 2 "expected a name that ends in .plan" 0 build "$work/product.onnx" -o "$work/net.engine"
    mkfifo "$work/pipe.plan"
    fails 1 "cannot write $work/pipe.plan: not a regular file" 0 build "$work/product.onnx" -o "$work/pipe.plan"
    [ -p "$work/pipe.plan" ] || complain "a pipe was replaced by a plan"
    rm -f "$work/pipe.plan"
    fails 3 "cannot open $work/none.onnx" 0 build "$work/none.onnx"
}

case_interrupt() { # Ctrl-C while algorithms are timed; the program waits for the signal in between
    local net=$source/tests/goldens/onnx/compare/perceptron.onnx cache=$work/timing/cache.txt mark=$work/mark process tries
    local arguments=(bench "$net" --timing-cache "$cache" --duration 0 --warm-up 0 --iterations 1)
    SLOW_TUNING_MARK=$mark "$program" "${arguments[@]}" >"$work/out" 2>"$work/err" &
    process=$!
    for ((tries = 0; tries < 6000; tries++)); do
        [ ! -f "$mark" ] || break
        sleep 0.1
    done
    [ -f "$mark" ] || complain "nothing was timed in 600 s: $(cat "$work/err")"
    kill -INT $process
    rm -f "$mark" # it goes on
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
    SLOW_TUNING_MARK=$mark start 0 "${arguments[@]}"
    [ $code = 0 ] && [ ! -f "$mark" ] || complain "exit code $code, or timed again though all is known: $(cat "$work/err")"
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
    fails 2 '--dim: no input has a dimension "bacth", the named dimensions are: batch, sequence' 0 run "$source/tests/goldens/onnx/encoder/model.onnx" --dim bacth=4
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
    local runs seconds
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
    start 0 bench "$work/product.onnx" "${inputs[@]}" --duration 0.05 --warm-up 0 --streams 3 --stream-threads --json \
        --export-times "$work/times.json" --outputs "$work/outputs"
    [ $code = 0 ] || complain "bench with streams of threads: exit code $code: $(head -3 "$work/err")"
    [ "$("$json_value" runs.2.stream <"$work/times.json")" = 2 ] || complain "the third run is not of the third thread's stream"
    cmp -s "$work/outputs/output_0.npy" "$work/expected.npy" || complain "bench with threads wrote another output than was expected"
    fails 2 "option --stream-threads needs one rank: 2 ranks" 2 bench "$work/product.onnx" --stream-threads
    fails 2 "option --duration -1 needs one rank: 2 ranks" 2 bench "$work/product.onnx" --duration -1
    for seconds in 2 10 60; do # until it was measuring when SIGINT came
        timeout --preserve-status -k 100 -s INT $seconds "$program" bench "$work/product.onnx" --duration -1 --warm-up 0 --json >"$work/out" \
            2>"$work/err"
        code=$?
        [ $code = 0 ] && break
    done
    [ $code = 0 ] || complain "a bench that SIGINT ended: exit code $code: $(head -3 "$work/err")"
    "$json_value" runs <"$work/out" | awk '{ exit !($1 > 1) }' || complain "a bench that SIGINT ended reports no runs: $(head -3 "$work/out")"
    fails 2 'percentiles is "50,101", expected at most 16 numbers to 100' 0 bench "$work/product.onnx" --percentiles 50,101
    fails 1 "cannot write /nonexistent/x: No such file" 0 bench "$work/product.onnx" --duration 0 --warm-up 0 --export-times /nonexistent/x
    # Inputs and outputs in other types than the model's.
    printf '\x93NUMPY\x01\x00v\x00%-117s\n' "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 4), }" >"$work/half.npy"
    for ((i = 0; i < 12; i++)); do printf '\x00\x3c'; done >>"$work/half.npy"
    shows "c f16 3x3: min 8, mean 8, max 8" 0 run "$work/product.onnx" --io-type a=f16 --io-type c=f16 --input "a=$work/half.npy" \
        --input "b=$work/b.npy"
    shows "  a f16 3x4, random" 0 bench "$work/product.onnx" --io-type a=f16 --duration 0 --warm-up 0 --iterations 1
    shows "host, 1 rank" 0 build "$work/product.onnx" --io-type c=f64 -o "$work/typed.plan"
    shows "c f64 3x3: min 8" 0 run "$work/typed.plan" "${inputs[@]}"
    fails 2 "--io-type is for building a plan, not for running it" 0 run "$work/typed.plan" "${inputs[@]}" --io-type c=f32
    fails 2 "a.npy holds f32, expected f16 for input a" 0 run "$work/product.onnx" --io-type a=f16 "${inputs[@]}"
    fails 2 "nope cannot have type f16: the model has no such input or output" 0 bench "$work/product.onnx" --io-type nope=f16
    fails 2 '--io-type is "a=half", expected NAME=TYPE such as x=f16' 0 bench "$work/product.onnx" --io-type a=half
    collectives
    # Elements alone; arrays whose first axis runs fastest; options of trtexec.
    printf '\x00\x00\x80\x3f%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 >"$work/a.bin" # ones, 3x4
    head -c 16 "$work/a.bin" >"$work/a_row.bin"
    printf '\x93NUMPY\x01\x00v\x00%-117s\n' "{'descr': '<f4', 'fortran_order': True, 'shape': (4, 3), }" >"$work/b_fortran.npy"
    { head -c 16 /dev/zero; printf '\x00\x00\x80\x3f%.0s' 1 2 3 4; head -c 16 /dev/zero; } >>"$work/b_fortran.npy" # ones in column 1
    LC_ALL=C sed -z 's/\x0a\x02\x08\x03/\x0a\x02\x12\x00/' "$corpus/matmul_2d" >"$work/open.onnx" # a becomes ?x4
    shows "c f32 3x3: min 8, mean 8" 0 run "$work/product.onnx" --input "a=$work/a.bin" --input "b=$work/b.npy" --output "c=$work/c.raw" --expect "c=$work/expected.npy"
    tail -c 36 "$work/expected.npy" | cmp -s - "$work/c.raw" || complain "c.raw is not what was expected"
    shows "c f32 3x3: min 8, mean 8" 0 run "$work/product.onnx" --input "a=$work/a.bin" --value "b=$work/b.npy" --expect "c=$work/c.raw"
    shows "  0 4 0 0 4 0 0 4 ..." 0 run "$work/product.onnx" --input "a=$work/a.bin" --input "b=$work/b_fortran.npy"
    shows "c f32 3x3: min 8, mean 8" 0 run "$work/open.onnx" --input "a=$work/a.bin" --input "b=$work/b.npy"
    shows "c f32 1x3: min 8, mean 8" 0 run "$work/open.onnx" --input "a=$work/a_row.bin" --input "b=$work/b.npy"
    fails 2 "c.raw has 36 bytes of elements, expected f32 of dims 3x4 for a" 0 run "$work/product.onnx" --input "a=$work/c.raw" --input "b=$work/b.npy"
    fails 2 "unknown option --saveEngine=x: docs/guides/trtexec.md lists" 0 build "$work/product.onnx" --saveEngine=x
    fails 2 "unknown option --warmUp=200, did you mean --warm-up: docs/guides/trtexec.md lists" 0 bench "$work/product.onnx" --warmUp=200
    fails 2 "unknown option --fp16: docs/guides/trtexec.md lists" 0 bench "$work/product.onnx" --fp16
    # y = x w, w [3, 3] with a default of ones.
    local defaults=$work/defaults.onnx
    cp "$corpus/input_with_default" "$defaults"
    npy "2, 3" '\x00\x00\x80\x3f' 6 >"$work/x.npy" # ones
    npy "3, 3" '\x00\x00\x00\x40' 9 >"$work/w.npy" # twos
    shows "inputs with a default" 0 inspect "$defaults"
    shows "y f32 2x3: min 3, mean 3" 0 run "$defaults" --input "x=$work/x.npy"
    shows "y f32 2x3: min 6, mean 6" 0 run "$defaults" --input "x=$work/x.npy" --input "w=$work/w.npy"
    shows "y f32 2x3: min 6, mean 6" 2 run "$defaults" --input "x=$work/x.npy" --input "w=$work/w.npy"
    shows "y f32 2x3: min 6, mean 6" 0 run "$defaults" --input "x=$work/x.npy" --value "w=$work/w.npy"
    shows "  w f32 3x3, random" 0 bench "$defaults" --shapes w:3x3 --duration 0 --warm-up 0 --iterations 1
    fails 2 "input w is given dims [3, 2], expected [3, 3] as in the model" 0 bench "$defaults" --shapes w:3x2
    # Dimensions of one name are one size for inputs that nobody gives any.
    local encoder=$source/tests/goldens/onnx/encoder/model.onnx
    for given in input_ids attention_mask; do
        start 0 bench "$encoder" --shapes $given:3x5 --duration 0 --warm-up 0 --iterations 1
        [ "$(grep -c '^  [a-z_]* i64 3x5, random$' "$work/out")" = 2 ] || complain "with --shapes $given:3x5 the other input is not 3x5: $(cat "$work/out")"
        ! grep -q "unknown dimensions" "$work/err" || complain "$(cat "$work/err")"
    done
    start 0 bench "$encoder" --dim batch=3 --duration 0 --warm-up 0 --iterations 1
    grep -q "input input_ids has unknown dims, using 3x1" "$work/err" || complain "no warning: $(cat "$work/err")"
    start 0 build "$encoder" --min-shapes input_ids:1x1 --shapes input_ids:2x8 --max-shapes input_ids:4x16 --min-shapes input_ids:5x5 \
        --max-shapes input_ids:9x9 -o "$work/tied.plan" --quiet
    shows "  attention_mask i64 ?x?, profile 0: 1x1, 2x8, 4x16, profile 1: 5x5, 9x9, 9x9" 0 inspect "$work/tied.plan"
    local apart="dimension sequence is 5 at position 1 of input input_ids and 6 at position 1 of input attention_mask: both are kept"
    local order="--shapes input_ids:3x5 --shapes attention_mask:3x6"
    for ranks in 0 2; do # the layer that cannot join the two refuses them
        start $ranks bench "$encoder" $order
        [ $code = 3 ] && grep -qF "$apart" "$work/err" && grep -qF "dims [3, 2, 5, 5] and [3, 1, 1, 6] do not broadcast" "$work/err" ||
            complain "dims of one name that differ on $ranks ranks: exit code $code: $(cat "$work/err")"
    done
    start 0 build "$encoder" --min-shapes input_ids:1x1,attention_mask:1x1 --max-shapes input_ids:4x16,attention_mask:5x16 -o "$work/apart.plan"
    grep -qF "profile 0 at its max dims: dimension batch is 4 at position 0 of input input_ids and 5 at position 0 of input attention_mask" "$work/err" ||
        complain "no warning of batch: $(cat "$work/err")"
    for ranks in 0 2; do
        [ $ranks = 0 ] || start 0 build "$encoder" --min-shapes input_ids:1x1 --max-shapes input_ids:9x9 --mesh tp=2 -o "$work/tied.plan" --quiet
        start $ranks bench "$work/tied.plan" $order --duration 0 --warm-up 0 --iterations 1
        [ $code = 2 ] && grep -qF "$apart" "$work/err" || complain "dims that contradict each other, of a plan on $ranks ranks: exit code $code: $(cat "$work/err")"
        shows "  attention_mask i64 3x5, random" $ranks bench "$work/tied.plan" --shapes input_ids:3x5 --duration 0 --warm-up 0 --iterations 1
        shows "  input_ids i64 3x5, random" $ranks bench "$work/tied.plan" --shapes attention_mask:3x5 --duration 0 --warm-up 0 --iterations 1
    done
    # A loop and branches in stages of their own, each as a whole.
    local many=$source/tests/goldens/onnx/control_many_weights
    for ranks in 0 2 3; do
        shows_near "1.19342 -1.90349 0.600694 0.418819 1.70561 1.11294 0.486727 0.0990345 ..." $ranks run "$many/model.onnx" --inputs "$many/test_data_set_3" \
            --mesh "pp=$((ranks > 0 ? ranks : 1))"
        shows "passes i64 scalar: min 28," $ranks run "$many/model.onnx" --inputs "$many/test_data_set_3" --mesh "pp=$((ranks > 0 ? ranks : 1))" \
            --weight-budget 20%
    done
    # Replicas of the first stage, which has no loop, share weights; those of the others fetch all for themselves.
    shows "passes i64 scalar: min 28," 6 run "$many/model.onnx" --inputs "$many/test_data_set_3" --mesh pp=3,dp=2 --weight-budget 20% --weight-sharing on
    local found=
    for rank in 0 1 2; do
        start 0 inspect "$many/model.onnx" --shapes x:4x16 --mesh pp=3 --ranks 3 --rank $rank --after final
        found+=" $(grep -cE '= (loop|end_loop)\(' "$work/out") $(grep -cE '= (if|end_if|merge)\(' "$work/out")"
    done
    [ "$found" = " 2 0 0 5 0 0" ] || complain "loop and branches are not in a stage each:$found"
    fails 2 "loops and branches are not cut" 0 inspect "$many/model.onnx" --shapes x:4x16 --mesh pp=60 --ranks 60 --after final
    fails 3 'node 0 (Add, opset 17): its input "nope" is not defined' 0 run "$work/missing.onnx"
    fails 2 "input b is missing (give --input b=FILE)" 0 run "$work/product.onnx" --input "a=$work/a.npy"
    fails 2 "--input: the model has no input \"z\", its inputs are: a, b" 0 run "$work/product.onnx" --input "z=$work/a.npy"
    fails 2 "input a is given dims [3, 5], expected [3, 4] as in the model" 0 bench "$work/product.onnx" --shapes a:3x5
    fails 2 "input a is given dims [12], expected [3, 4] as in the model" 0 bench "$work/product.onnx" --shapes a:12
    fails 2 "input input_ids is given dims [3, 5, 1], expected [3, sequence] as in the model" 0 bench "$encoder" --shapes input_ids:3x5x1 --dim batch=3 --quiet
    fails 2 'expected NAME=FILE with an output of the model, its outputs are: y, passes' 0 run "$many/model.onnx" --output z=a.npy --inputs "$many/test_data_set_3"
    cp "$corpus/hostile_output_twice" "$work/twice.onnx"
    fails 3 'twice.onnx: output "y" is listed twice' 0 run "$work/twice.onnx"
    for path in none.plan2 product.plan2; do
        cp "$work/product.onnx" "$work/product.plan2"
        fails 3 "(network files have names that end in .onnx or .plan)" 0 bench "$work/$path"
    done
    # An opset that is not known yet is imported, with a warning.
    LC_ALL=C sed -z 's/\x10\x0d$/\x10\x1d/' "$work/product.onnx" >"$work/newer.onnx" # 13 becomes 29
    for command in "run --input a=$work/a.npy --input b=$work/b.npy" "bench --duration 0 --warm-up 0" "build -o $work/newer.plan" inspect; do
        # shellcheck disable=SC2086
        start 0 ${command%% *} "$work/newer.onnx" $(echo "$command " | cut -d' ' -f2-)
        [ $code = 0 ] && [ "$(grep -c "newer.onnx uses opset 29, newer than the newest supported, 28" "$work/err")" = 1 ] || complain "an opset of the future, $command: $code: $(cat "$work/err")"
    done
    grep -q "opset 29 is newer than 28, the newest supported" "$work/out" || complain "inspect says nothing of opset 29: $(cat "$work/out")"
    start 2 inspect "$work/newer.onnx" --json
    value opset_is_known false
    value newest_known_opset 28
    [ "$(grep -c "uses opset 29" "$work/err")" = 1 ] || complain "not one warning of two ranks: $(cat "$work/err")"
    start 0 bench "$work/newer.onnx" --duration 0 --warm-up 0 --quiet
    ! grep -q opset "$work/err" || complain "a warning though --quiet is given: $(cat "$work/err")"
    start 0 inspect "$work/product.onnx" --json
    value opset_is_known true
    ! grep -q opset "$work/err" || complain "a warning of a known opset: $(cat "$work/err")"
    npy "4, 4" '\x00\x00\x80\x3f' 12 >"$work/short.npy"
    fails 3 "short.npy has 48 bytes of elements, expected 64" 0 run "$work/product.onnx" --input "a=$work/short.npy"
    fails 3 "cannot open $work/none.onnx" 0 inspect "$work/none.onnx"
    start 0 inspect "$work/missing.onnx"
    [ $code = 3 ] || complain "inspect of a broken model: exit code $code"
    grep -q "1 issue$" "$work/out" || complain "inspect does not list the issue: $(tail -3 "$work/out")"
}

# DistCollective on two ranks, whose x is the rows (1, 2) twice: from the file, and from a plan of it. Rank 0's y is what is shown.
collectives() {
    local operation expected path
    npy "2, 2" '\x00\x00\x80\x3f\x00\x00\x00\x40' 2 >"$work/x.npy"
    for operation in "all_reduce 2x2: min 2, mean 3, max 4" "all_gather 4x2: min 1, mean 1.5, max 2" "broadcast 2x2: min 1, mean 1.5, max 2" \
        "reduce 2x2: min 1, mean 2.5, max 4" "reduce_scatter 1x2: min 1, mean 1.5, max 2" "all_to_all 2x2: min 1, mean 1.5, max 2" \
        "gather 4x2: min 1, mean 1.5, max 2" "scatter 1x2: min 1, mean 1.5, max 2"; do
        expected=${operation#* }
        operation=${operation%% *}
        cp "$corpus/collective_$operation" "$work/$operation.onnx"
        shows "host, 2 ranks" 0 build "$work/$operation.onnx" --mesh tp=2 -o "$work/collective.plan"
        for path in "$work/$operation.onnx" "$work/collective.plan"; do
            shows "y f32 $expected" 2 run "$path" --input "x=$work/x.npy"
        done
    done
    shows "y f32 2x2: min 1, mean 1.5, max 2" 0 run "$work/all_reduce.onnx" --input "x=$work/x.npy"
    fails 2 "scatter is for 2 ranks, the mesh has 1" 0 run "$work/scatter.onnx" --input "x=$work/x.npy"
    # A file for each rank, in a folder of its own: rank 0 gets what rank 1 has.
    mkdir -p "$work/0" "$work/1"
    cp "$corpus/collective_recv" "$work/0/net.onnx"
    cp "$corpus/collective_send" "$work/1/net.onnx"
    cp "$work/x.npy" "$work/0/x.npy"
    npy "2, 2" '\x00\x00\x40\x40' 4 >"$work/1/x.npy"
    local each=("$program" run net.onnx --input x=x.npy --output y=y.npy)
    ASAN_OPTIONS=$leaky timeout 600 "$mpirun" --bind-to none -np 1 -wdir "$work/0" "${each[@]}" : -np 1 -wdir "$work/1" "${each[@]}" \
        >"$work/out" 2>"$work/err" || complain "send and recv: $(head -3 "$work/err")"
    cmp -s "$work/0/y.npy" "$work/1/x.npy" || complain "what was received is not what was sent: $(head -3 "$work/out")"
    cp "$work/0/net.onnx" "$work/recv.onnx"
    fails 2 "recv of rank 1 has peer 1, expected another rank of the mesh" 2 run "$work/recv.onnx" --input "x=$work/x.npy"
}
