#!/usr/bin/env bash
# Installs what make dist (and make image, make cuda-image) left in ${DIST:-dist} the way a user does, in places that have nothing
# else, and has each serve its model and answer. Ends with `N passed, N failed`.
#   tools/dist_check.sh [glibc|pip|archive|deb|image|cuda-image]...     all but cuda-image when none is named
# glibc: no symbol above GLIBC_2.28 in the archive; it starts in Debian 11, the oldest system that debootstrap has here
# pip: wheels in environments of the oldest Python from 3.9 on and the newest (PYTHONS="PATH..." names others). With
#      CUDA_EXTRA=1 also the extra cuda, with NVIDIA's wheel from an index: cuBLASLt must be found without activation
# archive: ./install below a prefix, then --remove
# deb: apt-get in a bare Debian 12
# image, cuda-image: FILE.root that KEEP=1 tools/image.sh left, mounted read-only, not as root
# All but pip and archive need root and debootstrap.
set -uo pipefail
cd "$(dirname "$0")/.."
dist=$(realpath "${DIST:-dist}")
work=$(mktemp -d)
trap 'umount "$work"/*/proc 2>/dev/null; umount -R "$work/view" 2>/dev/null; rm -rf --one-file-system "$work"' EXIT
passed=0 failed=0
check() {
  local what=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok: $what"
  else
    failed=$((failed + 1))
    echo "FAILED: $what"
    tail -20 "$work/log" | sed 's/^/    /'
  fi
}

# serves PREFIX... -- COMMAND...: PREFIX... COMMAND... --port N is a server that becomes ready, answers and ends with status 0.
# PREFIX is how a command comes into the place that is tested.
serves() {
  local prefix=() port pid status
  while [ "$1" != -- ]; do
    prefix+=("$1")
    shift
  done
  shift
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "${prefix[@]}" "$@" --host 127.0.0.1 --port "$port" &
  pid=$!
  for _ in $(seq 600); do
    "${prefix[@]}" "${tern:-tern}" health --quiet --url "http://127.0.0.1:$port" && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.2
  done
  said=$("${prefix[@]}" "${tern:-tern}" chat --url "http://127.0.0.1:$port/v1" --temperature 0 -q "What is 348 + 275?")
  status=$?
  kill $pid
  wait $pid
  echo "server ended with $?, the client with $status and: $said"
  [ $status = 0 ] && [[ $said == *623* ]]
}

bare_debian() { [ -d "$work/$1" ] || debootstrap --variant=minbase "$1" "$work/$1" "$(mirror)"; }
mirror() {
  sed -n 's/^URIs: *\([^ ]*\/debian\/\{0,1\}\)$/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 1p | grep . ||
    echo http://deb.debian.org/debian
}
unpack() {
  [ -x "$work/archive/tern" ] || {
    mkdir -p "$work/archive"
    tar -C "$work/archive" --strip-components=1 -xf "$dist"/tern-*-linux-x86_64.tar.gz
  }
}

