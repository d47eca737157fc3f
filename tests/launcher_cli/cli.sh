#!/bin/bash
# The built program from outside: what it prints, its exit codes, and one line for every failure.
# Chapters are in the files beside this one. usage: cli.sh CHAPTER PROGRAM MPIRUN JSON_VALUE
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
export TRIREME_DEADLINE=1000 # what only ends by it does not end in time
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

# start RANKS ARGUMENT...: runs the program on so many ranks, 0 without mpirun; leaves $code, $work/out, $work/err.
start() {
    local ranks=$1
    shift
    if [ "$ranks" = 0 ]; then
        timeout 600 "$program" "$@" >"$work/out" 2>"$work/err"
    else
        ASAN_OPTIONS=$leaky timeout 600 "$mpirun" --bind-to none -np "$ranks" "$program" "$@" >"$work/out" 2>"$work/err"
    fi
    code=$?
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

# shows_near NUMBERS RANKS ARGUMENT...: the program succeeds, and a line that it prints has just these numbers, each within
# 1e-4 of itself: the last digits are those of the processor's kernels.
shows_near() {
    local expected=$1
    shift
    start "$@" </dev/null
    [ $code = 0 ] || complain "exit code $code: $*: $(head -3 "$work/err")"
    awk -v expected="$expected" '
        BEGIN { n = split(expected, e, " ") }
        function size(x) { return x < 0 ? -x : x }
        function near(a, b) { return a == b || (a ~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ && size(a - b) <= 1e-4 * size(b)) }
        NF == n { all = 1; for (i = 1; i <= n; i++) all = all && near($i, e[i]); found = found || all }
        END { exit !found }' "$work/out" || complain "$*: nothing near \"$expected\" is in: $(head -5 "$work/out")"
}

# value PATH EXPECTED: of the JSON that the last program printed.
value() {
    local found
    found=$("$json_value" "$1" <"$work/out") || complain "no $1 in: $(head -c 300 "$work/out")"
    [ "$found" = "$2" ] || complain "$1 is \"$found\", expected \"$2\""
}

# fails CODE TEXT RANKS ARGUMENT...: the program fails with this code, and one line that has the text.
fails() {
    local expected=$1 text=$2 lines
    shift 2
    start "$@" </dev/null
    [ $code = "$expected" ] || complain "exit code $code, expected $expected: $*: $(head -3 "$work/err")"
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

for part in support/ports launcher_cli/{text,options,broken,ranks,onnx,compare,expect,quantize,quantize_methods,timeline}; do
    # shellcheck disable=SC1090
    . "$source/tests/$part.sh"
done

"case_$chapter"
[ $failures = 0 ] && echo "$chapter: ok"
exit $((failures > 0))
