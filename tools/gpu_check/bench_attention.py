"""Attention of prompts beside cuDNN, through PyTorch, over arrays that lie in one piece: the same shapes in the same run."""

import json
import subprocess
import sys

LEAST = 0.92  # of cuDNN, over pages
HEADS, KV_HEADS, WIDTH = 32, 8, 128
# As `tern bench kernels` names them: rows, queries of each, keys of each.
SHAPES = {
    "32/8 heads 4 x 4k": (4, 4096, 4096),
    "32/8 heads 1 x 16k": (1, 16384, 16384),
    "32/8 heads 2k behind 14k": (1, 2048, 16384),
}

# Prints {"seconds": [best of each shape], "repeated": whether heads of keys had to be, "versions"}. What lies before the
# queries is seen by all of them: PyTorch masks from the first key on, so that it is a call of its own, and its joining
# with the rest costs nothing here. On a CPU only so that it can be tried there.
PEER = r"""
import json, sys, time, torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention
device, heads, kv_heads, width, shapes = sys.argv[1], *json.loads(sys.argv[2])
gpu = device == "cuda"
backend = SDPBackend.CUDNN_ATTENTION if gpu else SDPBackend.MATH
def work_of(rows, queries, keys, repeated):
    make = lambda n, tokens: torch.randn(rows, n, tokens, width, device=device, dtype=torch.bfloat16)
    n = heads if repeated else kv_heads
    q, k, v = make(heads, queries), make(n, queries), make(n, queries)
    before = (make(n, keys - queries), make(n, keys - queries)) if keys > queries else None
    grouped = dict(enable_gqa=True) if n < heads else {}
    def work():
        if before is not None:
            attention(q, *before, **grouped)
        attention(q, k, v, is_causal=True, **grouped)
    return work
def time_of(work, count):
    if not gpu:
        began = time.perf_counter()
        for _ in range(count): work()
        return (time.perf_counter() - began) / count
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(); begin.record()
    for _ in range(count): work()
    end.record(); end.synchronize()
    return begin.elapsed_time(end) / 1e3 / count
def best(shape, repeated):
    work = work_of(*shape, repeated)
    for _ in range(3): work()
    count = max(1, round(4e-3 / time_of(work, 1)))
    return min(time_of(work, count) for _ in range(5))
repeated = False
with torch.inference_mode(), sdpa_kernel(backend):
    try:
        best(shapes[0], False)
    except RuntimeError:
        repeated = True
    seconds = [best(s, repeated) for s in shapes]
versions = "PyTorch " + torch.__version__ + (f", cuDNN {torch.backends.cudnn.version()}" if gpu else "")
print(json.dumps(dict(seconds=seconds, repeated=repeated, versions=versions)))
"""


def peer(device, shapes, timeout=120):
    """(what PEER prints, or None; what went wrong)."""
    done = subprocess.run(
        [sys.executable, "-c", PEER, device, json.dumps([HEADS, KV_HEADS, WIDTH, shapes])],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode != 0:
        return None, done.stderr[-400:]
    return json.loads(done.stdout.strip().splitlines()[-1]), ""


def compare(run, rows, theirs):
    """`rows`: of `tern bench kernels`; `theirs`: what PEER printed of SHAPES."""
    own = {r["shape"]: r for r in rows}
    repeated = ", heads repeated" if theirs["repeated"] else ""
    for name, seconds in zip(SHAPES, theirs["seconds"]):
        if not run.check(name in own, f"prefill attention {name}", "tern bench kernels has no such row"):
            continue
        ratio, tflops = seconds * 1e6 / own[name]["us"], own[name]["tflops"]
        run.figure(
            f"prefill attention {name}: Tern over pages / cuDNN{repeated}",
            f"{tflops:.0f} / {tflops / ratio:.0f} TFLOP/s ({ratio:.2f}; {theirs['versions']})",
        )
        run.row(
            f"prefill attention, {name}, over pages",
            tflops,
            "TFLOP/s",
            reference=f"cuDNN over arrays in one piece{repeated}",
            reference_value=round(tflops / ratio),
            reference_unit="TFLOP/s",
            ratio=round(ratio, 3),
        )
        run.check(ratio >= LEAST, f"prefill attention {name}: of cuDNN", f"{ratio:.3f}")


def attention(run, tern):
    if not run.places.on_gpu:
        return run.say("attention beside cuDNN: needs a GPU")
    lab = tern(
        run, "kernels", "--device", run.places.device, "--no-peers", "--only", "prefill attention", "--match", ",".join(SHAPES)
    )
    theirs, error = peer("cuda", list(SHAPES.values()))
    run.check(theirs is not None, "cuDNN through PyTorch", error)
    if lab is not None and theirs is not None:
        compare(run, lab["rows"], theirs)
