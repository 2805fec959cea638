#!/usr/bin/env bash
# Builds the release preset with every test program and runs all tests.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
cmake --preset release --log-level=WARNING -DTERN_WERROR="${TERN_WERROR:-OFF}" > /dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}"
exec .venv/bin/python tools/run_tests.py build/release "$@"
