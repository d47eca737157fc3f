#!/usr/bin/env bash
# Runs the GPU test programs of a build folder, or of a folder made by tools/bundle_gpu.sh, and prints a table of the results last.
#
#   tests/gpu/run.sh FOLDER [--ranks N] [--timeout SECONDS] [--memcheck] [--racecheck] [--only PATTERN] [--jobs N] [--log FOLDER]
#
# With --ranks 2 or more, the programs that work on several GPUs run under mpirun, one rank a GPU, and no others. With
# --memcheck or --racecheck each program runs again under compute-sanitizer, with ten times the time. With --jobs so many run
# side by side on the same GPU, and the longest of those under compute-sanitizer in parts; results come as they are. Over several
# ranks they run one by one: ranks that wait for each other on GPUs that take turns hardly go on. Exits 1 if anything failed; programs that find no GPU, or too few of them, are skipped (they exit 77).
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
jobs=1
tools=()
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) ranks=${2:?} && shift ;;
    --timeout) limit=${2:?} && shift ;;
    --only) only=${2:?} && shift ;;
    --jobs) jobs=${2:?} && shift ;;
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

# racecheck does not follow how some kernels of NVIDIA's libraries synchronize and reports them. Whether a log has nothing else: the
# program passed, and every race lies between two accesses of such kernels.
only_library_races() {
    grep -q 'PASSED' "$1" && ! grep -q 'FAILED' "$1" && grep -q 'Race reported' "$1" &&
        ! grep -E 'Race reported between|and (Read|Write) access at' "$1" | grep -qvE 'nvjet|xmma|cutlass|cublas|nccl' &&
        ! grep -E '^=+ (Error|Internal)' "$1" | grep -qv 'Race reported'
}

# Runs one program: name shown, seconds allowed, command. Its line of the table goes to a file beside its log.
run() {
    local name=$1 seconds=$2 start result code file
    shift 2
    start=$(date +%s.%N)
    file=$log/${name//[ ,\/]/_}
    timeout --kill-after=10 "$seconds" "$@" >"$file.log" 2>&1
    code=$?
    [ $code -eq 0 ] || tail -n 25 "$file.log"
    case $code in
    0) result=ok ;;
    99) only_library_races "$file.log" && result="ok, library" || result="FAILED (99)" ;;
    77) result=skipped ;;
    124 | 137) result="TIMEOUT" ;;
    *) result="FAILED ($code)" ;;
    esac
    printf '%-48s %-14s %8.1f\n' "$name" "$result" "$(echo "$(date +%s.%N) $start" | awk '{print $1 - $2}')" | tee "$file.result"
}

# The same, when fewer than --jobs run.
start() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    run "$@" &
}

# Into how many parts a program is cut.
parts_of() {
    case $jobs:$1 in
    1:*) echo 1 ;;
    *:kernels_gpu_kernels) echo 8 ;;
    *:attention_gpu_attention | *:llm_gpu_hf_goldens) echo 4 ;;
    *) echo 1 ;;
    esac
}

launch=()
if [ "$ranks" -gt 1 ]; then
    jobs=1
    launch=(mpirun --bind-to none -np "$ranks")
    if [ "$(id -u)" -eq 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
fi
export TRM_TEST_BACKEND=cuda # for programs that test either backend

rm -f "$log"/*.result
programs=()
mapfile -t either <"$(dirname "$0")/programs.txt" # tests of either backend
for program in "$folder"/tests/*gpu_* "${either[@]/#/$folder/tests/}"; do
    name=$(basename "$program")
    [ -f "$program" ] && [ -x "$program" ] || continue
    [[ -z $only || $name == *$only* ]] || continue
    [[ $ranks -eq 1 || $name =~ ^(collectives|parallel|partition|plan|plugin|offload|runtime|llm|scheduler)_(mpi|gpu)_ ]] || continue
    [[ $ranks -eq 1 || $name != plan_gpu_plan ]] || continue
    programs+=("$program")
done
[ ${#programs[@]} -gt 0 ] || { echo "$folder/tests has no GPU test program${only:+ with $only in its name}" >&2; exit 2; }

over=
[ "$ranks" -eq 1 ] || over=", $ranks ranks"

# Starts all programs, those in parts first: what their lines say behind the name, seconds allowed, command before theirs.
start_all() {
    local after=$1 seconds=$2 several program name parts part shown
    shift 2
    for several in 1 0; do
        for program in "${programs[@]}"; do
            name=$(basename "$program")
            parts=$(parts_of "$name")
            [ $((parts > 1)) -eq $several ] || continue
            for ((part = 0; part < parts; part++)); do
                shown=$name$over$after
                [ "$parts" -eq 1 ] || shown+=" $part/$parts"
                TRM_TEST_PART=$part/$parts start "$shown" "$seconds" ${launch[@]+"${launch[@]}"} "$@" "$program"
            done
        done
    done
}

start_all "" "$limit"
for tool in ${tools[@]+"${tools[@]}"}; do
    # Calls that fail are no finding: tests ask for what must be refused, and the library looks at every result.
    api=
    [ "$tool" = memcheck ] && api="--report-api-errors no"
    # shellcheck disable=SC2086
    TRM_TEST_BRIEF=1 start_all " $tool" $((limit * 10)) "$sanitizer" --tool "$tool" $api --error-exitcode 99 --print-limit 20
done
wait

printf '\n%-48s %-14s %8s\n' "program" "result" "seconds"
cat "$log"/*.result
! grep -qE ' (FAILED|TIMEOUT)' "$log"/*.result
