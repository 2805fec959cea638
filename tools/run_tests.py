#!/usr/bin/env python3
"""Runs GoogleTest programs, corpus replays and pytest suites; prints a line per suite and ends with `N passed, N failed`.

  run_tests.py BUILD_DIR [--rooms a,b] [--only PATTERN] [--no-python] [--counts FILE]

--only runs tests whose name holds PATTERN: of the GoogleTest programs (`*` and `?` as in their own filter) and of the pytest
suites (as pytest's -k). A pattern that no test has fails.

--counts writes {"passed": .., "failed": .., "skipped": ..} for a caller that adds up several runs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parent.parent


def gtest(program, timeout, only=""):
    chosen = []
    if only:
        chosen = [f"--gtest_filter=*{only.strip('*')}*"]
        listed = subprocess.run(
            [program, *chosen, "--gtest_list_tests"], cwd=ROOT, timeout=timeout, capture_output=True, text=True
        )
        if not any(line.startswith("  ") for line in listed.stdout.splitlines()):
            return 0, 0, 0, ""
    with tempfile.TemporaryDirectory() as tmp:
        report = pathlib.Path(tmp) / "report.json"
        try:
            done = subprocess.run(
                [program, *chosen, f"--gtest_output=json:{report}", "--gtest_brief=1"],
                cwd=ROOT,
                timeout=timeout,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            output, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as e:
            return 0, 1, 0, f"timed out after {timeout} s\n{(e.stdout or b'')[-2000:]}"
        passed = failed = skipped = 0
        if report.exists():
            data = json.loads(report.read_text())
            for suite in data["testsuites"]:
                for case in suite["testsuite"]:
                    if case.get("failures"):
                        failed += 1
                    elif case.get("result") == "SKIPPED":
                        skipped += 1
                    elif case.get("status") == "RUN":
                        passed += 1
        if code != 0 and failed == 0:
            failed = 1  # crashed, or a sanitizer ended it
        if passed + failed + skipped == 0:
            failed, output = 1, output + "\nno test ran"
        return passed, failed, skipped, output


def replay(program, timeout):
    corpus = ROOT / "tests" / "fuzz" / "corpus" / program.name.removeprefix("replay_")
    files = sorted(p for p in corpus.glob("*") if p.is_file()) if corpus.is_dir() else []
    if not files:
        return 0, 1, 0, f"no corpus in {corpus}"
    try:
        done = subprocess.run(
            [program, *files],
            cwd=ROOT,
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return 0, 1, 0, f"timed out after {timeout} s"
    ok = done.returncode == 0
    return (len(files) if ok else 0), (0 if ok else 1), 0, done.stdout


def python_tests(folder, build, timeout, only=""):
    python = ROOT / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as tmp:
        report = pathlib.Path(tmp) / "report.xml"
        env = dict(os.environ, TERN=str(build / "tern"), FD_LOG_DIR=str(pathlib.Path(tmp) / "log"))
        try:
            done = subprocess.run(
                [
                    python,
                    "-m",
                    "pytest",
                    "-q",
                    "-rs",
                    "-p",
                    "no:cacheprovider",
                    f"--junitxml={report}",
                    *(["-k", only] if only else []),
                    folder,
                ],
                cwd=ROOT,
                timeout=timeout,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired as e:
            return 0, 1, 0, f"timed out after {timeout} s\n{(e.stdout or b'')[-2000:]}"
        if not report.exists():
            return 0, 1, 0, done.stdout
        passed = failed = skipped = 0
        for case in ET.parse(report).getroot().iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
        if done.returncode not in (0, 5) and failed == 0:
            failed = 1
        return passed, failed, skipped, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rooms", default="", help="only these rooms' test programs, comma separated")
    parser.add_argument("--only", default="", help="only tests whose name holds this pattern")
    parser.add_argument("--no-python", action="store_true")
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--timeout", type=int, default=600)
    args = parser.parse_args()
    build = args.build.resolve()
    rooms = [r for r in args.rooms.split(",") if r]

    suites = []
    for program in sorted(build.rglob("test_*")):
        if program.is_file() and os.access(program, os.X_OK) and program.suffix == "":
            if not rooms or program.name.removeprefix("test_") in rooms:
                suites.append((program.name, lambda p=program: gtest(p, args.timeout, args.only)))
    if not rooms:
        for program in sorted(build.rglob("replay_*")) if not args.only else ():
            if program.is_file() and os.access(program, os.X_OK):
                suites.append((program.name, lambda p=program: replay(p, args.timeout)))
        if not args.no_python:
            for folder in ("tests/tools", "tests/cli", "tests/e2e", "tests/fastdeploy", "tests/security"):
                if any((ROOT / folder).glob("test_*.py")):
                    suites.append((folder, lambda f=folder: python_tests(f, build, args.timeout, args.only)))

    total = [0, 0, 0]
    for name, run in suites:
        begin = time.monotonic()
        passed, failed, skipped, output = run()
        if args.only and passed + failed + skipped == 0:
            continue
        total = [total[0] + passed, total[1] + failed, total[2] + skipped]
        print(
            f"{'FAIL' if failed else 'ok  '} {name:28} {passed:5} passed {failed:3} failed {skipped:3} skipped "
            f"{time.monotonic() - begin:7.1f} s",
            flush=True,
        )
        if failed:
            print("\n".join("     | " + line for line in output.splitlines()[-80:]), flush=True)
        elif skipped:
            for line in sorted({l.strip() for l in output.splitlines() if "skip" in l.lower() or "shared" in l}):
                print(f"     | {line[:200]}")
    if not suites:
        print("no test program found in", build, *rooms)
        total[1] += 1
    elif args.only and sum(total) == 0:
        print(f"no test has {args.only} in its name")
        total[1] += 1
    if args.counts:
        args.counts.write_text(json.dumps(dict(passed=total[0], failed=total[1], skipped=total[2])))
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
