#!/usr/bin/env bash
# Builds a configured preset and says how far it is: on a terminal as ninja does, else a line now and then
# (tools/build_progress.py). Ends with the build's exit status.
#   tools/build.sh PRESET [TARGET...]     JOBS: how many compilers at once (default: one a core)
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
build=(cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}")
[ $# = 0 ] || build+=(--target "$@")
if [ ! -t 1 ]; then
  exec python3 tools/build_progress.py 20 "${build[@]}"
fi
status=0
NINJA_STATUS='[%f/%t, %e s] ' "${build[@]}" || status=$?
[ "$status" = 0 ] || echo "the build failed: exit status $status"
exit "$status"
