#!/bin/bash
# Ranks that share tokens and cache, of which one stops answering or dies while it generates: the other ends in time.
# usage: lost_rank.sh TRIREME MODEL
program=$1
model=$2
# shellcheck source=/dev/null
. "$(dirname "$0")/../support/ports.sh"
failures=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# lose SIGNAL TEXT: sends the signal to rank 1 once rank 0 has begun to print; rank 0 must then end with 6 and the text.
lose() {
    local port rank pids=() code
    port=$(free_ports)
    rm -f "$folder"/?
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$program" run "$model" --prompt "In the beginning" \
            --max-tokens 900 --ignore-eos --mesh cp=2 --deadline 6 >"$folder/$rank" 2>&1 &
        pids+=($!)
    done
    for ((i = 0; i < 1200; i++)); do
        [ -s "$folder/0" ] && break
        sleep 0.1
    done
    kill "-$1" "${pids[1]}"
    local start=$SECONDS
    wait "${pids[0]}"
    code=$?
    local took=$((SECONDS - start))
    kill -KILL "${pids[1]}"
    wait
    if [ $code != 6 ] || ! grep -qF -- "$2" "$folder/0" || [ $took -gt 60 ]; then
        echo "$1: rank 0 has exit code $code after $took s, expected 6 and \"$2\""
        tail -n 3 "$folder/0" | sed 's/^/    /'
        failures=$((failures + 1))
    else
        echo "$1: ok, $took s"
    fi
} 2>/dev/null

lose STOP "rank 1 did not arrive within 6 s"
lose KILL "rank 1 closed its connection"
[ $failures = 0 ]
