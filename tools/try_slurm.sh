#!/bin/bash
# Starts ranks and a server under a Slurm of one node, which this script configures, starts and stops. Needs slurm-wlm and
# munge, as root: apt-get install slurm-wlm munge. CTest does not run it.
# usage: tools/try_slurm.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-build/host-only/trireme}")
model=$PWD/configs/models/kjv-7m
node=$(hostname -s)
work=$(mktemp -d)
export SLURM_CONF=$work/slurm.conf
expected=" God created the heaven and the"
failures=0

complain() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

stop() {
    local name id i
    for name in slurmd slurmctld munged; do
        id=$(cat "$work/$name.pid" 2>/dev/null) && kill "$id" || continue
        for ((i = 0; i < 100; i++)); do
            kill -0 "$id" 2>/dev/null || break
            sleep 0.1
        done
    done
    if [ $failures -gt 0 ]; then
        echo "logs are in $work" >&2
    else
        rm -rf "$work"
    fi
}
trap stop EXIT

mkdir "$work/state" "$work/spool"
head -c 1024 /dev/urandom >"$work/key"
chmod 400 "$work/key"
cat >"$work/slurm.conf" <<END
ClusterName=one
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$work/munged.socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
munged --force --socket="$work/munged.socket" --key-file="$work/key" --pid-file="$work/munged.pid" \
    --log-file="$work/munged.log" --seed-file="$work/munged.seed" 2>"$work/munged.err"
slurmctld -i
slurmd
for ((i = 0; i < 300; i++)); do
    [ "$(sinfo -h -o %t 2>"$work/sinfo.err")" != idle ] || break
    sleep 0.1
done

# runs NAME SRUN-ARGUMENT...: the step prints the text.
runs() {
    local name=$1 code=0
    shift
    timeout 120 srun --overcommit "$@" "$program" run "$model" -p "In the beginning" -n 6 -q >"$work/out" 2>"$work/err" || code=$?
    [ "$code $(cat "$work/out")" = "0 $expected" ] || complain "$name: exit code $code: $(cat "$work/out" "$work/err")"
    echo "$name: done"
}

runs "srun" -n2
runs "one rank" -n1
runs "srun --mpi=pmi2" --mpi=pmi2 -n2
if srun --mpi=list 2>&1 | grep -q pmix; then
    runs "srun --mpi=pmix" --mpi=pmix -n2
fi
TRIREME_PORT=23456 TRIREME_SECRET=secret runs "srun with TRIREME_PORT and TRIREME_SECRET" -n2
MASTER_ADDR=$node MASTER_PORT=23456 runs "srun with MASTER_ADDR and MASTER_PORT" -n2

# A killed rank is named by the other one.
for victim in 1 0; do
    rm -f "$work/out"
    # shellcheck disable=SC2016
    timeout 300 srun --overcommit -n2 sh -c 'echo $$ >"$0.$SLURM_PROCID"; exec "$@"' "$work/pid" \
        "$program" run "$model" -p "In the beginning" -n 100000 --ignore-eos >"$work/out" 2>"$work/err" &
    job=$!
    for ((i = 0; i < 600; i++)); do
        [ ! -s "$work/out" ] || break
        sleep 0.1
    done
    kill -9 "$(cat "$work/pid.$victim")"
    code=0
    wait $job || code=$?
    [ $code != 0 ] && grep -q "^trireme: .*rank $victim" "$work/err" ||
        complain "rank $victim was killed: exit code $code: $(tail -9 "$work/err")"
    echo "killed rank $victim: done"
done

# The server in a batch script starts its ranks itself.
cat >"$work/serve.sbatch" <<END
#!/bin/bash
export PATH=$(dirname "$program"):\$PATH OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
trireme serve $model --backend host --ranks 2 --port 18765 &
trap 'kill -TERM \$!' TERM
wait \$! || wait \$!
END
job=$(sbatch --parsable -n2 --overcommit -o "$work/serve.out" "$work/serve.sbatch")
for ((i = 0; i < 600; i++)); do
    grep -q 'ready after' "$work/serve.out" 2>/dev/null && break
    sleep 0.1
done
answer=$(curl -s -m 60 http://127.0.0.1:18765/v1/completions -H 'Content-Type: application/json' \
    -d '{"model": "kjv-7m", "prompt": "In the beginning", "max_tokens": 6}') || true
case $answer in
*"$expected"*) ;;
*) complain "serve under sbatch: $answer $(cat "$work/serve.out")" ;;
esac
scancel --signal=TERM --batch "$job"
for ((i = 0; i < 300; i++)); do
    [ -n "$(squeue -h -j "$job" 2>/dev/null)" ] || break
    sleep 0.1
done
[ -z "$(squeue -h -j "$job" 2>/dev/null)" ] || complain "serve under sbatch did not end: $(cat "$work/serve.out")"
echo "serve under sbatch: done"
exit $((failures > 0))
