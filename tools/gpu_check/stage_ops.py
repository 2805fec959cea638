"""Kernels: cuda_ops_test as it is, and under compute-sanitizer."""
import os
import pathlib
import re
import shutil
import subprocess
import time

SANITIZERS = {
    "memcheck": ["--leak-check", "full"],
    "racecheck": ["--racecheck-report", "all"],
    "synccheck": [],
    "initcheck": [],
}
# Own products only: the kernels of cuBLASLt are not ours to check.
VARIANT = "no-cublaslt"
TAIL = re.compile(r"(\d+) passed, (\d+) failed\s*$")
LINE = re.compile(r"^  (\S+) +(\d+) passed +(\d+) failed", re.M)


def sanitizer():
    for path in ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer",
                 *sorted(map(str, pathlib.Path("/usr/local").glob("cuda-*/bin/compute-sanitizer")), reverse=True)]:
        if found := shutil.which(path):
            return found
    raise FileNotFoundError("compute-sanitizer is not installed")


def test_command(run, *more):
    command = [run.places.program("cuda_ops_test"), *run.places.libraries(), *more]
    return command + (["--only", run.args.only] if run.args.only else [])


def execute(command, log, seconds, env=None):
    """(status, output); status None when it ran past its time. The output is kept in `log`."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=seconds, env={**os.environ, **(env or {})})
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as e:
        status, text = None, (e.stdout or b"").decode(errors="replace")
    log.write_text(text)
    return status, text


def ops(run):
    kernels = run.places.out / "kernels.txt"
    status, text = execute(test_command(run, "--kernels", str(kernels)), run.places.out / "ops.txt", 400)
    for line in text.splitlines():
        if line.startswith("FAIL"):
            run.check(False, "op", line)
    tail = TAIL.search(text)
    if not tail:
        return run.check(False, "cuda_ops_test", f"status {status}: {text[-500:]}")
    run.stage.checks += [dict(ok=True, name="op", detail="")] * int(tail[1])
    run.check(status == 0, "status", f"{status}")
    run.figure("groups", ", ".join(f"{name} {passed}" for name, passed, _ in LINE.findall(text))[:600])
    run.figure("kernels", len(kernels.read_text().split()) if kernels.exists() else 0)


def faults_of(text):
    """(faults counted by a sanitizer, None without a summary; lines of its report that name one)"""
    found = [line for line in text.splitlines() if line.startswith("=========") and
             re.search(r"(Error|Invalid|Barrier error|Uninitialized|Leaked|Race|hazard|Warning)", line) and
             not re.search(r"(ERROR SUMMARY|LEAK SUMMARY|RACECHECK SUMMARY|Internal)", line)]
    summary = re.findall(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
    count = sum(int(a or b) for a, b in summary)
    return count if summary else None, found


def sanitize(run):
    tool_path = sanitizer()
    listing = run.places.out / "kernels.txt"
    if not listing.exists():
        execute(test_command(run, "--kernels", str(listing)), run.places.out / "ops.txt", 400)
    wanted = set(listing.read_text().split())
    for tool, flags in SANITIZERS.items():
        began = time.monotonic()
        seen = run.places.out / f"kernels-{tool}.txt"
        command = [tool_path, "--tool", tool, *flags, "--error-exitcode", "9", "--print-limit", "50",
                   *test_command(run, "--smallest", "--variant", VARIANT, "--kernels", str(seen))]
        status, text = execute(command, run.places.out / f"sanitize-{tool}.txt", 150)
        count, lines = faults_of(text)
        ran = [int(a) for a, _ in re.findall(r"^(\d+) passed, (\d+) failed", text, re.M)]
        run.check(status == 0 and bool(ran) and ran[-1] > 0, f"{tool}: tests pass",
                  f"status {status}, {ran[-1:] or 'no'} passed: {text[-300:] if status != 0 else ''}")
        run.check(count == 0, f"{tool}: no fault", f"{count} faults: " + " | ".join(lines[:6]))
        missing = {k for k in wanted - set(seen.read_text().split() if seen.exists() else []) if "cublaslt" not in k}
        run.check(not missing or run.args.only, f"{tool}: every kernel ran", ", ".join(sorted(missing)))
        run.figure(f"{tool} seconds", round(time.monotonic() - began, 1))
