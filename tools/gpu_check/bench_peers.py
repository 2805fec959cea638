"""Parts of the bench stages: a PyTorch copy, what deterministic mode costs, a cold start, Hugging Face transformers."""

import json
import os
import subprocess
import sys
import time

import weights
from server import Server

# One process per shape: the milliseconds of a greedy step, from the times of a long and a short answer.
TRANSFORMERS = r"""
import json, sys, time, torch, transformers
folder, batch, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = transformers.AutoConfig.from_pretrained(folder)
with torch.device("cuda"):
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
ids = torch.randint(100, 100000, (batch, context), device="cuda")
def seconds(n):
    torch.cuda.synchronize(); began = time.perf_counter()
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, do_sample=False)
    torch.cuda.synchronize(); return time.perf_counter() - began
seconds(4)
print(json.dumps(dict(ms=(seconds(40) - seconds(8)) / 32 * 1e3, version=transformers.__version__)))
"""
PEERS = [("ernie-4.5-0.3b", 32), ("qwen3-8b", 32)]

# GB/s that a copy of 2 GiB reads and writes together, the best of five times ten.
COPY = r"""
import torch
a, b = (torch.empty(1 << 29, dtype=torch.int32, device="cuda").fill_(i) for i in (1, 2))
def seconds():
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(10): b.copy_(a)
    end.record(); torch.cuda.synchronize(); return begin.elapsed_time(end) / 1e3
seconds()
print(10 * 2 * a.nbytes / min(seconds() for _ in range(5)) / 1e9)
"""


def copy(run, read):
    """`read`: GB/s of `tern bench kernels`' probe, which is no ceiling where a copy moves more."""
    if not run.places.on_gpu:
        return run.say("a PyTorch copy: needs a GPU")
    done = subprocess.run([sys.executable, "-c", COPY], capture_output=True, text=True, timeout=120)
    if run.check(done.returncode == 0, "a PyTorch copy", done.stderr[-400:]):
        beside_the_probe(run, float(done.stdout), read)


def beside_the_probe(run, copied, read):
    run.figure("a PyTorch copy, read and written / the probe of reading", f"{copied:.0f} / {read:.0f} GB/s ({copied / read:.2f})")
    run.check(copied <= read, "the probe of reading is a ceiling", f"{read:.0f} GB/s, a copy moves {copied:.0f}")


def deterministic(run, decode):
    for batch in (1, 64, 256):
        both = [decode(run, "qwen3-8b", batch, 130, env={"FD_DETERMINISTIC_MODE": mode}) for mode in "01"]
        if None not in both:
            plain, fixed = (f["step_us_mean"] for f in both)
            run.figure(
                f"8B step, batch {batch}, FD_DETERMINISTIC_MODE=0 / 1",
                f"{plain:.0f} / {fixed:.0f} us ({100 * (fixed / plain - 1):+.1f} %)",
            )
            run.row(
                f"qwen3-8b, a step of {batch}, FD_DETERMINISTIC_MODE=1",
                fixed,
                "us",
                reference="without it",
                reference_value=round(plain),
                reference_unit="us",
                ratio=round(plain / fixed, 3),
            )


def first_token(run, folder, name, env):
    began = time.monotonic()
    with Server(run, folder, "--max-model-len", 8192, name=name, env=env) as server:
        server.ready(120)
        ready = time.monotonic() - began
        server.complete([100, 200, 300], 1)
        return ready, time.monotonic() - began


def cold_start(run, shape):
    folder = run.places.fresh("start")
    size = weights.write(shape, folder)
    caches = run.places.fresh("caches")
    env = {"XDG_CACHE_HOME": str(caches)}
    for label in ("absent", "present"):
        ready, first = first_token(run, folder, f"start-{label}", env)
        run.figure(
            f"8B, {size / 1e9:.1f} GB of files in the page cache, tuning caches {label}",
            f"ready after {ready:.2f} s, first token after {first:.2f} s",
        )
        what = f"qwen3-8b, start to first token, files in the page cache, tuning caches {label}"
        run.row(what, first, "s", note=f"ready after {ready:.2f} s")
    run.check(any(p.is_file() for p in caches.rglob("*")) or not run.places.on_gpu, "tuning caches are kept", str(caches))


def transformers(run, shape, decode):
    for name, batch in PEERS:
        done = subprocess.run(
            [sys.executable, "-c", TRANSFORMERS, str(shape(run, name)), str(batch), "1024"],
            capture_output=True,
            text=True,
            timeout=150,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        if not run.check(done.returncode == 0, f"transformers {name}", done.stderr[-400:]):
            continue
        peer, own = json.loads(done.stdout.strip().splitlines()[-1]), decode(run, name, batch, 130)
        if own is not None:
            run.figure(
                f"{name} step, batch {batch}: transformers {peer['version']} / Tern",
                f"{peer['ms']:.2f} / {own['step_us_mean'] / 1e3:.2f} ms",
            )
            run.row(
                f"{name}, a step of {batch}, greedy peer",
                own["step_us_mean"] / 1e3,
                "ms",
                reference=f"transformers {peer['version']}",
                reference_value=round(peer["ms"], 2),
                reference_unit="ms",
                ratio=round(peer["ms"] * 1e3 / own["step_us_mean"], 1),
            )
