"""tools/check_unused.py: functions that no object file outside tests needs."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

USED = "namespace tern { struct Box { int open(); int seal(); }; int called(); void start(); }\n"
FILES = {
    "tern_a.dir/src/a/a.cc.o": USED
    + "namespace tern { int Box::open() { return seal(); } int Box::seal() { return 1; } int called() { return 2; } }\n",
    "tern.dir/src/main.cc.o": USED + "int main() { tern::Box b; return b.open() + tern::called(); }\n",
}


def check(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / "CMakeFiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["c++", "-std=c++20", "-O2", "-fPIC", "-x", "c++", "-c", "-o", path, "-"]
        subprocess.run(command, input=text, text=True, check=True)
    return subprocess.run([sys.executable, ROOT / "tools" / "check_unused.py", tmp_path], capture_output=True, text=True)


def test_what_is_used_passes(tmp_path):
    done = check(tmp_path, FILES)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name,text,said",
    [
        ("tern_b.dir/src/b/b.cc.o", "namespace tern::b { int lost() { return 3; } }", "tern::b::lost is used by nobody"),
        (
            "tern_b.dir/src/b/b.cc.o",
            "namespace tern { struct Pot { Pot(int); int n; }; Pot::Pot(int m) : n(m) {} }",
            "tern::Pot::Pot is used by nobody",
        ),
        (
            "tern_b.dir/src/b/b.cc.o",
            "namespace tern { int inner(int n) { return n; } int (*const kTable[])(int) = {inner};\n"
            "extern const void* const kKeep; const void* const kKeep = kTable; }",
            "tern::inner is used by its own file alone",
        ),
    ],
)
def test_what_is_not_is_named(tmp_path, name, text, said):
    done = check(tmp_path, FILES | {name: text})
    assert done.returncode == 1 and f"src/b/b.cc: {said}" in done.stdout, done.stdout


def test_a_test_is_no_user(tmp_path):
    only = "namespace tern { int only() { return 4; } }"
    test = "namespace tern { int only(); } int main() { return tern::only(); }"
    files = FILES | {"tern_b.dir/src/b/b.cc.o": only, "test_b.dir/src/b/tests/b_test.cc.o": test}
    done = check(tmp_path, files)
    assert done.returncode == 1 and "tern::only is used by tests alone" in done.stdout, done.stdout


def test_a_folder_without_objects_is_no_success(tmp_path):
    done = check(tmp_path, {})
    assert done.returncode == 1 and "build first" in done.stdout


def test_sources_that_are_one_object_use_each_other(tmp_path):
    header = "namespace tern { int shared(); int lonely(); int lost(); int start(); }\n"
    texts = {
        "src/b/one.cc": header
        + "int tern::shared() { return 1; }\nint tern::lonely() { return 2; }\nint tern::lost() { return 3; }\n",
        "src/b/two.cc": header + "int tern::start() { return shared(); }\n",
        "src/b/three.cc": header + "extern int (*const kKept)();\nint (*const kKept)() = tern::lonely;\n",
    }
    # `lonely` is used by another source of its object, `lost` by none.
    unity = tmp_path / "unity" / "tern_b_g0.cc"
    unity.parent.mkdir(parents=True)
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    unity.write_text("".join(f'#include "{tmp_path / name}"\n' for name in texts))
    main = header.replace("int start()", "int start(); int called()") + "int main() { return tern::start(); }"
    done = check(tmp_path, {"tern_b.dir/unity/tern_b_g0.cc.o": unity.read_text(), "tern.dir/src/main.cc.o": main})
    assert done.returncode == 1 and "src/b/one.cc: tern::lost is used by nobody" in done.stdout, done.stdout
    assert "tern::shared" not in done.stdout and "tern::lonely" not in done.stdout, done.stdout
