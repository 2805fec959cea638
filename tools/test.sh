#!/usr/bin/env bash
# Builds the release preset with its test programs and runs the tests.
#
#   make test                    everything
#   make test ROOM=serve         one room's test program (a folder of src/, or textkit; several with commas)
#   make test ONLY=pattern       tests whose name holds the pattern, C++ and Python; with ROOM only that room's
#   tools/test.sh [--counts FILE] [--jobs N]    what make calls; ROOM and ONLY are read from the environment
#
# As many suites run side by side as there are cores; what is built and what runs is said every 20 s.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
  exit 0
fi
export PATH="$PATH:$HOME/.cargo/bin"
cmake --preset release --log-level=WARNING -DTERN_UNITY=1000 -DTERN_WERROR="${TERN_WERROR:-OFF}" >/dev/null
targets=()
for room in $(tr ',' ' ' <<<"${ROOM:-}"); do
  [ -d "src/$room/tests" ] || [ "$room" = textkit ] || {
    echo "make test: src/$room/tests is not there; rooms are the folders of src/" >&2
    exit 2
  }
  targets+=("test_$room")
done
bash tools/build.sh release "${targets[@]}"
exec .venv/bin/python tools/run_tests.py build/release ${ROOM:+--rooms "$ROOM"} ${ONLY:+--only "$ONLY"} "$@"
