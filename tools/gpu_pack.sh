#!/usr/bin/env bash
# Packs what a GPU machine needs to run and check this build: the program with its libraries, the CUDA side for one
# architecture, the tests of all ops, and the stages of tools/gpu_check.sh; all of it stripped. Reference cases are made
# on that machine, or named by TERN_CHECK_DATA. Result: dist/gpu-pack-ARCH.tar.xz, at most 24 MiB.
#   tools/gpu_pack.sh [90|80|86|89]     TERN=build/release/tern must be built (make build)
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${1:-90}
tern=${TERN:-build/release/tern}
build=build/cuda-pack
home=$(tools/cuda_toolchain.sh)
[ -x "$tern" ] || {
  echo "tools/gpu_pack.sh: there is no $tern; make build" >&2
  exit 1
}
# The portable files for exactly this architecture: from 9.0 on they have the waits of dependent launches.
portable="arch=compute_$arch,code=sm_$arch"
hopper="arch=compute_90a,code=sm_90a"
cmake -S src/cuda -B "$build" -G Ninja -DTERN_CUDA_HOME="$home" -DTERN_CUDA_PORTABLE="$portable" \
  -DTERN_CUDA_HOPPER="$hopper" -DTERN_CUDA_COMPRESS=OFF >/dev/null
cmake --build "$build" --target tern_cuda cuda_ops_test
folder=$build/gpu-pack
rm -rf "$folder"
mkdir -p "$folder/lib" dist
cp "$build/libtern_cuda.so" "$build/cuda_ops_test" "$tern" "$folder/"
[ ! -x "${tern%/*}/tern-video-decoder" ] || cp "${tern%/*}/tern-video-decoder" "$folder/"
# The program's libraries, but glibc's and the compiler's: a GPU machine has those, and often newer ones.
ldd "$tern" | awk '$2 == "=>" {print $3}' | while read -r lib; do
  case "${lib##*/}" in
    libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | ld-linux* | libresolv.so* | libstdc++* | libgcc_s*) ;;
    *) cp -Ln "$lib" "$folder/lib/" ;;
  esac
done
find "$folder" -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
patchelf --set-rpath '$ORIGIN/lib' "$folder/tern"
for lib in "$folder"/lib/*; do patchelf --set-rpath '$ORIGIN' "$lib"; done
# Both sides must come from one source: a program that refuses its library is not packed.
said=$("$folder/tern" verify --device cuda /nowhere 2>&1) || true
if [[ $said == *"another build"* ]]; then
  echo "tools/gpu_pack.sh: $tern and the CUDA side are of different builds; make build, then again" >&2
  exit 1
fi
cp tools/gpu_check.sh tools/golden/make_golden.py "$folder/"
cp -r tools/gpu_check "$folder/"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
[ ! -d tests/data/golden_s ] || {
  mkdir -p "$folder/tests/data"
  cp -r tests/data/golden_s "$folder/tests/data/"
}
mkdir -p "$folder/bench" && cp -r bench/shapes "$folder/bench/"
git rev-parse HEAD >"$folder/COMMIT" 2>/dev/null || echo unknown >"$folder/COMMIT"
pack=dist/gpu-pack-$arch.tar.xz
tar -C "$build" -cf - gpu-pack | xz --x86 --lzma2=preset=9 >"$pack"
bytes=$(stat -c %s "$pack")
echo "$pack: $bytes bytes"
[ "$bytes" -le $((24 << 20)) ] || {
  echo "tools/gpu_pack.sh: the pack is larger than 24 MiB" >&2
  exit 1
}
