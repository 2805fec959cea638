#!/usr/bin/env bash
# The CUDA side where there is no GPU: builds it within its limits and loads it, compares which kernels steps launch
# with the recording, builds the emulated kernels and runs one group of them. On a machine with a GPU the smallest shapes of its kernels run too. Everything else about GPUs:
# tools/gpu_check.sh.
set -uo pipefail
cd "$(dirname "$0")/.."
COUNTS=${COUNTS:-}
BUILD=build/cuda MOST_TIMES=440 MOST_FILE_TIMES=30 MOST_MIB=150
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
# Seconds of a compiler differ threefold between machines, so that the limits count in those of a small file, launch.cu.
# The log holds the last compilation of every file: also of those that were not compiled today. Where a cache had the
# small file there is nothing to count in.
within_limits() {
  local unit
  unit=$(awk '$2 == "launch.cu" { print $1 }' "$BUILD/cuda_seconds.txt")
  [ -n "$unit" ] || {
    echo "launch.cu was not compiled"
    return 1
  }
  awk -v unit="$unit" -v most="$MOST_FILE_TIMES" -v all="$MOST_TIMES" '
    unit < 1 { next }
    { sum += $1 / unit; if ($1 > most * unit) { print $2 " takes " $1 / unit " times launch.cu"; bad = 1 } }
    END { if (sum > all) { print "all files take " sum " times launch.cu"; bad = 1 }
          exit bad }' "$BUILD/cuda_seconds.txt" || return 1
  local mib
  mib=$(($(stat -c %s "$BUILD/libtern_cuda.so") >> 20))
  [ "$mib" -le "$MOST_MIB" ] || {
    echo "libtern_cuda.so has $mib MiB"
    return 1
  }
}
# Both sides agree about their layouts, and a missing driver is told in one line; 3: loaded, and no driver.
loads() {
  local said status=0
  said=$("$BUILD/cuda_ops_test" --library "$BUILD" --smallest --variant plain 2>&1) || status=$?
  [ "$status" = 0 ] && return 0
  echo "$said"
  [ "$status" = 3 ] && [ "$(wc -l <<<"$said")" = 1 ] && [ -n "$said" ]
}
# The program finds the library of its build tree, and says why it cannot serve from a GPU.
program_says_why() {
  local tern=build/release/tern said status=0 model
  model=$(find tests/data/golden -mindepth 1 -maxdepth 1 -type d | sort | sed -n 1p)
  said=$("$tern" verify "$model" --device cuda 2>&1) || status=$?
  [ "$status" = 0 ] && return 0 # there is a GPU
  echo "$said"
  grep -qi driver <<<"$said" && ! grep -qi "another build" <<<"$said"
}

# A group that is not there: one line that names those that are.
names_groups() {
  local said status=0
  said=$("$BUILD/cuda_ops_test" --only nothing 2>&1) || status=$?
  [ "$status" = 2 ] && [[ "$said" == "--only nothing: not one of device, "* ]]
}

step "CUDA toolchain" tools/cuda_toolchain.sh
begin=$SECONDS
# Portable files become code of 9.0 alone: that of 8.0 takes half of nvcc's time and comes with a plain `make cuda`.
step "CUDA build" make --no-print-directory cuda "PORTABLE=arch=compute_90,code=sm_90"
[ -f "$BUILD/cuda_seconds.txt" ] && sort -rn "$BUILD/cuda_seconds.txt" | awk '{ sum += $1; print "     | " $1 " s  " $2 } END { print "     | " sum " s  all of nvcc" }'
step "CUDA build: limits" within_limits
step "libtern_cuda.so loads" loads
step "cuda_ops_test names its groups" names_groups
[ -x build/release/tern ] && step "launches of steps" python3 src/cuda/tests/record/launches.py
step "emulated kernels: linear" make --no-print-directory cuda-emulate ONLY=linear
[ -x build/release/tern ] && step "tern --device cuda without a driver" program_says_why
printf 'make cuda took %d s\n' $((SECONDS - begin))
[ -n "$COUNTS" ] && printf '{"passed": %d, "failed": %d, "skipped": 0}' "$passed" "$failed" >"$COUNTS"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
