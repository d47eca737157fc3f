#!/usr/bin/env bash
# Runs the GPU test programs of a build folder, or of a folder made by tools/bundle_gpu.sh, and prints a table of the results last.
#
#   tests/gpu/run.sh FOLDER [--ranks N] [--timeout SECONDS] [--memcheck] [--racecheck] [--only PATTERN] [--log FOLDER]
#
# With --ranks 2 or more, the programs that work on several GPUs run under mpirun, one rank a GPU, and no others. With
# --memcheck or --racecheck each program runs again under compute-sanitizer, with ten times the time. Exits 1 if anything
# failed; programs that find no GPU, or too few of them, are skipped (they exit 77).
set -u

usage() {
    sed -n '4p' "$0" | sed 's/^# */usage: /' >&2
    exit 2
}

[ $# -ge 1 ] || usage
folder=$1
shift
limit=120
ranks=1
only=
log=
tools=()
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) ranks=${2:?} && shift ;;
    --timeout) limit=${2:?} && shift ;;
    --only) only=${2:?} && shift ;;
    --log) log=${2:?} && shift ;;
    --memcheck) tools+=(memcheck) ;;
    --racecheck) tools+=(racecheck) ;;
    *) usage ;;
    esac
    shift
done

[ -d "$folder/tests" ] || { echo "$folder has no folder tests; expected a build folder" >&2; exit 2; }
[ -d "$folder/lib" ] && export LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
sanitizer=
if [ ${#tools[@]} -gt 0 ]; then
    sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null)
    [ -n "$sanitizer" ] || { echo "compute-sanitizer was not found" >&2; exit 2; }
fi
log=${log:-$(mktemp -d)}
mkdir -p "$log"

table=
failed=0

# racecheck does not follow how some kernels of NVIDIA's libraries synchronise and reports them. Whether a log has nothing else: the
# program passed, and every race lies between two accesses of such kernels.
only_library_races() {
    grep -q 'PASSED' "$1" && ! grep -q 'FAILED' "$1" && grep -q 'Race reported' "$1" &&
        ! grep -E 'Race reported between|and (Read|Write) access at' "$1" | grep -qvE 'nvjet|xmma|cutlass|cublas|nccl' &&
        ! grep -E '^=+ (Error|Internal)' "$1" | grep -qv 'Race reported'
}

# Runs one program: name shown, seconds allowed, command.
run() {
    local name=$1 seconds=$2 start result code file
    shift 2
    echo "== $name"
    start=$(date +%s.%N)
    file=$log/${name//[ ,\/]/_}.log
    timeout --kill-after=10 "$seconds" "$@" >"$file" 2>&1
    code=$?
    [ $code -eq 0 ] || tail -n 25 "$file"
    case $code in
    0) result=ok ;;
    99) only_library_races "$file" && result="ok, library" || { result="FAILED (99)" && failed=1; } ;;
    77) result=skipped ;;
    124 | 137) result="TIMEOUT" && failed=1 ;;
    *) result="FAILED ($code)" && failed=1 ;;
    esac
    table+=$(printf '%-48s %-14s %8.1f' "$name" "$result" "$(echo "$(date +%s.%N) $start" | awk '{print $1 - $2}')")$'\n'
}

launch=()
if [ "$ranks" -gt 1 ]; then
    launch=(mpirun --bind-to none -np "$ranks")
    if [ "$(id -u)" -eq 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
fi
export TRM_TEST_BACKEND=cuda # for programs that test either backend

found=0
for program in "$folder"/tests/*gpu_* "$folder"/tests/dist_mpi_generate; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    name=$(basename "$program")
    [[ -z $only || $name == *$only* ]] || continue
    [[ $ranks -eq 1 || $name == collectives_* || $name == dist_* ]] || continue
    found=1
    [ "$ranks" -eq 1 ] && shown=$name || shown="$name, $ranks ranks"
    run "$shown" "$limit" ${launch[@]+"${launch[@]}"} "$program"
    for tool in ${tools[@]+"${tools[@]}"}; do
        # Calls that fail are no finding: tests ask for what must be refused, and the library looks at every result.
        api=
        [ "$tool" = memcheck ] && api="--report-api-errors no"
        # shellcheck disable=SC2086
        TRM_TEST_BRIEF=1 run "$shown $tool" $((limit * 10)) ${launch[@]+"${launch[@]}"} \
            "$sanitizer" --tool "$tool" $api --error-exitcode 99 --print-limit 20 "$program"
    done
done
[ $found -eq 1 ] || { echo "$folder/tests has no GPU test program${only:+ with $only in its name}" >&2; exit 2; }

printf '\n%-48s %-14s %8s\n%s' "program" "result" "seconds" "$table"
exit $failed
