#!/usr/bin/env bash
# Makes the image of packaging/Dockerfile as an OCI archive, without Docker and without a registry: Debian's own packages take
# the base image's place (debootstrap), the Dockerfile's COPY and RUN lines are carried out in a chroot. As root.
#   tools/image.sh [FILE]           FILE: dist/tern-image.tar, for `docker load`, `podman load`, `skopeo copy oci-archive:FILE ...`
#   tools/image.sh --cuda [FILE]    of packaging/Dockerfile.cuda; FILE: dist/tern-cuda-image.tar
# The file system stays beside it (FILE.root) when KEEP=1. Says what the image weighs, and fails where that is too much. With
# RESULTS=FILE it leaves that as a row for docs/performance (tools/performance.py --merge FILE).
set -euo pipefail
cd "$(dirname "$0")/.."
dockerfile=packaging/Dockerfile name=tern-image
if [ "${1:-}" = --cuda ]; then
  dockerfile=packaging/Dockerfile.cuda name=tern-cuda-image
  shift
fi
file=${1:-${DIST:-dist}/$name.tar}
fail() {
  echo "tools/image.sh: $*" >&2
  exit 1
}
[ "$(id -u)" = 0 ] || fail "making a chroot needs root: sudo tools/image.sh"
command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"
deb=("${DIST:-dist}"/tern_*_amd64.deb)
[ -f "${deb[0]}" ] || fail "there is no ${deb[0]}; make dist makes it"
[ ${#deb[@]} = 1 ] || fail "there are several packages in ${DIST:-dist}: ${deb[*]}; remove the old ones"

if [ $name = tern-cuda-image ]; then
  dpkg-deb -c "${deb[0]}" | grep /libtern_cuda.so >/dev/null || fail "${deb[0]} is without the CUDA side: make cuda, then make dist"
fi
mkdir -p "$(dirname "$file")"
root=$file.root
rm -rf --one-file-system "$root"
# What the base image bookworm-slim leaves out as well.
mirror=$(sed -n 's/^URIs: *\([^ ]*\/debian\/\{0,1\}\)$/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 1p)
debootstrap --variant=minbase bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$file.log" 2>&1 ||
  fail "debootstrap failed; see $file.log"
mkdir -p "$root/etc/dpkg/dpkg.cfg.d"
printf 'path-exclude /usr/share/%s/*\n' doc man locale info >"$root/etc/dpkg/dpkg.cfg.d/slim"
printf 'path-include /usr/share/doc/*/copyright\n' >>"$root/etc/dpkg/dpkg.cfg.d/slim"

# What pip needs of the machine to reach an index: its variables, and its certificates in the place that PIP_CERT then names.
settings=("PIP_CERT=/run/tern-image.crt")
for variable in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy; do
  [ -z "${!variable:-}" ] || settings+=("$variable=${!variable}")
done

run() {
  unshare --mount --pid --fork --kill-child bash -euo pipefail -c 'mount -t proc proc "$0/proc"
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "${@:2}" /bin/sh -ec "$1"' \
    "$root" "$1" "${settings[@]}"
}
cp --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
cp -L "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$root/run/tern-image.crt"
steps=$(python3 tools/oci_image.py commands "$dockerfile")
while IFS= read -r step; do
  word=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])[0])' "$step")
  rest=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])[1])' "$step")
  if [ "$word" = COPY ]; then
    read -r from to <<<"$rest"
    [ "$from" != 'dist/tern_*_amd64.deb' ] || from=${deb[0]}
    cp "$from" "$root$to"
  else
    run "$rest" >>"$file.log" 2>&1 </dev/null || fail "a RUN line of $dockerfile failed; see $file.log"
  fi
done <<<"$steps"
rm -rf "$root"/usr/share/{man,locale,info}/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/cache/debconf/*-old
find "$root/usr/share/doc" -type f ! -name copyright -delete
: >"$root/etc/resolv.conf"
rm -f "$root/run/tern-image.crt"
find "$root/dev" "$root/proc" "$root/sys" -mindepth 1 -delete 2>/dev/null || true
python3 tools/oci_image.py pack "$dockerfile" "$root" "$file"
rm -f "$file.log"
weighed=0
python3 tools/package_sizes.py --unpacked "$root" "$file" || weighed=1
[ "${KEEP:-}" = 1 ] || rm -rf --one-file-system "$root"
exit $weighed
