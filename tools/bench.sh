#!/usr/bin/env bash
# Runs the benchmarks and prints their tables: kernels and ceilings, scheduler and engine, decode and prefill of published
# shapes with dummy weights, the HTTP server over the echo engine, start-up. Ratios are taken within the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
cmake --preset release --log-level=WARNING -DTERN_BENCH=ON >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target tern bench_all
export FD_LOG_DIR=${FD_LOG_DIR:-build/log}
echo "machine: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) cores; revision $(git rev-parse --short HEAD)"
only=${1:-}
section() {
  [ -z "$only" ] || [[ "$1" == *"$only"* ]] || return 1
  printf '\n== %s\n' "$1"
}
for program in build/release/bench/bench_*; do
  [ -f "$program" ] && [ -x "$program" ] && section "${program##*/bench_}" && "$program"
done
for shape in qwen3-0.6b ernie-4.5-0.3b; do
  section "decode $shape" && build/release/tern bench decode --model "bench/shapes/$shape" --load-choices dummy
  section "prefill $shape" && build/release/tern bench prefill --model "bench/shapes/$shape" --load-choices dummy --tokens 1024
done
if section "pictures beside Pillow and NumPy"; then
  .venv/bin/python -c 'import numpy, PIL' 2>/dev/null || .venv/bin/python -m pip install -q --disable-pip-version-check numpy pillow==12.3.0
  .venv/bin/python bench/media_compare.py build/release/bench/bench_media
fi
section "startup" && python3 bench/startup.py
exit 0
