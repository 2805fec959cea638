"""tools/lower_glibc.py and packaging/old_glibc.c: what is built here starts with glibc 2.28, and keeps working with this one."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import lower_glibc

PROGRAM = r"""
#include <condition_variable>
#include <cstdio>
#include <cmath>
#include <dlfcn.h>
#include <mutex>
#include <stdexcept>
#include <sys/stat.h>
#include <thread>
struct Global {
  Global() { std::puts("constructed"); }
  ~Global() { std::puts("destructed"); }
} global;
int main(int argc, char** argv) {
  struct stat info, link;
  if (stat(argv[0], &info) != 0 || lstat(argv[0], &link) != 0 || info.st_size != link.st_size) return 2;
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  if (condition.wait_for(lock, std::chrono::milliseconds(20), [] { return false; })) return 3;
  std::thread thread([] {
    try {
      throw std::runtime_error("thrown and caught");
    } catch (const std::exception& error) {
      std::puts(error.what());
    }
  });
  thread.join();
  std::printf("%.3f %d\n", std::exp(argc * 1.0), dlopen("there-is-none.so", RTLD_NOW) != nullptr);
}
"""


def compile_to(path, source, *options):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["g++", "-std=c++20", "-x", "c++", "-", *options, "-o", str(path)], input=source, text=True, check=True)


def tool(*args):
    return subprocess.run(
        [sys.executable, ROOT / "tools/lower_glibc.py", *map(str, args)], check=False, capture_output=True, text=True
    )


def made_library(folder):
    """What packaging/old_glibc.c makes."""
    library = folder / "libtern_old_glibc.so"
    options = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname,libtern_old_glibc.so"]
    subprocess.run(["gcc", *options, ROOT / "packaging/old_glibc.c", "-o", library], check=True)
    return library


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A program with its libraries, as tools/dist_tree.sh lays them out, not yet lowered."""
    tree = tmp_path_factory.mktemp("tree")
    compile_to(tree / "program", PROGRAM)
    lib = tree / "lib"
    lib.mkdir()
    made_library(lib)
    for line in subprocess.run(["ldd", tree / "program"], capture_output=True, text=True, check=True).stdout.splitlines():
        if found := re.match(r"\s*(lib(?:stdc\+\+|gcc_s)\S*) => (\S+)", line):
            shutil.copy(found[2], lib / found[1])
    subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/lib", tree / "program"], check=True)
    for path in lib.iterdir():
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", path], check=True)
    return tree


def lowered(tree, to):
    shutil.copytree(tree, to)
    done = tool(to)
    assert done.returncode == 0, done.stderr
    return to


def test_lowered_program_works_here(tree, tmp_path):
    place = lowered(tree, tmp_path / "tree")
    done = subprocess.run([place / "program"], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "constructed\nthrown and caught\n2.718 0\ndestructed\n")


def test_readelf_sees_no_later_version(tree, tmp_path):
    place = lowered(tree, tmp_path / "tree")
    for path in lower_glibc.elf_files(place):
        said = subprocess.run(["readelf", "-V", path], capture_output=True, text=True, check=True)
        assert said.stderr == ""
        versions = [tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([0-9.]+)", said.stdout)]
        assert all(v <= (2, 28) for v in versions), path


def test_without_lowering_the_check_fails(tree):
    done = tool("--check", tree)
    assert done.returncode == 1
    assert re.search(r"program: needs GLIBC_2\.3\d of libc\.so\.6", done.stderr)


def test_unknown_names_are_refused_with_what_to_do(tmp_path):
    compile_to(tmp_path / "t" / "program", "#include <malloc.h>\nint main() { return mallinfo2().fordblks == 1; }")
    before = (tmp_path / "t" / "program").read_bytes()
    done = tool(tmp_path / "t")
    assert done.returncode == 1
    assert "needs mallinfo2 of a glibc above 2.28. Add each to SAME" in done.stderr
    assert (tmp_path / "t" / "program").read_bytes() == before


def test_libraries_of_the_system_are_named(tree, tmp_path):
    place = lowered(tree, tmp_path / "tree")
    (place / "lib" / "libgcc_s.so.1").unlink()
    done = tool("--check", place)
    assert done.returncode == 1 and "needs libgcc_s.so.1, which is neither shipped nor glibc's" in done.stderr
    assert tool("--check", "--system", "libgcc*", place).returncode == 0


@pytest.mark.parametrize("own_versions", [False, True])
def test_a_library_of_which_no_version_is_left(tmp_path, own_versions):
    source = 'extern "C" double pow(double, double); extern "C" double cube(double x) { return pow(x, 3); }'
    script = tmp_path / "versions"
    script.write_text("OWN_1 { cube; };")
    options = [f"-Wl,--version-script={script}"] if own_versions else []
    library = tmp_path / "t" / "libcube.so"
    compile_to(library, source, "-shared", "-fPIC", "-nostdlib", "-lm", *options)
    assert "GLIBC_2.29" in subprocess.run(["readelf", "-V", library], capture_output=True, text=True, check=True).stdout
    shutil.copy(made_library(tmp_path), tmp_path / "t")
    subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", library], check=True)
    assert tool(tmp_path / "t").returncode == 0
    call = "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).cube; f.restype = ctypes.c_double; print(f(ctypes.c_double(2)))"
    done = subprocess.run([sys.executable, "-c", call, library], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "8.0\n"), done.stderr


def test_an_empty_folder_is_a_fault(tmp_path):
    assert tool("--check", tmp_path).returncode == 1


def test_every_made_name_is_in_the_library(tree):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", tree / "lib/libtern_old_glibc.so"], check=False, capture_output=True, text=True
    )
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == lower_glibc.MADE


@pytest.mark.parametrize(
    "built", ["release/tern", "release/libtern_grpc.so", "release/tern-video-decoder", "cuda/libtern_cuda.so"]
)
def test_what_is_built_can_be_lowered(built):
    path = ROOT / "build" / built
    if not path.is_file():
        pytest.skip(f"build/{built} is not there")
    assert lower_glibc.unknown_names(lower_glibc.Elf(path)) == []
