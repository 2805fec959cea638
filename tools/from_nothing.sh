#!/usr/bin/env bash
# Tries targets of the Makefile on an empty machine: each in a chroot of its own with Debian 12's base system, git, make, and
# a clone of this repository's last commit. The host's settings for package sources are copied (/etc/apt, pip, cargo, their
# variables, CA certificates), nothing else. Says how long each target took; the status is 1 when one failed.
#   tools/from_nothing.sh [--ccache DIR] [--folder DIR] [--keep] [TARGET...]   (as root, with debootstrap)
#   tools/from_nothing.sh [--folder DIR] [--keep] [--suite NAME] --archive FILE
# TARGET: run test bench fuzz dist cuda gpu-pack (all, when none is named). `run` and `bench` are `make run ONCE=1` and
# `make bench SECTION=startup`; FUZZ_SECONDS (5) and JOBS are passed on. The archive that `dist` makes is then unpacked in a
# base system of its own, where nothing was installed, and serves there (tools/archive_commands.sh).
#   --archive FILE only that, with an archive that is there
#   --suite NAME   in that Debian instead of bookworm (bullseye: glibc 2.31)
#   --ccache DIR   a ccache folder to share with the chroot
#   --folder DIR   where the systems and logs lie (default /var/tmp/from_nothing); the base system is kept there
#   --keep         leaves the system of each target there
set -euo pipefail
cd "$(dirname "$0")/.."

TARGETS=(run dist test fuzz cuda gpu-pack bench)
FOLDER=/var/tmp/from_nothing CCACHE="" KEEP="" ARCHIVE="" SUITE=bookworm
usage() {
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
  exit "$1"
}
fail() {
  echo "from_nothing: $*" >&2
  exit 1
}

targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --ccache)
      [ $# -ge 2 ] || usage 1 >&2
      CCACHE=$2
      shift
      ;;
    --folder)
      [ $# -ge 2 ] || usage 1 >&2
      FOLDER=$2
      shift
      ;;
    --archive)
      [ $# -ge 2 ] || usage 1 >&2
      ARCHIVE=$2
      shift
      ;;
    --suite)
      [ $# -ge 2 ] || usage 1 >&2
      SUITE=$2
      shift
      ;;
    --keep) KEEP=1 ;;
    -h | --help) usage 0 ;;
    -*) fail "unknown option $1 (--help lists them)" ;;
    *)
      [[ " ${TARGETS[*]} " == *" $1 "* ]] || fail "unknown target $1; there are: ${TARGETS[*]}"
      targets+=("$1")
      ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || targets=("${TARGETS[@]}")
[ -z "$CCACHE" ] || [ -d "$CCACHE" ] || fail "there is no folder $CCACHE"
[ -z "$ARCHIVE" ] || [ -f "$ARCHIVE" ] || fail "there is no file $ARCHIVE"
[ "$SUITE" = bookworm ] || [ -n "$ARCHIVE" ] || fail "targets are built in bookworm; --suite goes with --archive"
[ "$(id -u)" = 0 ] || fail "making a chroot needs root"
for tool in debootstrap unshare chroot git; do command -v "$tool" >/dev/null || fail "needs $tool (apt-get install debootstrap)"; done

# The first mirror of bookworm that the host's apt uses, else Debian's own.
mirror() {
  local found
  found=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true; } |
    sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\/debian\/\{0,1\}\) bookworm .*/\2/p')
  [ -n "$found" ] || found=$({ cat /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
    sed -n 's/^URIs: *\([^ ]*\/debian\/\{0,1\}\)\( .*\)\{0,1\}$/\1/p')
  [ -n "$found" ] || found=http://deb.debian.org/debian
  echo "${found%%$'\n'*}"
}

# Variables that say where packages come from and how to get there; not where the host keeps its own installations.
package_variables() {
  env | sed -n '/^CARGO_HOME=\|^RUSTUP_HOME=\|^RUSTUP_TOOLCHAIN=\|^PIP_TARGET=/d
    /^\([a-zA-Z]*_proxy\|[A-Z]*_PROXY\|PIP_[A-Z_]*\|UV_[A-Z_]*\|CARGO_[A-Z_]*\|RUSTUP_[A-Z_]*\)=/p
    /^\(SSL_CERT_FILE\|SSL_CERT_DIR\|CURL_CA_BUNDLE\|REQUESTS_CA_BUNDLE\|GIT_SSL_CAINFO\)=/p'
}

# Copies a file or folder of the host to the same place below $1.
copy() {
  local root=$1 path
  shift
  for path in "$@"; do
    [ ! -e "$path" ] || { mkdir -p "$root$(dirname "$path")" && cp -aT "$path" "$root$path"; } || return
  done
}

make_base() {
  local base=$FOLDER/base-$SUITE from
  [ ! -f "$base.done" ] || return 0
  rm -rf "$base"
  from=$(mirror)
  echo "from_nothing: making Debian's base system from $from"
  debootstrap --variant=minbase "$SUITE" "$base" "$from" >"$FOLDER/base.log" 2>&1 || fail "debootstrap failed; see $FOLDER/base.log"
  touch "$base.done"
}

