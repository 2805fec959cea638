"""Two engines with a copy of the model each (--data-parallel-size 2) beside one, through HTTP: twice the requests on twice
the GPUs. On a CPU the engines share the cores, and the figures say what the second one costs."""

import concurrent.futures
import os

import stage_bench
from server import Server

# shape, prompt tokens, answer tokens, requests running on each engine, how many times as fast two must be as one
GPU = [("qwen3-8b", 1024, 512, 256, 1.88), ("ernie-4.5-0.3b", 1024, 500, 512, 1.75)]
CPU = [("ernie-4.5-0.3b", 64, 24, 4, None)]
ENGINES = 2


def loads(run, server, engines, prompt, answer, together, seed):
    """Output tokens per second of a load for each engine, from a client each: none has more to do than beside one engine."""
    with concurrent.futures.ThreadPoolExecutor(engines) as pool:
        clients = [
            pool.submit(stage_bench.load, run, server, prompt, answer, together, together, 1000 * seed + i)
            for i in range(engines)
        ]
        reports = [c.result() for c in clients]
    if None in reports:
        return None
    tokens = sum(f["output_tokens_per_second"] * f["seconds"] for f in reports)
    return tokens / max(f["seconds"] for f in reports)


def served(run, engines, name, prompt, answer, together):
    """The second of two loads: the first is there to warm up."""
    env = {"TERN_MAX_SEQUENCES": str(together), "FD_SUPPORT_MAX_CONNECTIONS": str(2 * engines * together)}
    if not run.places.on_gpu:
        env["TERN_TEST_RANKS"] = "1"
    flags = ["--load-choices", "dummy", "--max-num-seqs", together, "--max-model-len", 4096]
    if engines > 1:
        flags += ["--data-parallel-size", engines]
    with Server(run, stage_bench.shape(run, name), *flags, env=env, name=f"{name}-{engines}") as server:
        server.ready(240)
        loads(run, server, engines, prompt, 8, together, 1)
        rate = loads(run, server, engines, prompt, answer, together, 2)
        if engines > 1:
            each = [server.metric(f'tern:engine_generation_tokens_total{{engine="{i}"}}') for i in range(engines)]
            whole = engines * together * (8 + answer)
            run.check(
                all(n is not None and abs(n - whole / engines) <= 0.1 * whole / engines for n in each),
                f"{name}: engines say as much as one another",
                f"{each} of {whole}",
            )
        run.check(server.stop() == 0, f"{name}, {engines} engines: ends with status 0", server.text()[-300:])
    return rate


def data_parallel(run):
    wanted = os.environ.get("TERN_CHECK_BENCH", "")
    for name, prompt, answer, together, least in GPU if run.places.on_gpu else CPU:
        if wanted and name not in wanted.split(","):
            continue
        one, two = (served(run, engines, name, prompt, answer, together) for engines in (1, ENGINES))
        if None in (one, two):
            continue
        ratio = two / one
        what = f"{name} over HTTP: DP2 / one, {prompt} in, {answer} out, {together} running on each"
        run.figure(what, f"{two:.0f} / {one:.0f} tokens/s ({ratio:.3f})")
        more = dict(reference="one engine", reference_value=round(one), reference_unit="tokens/s", ratio=round(ratio, 3))
        run.row(what, two, "tokens/s", **more)
        if least is not None:
            run.check(ratio >= least, what, f"{ratio:.3f} of at least {least}")
