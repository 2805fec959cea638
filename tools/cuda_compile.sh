#!/usr/bin/env bash
# Runs one compiler command and notes its seconds of CPU time (what it takes on a machine that does nothing else):
# tools/cuda_compile.sh LOG NAME COMMAND...
# LOG has one line per file, "seconds name"; an older line of the same name is replaced.
set -euo pipefail
log=$1 name=$2
shift 2
exec 3>&2
TIMEFORMAT='%U %S'
spent=$({ time "$@" >&3 2>&3; } 2>&1)
seconds=$(awk '{ printf "%.1f", $1 + $2 }' <<<"$spent")
(
  flock 9
  {
    grep -v " $name\$" "$log" 2>/dev/null || true
    echo "$seconds $name"
  } >"$log.new"
  mv "$log.new" "$log"
) 9>"$log.lock"
