#!/usr/bin/env bash
# Installs what building and testing need and is not there yet. Safe to run twice; does nothing when all is there.
# Debian and Ubuntu packages are installed; on another distribution the missing ones are named and the script stops.
#   tools/setup.sh [dist|fuzz|gpu-pack...]   also what that target of the Makefile needs
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES=(build-essential cmake ninja-build git pkg-config ccache libboost1.81-dev libfmt-dev libyaml-cpp-dev
  libcurl4-openssl-dev libssl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler libavformat-dev libavcodec-dev libavutil-dev libswscale-dev libfreetype-dev libseccomp-dev
  fonts-roboto-unhinted libcli11-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libgif-dev libtiff-dev libgtest-dev libgmock-dev libbenchmark-dev clang-format shfmt python3-venv patchelf
  ca-certificates curl openssl)
declare -A MORE=([dist]="nasm dpkg-dev" [fuzz]="clang libclang-rt-14-dev" ["gpu-pack"]="xz-utils")
RUST_MINIMUM=1.87
VERSION=$(sha256sum tools/setup.sh tests/requirements.txt | sha256sum | cut -c1-16)

say() { printf 'setup: %s\n' "$*"; }

have_package() { [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = 'install ok installed' ]; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    say "need root to run: $*"
    say "run it yourself, then try again"
    exit 1
  fi
}

system_packages() {
  if ! command -v dpkg-query >/dev/null; then
    local missing=()
    for tool in cmake ninja g++ git pkg-config python3; do command -v "$tool" >/dev/null || missing+=("$tool"); done
    for header in boost/beast.hpp fmt/format.h yaml-cpp/yaml.h CLI/CLI.hpp \
      gtest/gtest.h benchmark/benchmark.h; do
      printf '#include <%s>\n' "$header" | ${CXX:-g++} -std=c++20 -E -x c++ - >/dev/null 2>&1 || missing+=("$header")
    done
    if [ ${#missing[@]} -gt 0 ]; then
      say "this is not a Debian-like system; please install what provides: ${missing[*]}"
      exit 1
    fi
    return
  fi
  local missing=() package
  for package in "$@"; do have_package "$package" || missing+=("$package"); done
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
}

# version_at_least VERSION MINIMUM
version_at_least() { printf '%s\n%s\n' "$2" "$1" | sort -V -C; }

# What https://sh.rustup.rs would fetch and run, from the place that rustup's own variable names.
install_rustup() {
  local from=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}/dist/$(uname -m)-unknown-linux-gnu folder wanted status=0
  say "installing Rust (rustup, minimal profile) into $HOME/.cargo"
  folder=$(mktemp -d)
  wanted=$(curl -sSf "$from/rustup-init.sha256") && curl -sSf "$from/rustup-init" -o "$folder/rustup-init" &&
    printf '%s  %s\n' "${wanted%% *}" "$folder/rustup-init" | sha256sum --check --quiet && chmod +x "$folder/rustup-init" &&
    "$folder/rustup-init" -q -y --profile minimal --default-toolchain stable --no-modify-path || status=1
  rm -rf "$folder"
  return $status
}

# What make check needs of Rust; a toolchain that rustup does not manage brings its own or goes without.
rust_components() {
  command -v rustup >/dev/null || return 0
  local missing=()
  cargo fmt --version >/dev/null 2>&1 || missing+=(rustfmt)
  cargo clippy --version >/dev/null 2>&1 || missing+=(clippy)
  [ ${#missing[@]} = 0 ] || rustup component add "${missing[@]}" || say "make check needs ${missing[*]}; without them it fails"
}

rust() {
  export PATH="$PATH:$HOME/.cargo/bin"
  if command -v cargo >/dev/null && version_at_least "$(cargo --version | awk '{print $2}')" "$RUST_MINIMUM"; then return; fi
  if command -v rustup >/dev/null; then
    say "installing a Rust toolchain"
    rustup toolchain install stable --profile minimal
    rustup default stable
  else
    install_rustup || {
      say "could not install Rust; install cargo $RUST_MINIMUM or newer and try again"
      exit 1
    }
  fi
}

python_environment() {
  [ -x .venv/bin/python ] || {
    say "making the Python environment of the tests (.venv)"
    python3 -m venv .venv
  }
  .venv/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt
}

for group in "$@"; do
  [ -n "${MORE[$group]:-}" ] || {
    say "no target of the Makefile needs more by the name of $group"
    exit 1
  }
done
base=build/.setup-$VERSION
if ! { [ -f "$base" ] && [ -x .venv/bin/python ] && command -v cmake >/dev/null && command -v ninja >/dev/null; }; then
  system_packages "${PACKAGES[@]}"
  rust
  rust_components
  python_environment
  mkdir -p build
  rm -f build/.setup-*
  touch "$base"
  say "all there"
fi
for group in "$@"; do
  [ ! -f "$base-$group" ] || continue
  read -ra packages <<<"${MORE[$group]}"
  system_packages "${packages[@]}"
  touch "$base-$group"
done
