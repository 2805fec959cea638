#!/usr/bin/env bash
# Packs what `make build` made into ${DIST:-dist}, for any x86-64 Linux with glibc 2.28 or newer.
#   tools/dist.sh [tarball]...     all of them when none is named
# tarball: tern-VERSION-linux-x86_64.tar.gz, with ./install
# wheels: tern, tern-fastdeploy and, with the CUDA side, tern-cuda for pip, every Python from 3.9
# deb: tern_VERSION_amd64.deb, with a systemd unit
# Sizes are said, and with RESULTS=FILE left as rows for docs/performance (tools/performance.py --merge FILE).
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

weigh() { python3 tools/package_sizes.py "$@"; }

pack_tarball() {
  local name=tern-$version-linux-x86_64
  tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner --transform "flags=r;s,^\.,$name," -czf "$dist/$name.tar.gz" . \
    -C "$PWD/packaging" --transform "flags=r;s,^install$,$name/install," install
  weigh "$dist/$name.tar.gz"
}

pack_deb() { tools/deb.sh "$tree" "$dist" && weigh "$dist/tern_${version}_amd64.deb"; }

pack_wheels() { python3 tools/wheels.py "$tree" "$dist" && weigh "$dist"/tern*-"$version"-py3-none-*.whl; }

for kind in "${kinds[@]}"; do "pack_$kind"; done
rm -rf "$tree"
