#!/usr/bin/env bash
# Packs what `make build` made into ${DIST:-dist}, for any x86-64 Linux with glibc 2.28 or newer.
#   tools/dist.sh [tarball]...     all of them when none is named
# tarball: tern-VERSION-linux-x86_64.tar.gz, with ./install
# wheels: tern (without the CUDA side) and tern-fastdeploy for pip, every Python from 3.9
# deb: tern_VERSION_amd64.deb, with a systemd unit
set -euo pipefail
cd "$(dirname "$0")/.."
KINDS=(tarball wheels deb)
kinds=("$@")
[ $# -gt 0 ] || kinds=("${KINDS[@]}")
for kind in "${kinds[@]}"; do
  [[ " ${KINDS[*]} " == *" $kind "* ]] || {
    echo "tools/dist.sh: cannot make $kind; there are: ${KINDS[*]}" >&2
    exit 2
  }
done

dist=${DIST:-dist}
tree=$dist/tree
mkdir -p "$dist"
tools/dist_tree.sh "$tree"
version=$("$tree/tern" version | awk '{print $2}')

say() { ls -l "$1" | awk '{printf "%s  %.1f MB\n", $NF, $5 / 1e6}'; }

pack_tarball() {
  local name=tern-$version-linux-x86_64
  tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner --transform "flags=r;s,^\.,$name," -czf "$dist/$name.tar.gz" . \
    -C "$PWD/packaging" --transform "flags=r;s,^install$,$name/install," install
  say "$dist/$name.tar.gz"
}

pack_deb() { tools/deb.sh "$tree" "$dist"; }

pack_wheels() { python3 tools/wheels.py "$tree" "$dist"; }

for kind in "${kinds[@]}"; do "pack_$kind"; done
rm -rf "$tree"
