# Ports for jobs without mpirun; sourced by scripts.
# shellcheck shell=bash

# Prints a port such that nobody listens at it or the next one, which the ranks meet at. Jobs that choose at the same time
# choose apart, and none of what the system gives out by itself (from 32768 on).
free_ports() {
    local port
    while true; do
        port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
        grep -qsiE "^ *[0-9]+: [0-9A-F]+:$(printf '(%04X|%04X)' $port $((port + 1))) " /proc/net/tcp /proc/net/tcp6 || break
    done
    echo $port
}
