"""Reference cases on the device: through the model code, and through HTTP."""
import os
import pathlib
import re
import subprocess
import sys

import models
from server import Server, together

PATHS = {"as it is": {}, "portable": {"TERN_CUDA_ARCH": "80", "TERN_CUDA_SMEM_LIMIT": "99"}}
TAIL = re.compile(r"^(\d+) passed, (\d+) failed", re.M)
REPLAYED = ["qwen3", "qwen3_moe", "deepseek_v3", "ernie4_5_vl_moe"]
# A greedy id may differ where the two best logits are closer than this.
NARROW = {"float32": 2e-3, "bfloat16": 0.5}


def command_line(run, cases, dtype):
    device = ["--device", run.places.device] if run.places.on_gpu else []
    return [run.places.tern, "verify", *device, "--dtype", dtype, *map(str, cases)]


def verify_cases(run, cases, seconds):
    """tern verify of all cases in each precision on each path; every line that says NO is a failed check."""
    paths = PATHS if run.places.on_gpu else {"as it is": {}}
    for label, env in paths.items():
        for dtype in ("float32", "bfloat16"):
            done = subprocess.run(command_line(run, cases, dtype), capture_output=True, text=True, timeout=seconds,
                                  env={**os.environ, **env})
            log = run.places.out / f"{run.stage.name}-{label.replace(' ', '-')}-{dtype}.txt"
            log.write_text(done.stdout + done.stderr)
            case, cases_seen = "?", 0
            for line in done.stdout.splitlines():
                if re.match(r"\S+ \(.*\)$", line):
                    case, cases_seen = pathlib.Path(line.split(" (")[0]).name, cases_seen + 1
                elif line.rstrip().endswith(" NO"):
                    run.check(False, f"{case} {dtype} {label}", line.strip())
            run.check(cases_seen == len(cases), f"{dtype} {label}: cases", f"{cases_seen} of {len(cases)} ran: "
                      + (done.stderr[-600:] or done.stdout[-600:]))
            tail = TAIL.findall(done.stdout)
            statements = int(tail[-1][0]) if tail else 0
            run.check(done.returncode == 0 and statements >= 4 * len(cases), f"{dtype} {label}",
                      f"status {done.returncode}, {tail[-1:] or 'no summary'}; {done.stderr[-300:]}")
            run.stage.checks += [dict(ok=True, name="case", detail="")] * statements
            run.say(f"{label}, {dtype}: {statements} statements of {cases_seen} cases hold")


def compare_greedy(run, name, prompt, got, dtype):
    """Ids up to the first place where the reference itself was nearly undecided; from there on the texts may part."""
    clear = 0
    for step, (want, margin) in enumerate(zip(prompt["greedy"], prompt["margins"])):
        if step >= len(got):
            return run.check(False, name, f"{len(got)} ids, not {len(prompt['greedy'])}"), clear
        if got[step] != want:
            return run.check(margin < NARROW[dtype], name,
                             f"step {step}: {got[step]} for {want}, margin {margin:.4f}; {got} for {prompt['greedy']}"), clear
        clear += 1
    return run.check(True, name), clear


def over_http(run, case, dtype):
    golden = models.golden(case)
    folder = models.from_case(case, run.places.fresh(f"{case.name}-{dtype}"))
    flags = ["--dtype", dtype, "--max-model-len", 4096, "--max-num-seqs", 16, *models.small_budget(run, 1100), *models.case_flags(golden)]
    clear = 0
    with Server(run, folder, *flags, name=f"{case.name}-{dtype}") as server:
        server.ready()
        prompts = [(k, p) for k, p in golden["prompts"].items() if "greedy" in p and "frames" not in p]
        asked = lambda item: models.ask_case(server, case, golden, item[1])
        # Alone, then all at once: continuous batching must not change what is said.
        for way, threads in (("alone", 1), ("together", len(prompts))):
            for (key, prompt), got in zip(prompts, together(asked, prompts, threads)):
                name = f"HTTP {case.name} {dtype} {key} {way}"
                if isinstance(got, Exception):
                    run.check(False, name, got)
                    continue
                clear += compare_greedy(run, name, prompt, got, dtype)[1]
    run.check(clear >= (8 if dtype == "float32" else 4) * len(prompts), f"HTTP {case.name} {dtype}: ids compared", clear)


def verify(run):
    cases = [c for c in run.places.golden() if run.args.only in ("", c.name)]
    run.check(len(cases) >= (1 if run.args.only else 14), "cases found", f"{len(cases)}")
    verify_cases(run, cases if run.args.only else cases + run.places.golden_small(), 300)
    pairs = [(case, dtype) for case in cases for dtype in ("float32", "bfloat16")]
    for (case, dtype), fault in zip(pairs, together(lambda p: over_http(run, *p), pairs, 5 if run.places.on_gpu else 1)):
        if fault is not None:
            run.check(False, f"HTTP {case.name} {dtype}", f"{type(fault).__name__}: {fault}")


def wide(run):
    folder = pathlib.Path(os.environ.get("TERN_CHECK_WIDE", run.places.scratch / "wide"))
    if not folder.is_dir() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        more = ["--only", run.args.only] if run.args.only else []
        done = subprocess.run([sys.executable, str(run.places.maker()), str(folder), "--variant", "w", "--device",
                               "cuda" if run.places.on_gpu else "cpu", *more], capture_output=True, text=True, timeout=400)
        (run.places.out / "make_golden.txt").write_text(done.stdout + done.stderr)
        run.check(done.returncode == 0, "make_golden.py", done.stderr[-600:])
    cases = sorted(p.parent for p in folder.glob("*/golden.json"))
    run.check(len(cases) >= (1 if run.args.only else 9), "cases made", f"{len(cases)}")
    for case in cases:  # one at a time: a case is up to several GB
        verify_cases(run, [case], 200)


def replays(run):
    """Steps as graphs against the same steps run as they are, bit by bit, with and without dependent launches."""
    count = 1000 if run.args.quick else 10000
    for name in REPLAYED:
        if run.args.only not in ("", name):
            continue
        done = subprocess.run([run.places.tern, "verify", "--device", run.places.device, "--dtype", "bfloat16", "--replays",
                               str(count), str(run.places.case(name))], capture_output=True, text=True, timeout=240)
        lines = [line for line in done.stdout.splitlines() if "replays" in line]
        run.check(done.returncode == 0 and len(lines) == 2 and all(line.rstrip().endswith("yes") for line in lines),
                  f"{name}: {count} replays, dependent launch on and off", (done.stdout + done.stderr)[-400:])
        for line in lines:
            run.say(f"{name}: {line.strip()}")
