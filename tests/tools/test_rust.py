"""The gates of Rust, each seen to fail on a small crate: tools/clippy.sh, and the crate's tests in tools/run_tests.py."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ["PATH"] += os.pathsep + str(pathlib.Path.home() / ".cargo" / "bin")
sys.path.insert(0, str(ROOT / "tools"))

import run_tests  # noqa: E402

FINE = "pub fn last(x: &[u8]) -> Option<&u8> {\n    x.last()\n}\n"
TESTS = (
    "#[cfg(test)]\nmod tests {{\n    #[test]\n    fn it_holds() {{\n        {}\n    }}\n    #[test]\n    fn another() {{}}\n}}\n"
)


def crate(tmp_path, source):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text(source)
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n')
    (tmp_path / "Cargo.lock").write_text('version = 3\n\n[[package]]\nname = "small"\nversion = "0.1.0"\n')
    return tmp_path


def clippy(folder):
    env = dict(os.environ, CARGO_TARGET_DIR=str(folder / "target"))
    return subprocess.run(["bash", ROOT / "tools" / "clippy.sh", folder], capture_output=True, text=True, timeout=300, env=env)


@pytest.mark.parametrize(
    "source,word",
    [
        ("pub fn none(x: &[u8]) -> bool {\n    x.len() == 0\n}\n", "is_empty"),
        ("fn nobody_calls_it() {}\n", "never used"),
        (FINE + TESTS.format("assert_eq!(super::last(&[]).is_none(), true);"), "bool"),
    ],
)
def test_clippy_finds(tmp_path, source, word):
    done = clippy(crate(tmp_path, source))
    assert done.returncode != 0 and word in done.stderr, done.stdout + done.stderr


def test_clippy_is_content(tmp_path):
    done = clippy(crate(tmp_path, FINE))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "line,counts",
    [
        ("assert!(super::last(&[1]).is_some());", (2, 0, 0)),
        ("assert!(super::last(&[]).is_some());", (1, 1, 0)),
        ('println!("skip: ../shared/data/x is not there");', (1, 0, 1)),
        ("no Rust", (0, 1, 0)),
    ],
)
def test_tests_of_a_crate_are_counted(tmp_path, line, counts):
    folder = crate(tmp_path, FINE + TESTS.format(line))
    *counted, output = run_tests.rust_tests(folder, tmp_path / "target", 300)
    assert tuple(counted) == counts, output


def test_tests_of_a_crate_by_name(tmp_path):
    folder = crate(tmp_path, FINE + TESTS.format(""))
    assert run_tests.rust_tests(folder, tmp_path / "target", 300, "it_holds")[:3] == (1, 0, 0)
