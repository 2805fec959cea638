"""Kernels: cuda_ops_test as it is, and under compute-sanitizer."""

import concurrent.futures
import copy
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from results import Stage

SANITIZERS = {"racecheck": [], "synccheck": [], "memcheck": ["--leak-check", "full"], "initcheck": []}
# As cuda_ops_test names them, but `ranges`, which has no small shapes; each is a process, so many at a time.
GROUPS = [
    "linear",
    "large",
    "sample",
    "grouped",
    "attention",
    "segments",
    "latent",
    "bits",
    "moe",
    "logprobs",
    "draw_facts",
    "logits",
    "thinking",
    "codes",
    "norms",
    "rows",
    "rope",
    "device",
    "graph",
    "chain",
    "layer_chain",
    "norm_fusion",
    "experts",
    "widened",
]
# Where racecheck and synccheck take long: as so many processes, each with a share of the group's cases.
PARTS = {"linear": 6, "grouped": 4, "sample": 4, "norm_fusion": 3, "bits": 3}
PARALLEL = max(8, (os.cpu_count() or 8) * 5 // 8)
# Own products only: the kernels of cuBLASLt are not ours to check. Those of this GPU, in deterministic mode where it has
# kernels of its own, and the portable ones.
VARIANTS = ["no-cublaslt", "deterministic", "portable-deterministic", "plain"]
DETERMINISTIC = ["linear", "large", "grouped", "attention", "bits", "latent", "chain"]
WITH_CUBLASLT = ["widened"]  # has kernels that stand beside one of cuBLASLt's
# Racecheck itself faults where a kernel of cuBLASLt runs (memcheck and initcheck find nothing there); ours in that group
# have no shared memory, which is all that it looks at.
NO_SHARED_MEMORY = {"scale_columns"}
OURS = ["--kernel-name", "kns=4tern4cuda"]  # by a part of the mangled name: what a tool looks at there
SECONDS = 300  # of one process
OPS_SECONDS = 450  # of one variant of stage `ops`; references of all variants share the CPU
# What stage `ops` runs, one process each: references take turns with the GPU.
OPS_VARIANTS = ["plain", "no-cublaslt", "smem-99", "deterministic", "portable", "portable-deterministic"]
TAIL = re.compile(r"(\d+) passed, (\d+) failed\s*$")
LINE = re.compile(r"^  (\S+) +(\d+) passed +(\d+) failed", re.M)


def cuda_tool(name):
    """Where a tool of the CUDA toolkit lies."""
    for path in [
        name,
        f"/usr/local/cuda/bin/{name}",
        *sorted(map(str, pathlib.Path("/usr/local").glob(f"cuda-*/bin/{name}")), reverse=True),
    ]:
        if found := shutil.which(path):
            return found
    raise FileNotFoundError(f"{name} is not installed")


def test_command(run, *more):
    return [run.places.program("cuda_ops_test"), *run.places.libraries(), *more]


def execute(command, log, seconds, env=None):
    """(status, output); status None when it ran past its time. The output goes to `log`."""
    with open(log, "w") as out:
        child = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}, start_new_session=True
        )
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # what a sanitizer runs would go on without it
            child.wait(20)
            status = None
    return status, log.read_text(errors="replace")


def ops_of(run, variant):
    """All groups of one variant, in a process of its own; the kernels that ran."""
    seen = run.places.out / f"kernels-{variant}.txt"
    only = ["--only", run.args.only] if run.args.only else []
    status, text = execute(
        test_command(run, "--variant", variant, "--kernels", str(seen), *only), run.places.out / f"ops-{variant}.txt", OPS_SECONDS
    )
    for line in text.splitlines():
        if line.startswith("FAIL"):
            run.check(False, "op", line)
    tail = TAIL.search(text)
    if not tail:
        run.check(False, f"cuda_ops_test {variant}", f"status {status}: {text[-500:]}")
        return set()
    run.stage.checks += [dict(ok=True, name="op", detail="")] * int(tail[1])
    # A group alone may have nothing to do in a variant.
    run.check(status == 0 or (only and tail[1] == tail[2] == "0"), f"status of {variant}", f"{status}")
    run.figure(variant, ", ".join(f"{name} {passed}" for name, passed, _ in LINE.findall(text)))
    return set(seen.read_text().split() if seen.exists() else [])


def list_kernels(run):
    """Runs every op in every variant; the list of kernels appears when all are through."""
    with concurrent.futures.ThreadPoolExecutor(len(OPS_VARIANTS)) as pool:
        kernels = set().union(*pool.map(lambda v: ops_of(run, v), OPS_VARIANTS))
    part = run.places.out / "kernels.part"
    part.write_text("".join(f"{k}\n" for k in sorted(kernels)))
    part.replace(run.places.out / "kernels.txt")
    return kernels


