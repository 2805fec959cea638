"""gpu_check.sh: see there. Stages are functions of one Run; each says what it checked."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rows
import spread
import stage_bench
import stage_control
import stage_data_parallel
import stage_determinism
import stage_faults
import stage_guided
import stage_memory
import stage_ops
import stage_profile
import stage_quant
import stage_ranks
import stage_serve
import stage_verify
from places import Places
from results import Stage, Table

STAGES = {
    "ops": (stage_ops.ops, "every kernel against the CPU; four ways"),
    "sanitize": (stage_ops.sanitize, "memcheck, racecheck, initcheck, synccheck over every kernel's smallest shapes"),
    "verify": (stage_verify.verify, "reference cases, float32 and bfloat16, as it is and on the portable path; HTTP"),
    "verify-quant": (stage_quant.verify, "reference cases with quantized weights against the same codes as float32"),
    "wide": (stage_verify.wide, "cases of published widths, made here by make_golden.py (PyTorch)"),
    "replays": (stage_verify.replays, "10,000 steps as graphs against the same steps run as they are, bit by bit"),
    "serve": (stage_serve.serve, "the shipped model: texts of the GPU and of the CPU, streams, samples"),
    "determinism": (stage_determinism.determinism, "FD_DETERMINISTIC_MODE=1: the same bits in any company"),
    "faults": (stage_faults.faults, "an illegal access, a kernel that never ends"),
    "control": (stage_control.control, "sleep, wake, other weights: the driver's figure of what is given back"),
    "memory-text": (stage_memory.text, "long prompts, n, log-probs at 0.95 beside 20 GB of another process"),
    "memory-pictures": (stage_memory.pictures, "the largest pictures under the same pressure"),
    "bench-steps": (stage_bench.alone, "steps and kernels beside their ceilings; TERN_CHECK_BENCH picks parts"),
    "bench-serving": (stage_bench.served, "prompts, serving over HTTP, cold start, Hugging Face transformers; likewise"),
    "bench-guided": (stage_guided.guided, "guided rows beside plain ones, over HTTP: what they cost and what they reach"),
    "bench-quant": (stage_quant.bench, "quantized weights beside bfloat16: products, experts, steps; TERN_CHECK_BENCH likewise"),
    "bench-dp": (stage_data_parallel.data_parallel, "two engines on two GPUs beside one, over HTTP; never part of `all`"),
    "ranks": (stage_ranks.ranks, "two GPUs that share a model: collectives, answers of one GPU, bits, faults"),
    "bench-ranks": (stage_ranks.bench, "two GPUs beside one: sums, steps, prompts; TERN_CHECK_BENCH likewise"),
    "profile": (stage_profile.profile, "counters of kernels that miss their target (ncu); never part of `all`"),
}
GROUPS = {
    "memory": ["memory-text", "memory-pictures"],
    "bench": ["bench-steps", "bench-serving", "bench-guided", "bench-quant"],
    "all": [name for name in STAGES if name not in ("bench-dp", "ranks", "bench-ranks", "profile")],
}


class Run:
    """What a stage may use: .places, .args (seconds), .stage (results)."""

    def __init__(self, places, args, stage):
        self.places, self.args, self.stage = places, args, stage

    def check(self, ok, name, detail=""):
        return self.stage.check(ok, name, detail)

    def say(self, text):
        self.stage.say(text)

    def figure(self, name, value):
        self.stage.figure(name, value)

    def row(self, what, measured, unit, **more):
        self.stage.row(what, measured, unit, **more)


def machine():
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], capture_output=True, text=True
    )
    return (done.stdout.strip().splitlines() or ["no GPU"])[0]


def main():
    about = "\n".join(f"  {name:16} {text}" for name, (_, text) in STAGES.items())
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"stages:\n{about}\n  memory, bench    both parts\n"
        "  table            runs nothing; the table of all stages so far",
    )
    parser.add_argument("stages", nargs="*", default=["all"])
    parser.add_argument("--memory-seconds", type=float, default=290, help="of each memory stage (default %(default)s)")
    parser.add_argument("--hold-gb", type=float, default=20, help="held by another process (default %(default)s)")
    parser.add_argument("--only", default="", help="ops, sanitize, profile: this group of kernels; verify: this case")
    parser.add_argument("--gpus", type=int, default=1, help="stages at a time on so many GPUs (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds of determinism and serve")
    args = parser.parse_args()

    places = Places()
    os.environ.setdefault("FD_LOG_DIR", str(places.out / "log"))
    os.environ["FD_CONSOLE_SCHEDULER_METRICS"] = "0"
    os.environ.setdefault("TERN_RESULTS_MACHINE", rows.gpu() if places.on_gpu else rows.machine())
    os.environ.setdefault("TERN_RESULTS_COMMIT", places.commit[:7])
    table = Table(places.out, places.commit, machine() if places.on_gpu else "CPU")
    show_only = args.stages == ["table"]
    names = []
    for name in ["all"] if show_only else args.stages:
        names += GROUPS.get(name, [name])
    unknown = [n for n in names if n not in STAGES]
    if unknown:
        parser.error("no stage " + ", ".join(unknown))
    if args.gpus > 1 and not show_only:
        spread.run(names, args, places, table)
    for name in names if not show_only and args.gpus == 1 else []:
        print(f"== {name}: {STAGES[name][1]}", flush=True)
        stage = Stage(name)
        try:
            STAGES[name][0](Run(places, args, stage))
        except Exception as e:
            traceback.print_exc()
            stage.check(False, "ended early", f"{type(e).__name__}: {e}")
        record = stage.record()
        table.put(name, record)
        for row in stage.rows:
            rows.add(command=f"tools/gpu_check.sh {name}", path=places.out / "rows.jsonl", **row)
        print(f"   {name}: {record['passed']} passed, {record['failed']} failed, {record['seconds']} s", flush=True)
    shutil.rmtree(places.scratch, ignore_errors=True)
    passed, failed = table.show(names)
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
