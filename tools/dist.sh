#!/usr/bin/env bash
# Packs dist/tern-VERSION-linux-x86_64.tar.gz: a folder that runs on any x86-64 Linux with glibc 2.36 or newer. Libraries
# other than glibc's own lie in lib/ beside the program, which finds them through $ORIGIN.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=build/release/tern
version=$("$binary" version | awk '{print $2}')
name=tern-$version-linux-x86_64
out=dist/$name
rm -rf "$out" && mkdir -p "$out/lib"
cp "$binary" "$out/tern"
ldd "$binary" | awk '$2 == "=>" {print $3}' | while read -r lib; do
  case "${lib##*/}" in
    libc.so*|libm.so*|libdl.so*|libpthread.so*|librt.so*|ld-linux*|libresolv.so*) ;;
    *) cp -L "$lib" "$out/lib/" ;;
  esac
done
strip --strip-unneeded "$out/tern" "$out"/lib/*.so*
patchelf --set-rpath '$ORIGIN/lib' "$out/tern"
for lib in "$out"/lib/*.so*; do patchelf --set-rpath '$ORIGIN' "$lib"; done
cp -r models/tern-demo-text "$out/model"
cp LICENSE README.md "$out/"
tar -C dist --sort=name --owner=0 --group=0 --numeric-owner -czf "dist/$name.tar.gz" "$name"
rm -rf "$out"
ls -l "dist/$name.tar.gz" | awk '{printf "%s  %.1f MB\n", $NF, $5 / 1e6}'
