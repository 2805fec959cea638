#!/usr/bin/env bash
# Makes the image of packaging/Dockerfile as an OCI archive, without Docker and without a registry: Debian's own packages take
# the base image's place (debootstrap), the Dockerfile's COPY and RUN lines are carried out in a chroot. As root.
#   tools/image.sh [FILE]     FILE: dist/tern-image.tar, for `docker load`, `podman load`, `skopeo copy oci-archive:FILE ...`
# The file system stays beside it (FILE.root) when KEEP=1. Says what the image weighs.
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:-${DIST:-dist}/tern-image.tar}
fail() {
  echo "tools/image.sh: $*" >&2
  exit 1
}
[ "$(id -u)" = 0 ] || fail "making a chroot needs root: sudo tools/image.sh"
command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"
deb=("${DIST:-dist}"/tern_*_amd64.deb)
[ -f "${deb[0]}" ] || fail "there is no ${deb[0]}; make dist makes it"
[ ${#deb[@]} = 1 ] || fail "there are several packages in ${DIST:-dist}: ${deb[*]}; remove the old ones"

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

run() {
  unshare --mount --pid --fork --kill-child bash -euo pipefail -c 'mount -t proc proc "$0/proc"
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root /bin/sh -ec "$1"' "$root" "$1"
}
cp --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
steps=$(python3 tools/oci_image.py commands packaging/Dockerfile)
while IFS= read -r step; do
  word=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])[0])' "$step")
  rest=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])[1])' "$step")
  if [ "$word" = COPY ]; then
    read -r from to <<<"$rest"
    [ "$from" != 'dist/tern_*_amd64.deb' ] || from=${deb[0]}
    cp "$from" "$root$to"
  else
    run "$rest" >>"$file.log" 2>&1 </dev/null || fail "a RUN line of packaging/Dockerfile failed; see $file.log"
  fi
done <<<"$steps"
rm -rf "$root"/usr/share/{man,locale,info}/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/cache/debconf/*-old
find "$root/usr/share/doc" -type f ! -name copyright -delete
: >"$root/etc/resolv.conf"
find "$root/dev" "$root/proc" "$root/sys" -mindepth 1 -delete 2>/dev/null || true
python3 tools/oci_image.py pack packaging/Dockerfile "$root" "$file"
du -sm --apparent-size "$root" | awk -v file="$file" '{printf "%s: %d MB unpacked, ", file, $1}'
ls -l "$file" | awk '{printf "%.1f MB\n", $5 / 1e6}'
[ "${KEEP:-}" = 1 ] || rm -rf --one-file-system "$root"
rm -f "$file.log"
