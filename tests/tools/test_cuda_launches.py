"""Which kernels a step launches on a GPU, against the recording (src/cuda/tests/record)."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_steps_launch_what_they_did():
    library, tern = ROOT / "build/cuda/recorded/libtern_cuda.so", ROOT / "build/release/tern"
    if not library.exists() or not tern.exists():
        pytest.skip("there is no build/cuda/recorded: make build cuda")
    done = subprocess.run(
        [sys.executable, ROOT / "src/cuda/tests/record/launches.py"], capture_output=True, text=True, timeout=900
    )
    if "another build" in done.stdout + done.stderr:
        pytest.skip("build/cuda and build/release are of different sources: make build cuda")
    assert done.returncode == 0, done.stdout + done.stderr
