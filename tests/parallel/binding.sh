#!/bin/bash
# The processors that mpirun leaves to a rank: where nobody asked for a binding those of mpirun, else those asked for.
# usage: binding.sh PROGRAM MPIRUN
program=$1
mpirun=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failures=0

allowed() {
    sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status
}

# expect PROCESSORS COMMAND...: the command prints them.
expect() {
    local wanted=$1 found
    shift
    found=$(timeout 120 "$@" 2>&1)
    if [ "$found" != "$wanted" ]; then
        echo "$*: may run on $found, expected $wanted"
        failures=$((failures + 1))
    fi
}

all=$(allowed)
first=${all%%[-,]*}
core=$("$mpirun" --bind-to core -np 1 sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
expect "$all" "$mpirun" -np 1 "$program"
expect "$all" "$mpirun" -np 1 sh -c '"$0"; exit $?' "$program"
expect "$all" "$mpirun" --bind-to none -np 1 "$program"
expect "$core" "$mpirun" --bind-to core -np 1 "$program"
expect "$first" taskset -c "$first" "$mpirun" -np 1 "$program"
[ $failures = 0 ]
