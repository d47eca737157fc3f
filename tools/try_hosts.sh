#!/bin/bash
# Starts two ranks on two hosts, which are network namespaces with names of their own: over TCP, and by mpirun with a hostfile.
# Needs root, ip and unshare. CTest does not run it.
# usage: tools/try_hosts.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-build/host-only/trireme}")
model=$PWD/configs/models/kjv-7m
work=$(mktemp -d)
name=trireme-$$
expected=" God created the heaven and the"
failures=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

complain() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

stop() {
    ip netns del "$name-0" || true
    ip netns del "$name-1" || true
    rm -rf "$work"
}
trap stop EXIT

# on HOST COMMAND...: in place of this process.
on() {
    # shellcheck disable=SC2016
    exec ip netns exec "$name-$1" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$name-$1" "${@:2}"
}

ip netns add "$name-0"
ip netns add "$name-1"
ip link add eth0 netns "$name-0" type veth peer name eth0 netns "$name-1"
for host in 0 1; do
    ip -n "$name-$host" address add "10.77.0.$((host + 1))/24" dev eth0
    ip -n "$name-$host" link set eth0 up
    ip -n "$name-$host" link set lo up
done
export MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 TRIREME_SECRET=secret

# start TOKENS ARGUMENT...: a rank on each host.
start() {
    rm -f "$work"/out.*
    for host in 0 1; do
        RANK=$host WORLD_SIZE=2 on $host timeout 300 "$program" run "$model" -p "In the beginning" -n "$@" \
            >"$work/out.$host" 2>"$work/err.$host" </dev/null &
        ids[host]=$!
    done
}

await_text() {
    local i
    for ((i = 0; i < 600; i++)); do
        [ ! -s "$work/out.0" ] || return 0
        sleep 0.1
    done
    complain "no text came: $(cat "$work/err.0")"
}

# lost HOST OTHER: the rank on this host ends and names the other one.
lost() {
    local code=0
    wait "${ids[$1]}" || code=$?
    grep -q "^trireme: .*rank $2" "$work/err.$1" || code="$code, and does not name rank $2"
    [ "$code" = 6 ] || complain "rank $1: exit code $code: $(cat "$work/err.$1")"
}

start 6 -q
for host in 0 1; do
    wait "${ids[host]}" || complain "rank $host: exit code $?: $(cat "$work/err.$host")"
done
[ "$(cat "$work/out.0")" = "$expected" ] || complain "over TCP: $(cat "$work/out.0" "$work/err.0")"
echo "over TCP: done"

start 100000 --ignore-eos
await_text
pkill -9 -P "${ids[1]}"
lost 0 1
wait "${ids[1]}" 2>/dev/null || true
echo "killed rank: done"

start 100000 --ignore-eos --deadline 5
await_text
ip -n "$name-0" link set eth0 down
lost 0 1
lost 1 0
ip -n "$name-0" link set eth0 up
echo "cut cable: done"
unset MASTER_ADDR MASTER_PORT

printf '10.77.0.1 slots=1\n10.77.0.2 slots=1\n' >"$work/hosts"
cat >"$work/rsh" <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$((\${1##*.} - 1))
exec ip netns exec $name-\$host unshare --uts sh -c "hostname $name-\$host; \${*:2}"
END
chmod +x "$work/rsh"
(on 0 timeout 300 mpirun --mca plm_rsh_agent "$work/rsh" --hostfile "$work/hosts" --bind-to none -np 2 \
    "$program" run "$model" -p "In the beginning" -n 6 -q) >"$work/out" 2>"$work/err" || complain "mpirun: exit code $?"
[ "$(cat "$work/out")" = "$expected" ] || complain "mpirun: $(cat "$work/out" "$work/err")"
echo "mpirun --hostfile: done"
exit $((failures > 0))
