#!/usr/bin/env bash
# Packs ${DIST:-dist}/tern-VERSION-linux-x86_64.tar.gz: a folder that runs on any x86-64 Linux with glibc 2.36 or newer. Libraries
# other than glibc's own lie in lib/ beside the programs, which find them through $ORIGIN; so do the decoder of videos
# (with an LGPL build of FFmpeg, docs/dependencies.md), the font of its time stamps, gRPC's side and, when it is built, the
# CUDA side.
# What the folder lacks is said at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=build/release/tern
version=$("$binary" version | awk '{print $2}')
name=tern-$version-linux-x86_64
dist=${DIST:-dist}
out=$dist/$name
rm -rf "$out" && mkdir -p "$out/lib" "$out/licences"
lacks=()

# Copies the libraries that a program or library needs, but glibc's own.
copy_libraries() {
  ldd "$1" | awk '$2 == "=>" {print $3}' | while read -r lib; do
    case "${lib##*/}" in
      libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | ld-linux* | libresolv.so*) ;;
      *) cp -Ln "$lib" "$out/lib/" ;;
    esac
  done
}

cp "$binary" "$out/tern"
copy_libraries "$binary"
# libtiff names libjbig, which is under the GPL, for a compression that is refused before libtiff sees a file.
gcc -O2 -shared -fPIC -Wl,-soname,libjbig.so.0 -o "$out/lib/libjbig.so.0.new" tools/no_jbig.c
mv -f "$out/lib/libjbig.so.0.new" "$out/lib/libjbig.so.0"

# Loaded when a gRPC port is asked for; its libraries are told from the program's by ldd of its own.
cp build/release/libtern_grpc.so "$out/"
copy_libraries "$out/libtern_grpc.so"

# The CUDA side, when make cuda has built it from the same source: found beside the program.
if [ -f build/cuda/libtern_cuda.so ]; then
  cp build/cuda/libtern_cuda.so "$out/"
  said=$("$out/tern" verify --device cuda /nowhere 2>&1) || true
  if [[ $said == *"another build"* ]]; then
    lacks+=("the CUDA side: build/cuda is of another build than the program (make cuda, then make dist)")
    rm "$out/libtern_cuda.so"
  else
    strip --strip-unneeded "$out/libtern_cuda.so"
  fi
else
  lacks+=("the CUDA side: it is not built (make cuda, then make dist)")
fi

# Loaded when the first URL is fetched, so ldd does not name it.
curl=$(ldconfig -p | awk '/libcurl\.so\.4 .*x86-64/ && path == "" {path = $NF} END {print path}')
[ -n "$curl" ] || {
  echo "tools/dist.sh: libcurl.so.4 is not installed" >&2
  exit 1
}
cp -L "$curl" "$out/lib/libcurl.so.4"
copy_libraries "$curl"

if ffmpeg=$(tools/build_ffmpeg.sh 2>build/ffmpeg-lgpl.log); then
  read -ra flags <<<"$(PKG_CONFIG_PATH=$ffmpeg/lib/pkgconfig pkg-config --cflags --libs libavformat libavcodec libswscale libavutil)"
  g++ -std=c++20 -O2 -fPIE -pie -fstack-protector-strong -Isrc src/video/main/*.cc -o "$out/tern-video-decoder" \
    "${flags[@]}" -lseccomp -Wl,-z,relro,-z,now
  LD_LIBRARY_PATH=$ffmpeg/lib copy_libraries "$out/tern-video-decoder"
  cp "$ffmpeg/COPYING.LGPLv2.1" "$out/licences/FFmpeg-LGPL-2.1.txt"
  echo "Debian source package ffmpeg $(cat "$ffmpeg/version"), built by tools/build_ffmpeg.sh of Tern's source." \
    >"$out/licences/FFmpeg-source.txt"
else
  lacks+=("FFmpeg, so that videos need the target system's: $(tail -1 build/ffmpeg-lgpl.log)")
  cp build/release/tern-video-decoder "$out/"
  ldd "$out/tern-video-decoder" | awk '/libseccomp/ {print $3}' | xargs -I{} cp -L {} "$out/lib/"
fi

cp /usr/share/fonts/truetype/roboto/unhinted/RobotoTTF/Roboto-Regular.ttf "$out/"
cp -L /usr/share/doc/fonts-roboto-unhinted/copyright "$out/licences/Roboto.txt"

strip --strip-unneeded "$out/tern" "$out/tern-video-decoder" "$out/libtern_grpc.so" "$out"/lib/*.so*
for program in tern tern-video-decoder libtern_grpc.so; do patchelf --set-rpath '$ORIGIN/lib' "$out/$program"; done
for lib in "$out"/lib/*.so*; do patchelf --set-rpath '$ORIGIN' "$lib"; done
cp -r models/tern-demo-ocr "$out/model"
cp LICENSE README.md "$out/"
# PaddleNLP's commands: links, by whose names the program knows what is asked (docs/paddlenlp.md).
ln -s tern "$out/start_server"
ln -s tern "$out/stop_server"
cp tools/download_model.py "$out/"
# FastDeploy's command line: by this name the program has its commands.
ln -s tern "$out/fastdeploy"
mkdir -p "$out/share/man/man1"
"$binary" man-page >"$out/share/man/man1/tern.1"
tar -C "$dist" --sort=name --owner=0 --group=0 --numeric-owner -czf "$dist/$name.tar.gz" "$name"
rm -rf "$out"
ls -l "$dist/$name.tar.gz" | awk '{printf "%s  %.1f MB\n", $NF, $5 / 1e6}'
for lack in "${lacks[@]}"; do echo "lacks $lack"; done
