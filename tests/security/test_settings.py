"""Settings that pass --dry-run serve: one request under every accepted value at its edges; others are refused in one line."""

import json
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = os.environ.get("TERN", str(ROOT / "build" / "release" / "tern"))
GOLDEN = ROOT / "tests" / "data" / "golden"
LEGACY = {"ENABLE_V1_KVCACHE_SCHEDULER": "0"}
# Flags whose edges stand in CASES, or that name a place in the system.
APART = {
    "port",
    "local-data-parallel-id",
    "metrics-port",
    "controller-port",
    "block-size",
    "max-num-seqs",
    "max-num-batched-tokens",
    "max-model-len",
    "num-gpu-blocks-override",
    "gpu-memory-utilization",
    "cpu-threads",
    "io-threads",
    "http-threads",
    "media-threads",
    "max-header-bytes",
}


def dry_run(*flags, model="llama_tied", env=None):
    return subprocess.run(
        [TERN, "serve", "--model", GOLDEN / model, "--dry-run", *map(str, flags)],
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
        timeout=60,
    )


def complete(url, prompt):
    body = {"prompt": prompt, "max_tokens": 5, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["completion_token_ids"]


# What the first server said for each model and prompt: no setting may change it.
TOKENS = {}

# Flags, model, environment, tokens of the prompt.
CASES = [
    *((["--block-size", size], "llama_tied", {}, 30) for size in (16, 48, 64, 1008, 1024)),
    # Latent attention adds up block by block: in bfloat16 that may choose another expert.
    *((["--block-size", size, "--dtype", "float32"], "deepseek_v3", {}, 30) for size in (16, 48, 64, 1008, 1024)),
    (["--block-size", 16, "--max-num-seqs", 16, "--max-num-batched-tokens", 16], "llama_tied", {}, 30),
    (["--block-size", 1024, "--max-model-len", 16], "llama_tied", {}, 8),
    (["--block-size", 1024, "--max-model-len", 16], "llama_tied", LEGACY, 8),
    *((["--max-num-seqs", n], "llama_tied", {}, 30) for n in (1, 256)),
    (["--max-num-seqs", 256, "--max-num-batched-tokens", 256], "llama_tied", {}, 30),
    (["--max-num-seqs", 256, "--max-num-batched-tokens", 256], "llama_tied", LEGACY, 30),
    *((["--max-num-batched-tokens", n], "llama_tied", {}, 100) for n in (64, 8 * 2048)),
    (["--max-num-batched-tokens", 64], "llama_tied", LEGACY, 100),
    (["--no-enable-chunked-prefill", "--max-num-batched-tokens", 8], "llama_tied", {}, 8),
    (["--no-enable-chunked-prefill", "--max-num-batched-tokens", 2048], "llama_tied", LEGACY, 30),
    *((["--max-model-len", n], "llama_tied", {}, 8) for n in (16, 17, 65536)),
    (["--num-gpu-blocks-override", 34], "llama_tied", {}, 30),
    (["--num-gpu-blocks-override", 46], "llama_tied", LEGACY, 30),
    (["--num-gpu-blocks-override", 34, "--kv-cache-ratio", 1], "llama_tied", LEGACY, 30),
    *((["--gpu-memory-utilization", x], "llama_tied", {}, 30) for x in (0.01, 1)),
    *((["--cpu-threads", n], "llama_tied", {}, 30) for n in (1, 512)),
    (["--io-threads", 1, "--http-threads", 1, "--media-threads", 1], "llama_tied", {}, 30),
    (["--io-threads", 256, "--http-threads", 256, "--media-threads", 1024], "llama_tied", {}, 30),
    (["--max-header-bytes", 1024], "llama_tied", {}, 30),
    (
        ["--long-prefill-token-threshold", 1, "--max-num-partial-prefills", 4, "--max-long-partial-prefills", 4],
        "llama_tied",
        LEGACY,
        100,
    ),
]


def name(case):
    flags, model, env, _ = case
    return "_".join(str(f).lstrip("-") for f in flags) + f"-{model}" + ("-legacy" if env else "")


@pytest.mark.parametrize("case", CASES, ids=name)
def test_accepted_values_serve_and_give_the_same_tokens(start, case):
    flags, model, env, tokens = case
    done = dry_run(*flags, model=model, env=env)
    assert done.returncode == 0, done.stderr
    server = start(*flags, model=GOLDEN / model, env=env).wait_ready()
    got = complete(server.url, list(range(3, 3 + tokens)))
    key = (model, tokens)
    assert got == TOKENS.setdefault(key, got) and len(got) == 5
    assert server.stop() == 0


@pytest.mark.parametrize("size", [1, 2, 8, 15, 17, 24, 63, 100, 1000, 1023])
@pytest.mark.parametrize("model", ["llama_tied", "deepseek_v3"])
def test_other_block_sizes_are_refused_in_one_line(size, model):
    done = dry_run("--block-size", size, model=model)
    assert done.returncode == 2
    assert done.stderr == f"tern: --block-size {size} is not a multiple of 16: 16, 32, 48, ... 1024\n"


@pytest.mark.parametrize(
    "flags,env,words",
    [
        (["--num-gpu-blocks-override", 33], {}, "is too small: one sequence of --max-model-len 2048 needs 34 blocks"),
        (["--num-gpu-blocks-override", 45], LEGACY, "needs 34 blocks within the share of --kv-cache-ratio"),
        (["--cpu-threads", 513], {}, "513 is above 512"),
    ],
)
def test_what_could_not_serve_is_refused_in_one_line(flags, env, words):
    done = dry_run(*flags, env=env)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_more_blocks_than_memory_end_the_start_in_one_line(start):
    for blocks in (1 << 26, 1 << 30):
        with pytest.raises(
            RuntimeError,
            match=r"ended with 1:(.|\n)*tern: --num-gpu-blocks-override \d+ blocks of \d+ bytes are more than all the memory",
        ):
            start("--num-gpu-blocks-override", blocks, model=GOLDEN / "llama_tied").wait_ready()


def numbers():
    """Flags that take a number and act."""
    table = (ROOT / "docs" / "flags.md").read_text()
    return [
        m.group(1)
        for m in re.finditer(r"^\| `--([a-z-]+)`(?:, `-\w`)? \| `[NX]` \|.*\| acts(?: \||;|,)", table, re.M)
        if m.group(1) not in APART
    ]


def edge(flag, beyond, word):
    said = dry_run(f"--{flag}", beyond).stderr
    found = re.search(rf"is {word} ([-\d.e+]+)", said)
    return found.group(1) if found else None


@pytest.mark.parametrize("word,beyond", [("below", -(1 << 40)), ("above", 1 << 62)])
def test_all_other_numbers_serve_at_their_edges(start, word, beyond):
    flags = [(flag, edge(flag, beyond, word)) for flag in numbers()]
    assert len(flags) > 40 and sum(value is not None for _, value in flags) > 40, flags
    given = [part for flag, value in flags if value is not None for part in (f"--{flag}", value)]
    done = dry_run(*given)
    assert done.returncode == 0, done.stderr
    server = start(*given, model=GOLDEN / "llama_tied").wait_ready()
    assert len(complete(server.url, list(range(3, 20)))) == 5
    assert server.stop() == 0
