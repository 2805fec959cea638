#!/usr/bin/env bash
# Builds the release preset with its test programs and runs the tests.
#
#   make test                    everything
#   make test ROOM=serve         one room's test program (a folder of src/; several with commas)
#   make test ONLY=pattern       tests whose name holds the pattern, C++ and Python; with ROOM only that room's
#   tools/test.sh [--counts FILE]    what make calls; ROOM and ONLY are read from the environment
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
  exit 0
fi
export PATH="$PATH:$HOME/.cargo/bin"
cmake --preset release --log-level=WARNING -DTERN_WERROR="${TERN_WERROR:-OFF}" >/dev/null
targets=()
for room in $(tr ',' ' ' <<<"${ROOM:-}"); do
  [ -d "src/$room/tests" ] || {
    echo "make test: src/$room/tests is not there; rooms are the folders of src/" >&2
    exit 2
  }
  targets+=(--target "test_$room")
done
cmake --build --preset release -j "${JOBS:-$(nproc)}" "${targets[@]}"
exec .venv/bin/python tools/run_tests.py build/release ${ROOM:+--rooms "$ROOM"} ${ONLY:+--only "$ONLY"} "$@"
