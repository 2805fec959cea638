# Everything a person types. Each target installs what it needs first (tools/setup.sh does nothing when all is there).
SHELL := /bin/bash
JOBS ?= $(shell nproc)
ONCE ?=
PORT ?= 8180
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: run build test check bench bench-accuracy docs fuzz dist dist-check image cuda-image format setup clean cuda cuda-emulate gpu-pack from-nothing

run: build
	@ONCE="$(ONCE)" PORT="$(PORT)" bash tools/run.sh

setup:
	@bash tools/setup.sh

build: setup
	@cmake --preset release -DTERN_BENCH=OFF -DTERN_UNITY=1000 --log-level=WARNING > /dev/null
	@JOBS=$(JOBS) bash tools/build.sh release tern

# ROOM=serve: one room's tests. ONLY=pattern: tests whose name holds the pattern.
test: setup
	@ROOM="$(ROOM)" ONLY="$(ONLY)" bash tools/test.sh

check: setup
	@bash tools/check.sh

# SECTION names one part of the benchmarks. RESULTS=FILE: a row of JSON per figure, for tools/performance.py --merge FILE.
SECTION ?=
bench: setup
	@bash tools/bench.sh $(SECTION)

bench-accuracy: build
	@bash tools/bench_accuracy.sh

# The documentation site, build/site/index.html; its pages lie in docs/site.
docs: setup
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build -q --strict -f docs/mkdocs.yml

fuzz:
	@bash tools/setup.sh fuzz
	@bash tools/fuzz.sh

dist: build
	@bash tools/setup.sh dist
	@bash tools/dist.sh

# Installs what make dist left, as a user does, in places that have nothing else.
dist-check:
	@bash tools/dist_check.sh

# The container image of packaging/Dockerfile, made of the package in dist/ (make dist). As root.
image:
	@bash tools/image.sh

# The same of packaging/Dockerfile.cuda, with the CUDA side and cuBLASLt: make cuda, make dist, then this.
cuda-image:
	@bash tools/image.sh --cuda

# The CUDA side, build/cuda/libtern_cuda.so and its tests; needs no GPU. The program of `make build` finds it there.
# ARCH names the GPU that a pack is for.
# PORTABLE: -gencode values of portable files instead of cmake/cuda.cmake's own.
ARCH ?= 90
PORTABLE ?=
cuda: setup
	@cmake -S src/cuda -B build/cuda -G Ninja -DTERN_CUDA_HOME=$$(tools/cuda_toolchain.sh) \
		$(if $(PORTABLE),"-DTERN_CUDA_PORTABLE=$(PORTABLE)",-UTERN_CUDA_PORTABLE) > /dev/null
	@cmake --build build/cuda

# The kernel tests on a CPU, emulated: slow, and no word about a real GPU. ONLY names one group.
cuda-emulate: setup
	@cmake -S src/cuda -B build/cuda -G Ninja -DTERN_CUDA_HOME=$$(tools/cuda_toolchain.sh) > /dev/null
	@cmake --build build/cuda --target cuda_emulated_test
	@build/cuda/cuda_ops_test --library build/cuda/emulated --emulated $(if $(ONLY),--only $(ONLY))

gpu-pack: build
	@bash tools/setup.sh gpu-pack
	@tools/gpu_pack.sh $(ARCH)

# Each of TARGETS (the scripts' own default: all) in an empty Debian 12; CCACHE names a ccache folder to share.
from-nothing:
	@bash tools/from_nothing.sh $(if $(CCACHE),--ccache $(CCACHE)) $(TARGETS)

format: setup
	@bash tools/format.sh

clean:
	rm -rf build dist