symbols() {
  unpack || return 1
  local late
  late=$(find "$work/archive" -type f \( -name '*.so*' -o -perm -u+x \) -exec readelf -VW {} + 2>/dev/null |
    grep -o 'Name: GLIBC_2\.[0-9.]*' | sort -uV | awk -F'[_.]' '$3 > 28')
  echo "later than GLIBC_2.28: ${late:-none}"
  [ -z "$late" ]
}
old_debian() {
  unpack && bare_debian bullseye && cp -r "$work/archive" "$work/bullseye/opt/tern" && mount -t proc proc "$work/bullseye/proc" &&
    tern=/opt/tern/tern serves chroot "$work/bullseye" -- /opt/tern/tern serve --model /opt/tern/model || return 1
  [ ! -f "$work/archive/libtern_cuda.so" ] || cuda_side_loads chroot "$work/bullseye" /opt/tern/tern
}
# The program comes to look for a driver, or, where there is a GPU, for the model: its CUDA side has been loaded.
cuda_side_loads() {
  local said
  said=$("$@" verify --device cuda /nowhere 2>&1)
  echo "$said"
  [[ $said == *"NVIDIA driver"* || $said == */nowhere* ]]
}
in_python() {
  "$1" -m venv "$work/venv-$2" && "$work/venv-$2/bin/pip" install -q --no-index --find-links "$dist" tern tern-fastdeploy &&
    tern=$work/venv-$2/bin/tern serves env -- "$work/venv-$2/bin/tern" serve \
      --model "$("$work/venv-$2/bin/python" -c 'from tern.process import demo_model as m; print(m())')" &&
    (cd / && "$work/venv-$2/bin/python" -c '
from fastdeploy import LLM
from tern.process import demo_model
with LLM(demo_model(), max_model_len=512) as llm:
    assert "623" in llm.chat([{"role": "user", "content": "What is 348 + 275?"}])[0].outputs.text')
}
# As where an environment is used by paths alone; no driver is needed, nor a GPU.
cuda_extra() {
  "$work/venv-$1/bin/pip" install -q --find-links "$dist" 'tern[cuda]' &&
    "$work/venv-$1/bin/python" -c '
import ctypes, glob, pathlib, tern
from tern.process import environment
folders = environment()["TERN_CUDA_LIBRARY"].split(":")
found = [f for folder in folders for f in glob.glob(folder + "/nvidia/cu13/lib/libcublasLt.so.13")]
print(found); ctypes.CDLL(found[0])
ctypes.CDLL(str(pathlib.Path(tern.__file__).parent / "bin/libtern_cuda.so"))' &&
    cuda_side_loads "$work/venv-$1/bin/tern"
}
installed() {
  unpack && "$work/archive/install" --prefix "$work/prefix" &&
    tern=$work/prefix/bin/tern serves env -- "$work/prefix/bin/tern" serve --model "$work/prefix/lib/tern/model" &&
    "$work/archive/install" --prefix "$work/prefix" --remove && [ -z "$(find "$work/prefix" -type f 2>/dev/null)" ]
}
in_debian() {
  bare_debian bookworm && cp "$dist"/tern_*_amd64.deb "$work/bookworm/tmp/" && mount -t proc proc "$work/bookworm/proc" &&
    cp --remove-destination /etc/resolv.conf "$work/bookworm/etc/" &&
    chroot "$work/bookworm" sh -c 'apt-get install -y --no-install-recommends /tmp/tern_*_amd64.deb' &&
    serves chroot "$work/bookworm" -- tern serve --model /usr/lib/tern/model
}
# As a container: nothing may be written but /tmp, and the process is not root.
in_image() {
  local root=$dist/$1.tar.root
  [ -d "$root" ] || { echo "there is no $root: KEEP=1 tools/image.sh" && return 1; }
  mkdir -p "$work/view" && mount --bind "$root" "$work/view" && mount -o remount,bind,ro "$work/view" &&
    mount -t tmpfs -o mode=1777 tmpfs "$work/view/tmp" && mount -t proc proc "$work/view/proc" &&
    mount --bind /dev "$work/view/dev" || return 1
  local inside=(chroot --userspec=10001:10001 "$work/view" env -i PATH=/usr/bin:/bin FD_LOG_DIR=/tmp/tern-log HOME=/tmp
    FD_MODEL_CACHE=/models)
  ! "${inside[@]}" touch /models/x 2>/dev/null && "${inside[@]}" start_server --help >/dev/null &&
    serves "${inside[@]}" -- tern serve --model /usr/lib/tern/model
  local status=$?
  [ "$1" = tern-image ] || cuda_side_loads "${inside[@]}" tern || status=1
  umount -R "$work/view"
  return $status
}

pythons() {
  local path
  for path in "$HOME"/.pyenv/versions/3.*/bin/python3 /usr/bin/python3.[0-9]* /usr/local/bin/python3.[0-9]*; do
    [[ ! -x $path || $path == *-config ]] || "$path" -c 'import sys, venv, ensurepip; v = sys.version_info[:2]; v >= (3, 9) and print(v[1], sys.executable)' 2>/dev/null
  done | sort -n | sed -n '1p;$p' | awk '{print $2}' | uniq
}

parts=("$@")
[ $# -gt 0 ] || parts=(glibc pip archive deb image)
for part in "${parts[@]}"; do
  case $part in
    glibc)
      check "no symbol above GLIBC_2.28" symbols
      check "the archive serves in Debian 11" old_debian
      ;;
    pip)
      number=0
      for python in ${PYTHONS:-$(pythons)}; do
        number=$((number + 1))
        check "wheels serve in $("$python" --version)" in_python "$python" $number
        [ "${CUDA_EXTRA:-}" != 1 ] || check "the extra cuda in $("$python" --version)" cuda_extra $number
      done
      ;;
    archive) check "the archive installs, serves and goes" installed ;;
    deb) check "the package serves in a bare Debian 12" in_debian ;;
    image | cuda-image) check "$part serves, read-only and not as root" in_image "tern-$part" ;;
    *)
      echo "tools/dist_check.sh: there is no part $part" >&2
      exit 2
      ;;
  esac
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
