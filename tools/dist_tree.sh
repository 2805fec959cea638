#!/usr/bin/env bash
# Makes a folder that runs on any x86-64 Linux with glibc 2.28 or newer: what `make dist` packs.
#   tools/dist_tree.sh FOLDER
# Libraries other than glibc's own lie in lib/ beside the programs, which find them through $ORIGIN; so do the decoder of videos
# (with an LGPL build of FFmpeg, docs/dependencies.md), the font of its time stamps, gRPC's side and, when it is built, the
# CUDA side.
# What the folder lacks is said at the end.
set -euo pipefail
[ $# = 1 ] || {
  sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
out=$(realpath -m "$1")
cd "$(dirname "$0")/.."
binary=build/release/tern
for built in "$binary" build/release/libtern_grpc.so build/release/tern-video-decoder; do
  [ -f "$built" ] || {
    echo "tools/dist_tree.sh: there is no $built; make build" >&2
    exit 1
  }
done
command -v patchelf >/dev/null || {
  echo "tools/dist_tree.sh: needs patchelf (tools/setup.sh installs it)" >&2
  exit 1
}
rm -rf "$out" && mkdir -p "$out/lib" "$out/licences"
lacks=() system=()

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
  echo "tools/dist_tree.sh: libcurl.so.4 is not installed; tools/setup.sh installs libcurl4-openssl-dev" >&2
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
  system=(--system 'libav*' --system 'libsw*')
  cp build/release/tern-video-decoder "$out/"
  ldd "$out/tern-video-decoder" | awk '/libseccomp/ {print $3}' | xargs -I{} cp -L {} "$out/lib/"
fi

cp /usr/share/fonts/truetype/roboto/unhinted/RobotoTTF/Roboto-Regular.ttf "$out/"
cp -L /usr/share/doc/fonts-roboto-unhinted/copyright "$out/licences/Roboto.txt"

gcc -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -Wl,-soname,libtern_old_glibc.so,-z,relro,-z,now \
  packaging/old_glibc.c -o "$out/lib/libtern_old_glibc.so"

strip --strip-unneeded "$out/tern" "$out/tern-video-decoder" "$out/libtern_grpc.so" "$out"/lib/*.so*
for program in "$out/tern" "$out/tern-video-decoder" "$out"/libtern_*.so; do patchelf --set-rpath '$ORIGIN/lib' "$program"; done
for lib in "$out"/lib/*.so*; do patchelf --set-rpath '$ORIGIN' "$lib"; done
python3 tools/lower_glibc.py "${system[@]}" "$out"
cp -r models/tern-demo-ocr "$out/model"
cp LICENSE README.md tools/download_model.py "$out/"
# PaddleNLP's commands: links, by whose names the program knows what is asked (docs/paddlenlp.md).
ln -s tern "$out/start_server"
ln -s tern "$out/stop_server"
# FastDeploy's command line: by this name the program has its commands.
ln -s tern "$out/fastdeploy"
mkdir -p "$out/share/man/man1"
"$binary" man-page >"$out/share/man/man1/tern.1"
for lack in "${lacks[@]}"; do echo "lacks $lack"; done
