"""tools/run_tests.py: choosing tests by room and by name."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Stands for a GoogleTest program with the tests Suite.One and Suite.Two.
PROGRAM = """#!{python}
import fnmatch, json, sys
options = dict(a.split("=", 1) if "=" in a else (a, "") for a in sys.argv[1:])
names = [n for n in ("One", "Two") if fnmatch.fnmatchcase("Suite." + n, options.get("--gtest_filter", "*"))]
if "--gtest_list_tests" in options:
    print("\\n".join(["Suite."] + ["  " + n for n in names]) if names else "")
else:
    cases = [dict(name=n, status="RUN", result="COMPLETED") for n in names]
    with open(options["--gtest_output"].removeprefix("json:"), "w") as f:
        json.dump(dict(testsuites=[dict(testsuite=cases)]), f)
"""


def run(tmp_path, *options):
    for room in ("first", "second"):
        program = tmp_path / f"test_{room}"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "run_tests.py", tmp_path, "--no-python", *options], capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()[-1], done.stdout


def test_everything(tmp_path):
    assert run(tmp_path)[:2] == (0, "4 passed, 0 failed, 0 skipped")


def test_one_room(tmp_path):
    code, last, output = run(tmp_path, "--rooms", "second")
    assert (code, last) == (0, "2 passed, 0 failed, 0 skipped") and "test_first" not in output


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
