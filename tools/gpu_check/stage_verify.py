"""Reference cases on the device: through the model code, and through HTTP."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import models
from server import Server, together

PATHS = {"as it is": {}, "portable": {"TERN_CUDA_ARCH": "80", "TERN_CUDA_SMEM_LIMIT": "99"}}
NO_ROOM = re.compile(r"out of memory|GB of memory are available")
TAIL = re.compile(r"^(\d+) passed, (\d+) failed", re.M)
REPLAYED = ["qwen3", "qwen3_moe", "deepseek_v3", "ernie4_5_vl_moe"]
# The same over quantized weights and caches: a format of each kind. A case, --quantization.
REPLAYED_CODES = [
    ("qwen3", models.CACHES["int8"]),
    ("ernie4_5_hd128", models.CACHES["float8_e4m3fn"]),
    ("qwen3", "wint8"),
    ("qwen3_moe", "wint4"),
    ("ernie4_5_hd128", "block_wise_fp8"),
]
# A greedy id may differ where the two best logits are closer than this. In bfloat16 a token may choose another expert
# than in the reference (`free routing` of tern verify counts how many), which moves the logits further.
NARROW = {"float32": 2e-3, "bfloat16": 0.5}
NARROW_EXPERTS = {"float32": 2e-3, "bfloat16": 1.0}


def command_line(run, cases, dtype):
    device = ["--device", run.places.device] if run.places.on_gpu else []
    return [run.places.tern, "verify", *device, "--dtype", dtype, *map(str, cases)]


def verify_cases(run, cases, seconds, ways=None, crowded=None):
    """tern verify of all cases in each precision on each path, all ways at once; every line that says NO is a failed
    check. `crowded`: where others may fill the GPU, takes the ways that found no room there instead."""
    ways = ways or [
        (label, env, dtype)
        for label, env in (PATHS if run.places.on_gpu else {"as it is": {}}).items()
        for dtype in ("float32", "bfloat16")
    ]
    one = lambda way: subprocess.run(
        command_line(run, cases, way[2]), capture_output=True, text=True, timeout=seconds, env={**os.environ, **way[1]}
    )
    for way, done in zip(ways, together(one, ways, len(ways) if run.places.on_gpu else 1)):
        label, _, dtype = way
        if isinstance(done, Exception):
            run.check(False, f"{dtype} {label}", f"{type(done).__name__}: {done}"[:600])
        elif crowded is not None and NO_ROOM.search(done.stdout + done.stderr):
            crowded.append(way)
        else:
            judge(run, cases, label, dtype, done)


def judge(run, cases, label, dtype, done):
    log = run.places.out / f"{run.stage.name}-{cases[0].name if len(cases) == 1 else 'all'}-{label.replace(' ', '-')}-{dtype}.txt"
    log.write_text(done.stdout + done.stderr)
    case, cases_seen = "?", 0
    for line in done.stdout.splitlines():
        if re.match(r"\S+ \(.*\)$", line):
            case, cases_seen = pathlib.Path(line.split(" (")[0]).name, cases_seen + 1
        elif line.rstrip().endswith(" NO"):
            run.check(False, f"{case} {dtype} {label}", line.strip())
    run.check(
        cases_seen == len(cases),
        f"{dtype} {label}: cases",
        f"{cases_seen} of {len(cases)} ran: " + (done.stderr[-600:] or done.stdout[-600:]),
    )
    tail = TAIL.findall(done.stdout)
    statements = int(tail[-1][0]) if tail else 0
    run.check(
        done.returncode == 0 and statements >= 4 * len(cases),
        f"{dtype} {label}",
        f"status {done.returncode}, {tail[-1:] or 'no summary'}; {done.stderr[-300:]}",
    )
    run.stage.checks += [dict(ok=True, name="case", detail="")] * statements
    run.say(f"{cases[0].name if len(cases) == 1 else 'cases'}, {label}, {dtype}: {statements} statements hold")


def has_experts(case):
    config = json.loads((case / "config.json").read_text())
    return any(
        key in text
        for text in (config, config.get("text_config", {}))
        for key in ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
    )


def compare_greedy(run, name, prompt, got, narrow):
    """Ids up to the first place where the reference itself was nearly undecided; from there on the texts may part."""
    clear = 0
    for step, (want, margin) in enumerate(zip(prompt["greedy"], prompt["margins"])):
        if step >= len(got):
            return run.check(False, name, f"{len(got)} ids, not {len(prompt['greedy'])}"), clear
        if got[step] != want:
            return run.check(
                margin < narrow, name, f"step {step}: {got[step]} for {want}, margin {margin:.4f}; {got} for {prompt['greedy']}"
            ), clear
        clear += 1
    return run.check(True, name), clear


def over_http(run, case, dtype):
    golden = models.golden(case)
    folder = models.from_case(case, run.places.fresh(f"{case.name}-{dtype}"))
    flags = [
        "--dtype",
        dtype,
        "--max-model-len",
        4096,
        "--max-num-seqs",
        16,
        *models.small_budget(run, 1100),
        *models.case_flags(golden),
    ]
    clear, narrow = 0, (NARROW_EXPERTS if has_experts(case) else NARROW)[dtype]
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
                clear += compare_greedy(run, name, prompt, got, narrow)[1]
    run.check(clear >= (8 if dtype == "float32" else 4) * len(prompts), f"HTTP {case.name} {dtype}: ids compared", clear)


def verify(run):
    cases = [c for c in run.places.golden() if run.args.only in ("", c.name)]
    run.check(len(cases) >= (1 if run.args.only else 14), "cases found", f"{len(cases)}")
    verify_cases(run, cases if run.args.only else cases + run.places.golden_small(), 300)
    pairs = [(case, dtype) for case in cases for dtype in ("float32", "bfloat16")]
    for (case, dtype), fault in zip(pairs, together(lambda p: over_http(run, *p), pairs, 5 if run.places.on_gpu else 1)):
        if fault is not None:
            run.check(False, f"HTTP {case.name} {dtype}", f"{type(fault).__name__}: {fault}")


def finished(folder, maker):
    """Cases as they come, while `maker` (a process, or None) makes them; golden.json is what it writes last."""
    given = set()
    while True:
        over = maker is None or maker.poll() is not None
        for path in sorted(folder.glob("*/golden.json")):
            try:
                json.loads(path.read_text())
            except ValueError:
                continue  # being written
            if path.parent not in given:
                given.add(path.parent)
                yield path.parent
        if over:
            return
        time.sleep(0.5)


def wide(run):
    folder = pathlib.Path(os.environ.get("TERN_CHECK_WIDE", run.places.scratch / "wide"))
    maker = None
    if not folder.is_dir() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        more = ["--only", run.args.only] if run.args.only else []
        with open(run.places.out / "make_golden.txt", "w") as out:
            maker = subprocess.Popen(
                [
                    sys.executable,
                    "-u",
                    str(run.places.maker()),
                    str(folder),
                    "--variant",
                    "w",
                    "--device",
                    "cuda" if run.places.on_gpu else "cpu",
                    *more,
                ],
                stdout=out,
                stderr=out,
            )
    cases, again = 0, []
    try:
        for case in finished(folder, maker):  # one at a time: the largest fill the GPU beside what makes the next
            crowded = []
            verify_cases(run, [case], 200, crowded=crowded)
            cases += 1
            again += [(case, way) for way in crowded]
            if maker is not None and not crowded:  # a case is up to several GB
                shutil.rmtree(case)
                case.mkdir()
    finally:
        if maker is not None and maker.poll() is None:
            maker.kill()
    if maker is not None:
        run.check(maker.wait() == 0, "make_golden.py", (run.places.out / "make_golden.txt").read_text()[-600:])
    for case, way in again:  # nothing else is on the GPU now
        verify_cases(run, [case], 200, [way])
    run.check(cases >= (1 if run.args.only else 9), "cases made", f"{cases}")


def replays(run):
    """Steps as graphs against the same steps run as they are, bit by bit, with and without dependent launches."""
    count = 1000 if run.args.quick else 10000
    for name, asked in [*((name, "") for name in REPLAYED), *REPLAYED_CODES]:
        if run.args.only not in ("", name):
            continue
        label = f"{name} {asked}".strip()
        done = subprocess.run(
            [
                run.places.tern,
                "verify",
                "--device",
                run.places.device,
                "--dtype",
                "bfloat16",
                "--replays",
                str(count),
                *(["--quantization", asked] if asked else []),
                str(run.places.case(name)),
            ],
            capture_output=True,
            text=True,
            timeout=240,
        )
        lines = [line for line in done.stdout.splitlines() if "replays" in line]
        run.check(
            done.returncode == 0 and len(lines) == 2 and all(line.rstrip().endswith("yes") for line in lines),
            f"{label}: {count} replays, dependent launch on and off",
            (done.stdout + done.stderr)[-400:],
        )
        for line in lines:
            run.say(f"{label}: {line.strip()}")
