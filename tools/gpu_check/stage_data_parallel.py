"""Two engines with a copy of the model each (--data-parallel-size 2) beside one, through HTTP: twice the requests on twice
the GPUs. On a CPU the engines share the cores, and the figures say what the second one costs. Before that: the answers of both, and an engine that fails."""

import concurrent.futures
import os
import random
import subprocess

import stage_bench
from server import Server, together

# shape, prompt tokens, answer tokens, requests running on each engine, how many times as fast two must be as one
GPU = [("qwen3-8b", 1024, 512, 256, 1.88), ("ernie-4.5-0.3b", 1024, 500, 512, 1.75)]
CPU = [("ernie-4.5-0.3b", 64, 24, 4, None)]
ENGINES = 2


def loads(run, server, engines, prompt, answer, running, seed):
    """Output tokens per second of a load for each engine, from a client each: none has more to do than beside one engine."""
    with concurrent.futures.ThreadPoolExecutor(engines) as pool:
        clients = [
            pool.submit(stage_bench.load, run, server, prompt, answer, running, running, 1000 * seed + i) for i in range(engines)
        ]
        reports = [c.result() for c in clients]
    if None in reports:
        return None
    tokens = sum(f["output_tokens_per_second"] * f["seconds"] for f in reports)
    return tokens / max(f["seconds"] for f in reports)


def figures(server, name, engines):
    return [server.metric(f'tern:engine_{name}{{engine="{i}"}}') or 0 for i in range(engines)]


def served(run, engines, name, prompt, answer, running):
    """The second of two loads: the first is there to warm up."""
    env = {"TERN_MAX_SEQUENCES": str(running), "FD_SUPPORT_MAX_CONNECTIONS": str(2 * engines * running)}
    if not run.places.on_gpu:
        env["TERN_TEST_RANKS"] = "1"
    flags = ["--load-choices", "dummy", "--max-num-seqs", running, "--max-model-len", 4096]
    if engines > 1:
        flags += ["--data-parallel-size", engines]
    with Server(run, stage_bench.shape(run, name), *flags, env=env, name=f"{name}-{engines}") as server:
        server.ready(240)
        few = max(1, running // 4)
        loads(run, server, engines, prompt, 8, few, 1)
        rate = loads(run, server, engines, prompt, answer, running, 2)
        if engines > 1:
            each = figures(server, "generation_tokens_total", engines)
            whole = engines * (8 * few + running * answer)
            run.check(
                all(abs(n - whole / engines) <= 0.1 * whole / engines for n in each),
                f"{name}: engines say as much as one another",
                f"{each} of {whole}",
            )
        run.check(server.stop() == 0, f"{name}, {engines} engines: ends with status 0", server.text()[-300:])
    return rate


def answers(run):
    """Two engines answer as one does, bit for bit in deterministic mode; one that fails ends the process."""
    rng = random.Random(8)
    prompts = [[rng.randrange(5, 90) for _ in range(rng.randrange(2, 120))] for _ in range(32)]
    env = {"FD_DETERMINISTIC_MODE": "1", **({} if run.places.on_gpu else {"TERN_TEST_RANKS": "1"})}
    flags = ["--dtype", "float32", "--max-model-len", 320, "--max-num-seqs", 8]
    said = []
    for engines in (1, ENGINES):
        with Server(
            run, run.places.case("qwen3"), *flags, "--data-parallel-size", engines, env=env, name=f"answers-{engines}"
        ) as server:
            server.ready()
            said.append(together(lambda p, server=server: server.ids(p, 40), prompts, 16))
            if engines > 1:
                each = figures(server, "generation_tokens_total", engines)
                run.check(min(each) > 0, "both engines take part", each)
    run.check(said[0] == said[1] and all(isinstance(ids, list) for ids in said[0]), "answers of two engines and of one", said)
    fault = {**env, "TERN_FAULT": "trap@6,engine=1"}
    with Server(run, run.places.case("qwen3"), *flags, "--data-parallel-size", 2, env=fault, name="fault") as server:
        server.ready()
        failed = together(lambda p: server.ids(p, 200), prompts[:8], 8)
        try:
            status = server.process.wait(20)
        except subprocess.TimeoutExpired:
            status = 0
        run.check(status != 0, "an engine that fails ends the process", status)
        run.check(any(isinstance(f, Exception) for f in failed), "and its requests", failed)
        run.check("engine 1" in server.text(), "the log names it", server.text()[-300:])


def data_parallel(run):
    answers(run)
    rates(run)


def rates(run):
    wanted = os.environ.get("TERN_CHECK_BENCH", "")
    for name, prompt, answer, running, least in GPU if run.places.on_gpu else CPU:
        if wanted and name not in wanted.split(","):
            continue
        one, two = (served(run, engines, name, prompt, answer, running) for engines in (1, ENGINES))
        if None in (one, two):
            continue
        ratio = two / one
        what = f"{name} over HTTP: DP2 / one, {prompt} in, {answer} out, {running} running on each"
        run.figure(what, f"{two:.0f} / {one:.0f} tokens/s ({ratio:.3f})")
        more = dict(reference="one engine", reference_value=round(one), reference_unit="tokens/s", ratio=round(ratio, 3))
        run.row(what, two, "tokens/s", **more)
        if least is not None:
            run.check(ratio >= least, what, f"{ratio:.3f} of at least {least}")
