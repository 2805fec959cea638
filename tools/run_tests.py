#!/usr/bin/env python3
"""Runs GoogleTest programs, the tests of rust/textkit, corpus replays and pytest suites; prints a line per suite and ends with `N passed, N failed`.

  run_tests.py BUILD_DIR [--rooms a,b] [--only PATTERN] [--no-python] [--counts FILE] [--jobs N]

As many suites run side by side as there are cores, or as --jobs says, those that took long the last time first. pytest tests
with the mark `alone` run after everything else, with nothing beside them. A line every 20 s says what runs and how much is
left.

--only runs tests whose name holds PATTERN: of the GoogleTest programs (`*` and `?` as in their own filter), of rust/textkit and
of the pytest suites (as pytest's -k). A pattern that no test has fails.

--counts writes {"passed": .., "failed": .., "skipped": ..} for a caller that adds up several runs.
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
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


def python_tests(folder, build, timeout, only="", marks="not alone"):
    python = ROOT / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as tmp:
        report = pathlib.Path(tmp) / "report.xml"
        env = dict(os.environ, TERN=str(build / "tern"), FD_LOG_DIR=str(pathlib.Path(tmp) / "log"))
        options = ["-q", "-rs", "-p", "no:cacheprovider", f"--junitxml={report}", f"--basetemp={tmp}/tests", "-m", marks]
        if only:
            options += ["-k", only]
        try:
            done = subprocess.run(
                [python, "-m", "pytest", *options, folder],
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


def rust_tests(crate, target, timeout, only=""):
    """The tests of a crate, optimised, beside the library that the program links. A test that prints `skip: why` counts as
    skipped; ignored ones are measurements and do not count."""
    command = [
        "cargo",
        "test",
        "--release",
        "--locked",
        "--quiet",
        "--tests",
        "--no-fail-fast",
        "--manifest-path",
        crate / "Cargo.toml",
        only,
    ]
    try:
        done = subprocess.run(
            [*filter(None, command), "--", "--show-output"],
            cwd=ROOT,
            timeout=timeout,
            env=dict(os.environ, CARGO_TARGET_DIR=str(target)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as e:
        return 0, 1, 0, f"timed out after {timeout} s\n{(e.stdout or b'')[-2000:]}"
    counts = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed;", done.stdout, re.M)
    passed, failed = (sum(map(int, column)) for column in zip(*counts)) if counts else (0, 0)
    told = len(re.findall(r"^skip: ", done.stdout, re.M))
    if done.returncode != 0 and failed == 0:
        failed = 1
    return max(0, passed - told), failed, told, done.stdout


class Suite:
    def __init__(self, name, run, alone=False):
        self.name, self.run, self.alone = name, run, alone


def programs(build, prefix):
    for program in sorted(build.rglob(prefix + "*")):
        if program.is_file() and os.access(program, os.X_OK) and program.suffix == "":
            yield program


def find_suites(build, rooms, only, timeout, python):
    suites = []
    for program in programs(build, "test_"):
        if not rooms or program.name.removeprefix("test_") in rooms:
            suites.append(Suite(program.name, functools.partial(gtest, program, timeout, only)))
    if (build / "CMakeCache.txt").is_file() and (not rooms or "textkit" in rooms):
        run = functools.partial(rust_tests, ROOT / "rust" / "textkit", ROOT / "build" / "rust", timeout, only)
        suites.append(Suite("rust/textkit", run))
    if rooms:
        return suites
    for program in programs(build, "replay_") if not only else ():
        suites.append(Suite(program.name, functools.partial(replay, program, timeout)))
    for folder in (
        (
            "tests/tools",
            "tests/cli",
            "tests/docs",
            "tests/e2e",
            "tests/fastdeploy",
            "tests/hub",
            "tests/packaging",
            "tests/paddlenlp",
            "tests/page",
            "tests/python",
            "tests/security",
        )
        if python
        else ()
    ):
        files = list((ROOT / folder).glob("test_*.py"))
        if files:
            suites.append(Suite(folder, functools.partial(python_tests, folder, build, timeout, only)))
        if any("pytest.mark.alone" in file.read_text() for file in files):
            run = functools.partial(python_tests, folder, build, timeout, only, "alone")
            suites.append(Suite(folder + ", alone", run, alone=True))
    return suites


# The long ones, where no earlier run has told how long each takes: they must not be what the last core is left with.
LONG = [
    "test_engine",
    "tests/paddlenlp",
    "test_model",
    "tests/cli",
    "tests/e2e",
    "test_vision",
    "tests/fastdeploy",
    "tests/security",
]


def left(seconds):
    return f", about {seconds:.0f} s left" if seconds >= 1 else ""


class Runner:
    """Runs suites side by side and prints: each suite's line when it ends, and a line of progress when none has come for
    `period` seconds. `times` is what suites took before, by name, and learns what they take."""

    def __init__(self, jobs, only, times, period=20.0):
        self.jobs, self.only, self.times, self.period = jobs, only, times, period
        self.total, self.running, self.done, self.count = [0, 0, 0], {}, 0, 0

    def run(self, suites):
        self.count = len(suites)
        # What was never measured may be long.
        guess = {name: 1e9 + len(LONG) - place for place, name in enumerate(LONG)}
        waiting = sorted((s for s in suites if not s.alone), key=lambda s: -self.times.get(s.name, guess.get(s.name, 1e9)))
        apart = [s for s in suites if s.alone]
        with concurrent.futures.ThreadPoolExecutor(max(self.jobs, 1)) as pool:
            while waiting or apart or self.running:
                while waiting and len(self.running) < self.jobs:
                    self.start(pool, waiting.pop(0))
                if apart and not waiting and not self.running:
                    self.start(pool, apart.pop(0))
                finished, _ = concurrent.futures.wait(self.running, self.period, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in finished:
                    self.finish(future)
                if not finished:
                    self.say_progress(waiting + apart)

    def start(self, pool, suite):
        self.running[pool.submit(suite.run)] = (suite, time.monotonic())

    def finish(self, future):
        suite, begin = self.running.pop(future)
        self.done += 1
        passed, failed, skipped, output = future.result()
        if self.only and passed + failed + skipped == 0:
            return
        seconds = time.monotonic() - begin
        if not self.only:
            self.times[suite.name] = round(seconds, 1)
        self.total = [a + b for a, b in zip(self.total, (passed, failed, skipped))]
        print(
            f"{'FAIL' if failed else 'ok  '} {suite.name:28} {passed:5} passed {failed:3} failed {skipped:3} skipped "
            f"{seconds:7.1f} s",
            flush=True,
        )
        if failed:
            print("\n".join("     | " + line for line in output.splitlines()[-80:]), flush=True)
        elif skipped:
            for line in sorted({l.strip() for l in output.splitlines() if "skip" in l.lower() or "shared" in l}):
                print(f"     | {line[:200]}")

    def say_progress(self, waiting):
        now = time.monotonic()
        names = ", ".join(f"{s.name} ({now - begin:.0f} s)" for s, begin in self.running.values())
        known = sum(self.times.get(s.name, 0) for s in waiting)
        known += sum(max(self.times.get(s.name, 0) - (now - begin), 0) for s, begin in self.running.values())
        print(f"...  {self.done} of {self.count} suites done; now {names}{left(known / self.jobs)}", flush=True)


def read_times(path):
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}  # the first run here


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rooms", default="", help="only these rooms' test programs, comma separated")
    parser.add_argument("--only", default="", help="only tests whose name holds this pattern")
    parser.add_argument("--no-python", action="store_true")
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--timeout", type=int, default=1200, help="seconds for one suite")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="suites at once")
    parser.add_argument("--period", type=float, default=20, help="seconds between lines of progress")
    args = parser.parse_args()
    build = args.build.resolve()
    rooms = [r for r in args.rooms.split(",") if r]

    suites = find_suites(build, rooms, args.only, args.timeout, not args.no_python)
    times = build / "test_times.json"
    runner = Runner(args.jobs, args.only, read_times(times), args.period)
    runner.run(suites)
    times.write_text(json.dumps(runner.times, indent=1))

    total = runner.total
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
