#!/usr/bin/env bash
# Packs what a GPU machine needs to test the CUDA side: the shared object for one architecture, stripped, the tests of
# all ops, and a script that runs them. Result: dist/gpu-pack-ARCH.tar.xz, at most 12 MiB.
#   tools/gpu_pack.sh [90|80|86|89]
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${1:-90}
build=build/cuda-pack
home=$(tools/cuda_toolchain.sh)
cmake -S src/cuda -B "$build" -G Ninja -DTERN_CUDA_HOME="$home" \
  -DTERN_CUDA_PORTABLE="arch=compute_$arch,code=sm_$arch" > /dev/null
cmake --build "$build" --target tern_cuda cuda_ops_test
folder=$build/gpu-pack
rm -rf "$folder"
mkdir -p "$folder" dist
cp "$build/libtern_cuda.so" "$build/cuda_ops_test" "$folder/"
strip "$folder/libtern_cuda.so" "$folder/cuda_ops_test"
cp tools/gpu_ops.sh "$folder/"
git rev-parse HEAD > "$folder/COMMIT" 2> /dev/null || echo unknown > "$folder/COMMIT"
pack=dist/gpu-pack-$arch.tar.xz
tar -C "$build" -cf - gpu-pack | xz -6 > "$pack"
bytes=$(stat -c %s "$pack")
echo "$pack: $bytes bytes"
[ "$bytes" -le $((12 << 20)) ] || { echo "tools/gpu_pack.sh: the pack is larger than 12 MiB" >&2; exit 1; }
