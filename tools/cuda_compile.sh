#!/usr/bin/env bash
# Runs one compiler command and notes its seconds: tools/cuda_compile.sh LOG NAME COMMAND...
# LOG has one line per file, "seconds name"; an older line of the same name is replaced.
set -euo pipefail
log=$1 name=$2
shift 2
begin=$(date +%s.%N)
"$@"
seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
(
  flock 9
  { grep -v " $name\$" "$log" 2>/dev/null || true; echo "$seconds $name"; } > "$log.new"
  mv "$log.new" "$log"
) 9> "$log.lock"
