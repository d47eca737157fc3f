#!/usr/bin/env bash
# The server's tests on GPUs: OpenAI's client, what operators rely on (lost ranks, replicas, sleep, limits), replies under load. Prints a table
# last; exits 1 if a file of tests failed.
#
#   tests/gpu/serve_gpu.sh PROGRAM MODEL RANKS [TEST...]      MODEL: the folder configs/models/kjv-7m; TEST: a file of tests/serve, or FILE:CLASS.CASE
#
# Needs python3 with the package of tests/serve/requirements.txt (PYTHON names another), LOG a folder for what they print, TIMEOUT the seconds that
# each file has (300). Of another MODEL only test_load:Load.test_batch_invariant, test_lost_ranks:LostRanks.test_killed and LostRanks.test_stopped,
# and test_sleep:Sleep.test_sleep can be run: the others know the text. With one rank three files at a time run side by side on the same GPU.
set -u

if [ $# -lt 3 ]; then
    sed -n '5p' "$0" | sed 's/^# */usage: /' >&2
    exit 2
fi
tests=$(cd "$(dirname "$0")/../serve" && pwd)
export TRIREME_PROGRAM=$1 TRIREME_MODEL=$2 TRIREME_RANKS=$3 TRIREME_BACKEND=${TRIREME_BACKEND:-cuda} PYTHONUNBUFFERED=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
shift 3
[ $# -gt 0 ] || set -- test_lost_ranks test_load test_operation test_client test_replicas test_sleep test_soak
log=${LOG:-$(mktemp -d)}
mkdir -p "$log"
rm -f "$log"/*.result

run() {
    local file=${1%%:*} cases='' name=${1//:/_} start=$SECONDS code
    [ "$file" = "$1" ] || cases=${1#*:}
    # shellcheck disable=SC2086
    timeout --kill-after=10 "${TIMEOUT:-300}" "${PYTHON:-python3}" "$tests/$file.py" -v $cases >"$log/$name.$TRIREME_RANKS.log" 2>&1
    code=$?
    [ $code = 0 ] || grep -vE '^\{|\.\.\. ok$' "$log/$name.$TRIREME_RANKS.log" | tail -n 60
    grep -E '^(of|[0-9]+ ranks|cuda|stopped)' "$log/$name.$TRIREME_RANKS.log"
    printf '%-40s %d ranks  %-12s %4d s  %s\n' "$1" "$TRIREME_RANKS" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" $((SECONDS - start)) \
        "$(grep -E '^Ran ' "$log/$name.$TRIREME_RANKS.log")" >"$log/$name.result"
}

for test in "$@"; do
    if [ "$TRIREME_RANKS" = 1 ]; then
        while [ "$(jobs -pr | wc -l)" -ge 3 ]; do wait -n; done
        run "$test" &
    else
        run "$test"
    fi
done
wait
cat "$log"/*.result
! grep -q FAILED "$log"/*.result
