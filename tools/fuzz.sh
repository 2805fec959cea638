#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS (60) each with libFuzzer (clang). Findings are left in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
command -v clang++ >/dev/null || {
  echo "make fuzz needs clang: apt-get install clang libclang-rt-14-dev"
  exit 1
}
cmake --preset fuzz --log-level=WARNING >/dev/null
cmake --build --preset fuzz -j "${JOBS:-$(nproc)}" --target fuzz_all
mkdir -p build/fuzz/findings
passed=0 failed=0
for target in build/fuzz/tests/fuzz/fuzz_*; do
  [ -x "$target" ] && [ -f "$target" ] || continue
  name=${target##*/fuzz_}
  mkdir -p "build/fuzz/corpus/$name"
  if "$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=4096 -artifact_prefix="build/fuzz/findings/$name-" \
    "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"build/fuzz/$name.txt" 2>&1; then
    passed=$((passed + 1))
    echo "ok   $name $(grep -o 'DONE.*' "build/fuzz/$name.txt" | tail -1)"
  else
    failed=$((failed + 1))
    echo "FAIL $name"
    tail -n 30 "build/fuzz/$name.txt"
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
