"""Guided decoding beside plain requests: what guided rows cost the others, and what they reach alone.
TERN_CHECK_TOKENIZER: folder of a tokenizer with a large vocabulary; without it the shipped model's."""

import json
import os
import statistics

from server import Server
from stage_bench import shape, tern

SHAPES = ("ernie-4.5-0.3b", "qwen3-8b")
TOGETHER, PROMPT, ANSWER, ROUNDS = 128, 128, 256, 3
# No answer ends before ANSWER tokens: all rows are full to the end.
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99999}, "minItems": 300}
EXTRA = {"guided_json": NUMBERS, "ignore_eos": None}
# Times of requests without guided rows in the same run. Of the plain half: TPOT and p99 of gaps; all guided: tokens a second.
MOST_TPOT, MOST_GAP, LEAST_RATE = 1.02, 1.10, 0.95


def load(run, server, share, seed):
    more = ["--extra-body", json.dumps(EXTRA), "--extra-share", share] if share else []
    f = tern(
        run,
        "serve",
        "--url",
        f"http://127.0.0.1:{server.port}",
        "--requests",
        2 * TOGETHER,
        "--concurrency",
        TOGETHER,
        "--input-len",
        PROMPT,
        "--output-len",
        ANSWER,
        "--vocab",
        2000,
        "--seed",
        seed,
        "--temperature",
        0.8,
        *more,
    )
    if f is not None:
        run.check(f["failed"] == 0, f"share {share}: requests", f["first_error"])
    return f


def one(run, name, tokenizer):
    loads = {0: [], 0.5: [], 1: []}
    with Server(
        run,
        shape(run, name),
        "--load-choices",
        "dummy",
        "--tokenizer",
        tokenizer,
        "--max-num-seqs",
        TOGETHER,
        "--max-model-len",
        2048,
        name=name,
    ) as server:
        server.ready(180)
        load(run, server, 0.5, 1)
        for turn in range(ROUNDS):
            for share in loads:
                f = load(run, server, share, 2 + 3 * turn)
                if f is None:
                    return
                loads[share].append(f)

    def middle(share, get):
        return statistics.median(get(f) for f in loads[share])

    plain = middle(0, lambda f: f["tpot_ms"]["p50"])
    beside = middle(0.5, lambda f: f["without_extra"]["tpot_ms"]["p50"])
    gap, gap_beside = middle(0, lambda f: f["itl_ms"]["p99"]), middle(0.5, lambda f: f["without_extra"]["itl_ms"]["p99"])
    rate, guided = (middle(share, lambda f: f["output_tokens_per_second"]) for share in (0, 1))
    run.figure(f"{name}: TPOT p50, all plain / the plain half", f"{plain:.3f} / {beside:.3f} ms ({beside / plain:.3f})")
    run.figure(f"{name}: gaps p99, likewise", f"{gap:.3f} / {gap_beside:.3f} ms ({gap_beside / gap:.3f})")
    run.figure(f"{name}: tokens a second, all plain / all guided", f"{rate:.0f} / {guided:.0f} ({guided / rate:.3f})")
    rows = [
        ("TPOT of the plain half", beside, "ms", plain, plain / beside),
        ("p99 of gaps of the plain half", gap_beside, "ms", gap, gap / gap_beside),
        ("all guided", guided, "tokens/s", rate, guided / rate),
    ]
    for what, value, unit, reference, ratio in rows:
        more = dict(reference="no guided row", reference_value=round(reference, 3), reference_unit=unit, ratio=round(ratio, 3))
        run.row(f"{name} over HTTP, {TOGETHER} running, guided decoding: {what}", value, unit, **more)
    on_gpu = run.places.on_gpu
    run.check(not on_gpu or beside <= MOST_TPOT * plain, f"{name}: TPOT of the plain half", f"{beside / plain:.3f}")
    run.check(not on_gpu or gap_beside <= MOST_GAP * gap, f"{name}: p99 of their gaps", f"{gap_beside / gap:.3f}")
    run.check(not on_gpu or guided >= LEAST_RATE * rate, f"{name}: all guided", f"{guided / rate:.3f}")


def guided(run):
    tokenizer = os.environ.get("TERN_CHECK_TOKENIZER", str(run.places.root / "models" / "tern-demo-ocr"))
    run.say(f"tokenizer: {tokenizer}")
    for name in SHAPES:
        one(run, name, tokenizer)
