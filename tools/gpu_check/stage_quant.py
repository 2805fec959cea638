"""Quantized weights: reference cases by format, and products, experts and steps beside bfloat16 in the same run."""

import json
import os
import subprocess

import models
import stage_bench
from models import CACHES
from server import together
from stage_verify import PATHS, judge

FORMATS = ["wint8", "wint4", "block_wise_fp8"]
GROUPS = '{"quantization":"wint4","group_size":32,"lm_head_quant_type":"wint8"}'
# Times bfloat16's speed, at least, of rows of `tern bench kernels --only codes`.
PRODUCT = {
    "wint4": {1: 2.0, 8: 2.0, 16: 2.0, 32: 1.7, 4096: 0.85},
    "wint8": {1: 1.4, 8: 1.4, 16: 1.4},
    "wint4-128": {},
    "block_wise_fp8": {},
}
ROWS = (1, 8, 16, 32, 64, 128, 4096)
EXPERTS = {"wint8": {}, "wint4": {8: 1.5, 64: 1.7}, "block_wise_fp8": {}}
# The same of steps.
STEPS = {"qwen3-8b": {1: {"wint4": 1.7, "wint8": 1.35, "block_wise_fp8": 1.3}}}
EVERY, BEST = {"ernie-4.5-0.3b": 0.75}, {"ernie-4.5-0.3b": 0.9}
BATCHES, TOKENS = (1, 32, 100), 200


def verify(run):
    """tern verify of the cases without pictures: the reference is what the same codes compute as float32."""
    cases = [c for c in run.places.golden() if run.args.only in ("", c.name) and not models.is_vision(models.golden(c))]
    run.check(len(cases) > 0, "cases found", len(cases))
    device = ["--device", run.places.device] if run.places.on_gpu else []
    ways = [
        (label, env, dtype, asked)
        for label, env in (PATHS if run.places.on_gpu else {"as it is": {}}).items()
        for dtype in ("float32", "bfloat16")
        for asked in [*FORMATS, GROUPS, *CACHES.values()]
        if label == "as it is" or dtype == "bfloat16"
    ]
    # Latent attention keeps its cache.
    latent = {c for c in cases if "kv_lora_rank" in (c / "config.json").read_text()}
    fit = lambda way: [c for c in cases if way[3] not in CACHES.values() or c not in latent]
    one = lambda way: subprocess.run(
        [run.places.tern, "verify", *device, "--dtype", way[2], "--quantization", way[3], *map(str, fit(way))],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **way[1]},
    )
    for way, done in zip(ways, together(one, ways, 6 if run.places.on_gpu else 1)):
        label, _, dtype, asked = way
        wide = {GROUPS: "wint4 in groups of 32 and an int8 head", **{v: f"a cache of {k}" for k, v in CACHES.items()}}
        name = f"{label} {wide.get(asked, asked)}"
        if isinstance(done, Exception):
            run.check(False, f"{dtype} {name}", f"{type(done).__name__}: {done}"[:600])
        else:
            judge(run, fit(way), name, dtype, done)


def beside(run, what, unit, value, plain, least):
    """`value` and `plain`: times, of the format and of bfloat16."""
    ratio = plain / value
    run.figure(
        f"{what} / bfloat16", f"{value:.2f} / {plain:.2f} {unit}: {ratio:.2f} times" + (f" (wanted {least})" if least else "")
    )
    run.row(
        what,
        value,
        unit,
        reference="bfloat16 weights",
        reference_value=float(f"{plain:.5g}"),
        reference_unit=unit,
        ratio=round(ratio, 3),
    )
    if least is not None:
        run.check(not run.places.on_gpu or ratio >= least, what, f"{ratio:.2f} times bfloat16's speed, wanted {least}")
    return ratio


def kernels(run):
    f = stage_bench.tern(run, "kernels", "--device", run.places.device, "--no-peers", "--only", "codes")
    if f is None:
        return
    (run.places.out / "kernels-quant.json").write_text(json.dumps(f, indent=1))
    us = {r["shape"]: r["us"] for r in f["rows"]}
    for r in f["rows"]:
        run.say(f"{r['shape']}: {r['us']:.2f} us, {r['gb_per_second']:.0f} GB/s, {r['tflops']:.0f} TFLOP/s, {r['kernel']}")
    for name, wanted in PRODUCT.items():
        for rows in ROWS:
            shape = f"14336x4096 rows {rows}"
            beside(run, f"product {name} {shape}", "us", us[f"{name} {shape}"], us[f"bf16 {shape}"], wanted.get(rows))
    for name, wanted in EXPERTS.items():
        for tokens in (8, 64):
            shape = f"layer 2048/768, 128 top-8, {tokens} tokens"
            beside(run, f"experts {name} {shape}", "us", us[f"{name} {shape}"], us[f"bf16 {shape}"], wanted.get(tokens))


# Times bfloat16's speed, at least, of attention over a cache of codes.
ATTENTION = {
    "64/8 heads 64 x 4k": 1.4,
    "64/8 heads 64 ragged 512 to 16k": None,
    "qwen3-8b 32/8 heads 1 x 1k": None,
    "qwen3-8b 32/8 heads 100 x 1k": None,
    "32/8 heads 1 x 8k": 0.8,
    "32/8 heads 2k behind 14k": None,
}


def attention(run):
    shapes = [s + more for s in ATTENTION for more in ("", ", int8 cache", ", e4m3 cache")]
    us = {}
    for group in ("decode attention", "prefill attention"):
        f = stage_bench.tern(run, "kernels", "--device", run.places.device, "--no-peers", "--only", group)
        for r in f["rows"] if f else []:
            if r["shape"] in shapes:
                us[r["shape"]] = r["us"]
                run.say(
                    f"{r['shape']}: {r['us']:.2f} us, {r['gb_per_second']:.0f} GB/s, {r['tflops']:.0f} TFLOP/s, {r['kernel']}"
                )
    for shape, least in ATTENTION.items():
        for kind in ("int8", "e4m3"):
            if shape in us:
                beside(run, f"attention {shape}, {kind} cache", "us", us[f"{shape}, {kind} cache"], us[shape], least)


def steps(run, model):
    for batch in BATCHES:
        plain = stage_bench.decode(run, model, batch, TOKENS)
        best = 0.0
        for name in FORMATS:
            f = stage_bench.decode(run, model, batch, TOKENS, "--serve-flags", f"--quantization {name}")
            if f is None or plain is None:
                continue
            least = STEPS.get(model, {}).get(batch, {}).get(name, EVERY.get(model))
            what = f"{model}, a step of {batch}, {name}"
            best = max(best, beside(run, what, "us", f["step_us_mean"], plain["step_us_mean"], least))
        if model in BEST:
            run.check(not run.places.on_gpu or best >= BEST[model], f"{model}, a step of {batch}, the best format", f"{best:.2f}")


def bench(run):
    stage_bench.some(
        run,
        {
            "quant-kernels": kernels,
            "quant-attention": attention,
            "quant-8b": lambda run: steps(run, "qwen3-8b"),
            "quant-0.3b": lambda run: steps(run, "ernie-4.5-0.3b"),
        },
    )
