#!/usr/bin/env bash
# Clippy over a crate and its tests; a warning fails.
#   tools/clippy.sh [CRATE]
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
export PATH="$PATH:$HOME/.cargo/bin"
crate=${1:-$tools/../rust/textkit}
cargo clippy --version >/dev/null 2>&1 || {
  echo "clippy is not installed: rustup component add clippy" >&2
  exit 1
}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$tools/../build/clippy}
cargo clippy --quiet --locked --all-targets --manifest-path "$crate/Cargo.toml" -- -D warnings
