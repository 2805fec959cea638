"""tools/format.sh --check names a badly formatted file of every kind, and is silent about good ones."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BAD = {
    "a.h": "int  f( );\n",
    "a.cc": "int  f( ) { return 1 ; }\n",
    "a.cu": "int  f( ) { return 1 ; }\n",
    "a.cuh": "int  f( );\n",
    "a.inc": "int  f( );\n",
    "a.rs": "fn  f( ) { }\n",
    "a.py": "x = [ 1,2 ]\n",
    "a.sh": "if true; then\n      echo a\nfi\n",
}
CONFIGURATION = (".clang-format", "ruff.toml", "rust/textkit/rustfmt.toml")


def tree(tmp_path, files):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in CONFIGURATION:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    return tmp_path


def format_tree(folder, *flags):
    command = ["bash", ROOT / "tools/format.sh", *flags, folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", BAD)
def test_one_bad_file_fails_the_check(tmp_path, name):
    folder = tree(tmp_path, {name: BAD[name]})
    done = format_tree(folder, "--check")
    assert done.returncode == 1, done.stdout + done.stderr
    assert name in done.stdout + done.stderr
    assert (folder / name).read_text() == BAD[name]  # the check changes nothing


def test_formatting_makes_the_check_pass(tmp_path):
    folder = tree(tmp_path, BAD)
    assert format_tree(folder).returncode == 0
    done = format_tree(folder, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
