"""Models over several GPUs (--tensor-parallel-size): collectives, the same answers as on one GPU, bits, faults, figures."""

import json
import os
import subprocess
import sys

import models
import stage_bench
import stage_determinism
import stage_faults
from server import Server

RANKS = 2
TWO = ("--tensor-parallel-size", RANKS)
EXPERTS = (*TWO, "--enable-expert-parallel")
# Reference cases, further flags, the ways of sharing them.
CASES = [
    ("qwen3", (), [TWO]),
    ("qwen3_moe", (), [TWO, EXPERTS]),
    ("llama3", (), [TWO]),
    ("deepseek_v3", (), [TWO, EXPERTS]),
    ("paddleocr_vl", (), [TWO]),
    ("qwen3", ("--quantization", "wint8"), [TWO]),
    ("qwen3_moe", ("--quantization", "wint8"), [TWO]),
]
CLOSE = 2e-5  # of the larger one, in float32


def enough(run):
    if not run.places.on_gpu:
        return True
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    count = done.stdout.count("GPU ")
    return run.check(count >= RANKS, f"{RANKS} GPUs", f"{count} are there")


def environment(run, **more):
    return more if run.places.on_gpu else {**more, "TERN_TEST_RANKS": "1"}


def collectives(run):
    if not run.places.on_gpu:
        return
    command = [run.places.program("cuda_ops_test"), *run.places.libraries(), "--only", "ranks", "--variant", "plain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    (run.places.out / "ranks-ops.txt").write_text(done.stdout + done.stderr)
    run.check(
        done.returncode == 0, "collectives against sums made on the host, 10,000 replays", done.stdout[-600:] + done.stderr[-300:]
    )
    run.say(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "collectives said nothing")


def apart(mine, want):
    """'' when ids are the same and log-probabilities close."""
    (a, x), (b, y) = json.loads(mine), json.loads(want)
    if a != b:
        return f"ids {a} for {b}"
    far = [abs(p - q) for p, q in zip(x, y) if abs(p - q) > CLOSE * max(1, abs(p), abs(q)) * 4]
    return f"log-probabilities {max(far):.2e} apart" if far else ""


def answers(run, case, flags, name):
    """What a server says to greedy prompts, alone and then all at once."""
    data = models.golden(case)
    config = json.loads((case / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    folder = models.from_case(case, run.places.fresh(f"ranks-{name}"))
    probes = stage_determinism.text_probes(vocab)[1::3] + stage_determinism.text_probes(vocab)[2::3]
    if models.is_vision(data):
        probes = stage_determinism.picture_probes(case, data) + probes[::2]
    more = ["--dtype", "float32", "--max-model-len", 1024, "--max-num-seqs", 16, "--enable-logprob"]
    flags = [*more, *models.small_budget(run, 1100), *models.case_flags(data), *flags]
    with Server(run, folder, *flags, env=environment(run), name=name) as server:
        server.ready()
        alone = stage_determinism.together(lambda p: p.ask(server), probes, 1)
        return [p.name for p in probes], alone, stage_determinism.together(lambda p: p.ask(server), probes, len(probes))


def case(run, name, flags, ways):
    folder = run.places.case(name)
    label = " ".join([name, *flags])
    names, want, _ = answers(run, folder, flags, f"{name}-{len(flags)}-1")
    for i, way in enumerate(ways):
        _, alone, crowd = answers(run, folder, [*flags, *way], f"{name}-{len(flags)}-{i + 2}")
        for how, got in (("alone", alone), ("together", crowd)):
            for probe, mine, reference in zip(names, got, want):
                fault = next((x for x in (mine, reference) if isinstance(x, Exception)), None)
                wrong = fault or apart(mine, reference)
                run.check(not wrong, f"{label} {' '.join(map(str, way))}, {probe} {how}", wrong)


def bits(run):
    """In deterministic mode: alone, among others, graph or eager, in chunks, after a restart."""
    folder = run.places.case("qwen3")
    data = models.golden(folder)
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    flags = [*models.case_flags(data), *TWO]
    made = stage_determinism.Case(
        run,
        "qwen3 over 2",
        models.from_case(folder, run.places.fresh("ranks-bits")),
        flags,
        stage_determinism.text_probes(vocab),
        vocab,
    )
    made.all_ways()


def faults(run):
    for fault in ("trap@40,rank=1", "hang@40,rank=1", "trap@40,rank=0"):
        wait = 30 + (stage_faults.WATCHDOG if fault.startswith("hang") else 0)
        stage_faults.one_fault(run, fault, wait, flags=(*TWO, "--load-choices", "dummy"))


def ranks(run):
    if not enough(run):
        return
    parts = dict(
        collectives=collectives,
        **{f"case{i}": lambda run, c=c: case(run, *c) for i, c in enumerate(CASES) if run.args.only in ("", c[0])},
        bits=bits,
        faults=faults if run.places.on_gpu else lambda run: None,
    )
    stage_bench.some(run, parts)


def times(run):
    """Sums over ranks beside NCCL's and a norm of its own, in this run."""
    f = stage_bench.tern(run, "ranks", "--device", run.places.device, "--ranks", RANKS)
    peer = nccl(run, [r["rows"] for r in f["rows"]], f["width"]) if f else None
    for r in f["rows"] if f else []:
        both = f"{r['all_reduce_us']:.2f} us, with residual and norm {r['all_reduce_norm_us']:.2f} us"
        beside = (peer or {}).get(str(r["rows"]))
        name = f"{RANKS} ranks, {r['rows']} rows of {f['width']} float32"
        run.figure(name, both + (f"; NCCL {beside[0]:.2f}, and a norm {beside[1]:.2f} us" if beside else ""))
        more = {}
        if beside:
            ratio = round(beside[1] / r["all_reduce_norm_us"], 3)
            more = dict(
                reference="NCCL (bfloat16) and a norm", reference_value=round(beside[1], 1), reference_unit="us", ratio=ratio
            )
        run.row(
            f"{name}: sum, residual and norm",
            r["all_reduce_norm_us"],
            "us",
            note=f"sum alone {r['all_reduce_us']:.1f} us",
            **more,
        )


NCCL = """
import json, os, sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, ranks, rows, width, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    found = {}
    for n in rows:
        x = torch.zeros(n, width, dtype=torch.bfloat16, device="cuda")
        residual, weight = torch.zeros_like(x), torch.ones(width, dtype=torch.bfloat16, device="cuda")
        def once(norm):
            dist.all_reduce(x)
            if norm:
                residual.add_(x)
                torch.nn.functional.rms_norm(residual, (width,), weight)
        both = []
        for norm in (False, True):
            for _ in range(8): once(norm)
            torch.cuda.synchronize()
            best = 1e9
            for _ in range(10):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(64): once(norm)
                end.record(); torch.cuda.synchronize()
                best = min(best, begin.elapsed_time(end) / 1e3 / 64)
            both.append(best * 1e6)
        found[str(n)] = both
    if rank == 0: open(out, "w").write(json.dumps(found))
    dist.destroy_process_group()
if __name__ == "__main__":
    ranks, width, rows = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    mp.spawn(work, (ranks, rows, width, sys.argv[4]), ranks)
"""


def nccl(run, rows, width):
    """By rows: microseconds of a sum in bfloat16, and with residual and norm behind it; None where it fails."""
    script, out = run.places.fresh("nccl") / "nccl.py", run.places.out / "nccl.json"
    script.write_text(NCCL)
    command = [sys.executable, str(script), str(RANKS), str(width), json.dumps(rows), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    ok = run.check(done.returncode == 0 and out.exists(), "NCCL through PyTorch", done.stderr[-400:])
    return json.loads(out.read_text()) if ok else None


# shape, batch, flags of sharing it, the most that a step may take of one GPU's
STEPS = [("qwen3-8b", batch, TWO, 0.70) for batch in (1, 32, 100)] + [
    ("qwen3-30b-a3b", batch, way, 0.82 if batch == 1 else 0.70) for batch in (1, 32, 100) for way in (TWO, EXPERTS)
]


def steps(run):
    single = {}
    for name, batch, way, most in STEPS:
        if (name, batch) not in single:
            single[name, batch] = stage_bench.decode(run, name, batch, 200)
        one, f = single[name, batch], stage_bench.decode(run, name, batch, 200, "--serve-flags", " ".join(map(str, way)))
        if one is None or f is None:
            continue
        compare(run, f"{name}, a step of {batch}, {named(way)}", f["step_us_mean"], one["step_us_mean"], "us", most)


def named(way):
    return "2 GPUs" + (", whole experts" if way == EXPERTS else "")


def compare(run, what, shared, alone, unit, most):
    run.figure(f"{what} / one GPU", f"{shared:.1f} / {alone:.1f} {unit} ({shared / alone:.3f}, wanted {most})")
    one = dict(reference="one GPU", reference_value=round(alone, 1), reference_unit=unit, ratio=round(alone / shared, 3))
    run.row(what, shared, unit, **one, note=f"{shared / alone:.3f} of its time, wanted {most}")


def prompt(run):
    both = [
        stage_bench.tern(
            run,
            "prefill",
            "--model",
            stage_bench.shape(run, "qwen3-8b"),
            "--load-choices",
            "dummy",
            "--device",
            run.places.device,
            "--tokens",
            8192,
            *more,
        )
        for more in ((), ("--serve-flags", " ".join(map(str, TWO))))
    ]
    if None not in both:
        one, two = (f["milliseconds"] for f in both)
        compare(run, "qwen3-8b, a prompt of 8192, 2 GPUs", two, one, "ms", 0.63)


def bench(run):
    if enough(run):
        os.environ.setdefault("TERN_CHECK_BENCH_SECONDS", "460")
        stage_bench.some(run, {"ranks-times": times, "ranks-steps": steps, "ranks-prompt": prompt})
