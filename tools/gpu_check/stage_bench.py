"""Figures: steps of published shapes with dummy weights, prompts, serving over HTTP, and the table of `tern bench kernels`. Targets
that are wanted fail the stage when they are missed; all other figures are reported beside their ceilings."""

import base64
import concurrent.futures
import io
import json
import os
import pathlib
import random
import subprocess
import time

import bench_attention
import bench_peers
import bench_rows
from server import Server

SAMPLING = ["--temperature", "0.8", "--top-p", "0.8", "--repetition-penalty", "1.05"]
# shape, batches; of so many steps, with CONTEXT tokens in the mean
DECODE = [("ernie-4.5-0.3b", (1, 32, 100, 256)), ("qwen3-8b", (1, 8, 32, 100, 256)), ("qwen3-30b-a3b", (1, 8, 32, 100))]
STEPS, CONTEXT = 500, 1024
PREFILL = [("qwen3-8b", 8192, 0), ("qwen3-8b", 8192, 2048), ("ernie-4.5-0.3b", 1024, 0)]
# shape, prompt tokens, answer tokens, requests, which are all sent at once as they were to vLLM, running at a time
LOADS = [("ernie-4.5-0.3b", 1024, 500, 512, 512), ("qwen3-8b", 1024, 1024, 512, 256)]
IDLE = ("ernie-4.5-0.3b", 1024, 40)
# Shapes, requests at a time, of STEPS tokens each, and how much longer than a step a client may wait for a token.
TPOT, TPOT_BATCHES, TPOT_MOST = ("ernie-4.5-0.3b", "qwen3-8b"), (1, 8, 32, 100), 1.05
# Of so many requests the prompts fit into one step. Of more they are read one step after another, for which the first
# ones wait: TPOT has that in it, the median of all gaps between tokens (ITL) has not.
TPOT_TOGETHER = 8


def shape(run, name):
    return str(run.places.root / "bench" / "shapes" / name)


def tern(run, *args, timeout=300, env=None):
    """The JSON object that a benchmark prints; None when it fails, which is a failed check."""
    command = [run.places.tern, "bench", *map(str, args), "--json"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}
    )
    run.places.out.mkdir(parents=True, exist_ok=True)
    with open(run.places.out / "bench.txt", "a") as out:
        out.write(" ".join(command) + "\n" + done.stdout + done.stderr[-3000:] + "\n")
    ok = done.returncode == 0 and done.stdout.strip().startswith("{")
    run.check(ok, " ".join(map(str, args)), done.stderr[-300:])
    return json.loads(done.stdout.strip().splitlines()[-1]) if ok else None


def decode(run, name, batch, tokens, *more, env=None, repeats=1):
    return tern(
        run,
        "decode",
        "--model",
        shape(run, name),
        "--load-choices",
        "dummy",
        "--device",
        run.places.device,
        "--batch",
        batch,
        "--context",
        CONTEXT - tokens // 2,
        "--tokens",
        tokens,
        "--repeats",
        repeats,
        *SAMPLING,
        *more,
        env=env,
    )


def steps(run):
    for name, batches in DECODE:
        for batch in batches:
            f = decode(run, name, batch, STEPS)
            if f is None:
                continue
            run.figure(
                f"{name} step, batch {batch}",
                f"{f['step_us_mean']:.0f} us ({f['ratio_with_cache']:.2f} of read bandwidth), "
                f"idle {f['idle_us_p50']:.1f} us, host {f['host_us_p50']:.0f} us, graphs {f['graph_share']:.2f}",
            )
            bench_rows.steps(run, f"{name}, a step of {batch}, mean context {CONTEXT}", f)
            if not run.places.on_gpu:
                continue
            run.check(f["graph_share"] >= 0.95, f"{name}, batch {batch}: steps replayed", f["graph_share"])
            run.check(f["idle_us_p50"] <= 10, f"{name}, batch {batch}: idle between steps", f"{f['idle_us_p50']:.1f} us")
            if name == "qwen3-8b" and batch == 1:
                run.check(f["ratio_with_cache"] >= 0.6, "8B, batch 1: share of read bandwidth", f["ratio_with_cache"])
            if batch == 256:
                run.check(f["host_us_p50"] <= 50, "host time per step, 256 running", f"{f['host_us_p50']:.1f} us")


def delay(run):
    """Planning that takes 2 ms longer hides behind a step that takes longer than that."""
    both = [decode(run, "qwen3-8b", 32, 200, env=env) for env in ({}, {"TERN_TEST_PLAN_DELAY_MS": "2"})]
    if None not in both:
        plain, late = (f["step_us_mean"] for f in both)
        run.figure("8B step, batch 32, planning as it is / 2 ms later", f"{plain:.0f} / {late:.0f} us")
        times = {
            "reference": "as it is",
            "reference_value": round(plain),
            "reference_unit": "us",
            "ratio": round(plain / late, 3),
        }
        run.row("qwen3-8b, a step of 32, planning 2 ms later", late, "us", **times)
        run.check(
            not run.places.on_gpu or late <= 1.02 * plain, "2 ms of planning change no step", f"{plain:.0f} and {late:.0f} us"
        )


