#!/usr/bin/env bash
# Builds the FFmpeg libraries that `make dist` ships into build/ffmpeg-lgpl: Debian's source of the version installed here,
# under the LGPL (Debian's own packages are GPL builds), with decoders only: MP4, Matroska/WebM and AVI; H.264, H.265, VP8
# and VP9; no encoders, no network, no threads of other libraries. Needs dpkg-dev, nasm and Debian's mirrors; a few minutes
# once. Prints the folder; exit 1 with a line when it cannot be done (TERN_BUILD_FFMPEG=0: when it is not there already).
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$PWD/build/ffmpeg-lgpl
fail() {
  echo "build_ffmpeg: $*" >&2
  exit 1
}
version=$(dpkg-query -W -f='${Version}' libavcodec-dev 2>/dev/null) || fail "not a Debian system with libavcodec-dev"
if [ "$(cat "$prefix/version" 2>/dev/null)" = "$version" ]; then
  echo "$prefix"
  exit 0
fi
[ "${TERN_BUILD_FFMPEG:-1}" = 1 ] || fail "not built yet, and TERN_BUILD_FFMPEG=0 forbids it"
for tool in dpkg-source nasm make gcc; do command -v "$tool" >/dev/null || fail "needs $tool"; done

work=$PWD/build/ffmpeg-source
rm -rf "$work" "$prefix" && mkdir -p "$work/apt/lists/partial" "$work/apt/parts"
# A list of sources of its own, so that nothing of the system's changes.
sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/*.sources 2>/dev/null >"$work/apt/parts/source.sources" || true
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null >"$work/apt/parts/source.list" || true
apt=(apt-get -qq -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$work/apt/parts"
  -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o "APT::Sandbox::User=")
"${apt[@]}" update >&2 || fail "the list of sources cannot be had"
(cd "$work" && "${apt[@]}" source "ffmpeg=$version" >&2) || fail "no source of ffmpeg $version"

cd "$work"/ffmpeg-*/
./configure --prefix="$prefix" --disable-everything --disable-autodetect --disable-programs --disable-doc --disable-network \
  --disable-avdevice --disable-avfilter --disable-swresample --disable-debug --enable-shared --disable-static \
  --enable-demuxer=mov,matroska,avi --enable-decoder=h264,hevc,vp8,vp9 --enable-parser=h264,hevc,vp8,vp9 \
  --enable-bsf=vp9_superframe_split --extra-cflags='-fstack-protector-strong -D_FORTIFY_SOURCE=2' \
  --extra-ldflags='-Wl,-z,relro,-z,now' >&2
grep -q '^#define CONFIG_GPL 0' config.h || fail "the configuration is not LGPL"
nice make -j "${JOBS:-$(nproc)}" >&2
make install >&2
cp COPYING.LGPLv2.1 "$prefix/"
cd "$OLDPWD" && rm -rf "$work"
echo "$version" >"$prefix/version"
echo "$prefix"
