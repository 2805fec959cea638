#!/usr/bin/env bash
# Checks Tern on this machine's GPU, stage by stage; from an unpacked gpu-pack or a checkout with build/release and
# build/cuda. Needs python3 (standard library); stages `wide` and `bench` also PyTorch and transformers; `sanitize` also
# compute-sanitizer. Results of all calls for one commit are merged into one table.
#   tools/gpu_check.sh [STAGE...]      stages: tools/gpu_check.sh --help; none: all of them
# Ends with "N passed, N failed"; the status is 0 only when nothing failed and every stage named ran something.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/gpu_check" "$@"