def prompts(run):
    for name, tokens, chunk in PREFILL:
        f = tern(
            run,
            "prefill",
            "--model",
            shape(run, name),
            "--load-choices",
            "dummy",
            "--device",
            run.places.device,
            "--tokens",
            tokens,
            "--chunk",
            chunk,
        )
        if f is not None:
            run.figure(
                f"{name} prompt of {tokens}" + (f" in steps of {chunk}" if chunk else ""),
                f"{f['milliseconds']:.2f} ms ({f.get('ratio_with_attention', 0):.2f} of products' peak)",
            )
            bench_rows.prompt(run, f"{name}, a prompt of {tokens}" + (f" in steps of {chunk}" if chunk else ""), f)


def load(run, server, prompt, answer, requests, together, seed, sampling=tuple(SAMPLING[:2])):
    """A seed of its own per load: prompts of an earlier one would be found in the prefix cache."""
    f = tern(
        run,
        "serve",
        "--url",
        f"http://127.0.0.1:{server.port}",
        "--requests",
        requests,
        "--concurrency",
        together,
        "--input-len",
        prompt,
        "--output-len",
        answer,
        "--vocab",
        100000,
        "--seed",
        seed,
        *sampling,
    )
    if f is not None:
        run.check(f["failed"] == 0, "requests", f["first_error"])
    return f


def serving(run):
    for name, prompt, answer, requests, together in LOADS:
        with Server(
            run,
            shape(run, name),
            "--load-choices",
            "dummy",
            "--max-num-seqs",
            together,
            "--max-model-len",
            4096,
            env={"TERN_MAX_SEQUENCES": str(together)},
            name=name,
        ) as server:
            server.ready(180)
            load(run, server, prompt, 8, 2 * together, together, 1)
            f = load(run, server, prompt, answer, requests, requests, 2)
            if f is not None:
                run.figure(
                    f"{name}: {requests} requests, {prompt} in, {answer} out, {together} at a time",
                    f"{f['output_tokens_per_second']:.0f} tok/s, TPOT p50 {f['tpot_ms']['p50']:.2f} ms, "
                    f"client CPU {f['client_cpu_seconds'] / f['seconds']:.2f} of a core",
                )
                run.row(
                    f"{name} over HTTP: {requests} requests, {prompt} in, {answer} out, {together} running",
                    f["output_tokens_per_second"],
                    "tokens/s",
                    note=f"TPOT p50 {f['tpot_ms']['p50']:.2f} ms",
                )
            if (name, prompt) == IDLE[:2]:
                f = load(run, server, prompt, 2, IDLE[2], 1, 3)
                if f is not None:
                    run.figure(
                        f"{name}: first token, idle, {prompt} in",
                        f"p50 {f['ttft_ms']['p50']:.2f} ms, p99 {f['ttft_ms']['p99']:.2f} ms",
                    )
                    what = f"{name} over HTTP: first token, idle, {prompt} in"
                    run.row(what, f["ttft_ms"]["p50"], "ms", note=f"p99 {f['ttft_ms']['p99']:.2f} ms")


