"""tools/wheels.py with a small tree in the program's place: what is in the wheels, and that pip takes them."""

import base64
import csv
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import wheels


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    base = tmp_path_factory.mktemp("wheels")
    tree = base / "tree"
    (tree / "lib").mkdir(parents=True)
    (tree / "model").mkdir()
    version = wheels.project_of(ROOT / "python")["version"]
    (tree / "tern").write_text(f'#!/bin/sh\necho "tern {version} called with $* and $TERN_CUDA_LIBRARY"\n')
    (tree / "tern").chmod(0o755)
    (tree / "start_server").symlink_to("tern")
    for name in ("lib/libx.so.1", "model/config.json", "README.md", "libtern_cuda.so"):
        (tree / name).write_text(name)
    return wheels.make(tree, base / "first"), wheels.make(tree, base / "second")


def test_names_and_contents(made):
    program, names, cuda = made[0]
    assert program.name.endswith("-py3-none-manylinux_2_28_x86_64.whl") and names.name.endswith("-py3-none-any.whl")
    inside = set(zipfile.ZipFile(program).namelist())
    assert {"tern/__init__.py", "tern/bin/tern", "tern/bin/lib/libx.so.1", "tern/bin/model/config.json"} <= inside
    assert not {"tern/bin/start_server", "tern/bin/README.md", "tern/bin/libtern_cuda.so"} & inside
    assert zipfile.ZipFile(program).getinfo("tern/bin/tern").external_attr >> 16 == 0o100755
    compat = {p.relative_to(ROOT / "python/compat").as_posix() for p in (ROOT / "python/compat/fastdeploy").rglob("*.py")}
    assert compat <= set(zipfile.ZipFile(names).namelist())


def test_the_extra_for_gpus(made):
    program, _, cuda = (zipfile.ZipFile(path) for path in made[0])
    version = wheels.project_of(ROOT / "python")["version"]
    inside = {name for name in cuda.namelist() if ".dist-info/" not in name}
    assert inside == {"tern/bin/libtern_cuda.so"} and made[0][2].name == f"tern_cuda-{version}-py3-none-manylinux_2_28_x86_64.whl"
    says = {name: [n for n in zipped.namelist() if n.endswith("/METADATA")][0] for name, zipped in (("p", program), ("c", cuda))}
    asked = program.read(says["p"]).decode()
    assert "Provides-Extra: cuda\n" in asked and f'Requires-Dist: tern-cuda=={version}; extra == "cuda"\n' in asked
    needs = cuda.read(says["c"]).decode()
    assert f"Requires-Dist: tern=={version}\n" in needs
    # The major version that the program looks for first (src/cuda/gemm/blaslt.cc).
    major = re.search(r'"libcublasLt\.so\.(\d+)"', (ROOT / "src/cuda/gemm/blaslt.cc").read_text())[1]
    assert f"Requires-Dist: nvidia-cublas>={major}.0,<{int(major) + 1}\n" in needs
    assert f"nvidia-cublas=={major}." in (ROOT / "tools/cuda_toolchain.sh").read_text()


def test_without_the_cuda_side_there_is_no_wheel_of_it(tmp_path):
    version = wheels.project_of(ROOT / "python")["version"]
    (tmp_path / "tern").write_text(f"#!/bin/sh\necho tern {version}\n")
    (tmp_path / "tern").chmod(0o755)
    assert len(wheels.make(tmp_path, tmp_path / "out")) == 2
    assert not list((tmp_path / "out").glob("tern_cuda*"))


def test_the_record_is_true(made):
    for wheel in made[0]:
        archive = zipfile.ZipFile(wheel)
        record = next(n for n in archive.namelist() if n.endswith("/RECORD"))
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
        assert {row[0] for row in rows} == set(archive.namelist())
        for name, digest, size in rows:
            data = archive.read(name)
            if name != record:
                assert int(size) == len(data)
                assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def test_the_same_input_makes_the_same_bytes(made):
    for one, other in zip(*made):
        assert one.read_bytes() == other.read_bytes()


def test_a_version_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "tern").write_text("#!/bin/sh\necho tern 99.0\n")
    (tmp_path / "tern").chmod(0o755)
    assert "the program is version 99.0" in wheels.make(tmp_path, tmp_path / "out")


def test_pip_installs_them_and_the_commands_run(made, tmp_path):
    target = tmp_path / "site"
    options = ["--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check", "-q", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *map(str, made[0])], check=True)
    for command, said in (("tern", "called with serve --port 1"), ("fastdeploy", "called with serve --port 1")):
        done = subprocess.run(
            [sys.executable, target / "bin" / command, "serve", "--port", "1"],
            env={"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert said in done.stdout
    assert (target / "tern/bin/libtern_cuda.so").is_file()
    # cuBLAS of a wheel is found without an activated environment; folders that somebody named come first.
    (target / "nvidia").mkdir()
    run = [sys.executable, "-c", "from tern.process import main; main()"]
    for mine in ("/mine", ""):
        done = subprocess.run(run, cwd=target, env={"TERN_CUDA_LIBRARY": mine}, capture_output=True, text=True, timeout=60)
        assert done.stdout.rstrip().endswith(f"and {mine}:{target}" if mine else f"and {target}")
