"""The repository's own tools: the include table, packing, AVX2-only machines."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = pathlib.Path(os.environ.get("TERN", ROOT / "build" / "release" / "tern"))
LINES = '{"text": "hello world"}\n'


def check_includes(root):
    return subprocess.run([sys.executable, ROOT / "tools" / "check_includes.py", root], capture_output=True, text=True)


def test_include_table_holds_here():
    done = check_includes(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "room,line",
    [
        ("base", '#include "engine/engine.h"'),
        ("sched", '#include "ops/linear.h"'),
        ("serve", '#include "model/model.h"'),
        ("content", '#include "serve/server.h"'),
        ("engine", '#include "serve/server.h"'),
        ("model", '#include "local.h"'),
    ],
)
def test_upward_and_sideways_includes_are_found(tmp_path, room, line):
    shutil.copytree(ROOT / "cmake", tmp_path / "cmake")
    (tmp_path / "src" / room).mkdir(parents=True)
    (tmp_path / "src" / room / "a.h").write_text(line + "\n")
    done = check_includes(tmp_path)
    assert done.returncode == 1 and f"src/{room}/a.h" in done.stdout


# An inner room may include its room's root and other inner rooms only where its own line says so; tests may, always.
@pytest.mark.parametrize(
    "folder,included,fits",
    [
        ("engine/step", "engine/engine.h", True),
        ("engine/loop", "engine/step/step.h", True),
        ("engine/step", "engine/loop/engine_impl.h", False),
        ("engine/verify", "engine/loop/engine_impl.h", False),
        ("engine/loop", "engine/verify/replay_check.h", False),
        ("engine", "engine/step/step.h", False),
        ("engine/step", "ops/linear.h", True),
        ("engine/step", "serve/server.h", False),
        ("kernels/cpu/gemm", "kernels/cpu/rows/x.h", False),
        ("kernels/cpu/gemm", "kernels/cpu/isa.h", True),
        ("serve", "serve/http/request.h", True),
        ("serve/http", "serve/config.h", False),
        ("content/media/profile", "content/media/service/prepare.h", False),
        ("model/layers", "model/weights/pack.h", True),
        ("engine/tests", "engine/loop/engine_impl.h", True),
        ("engine/tests", "serve/server.h", False),
    ],
)
def test_arrows_of_inner_rooms(tmp_path, folder, included, fits):
    shutil.copytree(ROOT / "cmake", tmp_path / "cmake")
    (tmp_path / "src" / folder).mkdir(parents=True)
    (tmp_path / "src" / folder / "a.h").write_text(f'#include "{included}"\n')
    done = check_includes(tmp_path)
    assert (done.returncode == 0) == fits, done.stdout
    assert fits or f"src/{folder}/a.h" in done.stdout


@pytest.mark.parametrize("line", ["engine/step: serve/http", "engine/step: base", "base: engine/step", "model: engine"])
def test_the_table_itself_points_downward(tmp_path, line):
    shutil.copytree(ROOT / "cmake", tmp_path / "cmake")
    (tmp_path / "src" / "base").mkdir(parents=True)
    (tmp_path / "src" / "base" / "a.h").write_text("")
    table = tmp_path / "cmake" / "rooms.txt"
    rows = table.read_text().splitlines()
    table.write_text("\n".join(line if row.split(":")[0] == line.split(":")[0] else row for row in rows) + "\n")
    done = check_includes(tmp_path)
    assert done.returncode == 1 and "cmake/rooms.txt" in done.stdout


def unity_groups(tmp_path, sources):
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "unity_groups.py", "100", *(tmp_path / n for n in sources)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {pathlib.Path(path).name: group for group, path in (line.split() for line in done.stdout.splitlines())}


@pytest.mark.parametrize(
    "clash",
    [
        "int size() { return 1; }",
        "constexpr int kSize = 1;",
        "struct Size {};",
        "const char* const kSizes[] = {",
        "constexpr int kOne = 1, kTwo = 2;",
        "std::vector<int> sizes(int n) {",
    ],
)
def test_files_with_a_name_of_their_own_in_common_are_not_compiled_together(tmp_path, clash):
    own = f"namespace {{\n{clash}\n}}  // namespace\n"
    groups = unity_groups(
        tmp_path,
        {
            "a.cc": own,
            "b.cc": own,
            "c.cc": "namespace {\nint other() { return 2; }\n}  // namespace\n",
            "d.cc": "int size();\n",
            "long.cc": "int x;\n" * 99,
        },
    )
    assert groups["a.cc"] != groups["b.cc"]
    assert groups["a.cc"] == groups["c.cc"] == groups["d.cc"]
    assert groups["long.cc"] not in (groups["a.cc"], groups["b.cc"])


def test_a_file_with_a_type_of_its_own_is_apart_from_users_of_another_type_of_that_name(tmp_path):
    groups = unity_groups(
        tmp_path,
        {
            "a.cc": "namespace {\nstruct Answer {};\n}  // namespace\n",
            "b.cc": "void f(const Answer& a);\n",
            "c.cc": "// Answer\nvoid g(int Answers);\n",
        },
    )
    assert groups["a.cc"] == groups["c.cc"] != groups["b.cc"]


def test_packed_folder_runs_elsewhere(tmp_path):
    # Building FFmpeg takes minutes and a mirror: a build that is there is packed, else the system's stands in.
    subprocess.run(
        ["bash", ROOT / "tools" / "dist.sh"],
        check=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env=os.environ | {"TERN_BUILD_FFMPEG": "0", "DIST": tmp_path / "dist"},
    )
    (archive,) = (tmp_path / "dist").glob("tern-*-linux-x86_64.tar.gz")
    assert archive.stat().st_size <= 150e6
    place = tmp_path / "elsewhere"
    place.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", place], check=True)
    (folder,) = place.iterdir()
    glibc = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libresolv.so")
    for file in ("tern", "libtern_grpc.so"):
        libraries = subprocess.run(["ldd", folder / file], capture_output=True, text=True, env={}, cwd="/").stdout
        assert "not found" not in libraries
        outside = [l for l in libraries.splitlines() if "=>" in l and str(folder) not in l]
        assert all(any(g in l for g in glibc) for l in outside), outside
    done = subprocess.run(
        [folder / "tern", "tokenize", "--model", folder / "model", "--json"],
        input=LINES,
        text=True,
        capture_output=True,
        env={},
        cwd="/",
    )
    assert done.returncode == 0 and '"ids"' in done.stdout, done.stderr


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="skip: qemu-user is not installed")
def test_runs_on_an_avx2_only_processor(tmp_path):
    case = ROOT / "tests" / "data" / "golden" / "llama_tied"
    done = subprocess.run(
        ["qemu-x86_64", "-cpu", "Haswell", TERN, "verify", case, "--dtype", "bfloat16"],
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0 and " 0 failed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
