# Ports for jobs without mpirun; sourced by scripts.
# shellcheck shell=bash

# Prints a port such that nobody listens at it or the next one, which the ranks meet at. Jobs that choose at the same time
# are processes apart and choose apart; none of what the system gives out by itself (from 32768 on).
free_ports() {
    local port n
    for ((n = BASHPID; ; n += 101)); do
        port=$((10000 + 2 * n % 22000))
        grep -qsiE "^ *[0-9]+: [0-9A-F]+:$(printf '(%04X|%04X)' $port $((port + 1))) " /proc/net/tcp /proc/net/tcp6 || break
    done
    echo $port
}
