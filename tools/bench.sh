#!/usr/bin/env bash
# Runs the benchmarks and prints their tables: kernels and ceilings, scheduler and engine, decode and prefill of published
# shapes with dummy weights, the HTTP server over the echo engine, start-up, downloads, the page, streams of three protocols,
# the Python package. Ratios are taken within the same run.
# RESULTS=FILE also appends a row of JSON per figure; tools/performance.py --merge FILE takes them into docs/performance.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
cmake --preset release --log-level=WARNING -DTERN_BENCH=ON >/dev/null
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target tern bench_all
export FD_LOG_DIR=${FD_LOG_DIR:-build/log}
echo "machine: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) cores; revision $(git rev-parse --short HEAD)"
only=${1:-}
if [ -n "${RESULTS:-}" ]; then
  TERN_RESULTS=$(realpath "$RESULTS")
  export TERN_RESULTS
  eval "$(python3 tools/gpu_check/rows.py env)"
fi
paced_http() { # paced_http PATH: plainly, with parsers and over TLS in turns; rows are the medians
  local turns more
  turns=$(mktemp)
  for _ in 1 2 3 4 5; do
    for more in "--parsers 0" "--parsers 1" "--tls 1"; do
      # shellcheck disable=SC2086 # a flag and its value
      TERN_RESULTS=${RESULTS:+$turns} "$1" --seconds 6 --step-us 10000 $more || return 1
    done
  done
  [ -z "${RESULTS:-}" ] || python3 tools/gpu_check/rows.py median "$turns"
  rm -f "$turns"
}
program() { # program PATH: runs a benchmark; those over Google Benchmark leave their rows through a file
  case "$1" in
    *_engine | *_sched | *_media)
      [ -n "${RESULTS:-}" ] || {
        "$1"
        return
      }
      local out
      out=$(mktemp)
      "$1" --benchmark_out="$out" --benchmark_out_format=json
      python3 tools/gpu_check/rows.py google "$out" "${1##*/}"
      rm -f "$out"
      ;;
    *_http) "$1" && paced_http "$1" ;;
    *) "$1" ;;
  esac
}
offline() { # offline ARGUMENTS...: tern bench, as a table or as a row
  if [ -n "${RESULTS:-}" ]; then
    build/release/tern bench "$@" --json | python3 tools/gpu_check/rows.py tern tern bench "$@"
  else
    build/release/tern bench "$@"
  fi
}
section() {
  [ -z "$only" ] || [[ "$1" == *"$only"* ]] || return 1
  printf '\n== %s\n' "$1"
}
for file in build/release/bench/bench_*; do
  [ -f "$file" ] && [ -x "$file" ] && section "${file##*/bench_}" && program "$file"
done
for shape in qwen3-0.6b ernie-4.5-0.3b; do
  section "decode $shape" && offline decode --model "bench/shapes/$shape" --load-choices dummy
  section "prefill $shape" && offline prefill --model "bench/shapes/$shape" --load-choices dummy --tokens 1024
done
if section "pictures beside Pillow and NumPy"; then
  .venv/bin/python -c 'import numpy, PIL' 2>/dev/null || .venv/bin/python -m pip install -q --disable-pip-version-check numpy pillow==12.3.0
  .venv/bin/python bench/media_compare.py build/release/bench/bench_media
fi
if section "masks of guided decoding"; then
  if [ -f "${TERN_SHARED_DATA:-../shared}/data/structured/maskbench_sample.jsonl" ]; then
    (cd rust/textkit && CARGO_TARGET_DIR=../../build/rust cargo test -q --release --test masks -- --ignored --nocapture) |
      tee build/masks.txt
    [ -z "${RESULTS:-}" ] || python3 tools/gpu_check/rows.py masks "make bench SECTION=masks" <build/masks.txt
  else
    echo "skipped: needs data/structured/maskbench_sample.jsonl in the folder that TERN_SHARED_DATA names"
  fi
fi
section "startup" && python3 bench/startup.py
section "downloads" && python3 bench/hub_download.py
if section "page"; then
  if .venv/bin/python -c 'import sys; sys.path.insert(0, "tests/page"); import browser; sys.exit(not browser.find_chromium())'; then
    .venv/bin/python bench/page_paint.py
  else
    echo "skipped: no Chromium"
  fi
fi
if section "streams of three protocols"; then
  .venv/bin/python -c 'import tritonclient.grpc' 2>/dev/null || .venv/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt
  .venv/bin/python bench/paddlenlp_streams.py
fi
if section "python package"; then
  .venv/bin/python -c 'import numpy, PIL' 2>/dev/null || .venv/bin/python -m pip install -q --disable-pip-version-check numpy pillow==12.3.0
  .venv/bin/python bench/python_rows.py
fi
exit 0