def tpot(run):
    """What a client waits for a token, beside the step of the engine alone: the same tokens, context and sampling."""
    for name in TPOT:
        steps_of = {batch: decode(run, name, batch, STEPS) for batch in TPOT_BATCHES}
        with Server(
            run,
            shape(run, name),
            "--load-choices",
            "dummy",
            "--max-num-seqs",
            max(TPOT_BATCHES),
            "--max-model-len",
            4096,
            name=f"{name}-tpot",
        ) as server:
            server.ready(180)
            for batch, step in steps_of.items():
                for seed in (1, 2):  # the first load is there to warm up
                    f = load(run, server, CONTEXT - STEPS // 2, STEPS, batch, batch, seed, SAMPLING)
                if f is not None and step is not None:
                    of = "TPOT" if batch <= TPOT_TOGETHER else "ITL"
                    beside_its_step(
                        run, f"{name}, {batch} at a time", of, 1e3 * f[f"{of.lower()}_ms"]["p50"], step["step_us_mean"]
                    )


def beside_its_step(run, what, of, token, step):
    run.figure(f"{what}: {of} p50 over HTTP / a step", f"{token:.0f} / {step:.0f} us ({token / step:.3f})")
    more = {
        "reference": "a step without HTTP",
        "reference_value": round(step),
        "reference_unit": "us",
        "ratio": round(step / token, 3),
    }
    run.row(f"{what}: a token over HTTP ({of} p50)", token, "us", **more)
    run.check(not run.places.on_gpu or token <= TPOT_MOST * step, f"{what}: {of} over HTTP", f"{token / step:.3f} of a step")


def page(number):
    """A line with a message: a 1,000 x 1,000 JPEG, unlike any other, of text-like and photo-like parts. Needs Pillow."""
    from PIL import Image, ImageDraw

    draw = random.Random(number)
    image = Image.new("RGB", (1000, 1000), "white")
    pen = ImageDraw.Draw(image)
    for line in range(60):
        pen.text((40, 20 + 12 * line), "".join(draw.choices("etaoin shrdlu.,0123456789", k=140)), fill="black")
    noise = Image.frombytes("RGB", (120, 60), draw.randbytes(120 * 60 * 3)).resize((900, 230), Image.BICUBIC)
    image.paste(noise, (50, 750))
    data = io.BytesIO()
    image.save(data, "JPEG", quality=85)
    url = "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "OCR:"}]
    return json.dumps({"messages": [{"role": "user", "content": content}]}) + "\n"


def pages(path, first, count):
    with concurrent.futures.ProcessPoolExecutor() as pool, open(path, "w") as out:
        out.writelines(pool.map(page, range(first, first + count)))
    return path


def pictures(run):
    """The published OCR shape with the shipped model's tokenizer, whose special ids it takes."""
    ids = {"vision_start_token_id": 2048, "image_token_id": 2049, "vision_end_token_id": 2050, "video_token_id": 2051}
    run.places.scratch.mkdir(parents=True, exist_ok=True)
    # No page comes twice: what is encoded once is cached.
    loads = [(32, 32, 2), (128, 64, 300), (12, 1, 2)]
    files = [pages(run.places.scratch / f"pages{i}.jsonl", 1000 * i, load[0]) for i, load in enumerate(loads)]
    with Server(
        run,
        shape(run, "paddleocr-vl-0.9b"),
        "--load-choices",
        "dummy",
        "--tokenizer",
        run.places.root / "models" / "tern-demo-ocr",
        "--model-override",
        json.dumps(ids),
        "--max-num-seqs",
        64,
        "--max-model-len",
        4096,
        "--max-num-batched-tokens",
        8192,
        name="pictures",
    ) as server:
        server.ready(180)
        for lines, (requests, together, tokens) in zip(files, loads):
            f = tern(
                run,
                "serve",
                "--url",
                f"http://127.0.0.1:{server.port}",
                "--dataset-path",
                lines,
                "--requests",
                requests,
                "--concurrency",
                together,
                "--output-len",
                tokens,
                "--temperature",
                0.8,
                "--ignore-eos",
                "--token-ids",
            )
            if f is None:
                return
            run.check(f["failed"] == 0, f"{requests} pictures, {together} at a time", f["first_error"])
            if tokens == 300:
                run.figure("pictures, 64 at a time, 300 tokens out", f"{f['requests_per_second']:.1f} per second")
                run.row("paddleocr-vl-0.9b, 1,000 x 1,000 JPEGs, 64 at a time, 300 out", f["requests_per_second"], "pictures/s")
            elif together == 1:
                run.figure("a picture to its first token", f"p50 {f['ttft_ms']['p50']:.1f} ms")
                run.row("paddleocr-vl-0.9b, one such picture to its first token", f["ttft_ms"]["p50"], "ms")


def kernels(run):
    f = tern(run, "kernels", "--device", run.places.device)
    if f is None:
        return
    (run.places.out / "kernels.json").write_text(json.dumps(f, indent=1))
    run.figure(
        "read, products, launch",
        f"{f['read_gb_per_second']:.0f} GB/s ({f['read_variant']}), {f['product_tflops']:.0f} TFLOP/s, {f['launch_us']:.2f} us",
    )
    run.check(
        "H200" not in f["device"] or f["read_gb_per_second"] >= 4200, "the probe of read bandwidth", f["read_gb_per_second"]
    )
    bench_rows.kernels(run, f)
    bench_peers.copy(run, f["read_gb_per_second"])
    run.check(len(f["rows"]) > 100, "ops timed", len(f["rows"]))


def some(run, parts):
    """Those of `parts` that TERN_CHECK_BENCH names, all without it; a stage takes 8 minutes at most."""
    wanted = os.environ.get("TERN_CHECK_BENCH", "").split(",")
    end = time.monotonic() + float(os.environ.get("TERN_CHECK_BENCH_SECONDS", "460"))
    for name, part in parts.items():
        if wanted != [""] and name not in wanted:
            continue
        if not run.check(time.monotonic() < end, name, "no time is left for this part"):
            continue
        try:
            part(run)
        except Exception as e:  # noqa: BLE001  the other parts still say something
            run.check(False, name, f"{type(e).__name__}: {e}")


def alone(run):
    some(
        run,
        {
            "steps": steps,
            "delay": delay,
            "kernels": kernels,
            "attention": lambda run: bench_attention.attention(run, tern),
            "deterministic": lambda run: bench_peers.deterministic(run, decode),
        },
    )


def served(run):
    some(
        run,
        {
            "prompts": prompts,
            "serving": serving,
            "tpot": tpot,
            "pictures": pictures,
            "start": lambda run: bench_peers.cold_start(run, pathlib.Path(shape(run, "qwen3-8b"))),
            "transformers": lambda run: bench_peers.transformers(run, shape, decode),
        },
    )