def list_kernels_apart(run):
    """The same for a stage that counts other checks: one for all of it."""
    apart = copy.copy(run)
    apart.stage = Stage("ops")
    list_kernels(apart)
    failed = [f"{c['name']}: {c['detail']}" for c in apart.stage.checks if not c["ok"]]
    run.check(not failed, "every op is right where kernels are listed", "; ".join(failed[:3]))


def ops(run):
    run.figure("kernels", len(list_kernels(run)))


def faults_of(text):
    """(faults counted by a sanitizer, None without a summary; lines of its report that name one)"""
    found = [
        line
        for line in text.splitlines()
        if line.startswith("=========")
        and re.search(r"(Error|Invalid|Barrier error|Uninitialized|Leaked|Race|hazard|Warning)", line)
        and not re.search(r"(ERROR SUMMARY|LEAK SUMMARY|RACECHECK SUMMARY|Internal)", line)
    ]
    summary = re.findall(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
    count = sum(int(a or b) for a, b in summary)
    return count if summary else None, found


def one_tool(run, tool_path, tool, group, variant, part):
    """One sanitizer over one group of kernels, or a part of it, in a process of its own."""
    name = f"{tool} {group} {variant}" + (f" {part}" if part != "0/1" else "")
    file = name.replace(" ", "-").replace("/", "of")
    seen = run.places.out / f"kernels-{file}.txt"
    seen.unlink(missing_ok=True)
    command = [
        tool_path,
        "--tool",
        tool,
        *SANITIZERS[tool],
        *(OURS if variant == "plain" else []),
        "--error-exitcode",
        "9",
        "--print-limit",
        "50",
        *test_command(
            run, "--smallest", "--threads", "2", "--variant", variant, "--kernels", str(seen), "--only", group, "--part", part
        ),
    ]
    began = time.monotonic()
    status, text = execute(command, run.places.out / f"sanitize-{file}.txt", SECONDS)
    count, lines = faults_of(text)
    ran = re.findall(r"^(\d+) passed, (\d+) failed", text, re.M)
    run.check(
        status in (0, 9) and ran and int(ran[-1][0]) > 0 and ran[-1][1] == "0",
        f"{name}: tests pass",
        f"status {status}, {ran[-1:] or 'no result'}: {text[-300:]}",
    )
    run.check(count == 0, f"{name}: no fault", f"{count} faults: " + " | ".join(lines[:6]))
    return tool, time.monotonic() - began, set(seen.read_text().split() if seen.exists() else [])


def parts_of(tool, group):
    parts = PARTS.get(group, 1) if tool in ("racecheck", "synccheck") else 1
    return [f"{i}/{parts}" for i in range(parts)]


def checked_in(tool, group, variant):
    """Whether a group runs under the tool in this variant."""
    if tool == "racecheck" and group in WITH_CUBLASLT:
        return False
    if variant == "plain" or group in WITH_CUBLASLT:
        return variant == "plain" and group in WITH_CUBLASLT
    return variant != "deterministic" or group in DETERMINISTIC


def sanitize(run):
    tool_path = cuda_tool("compute-sanitizer")
    # TERN_CHECK_KERNELS: what stage `ops` writes, which may still run beside this one.
    listing = pathlib.Path(os.environ.get("TERN_CHECK_KERNELS", run.places.out / "kernels.txt"))
    beside = "TERN_CHECK_KERNELS" in os.environ
    began = time.monotonic()
    groups = [run.args.only] if run.args.only else GROUPS
    # Racecheck and synccheck take longest: first.
    pairs = [
        (tool, group, variant, part)
        for tool in SANITIZERS
        for group in groups
        for variant in VARIANTS
        if checked_in(tool, group, variant)
        for part in parts_of(tool, group)
    ]
    with concurrent.futures.ThreadPoolExecutor(PARALLEL + 1) as pool:
        if not run.args.only and not listing.exists() and not beside:  # beside the tools: it takes as long as they do
            pool.submit(list_kernels_apart, run)
        results = list(pool.map(lambda p: one_tool(run, tool_path, *p), pairs))
    while beside and not listing.exists() and time.monotonic() < began + OPS_SECONDS + 20:
        time.sleep(1)
    wanted = set()
    if not run.args.only and run.check(listing.exists(), "the list of kernels that ops saw", f"no {listing}"):
        wanted = {k for k in listing.read_text().split() if "cublaslt" not in k}
    for tool in SANITIZERS:
        seen = set().union(*(kernels for name, _, kernels in results if name == tool))
        left = wanted - seen - (NO_SHARED_MEMORY if tool == "racecheck" else set())
        run.check(not left, f"{tool}: every kernel ran", ", ".join(sorted(left)))
        slow = sorted(((s, g) for (t, g, *_), (_, s, _) in zip(pairs, results) if t == tool), reverse=True)[:3]
        run.figure(f"{tool} slowest", ", ".join(f"{g} {s:.0f} s" for s, g in slow))