# Settings of the host that are not the base system's: fresh in every system, since they may change.
copy_settings() {
  local root=$1 value
  # The files in /etc/ssl/certs are links into /usr/share/ca-certificates.
  copy "$root" /etc/resolv.conf /etc/hosts /etc/pip.conf /usr/local/share/ca-certificates /etc/ssl/certs \
    /usr/share/ca-certificates || return
  if grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then
    rm -f "$root/etc/apt/sources.list" && copy "$root" /etc/apt /usr/share/keyrings || return
  fi
  for value in .config/pip .pip .cargo/config.toml .cargo/config; do
    [ ! -e "$HOME/$value" ] || { mkdir -p "$root/root/$(dirname "$value")" && cp -aT "$HOME/$value" "$root/root/$value"; } || return
  done
}

# Folders of the host that a package variable names, such as one of wheels: mounted where they are, read-only.
named_folders() {
  local value
  package_variables | cut -d= -f2- | while read -r value; do
    case $value in /etc/* | /usr/*) ;; /*) [ ! -d "$value" ] || echo "$value" ;; esac
  done
}

# Inside the namespaces of unshare, which undo the mounts and end what is still running.
in_chroot() {
  local root=$1 command=$2 folder variables
  mount --make-rprivate /
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  while read -r folder; do
    mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder" && mount -o remount,bind,ro "$root$folder"
  done < <(named_folders)
  if [ -n "$CCACHE" ]; then
    mkdir -p "$root/root/.cache/ccache" && mount --bind "$CCACHE" "$root/root/.cache/ccache"
  fi
  mapfile -t variables < <(package_variables)
  exec chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}" \
    ${JOBS:+JOBS="$JOBS"} FUZZ_SECONDS="${FUZZ_SECONDS:-5}" /bin/bash -c "$command"
}

# Runs a command in a system of its own; its output goes to a file.
run_in() {
  local root=$1 log=$2 command=$3
  (
    export -f in_chroot package_variables named_folders
    export CCACHE
    unshare --mount --pid --fork --kill-child bash -c 'set -euo pipefail; in_chroot "$@"' - "$root" "$command"
  ) >"$log" 2>&1 </dev/null
}

say() { # say TARGET STATUS SECONDS LOG
  if [ "$2" = 0 ]; then
    printf 'ok   %-10s %5d s   %s\n' "$1" "$3" "$(tail -n 1 "$4")"
  else
    printf 'FAIL %-10s %5d s   status %d, %s:\n' "$1" "$3" "$2" "$4"
    tail -n 30 "$4" | sed 's/^/     | /'
  fi
}

# An archive of `make dist` where nothing was installed.
try_archive() {
  local root=$FOLDER/bare log=$FOLDER/bare.log status=0 begin=$SECONDS
  rm -rf "$root" && cp -a "$FOLDER/base-$SUITE" "$root" && mkdir -p "$root/opt/tern" &&
    tar -xzf "$1" -C "$root/opt/tern" --strip-components=1 && cp tools/archive_commands.sh "$root/root/" ||
    fail "cannot prepare $root"
  run_in "$root" "$log" "bash /root/archive_commands.sh" || status=$?
  [ -n "$KEEP" ] || rm -rf --one-file-system "$root"
  say archive $status $((SECONDS - begin)) "$log"
  return $status
}

try() {
  local target=$1 root=$FOLDER/$1 log=$FOLDER/$1.log command status=0 begin=$SECONDS
  case $target in
    run) command="make run ONCE=1" ;;
    bench) command="make bench SECTION=startup" ;;
    *) command="make $target" ;;
  esac
  rm -rf "$root" && cp -a "$FOLDER/base-$SUITE" "$root" && copy_settings "$root" &&
    git clone -q --depth 1 "file://$PWD" "$root/root/tern" || fail "cannot prepare $root"
  # A person has these before there is a Makefile to type.
  command="apt-get update -qq && apt-get install -y -qq --no-install-recommends make git ca-certificates > /dev/null && cd /root/tern && $command"
  run_in "$root" "$log" "$command" || status=$?
  say "$target" $status $((SECONDS - begin)) "$log"
  if [ $status = 0 ] && [ "$target" = dist ]; then
    set -- "$root"/root/tern/dist/tern-*.tar.gz
    try_archive "$1" || status=$?
  fi
  [ -n "$KEEP" ] || rm -rf --one-file-system "$root"
  return $status
}

mkdir -p "$FOLDER"
exec 9>"$FOLDER/lock"
flock -n 9 || fail "another run uses $FOLDER"
make_base
if [ -n "$ARCHIVE" ]; then
  try_archive "$ARCHIVE"
  exit
fi
passed=0 failed=0
for target in "${targets[@]}"; do
  if try "$target"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
