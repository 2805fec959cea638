"""tools/run_tests.py: choosing tests by room and by name."""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Stands for a GoogleTest program with the tests Suite.One and Suite.Two.
PROGRAM = """#!{python}
import fnmatch, json, os, pathlib, sys, time
options = dict(a.split("=", 1) if "=" in a else (a, "") for a in sys.argv[1:])
wait = os.environ.get("WAIT_FOR")
if wait and "--gtest_list_tests" not in options:  # until the other one has begun
    pathlib.Path(sys.argv[0] + ".begun").touch()
    while len(list(pathlib.Path(sys.argv[0]).parent.glob("*.begun"))) < int(wait):
        time.sleep(0.01)
names = [n for n in ("One", "Two") if fnmatch.fnmatchcase("Suite." + n, options.get("--gtest_filter", "*"))]
if "--gtest_list_tests" in options:
    print("\\n".join(["Suite."] + ["  " + n for n in names]) if names else "")
else:
    cases = [dict(name=n, status="RUN", result="COMPLETED") for n in names]
    with open(options["--gtest_output"].removeprefix("json:"), "w") as f:
        json.dump(dict(testsuites=[dict(testsuite=cases)]), f)
"""


def run(tmp_path, *options, **env):
    for room in ("first", "second"):
        program = tmp_path / f"test_{room}"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "run_tests.py", tmp_path, "--no-python", *options],
        capture_output=True,
        text=True,
        env=os.environ | env,
    )
    return done.returncode, done.stdout.splitlines()[-1], done.stdout


def test_everything(tmp_path):
    assert run(tmp_path)[:2] == (0, "4 passed, 0 failed, 0 skipped")


def test_one_room(tmp_path):
    code, last, output = run(tmp_path, "--rooms", "second")
    assert (code, last) == (0, "2 passed, 0 failed, 0 skipped") and "test_first" not in output


def test_suites_run_side_by_side(tmp_path):
    # Each waits for the other: one after the other, they would run into the time limit.
    assert run(tmp_path, "--jobs", "2", "--timeout", "60", WAIT_FOR="2")[:2] == (0, "4 passed, 0 failed, 0 skipped")
    assert json.loads((tmp_path / "test_times.json").read_text()).keys() == {"test_first", "test_second"}


def test_progress_is_said(tmp_path):
    code, _, output = run(tmp_path, "--jobs", "1", "--timeout", "2", "--period", "0.2", WAIT_FOR="2")
    assert code == 1 and "...  0 of 2 suites done; now test_first (" in output


def test_by_name(tmp_path):
    assert run(tmp_path, "--only", "Two")[:2] == (0, "2 passed, 0 failed, 0 skipped")
    assert run(tmp_path, "--rooms", "first", "--only", "uite.O")[:2] == (0, "1 passed, 0 failed, 0 skipped")


def test_a_name_that_no_test_has_fails(tmp_path):
    code, last, output = run(tmp_path, "--only", "Three")
    assert (code, last) == (1, "0 passed, 1 failed, 0 skipped") and "no test has Three in its name" in output


def test_a_room_that_is_not_there_fails(tmp_path):
    assert run(tmp_path, "--rooms", "third")[0] == 1


def test_help_of_the_script_names_both():
    done = subprocess.run(["bash", ROOT / "tools" / "test.sh", "--help"], capture_output=True, text=True, check=True)
    assert "ROOM=" in done.stdout and "ONLY=" in done.stdout


def progress_of_a_build(lines, period="20", status=0):
    """What build_progress.py says of a build that prints LINES and ends with STATUS (below 0: by that signal)."""
    end = f"os.kill(os.getpid(), {-status})" if status < 0 else f"sys.exit({status})"
    build = f"import os, sys; sys.stdout.write({lines!r}); sys.stdout.flush(); {end}"
    command = [sys.executable, ROOT / "tools" / "build_progress.py", period, sys.executable, "-c", build]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


STEPS = "".join(f"[{i}/50 0.1] Building CXX object {i}.o\n" for i in range(1, 50))


def test_a_build_is_condensed_and_its_errors_are_not():
    status, said = progress_of_a_build(STEPS)
    assert status == 0 and re.fullmatch(r"built: 50 steps in \d+ s\n", said)
    said = progress_of_a_build(STEPS, "0")[1].splitlines()
    assert len(said) == 50 and re.fullmatch(r"building: 49 of 50 steps, about 1 s left", said[-2]), said[-2]
    assert progress_of_a_build("ninja: no work to do.\n") == (0, "")


def test_a_failed_build_is_never_called_built():
    failed = "FAILED: 7.o\n7.cc:1:1: error: no\n"
    for lines, status, seen in ((failed, 1, 1), ("", 3, 3), ("", -9, 137)):
        code, said = progress_of_a_build(STEPS + lines, status=status)
        assert code == seen
        assert re.fullmatch(re.escape(lines) + rf"the build failed after \d+ s: exit status {seen}\n", said), said


def test_the_script_ends_as_the_build_does(tmp_path):
    for status, last in ((0, "built: 2 steps"), (5, "the build failed")):
        cmake = tmp_path / "cmake"
        cmake.write_text(f"#!/bin/sh\necho '[2/2 0.1] Linking tern'\nexit {status}\n")
        cmake.chmod(0o755)
        env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", ROOT / "tools" / "build.sh", "release", "tern"], capture_output=True, text=True, env=env)
        assert done.returncode == status and done.stdout.splitlines()[-1].startswith(last), done.stdout
