"""tools/check.sh: any gate that fails makes it fail and is named; the sanitizers' flags find what they are there for."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = (ROOT / "tools" / "check.sh").read_text()
SHELL = ("format.sh", "clippy.sh", "build.sh")
PYTHON = ("check_includes.py", "check_sizes.py", "check_citations.py", "check_links.py", "check_scripts.py", "check_unused.py")
# The file that fails, and the gates that say so.
BREAKS = {
    "format.sh": ["format"],
    "check_includes.py": ["include directions"],
    "check_sizes.py": ["sizes"],
    "check_citations.py": ["citations"],
    "check_links.py": ["links in documents"],
    "check_scripts.py": ["readers of pipes"],
    "clippy.sh": ["clippy"],
    "check_unused.py": ["unused symbols"],
    "build.sh": ["unused symbols", "benchmarks compile", "address and undefined sanitizers", "thread sanitizer"],
    "run_tests.py": ["address and undefined sanitizers", "thread sanitizer"],
}


def check_with(tmp_path, broken):
    """Runs tools/check.sh in a tree where everything it calls succeeds, BROKEN excepted."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "check.sh", tmp_path / "tools")
    for name in SHELL:
        (tmp_path / "tools" / name).write_text(f"exit {int(name == broken)}\n")
    for name in (*PYTHON, "run_tests.py"):
        (tmp_path / "tools" / name).write_text(f"raise SystemExit({int(name == broken)})\n")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "cmake").write_text("#!/bin/sh\n")
    (binaries / "cmake").chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    env = os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}", "COUNTS": ""}
    return subprocess.run(["bash", tmp_path / "tools" / "check.sh"], capture_output=True, text=True, env=env)


def test_all_gates_pass(tmp_path):
    done = check_with(tmp_path, None)
    assert done.returncode == 0 and done.stdout.endswith("11 passed, 0 failed\n"), done.stdout + done.stderr


def test_every_gate_is_tried_here():
    gates = re.findall(r'^step "([^"]+)"', CHECK, re.MULTILINE)
    assert set(gates) == set(sum(BREAKS.values(), []))


@pytest.mark.parametrize("broken", BREAKS)
def test_a_gate_that_fails_is_named(tmp_path, broken):
    done = check_with(tmp_path, broken)
    failed = [line.removeprefix("FAIL ").strip() for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    assert done.returncode == 1 and failed == BREAKS[broken], done.stdout + done.stderr


BUGS = {
    "asan": {
        "heap-buffer-overflow": "int* p = new int[n]; p[n] = 1; int r = p[n]; delete[] p; return r - 1;",
        "signed integer overflow": "return 2147483647 + n == 0;",
        "detected memory leaks": "static int* volatile kept; kept = new int[64]; kept = nullptr; return 0;",
    },
    "tsan": {"data race": "static int shared; std::thread t([&] { shared += n; }); shared += n; t.join(); return 0;"},
}


@pytest.mark.parametrize("preset,found", [(preset, found) for preset, bugs in BUGS.items() for found in bugs])
def test_a_sanitizer_finds_and_fails(tmp_path, preset, found):
    presets = {p["name"]: p for p in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    variables = presets[preset]["cacheVariables"]
    source = f"#include <thread>\nint main(int n, char**) {{ {BUGS[preset][found]} }}\n"
    program = tmp_path / "program"
    # As cmake/options.cmake compiles with TERN_SANITIZE.
    flags = [*variables["CMAKE_CXX_FLAGS"].split(), f"-fsanitize={variables['TERN_SANITIZE']}", "-fno-omit-frame-pointer"]
    flags += ["-fno-sanitize-recover=undefined"] if "undefined" in variables["TERN_SANITIZE"] else []
    subprocess.run(["c++", "-std=c++20", *flags, "-x", "c++", "-", "-o", program], input=source, text=True, check=True)
    exports = re.search(r"^export ASAN_OPTIONS.*$", CHECK, re.MULTILINE)[0]
    done = subprocess.run(["bash", "-c", f"{exports}\nexec {program}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and found in done.stderr, done.stderr
