"""tools/check_sizes.py: each kind of a breach is found, and exceptions have reasons and are needed."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = "// a line\n"
CXX = "int f() {{\n{}}}\n"
RUST = "impl A {{\n    pub fn f(&self) {{\n{}    }}\n}}\n"
PYTHON = "def f():\n{}\n\ndef g():\n    pass\n"


def check(root, *flags):
    return subprocess.run([sys.executable, ROOT / "tools" / "check_sizes.py", *flags, root], capture_output=True, text=True)


def tree(tmp_path, path, text, exceptions=""):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (tmp_path / "tools").mkdir(exist_ok=True)
    (tmp_path / "tools" / "size_exceptions.txt").write_text(exceptions)
    return check(tmp_path)


def test_this_repository():
    done = check(ROOT)
    assert done.returncode == 0, done.stdout


# Of each kind the largest that is allowed, and one line more.
@pytest.mark.parametrize(
    "path,allowed,more,what",
    [
        ("src/base/a.cc", LINE * 400, LINE, "src/base/a.cc: 401 lines"),
        ("src/kernels/a.cu", LINE * 400, LINE, "src/kernels/a.cu: 401 lines"),
        ("src/base/tests/a_test.cc", LINE * 400, LINE, "src/base/tests/a_test.cc: 401 lines"),
        ("src/base/a.h", LINE * 150, LINE, "src/base/a.h: 151 lines"),
        ("rust/textkit/src/a.rs", LINE * 400, LINE, "rust/textkit/src/a.rs: 401 lines"),
        ("models/train/a.py", "# a line\n" * 400, "# a line\n", "models/train/a.py: 401 lines"),
        ("tests/cli/test_a.py", "# a line\n" * 400, "# a line\n", "tests/cli/test_a.py: 401 lines"),
        ("tools/x/a.sh", "# a line\n" * 400, "# a line\n", "tools/x/a.sh: 401 lines"),
    ],
)
def test_files(tmp_path, path, allowed, more, what):
    done = tree(tmp_path / "fits", path, allowed)
    assert done.returncode == 0, done.stdout
    done = tree(tmp_path / "over", path, allowed + more)
    assert done.returncode == 1 and what in done.stdout


def test_a_class_in_three_files(tmp_path):
    for name, text in {
        "a": "A::A(int n) : n_(n) {\n}\n",
        "b": "Status A::run(int n) {\n}\n",
        "user": "void f() {\n  A::make(1);\n}\n",
        "other": "Expected<int> B::run() {\n}\n",
    }.items():
        done = tree(tmp_path, f"src/room/{name}/{name}.cc", text)
    assert done.returncode == 0, done.stdout
    done = tree(tmp_path, "src/room/c/c.cc", "int A::third() const { return 3; }\n")
    assert done.returncode == 1 and "src/room:A: 3 files" in done.stdout


@pytest.mark.parametrize(
    "path,function,line",
    [
        ("src/base/a.cc", CXX, "  x++;\n"),
        ("src/base/tests/a_test.cc", "TEST(A, b) {{\n{}}}\n", "  x++;\n"),
        ("src/base/a.h", "inline " + CXX, "  x++;\n"),
        ("src/kernels/a.inc", CXX, "  x++;\n"),
        ("rust/textkit/src/a.rs", RUST, "        x();\n"),
        ("tools/x/a.py", PYTHON, "    x()\n"),
    ],
)
def test_functions(tmp_path, path, function, line):
    frame = 1 if path.endswith(".py") else 2  # lines of a function besides its body
    done = tree(tmp_path / "fits", path, function.format(line * (60 - frame)))
    assert done.returncode == 0, done.stdout
    done = tree(tmp_path / "over", path, function.format(line * (61 - frame)))
    assert done.returncode == 1 and f"{path}:" in done.stdout and "61 lines in a function" in done.stdout


def test_folders(tmp_path):
    folder = tmp_path / "src" / "base"
    (folder / "tests").mkdir(parents=True)
    for n in range(25):
        (folder / f"a{n}.cc").write_text("")
        (folder / "tests" / f"a{n}_test.cc").write_text("")
    assert check(tmp_path).returncode == 0
    (folder / "one_more.h").write_text("")
    for flags in ((), ("--folders",)):
        done = check(tmp_path, *flags)
        assert done.returncode == 1 and "src/base/: 26 files in a folder" in done.stdout


@pytest.mark.parametrize(
    "key,path,text",
    [
        ("src/base/a.cc", "src/base/a.cc", LINE * 401),
        ("src/base/a.cc:f", "src/base/a.cc", CXX.format("  x++;\n" * 60)),
        ("src/base/", "src/base/deep/a.h", LINE * 151),
    ],
)
def test_exceptions(tmp_path, key, path, text):
    assert tree(tmp_path / "none", path, text).returncode == 1
    done = tree(tmp_path / "reason", path, text, f"# why\n{key}: it is a table\n")
    assert done.returncode == 0, done.stdout
    done = tree(tmp_path / "bare", path, text, f"{key}: \n")
    assert done.returncode == 1 and "has no reason" in done.stdout
    done = tree(tmp_path / "idle", path, "", f"{key}: it is a table\n")
    assert done.returncode == 1 and f"{key} is not needed any more" in done.stdout


def test_a_tree_without_files_fails(tmp_path):
    assert check(tmp_path).returncode == 1
