"""tools/check_scripts.py: no reader of a pipe ends early under pipefail. tools/from_nothing.sh: what it is asked for."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"


def check(root):
    return subprocess.run([sys.executable, TOOLS / "check_scripts.py", root], capture_output=True, text=True)


def script(tmp_path, line, head="set -euo pipefail"):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "a.sh").write_text(f"#!/usr/bin/env bash\n{head}\n{line}\n")
    return check(tmp_path)


def test_scripts_of_this_repository():
    done = check(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "x=$(find . | head -1)",
        "ls | sort | head -n 1",
        "if ls 2>&1 | grep -q x; then :; fi",
        "ls |grep -Eq x",
        "ls | grep -m1 x",
        "ls | grep --quiet x",
        "ls |& grep -l x",
        "ls | sed 1q",
        "ls | sed -n '/x/{p;q}'",
        "ls | awk '/x/ {print; exit}'",
        "ls | awk '{print $1; exit} END {print 2}'",
        "ls | read -r x",
        "ls | \\\n  head -1",
        "ls | LC_ALL=C head -1",
        "ls | true",
    ],
)
def test_readers_that_end_early_are_found(tmp_path, line):
    done = script(tmp_path, line)
    assert done.returncode == 1 and "tools/a.sh:3:" in done.stdout, done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "head -1 file",
        "grep -q x file",
        'grep -q x <<< "$y"',
        "ls | sed -n 1p",
        "ls || head -1 file",
        "ls | tail -1",
        "ls | grep -c x",
        "ls | awk '/x/ {p = $1} END {print p; exit bad}'",
        "ls | while read -r x; do :; done",
        "# ls | head -1",
        "cat <<EOF\nls | head -1\nEOF",
        "ls | sed 's/qx/y/; s/ q/x/'",
        "ls | sed 's/a/b/p'",
    ],
)
def test_other_commands_pass(tmp_path, line):
    done = script(tmp_path, line)
    assert done.returncode == 0, done.stdout


def test_without_pipefail_the_status_is_the_readers(tmp_path):
    assert "0 scripts" in script(tmp_path, "ls | head -1", head="set -eu").stdout


@pytest.mark.parametrize(
    "arguments,word",
    [
        (["nothing"], "unknown target nothing"),
        (["--what"], "unknown option --what"),
        (["--ccache", "/nowhere", "run"], "no folder /nowhere"),
    ],
)
def test_from_nothing_refuses(arguments, word):
    done = subprocess.run(["bash", TOOLS / "from_nothing.sh", *arguments], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and word in done.stderr, done.stderr


def test_setup_refuses_an_unknown_target():
    done = subprocess.run(["bash", TOOLS / "setup.sh", "nothing"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "nothing" in done.stdout, done.stdout + done.stderr


def test_setup_knows_every_target_that_asks_for_more():
    asked = re.findall(r"bash tools/setup\.sh ([\w-]+)", (ROOT / "Makefile").read_text())
    known = re.search(r"declare -A MORE=\((.*)\)", (TOOLS / "setup.sh").read_text()).group(1)
    listed = subprocess.run(
        ["bash", "-c", f'declare -A MORE=({known}); printf "%s\\n" "${{!MORE[@]}}"'], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    assert asked and set(asked) <= set(listed)
