#!/usr/bin/env bash
# Runs every kernel test on this machine's GPU, from an unpacked gpu-pack or from build/cuda. Ends with
# "N passed, N failed"; the exit code is 0 only when tests ran and none failed. Arguments go to cuda_ops_test.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$here/cuda_ops_test" ] || here=$here/../build/cuda
folders=(--library "$here")
# Where Python keeps NVIDIA's wheels: cuBLASLt is found there when the system has none.
for site in $(python3 -c 'import site; print("\n".join(site.getsitepackages()))' 2>/dev/null); do
  folders+=(--library "$site")
done
cat "$here/COMMIT" 2>/dev/null
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
exec "$here/cuda_ops_test" "${folders[@]}" "$@"
