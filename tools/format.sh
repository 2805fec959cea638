#!/usr/bin/env bash
# Formats every file of the repository that has a formatter; with --check changes nothing, names what is not formatted and
# ends with 1.
#   tools/format.sh [--check] [FOLDER]   FOLDER: a git work tree with this one's configuration files
set -uo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
export PATH="$PATH:$HOME/.cargo/bin"
check=
[ "${1:-}" = --check ] && {
  check=1
  shift
}
cd "${1:-$tools/..}" || exit 1
ruff=$tools/../.venv/bin/ruff
status=0
# each PATTERNS... -- COMMAND...: the command with the files of these patterns; nothing where there are none
each() {
  local patterns=() files
  while [ "$1" != -- ]; do
    patterns+=("$1")
    shift
  done
  shift
  mapfile -t files < <(git ls-files -co --exclude-standard "${patterns[@]}")
  [ ${#files[@]} = 0 ] || "$@" "${files[@]}" || status=1
}
if [ -n "$check" ]; then
  cxx=(--dry-run --Werror) rust=(--check) python=(--check) shell=(-d)
else
  cxx=(-i) rust=() python=() shell=(-w)
fi
each '*.h' '*.cc' '*.cu' '*.cuh' '*.inc' -- clang-format "${cxx[@]}"
each '*.rs' -- rustfmt --edition 2021 --config-path rust/textkit/rustfmt.toml "${rust[@]}"
each '*.py' -- "$ruff" format -q --force-exclude "${python[@]}"
each '*.sh' '.ci/run' -- shfmt -i 2 -ci "${shell[@]}"
exit $status
