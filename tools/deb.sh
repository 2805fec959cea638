#!/usr/bin/env bash
# Makes tern_VERSION_amd64.deb out of a folder that tools/dist_tree.sh made: the program in /usr/lib/tern, its commands in
# /usr/bin, and a systemd unit that is not started before somebody asks for it (docs/install.md).
#   tools/deb.sh TREE FOLDER
set -euo pipefail
[ $# = 2 ] || {
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
tree=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
fail() {
  echo "tools/deb.sh: $*" >&2
  exit 1
}
[ -x "$tree/tern" ] || fail "$tree holds no program; tools/dist_tree.sh makes such a folder"
command -v dpkg-deb >/dev/null || fail "needs dpkg-deb (the package dpkg of any distribution)"

version=$("$tree/tern" version | awk '{print $2}')
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
install -d "$root"/DEBIAN "$root"/usr/{bin,lib,share/man/man1,share/doc/tern} "$root"/lib/systemd/system "$root"/etc/tern
cp -a "$tree" "$root/usr/lib/tern"
rm -rf "$root/usr/lib/tern/share" "$root/usr/lib/tern/README.md" "$root/usr/lib/tern/LICENSE"
for command in tern start_server stop_server; do ln -s "../lib/tern/$command" "$root/usr/bin/$command"; done
gzip -9nc "$tree/share/man/man1/tern.1" >"$root/usr/share/man/man1/tern.1.gz"
cp LICENSE "$root/usr/share/doc/tern/copyright"
cp README.md packaging/debian/gpu.conf "$root/usr/share/doc/tern/"
cp packaging/debian/tern.service "$root/lib/systemd/system/"
cp packaging/debian/tern.yaml "$root/etc/tern/"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
echo /etc/tern/tern.yaml >"$root/DEBIAN/conffiles"
find "$root" -type d -exec chmod 755 {} +
find "$root" -type f -exec chmod go-w {} +
cat >"$root/DEBIAN/control" <<END
Package: tern
Version: $version
Architecture: amd64
Maintainer: Tern <tern@localhost>
Depends: libc6 (>= 2.28)
Recommends: ca-certificates
Section: net
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | awk '{print $1}')
Description: server for large language and vision-language models
 Serves models over the OpenAI protocol in the place of FastDeploy 2.x, on CPUs and NVIDIA GPUs.
 A small model that reads printed text is in the package.
END
mkdir -p "$out"
# xz, which every dpkg reads.
dpkg-deb --root-owner-group -Zxz -z3 --build "$root" "$out/tern_${version}_amd64.deb" >/dev/null
