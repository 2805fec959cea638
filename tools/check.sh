#!/usr/bin/env bash
# What CI holds besides the tests: format, sizes, include directions, clippy, symbols that nothing needs, benchmarks that still
# compile, and the tests under sanitizers at -O1 (warnings are errors in the release build; gcc 12 adds false ones here):
# address + undefined over the host rooms, thread over base, content, engine, serve.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
COUNTS=${COUNTS:-}
passed=0 failed=0
step() { # step NAME COMMAND...: one check, one line
  local name=$1 begin=$SECONDS
  shift
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
    printf 'ok   %-40s %4d s\n' "$name" $((SECONDS - begin))
  else
    failed=$((failed + 1))
    printf 'FAIL %-40s\n%s\n' "$name" "$(tail -n 60 <<<"$output" | sed 's/^/     | /')"
  fi
}
sanitized() { # sanitized PRESET ROOMS
  local preset=$1 rooms=$2
  cmake --preset "$preset" -DTERN_WERROR=OFF --log-level=WARNING >/dev/null || return 1
  local targets=()
  for room in ${rooms//,/ }; do targets+=("test_$room"); done
  bash tools/build.sh "$preset" "${targets[@]}" || return 1
  # test_model alone computes for minutes.
  .venv/bin/python tools/run_tests.py "build/$preset" --rooms "$rooms" --no-python --timeout 1800
}
unused_symbols() { # of the release build, tests included: what a test calls need not be local
  cmake --preset release --log-level=WARNING >/dev/null && bash tools/build.sh release && python3 tools/check_unused.py
}
benchmarks() { # compiled, not run
  cmake --preset release -DTERN_BENCH=ON --log-level=WARNING >/dev/null && bash tools/build.sh release bench_all || return 1
  cmake --preset release -DTERN_BENCH=OFF --log-level=WARNING >/dev/null
}
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tools/tsan.supp"

step "format" bash tools/format.sh --check
step "include directions" python3 tools/check_includes.py
step "sizes" python3 tools/check_sizes.py
step "citations" python3 tools/check_citations.py
step "links in documents" python3 tools/check_links.py
step "readers of pipes" python3 tools/check_scripts.py
step "clippy" bash tools/clippy.sh
step "unused symbols" unused_symbols
step "benchmarks compile" benchmarks
step "address and undefined sanitizers" sanitized asan base,json,device,kernels,ops,cache,model,sample,sched,image,fetch,video,vision,content,engine,serve,app,client,bench,cli
step "thread sanitizer" sanitized tsan base,content,engine,serve
[ -n "$COUNTS" ] && printf '{"passed": %d, "failed": %d, "skipped": 0}' "$passed" "$failed" >"$COUNTS"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
