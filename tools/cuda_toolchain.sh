#!/usr/bin/env bash
# Finds or installs what compiles the CUDA side, and prints the folder that has bin/nvcc, include/ and lib/ (or lib64/).
# A system CUDA 12.8 or newer is taken when there is one (CUDA_HOME, /usr/local/cuda, nvcc on the PATH); otherwise the
# compiler's Python packages are installed, without dependencies, into build/cuda-toolchain.
#   tools/cuda_toolchain.sh            compiler, runtime and cuBLAS headers
#   tools/cuda_toolchain.sh --all      also NCCL and CUTLASS (Hopper files and communicators)
set -euo pipefail
cd "$(dirname "$0")/.."

base=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85
  nvidia-cuda-runtime==13.0.96 nvidia-cublas==13.1.0.3 nvidia-nvtx==13.0.85)
extra=(nvidia-nccl-cu13==2.28.9 nvidia-cutlass==4.2.0.0)

# "12.8" or newer?
new_enough() {
  local version
  version=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p') || return 1
  [ -n "$version" ] || return 1
  # shellcheck disable=SC2086
  set -- $version
  [ "$1" -gt 12 ] || { [ "$1" -eq 12 ] && [ "$2" -ge 8 ]; }
}

for home in "${CUDA_HOME:-}" /usr/local/cuda; do
  if [ -n "$home" ] && [ -x "$home/bin/nvcc" ] && new_enough "$home/bin/nvcc"; then
    echo "$home"
    exit 0
  fi
done
if on_path=$(command -v nvcc) && new_enough "$on_path"; then
  dirname "$(dirname "$(readlink -f "$on_path")")"
  exit 0
fi

target=build/cuda-toolchain/site
wanted=("${base[@]}")
[ "${1:-}" = --all ] && wanted+=("${extra[@]}")
missing=()
for package in "${wanted[@]}"; do
  folder=${package%%==*}
  [ -d "$target/${folder//-/_}-${package##*==}.dist-info" ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ] || ! ls "$target"/nvidia/*/bin/nvcc >/dev/null 2>&1; then
  # All in one go: pip replaces the shared folder "nvidia" as a whole, a later package alone would remove the others.
  [ -d "$target/nvidia_nccl_cu13-2.28.9.dist-info" ] && wanted=("${base[@]}" "${extra[@]}")
  rm -rf "$target"
  mkdir -p "$target"
  python=python3
  python3 -m pip --version >/dev/null 2>&1 || python=.venv/bin/python # Debian's python3 comes without pip
  "$python" -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action=ignore --target "$target" \
    "${wanted[@]}" >&2
fi
home=$(find "$PWD/$target/nvidia" -maxdepth 3 -path '*/bin/nvcc' -print -quit)
[ -n "$home" ] || {
  echo "tools/cuda_toolchain.sh: nvcc is not among the installed packages" >&2
  exit 1
}
dirname "$(dirname "$home")"
