"""Experts dealt to the ranks of two engines behind one server, on a CPU: the answers of one engine, an engine that fails,
what is refused."""

import concurrent.futures
import contextlib
import json
import subprocess

import pytest

import tern_server
from several import mixed_requests, post, thread_names

EXPERTS = tern_server.ROOT / "tests/data/golden/qwen3_moe"
WORDS = ["--tokenizer", tern_server.MODEL]
SHARED = ["--data-parallel-size", "2", "--enable-expert-parallel"]


def answers(server, count=24):
    def ask(body):
        status, reply = post(server, "/v1/completions", **body)
        assert status == 200, reply
        return [c["completion_token_ids"] for c in reply["choices"]]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, mixed_requests(count, seed=8, beginnings=5)))


def steps(server):
    return [server.metric(f'tern:engine_steps_total{{engine="{n}"}}') for n in (0, 1)]


@pytest.mark.parametrize("ranks", [[], ["--tensor-parallel-size", "2"]], ids=["one rank", "two ranks"])
def test_engines_that_share_experts_answer_as_one(start_cpu, ranks):
    want = answers(start_cpu(*WORDS, model=EXPERTS))
    two = start_cpu(*WORDS, *SHARED, *ranks, model=EXPERTS)
    assert thread_names(two.process.pid, "engine") == ["engine-0", "engine-1"]
    assert answers(two) == want
    tern_server.wait_for(lambda: steps(two)[0] == steps(two)[1] > 0)
    status, reply = post(two, "/v1/completions", prompt=[5, 6, 7], max_tokens=4, temperature=0, ignore_eos=True)
    assert status == 200, reply  # beside an idle engine
    assert two.stop() == 0


@pytest.mark.parametrize("fault", ["trap@4,engine=1", "trap@4,engine=0,rank=1"])
def test_a_rank_that_fails_ends_the_process(start_cpu, fault):
    ranks = ["--tensor-parallel-size", "2"] if "rank" in fault else []
    server = start_cpu(*WORDS, *SHARED, *ranks, model=EXPERTS, env={"TERN_FAULT": fault})
    with contextlib.suppress(OSError):  # it may be gone before it has answered
        status, reply = post(server, "/v1/completions", prompt=[5, 6, 7], max_tokens=60, ignore_eos=True)
        assert status >= 500, reply
    assert server.process.wait(20) != 0
    assert "a fault was asked for" in server.text()


def dry_run(model, *flags):
    command = [tern_server.TERN, "serve", "--model", model, "--dry-run", "--device", "cpu", *flags]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def test_weights_of_engines_that_share_experts():
    whole, shared = (
        json.loads(dry_run(EXPERTS, *WORDS, *flags).stdout)["model"]["data_parallel"]["weight_bytes"]
        for flags in (SHARED[:2], SHARED)
    )
    assert shared["cpu"] == shared["cuda"], "experts once, everything else for each engine"
    total = {of: sum(bytes_.values()) for of, bytes_ in whole.items()}
    assert total["cpu"] < sum(shared["cpu"].values()) < total["cuda"]


def test_what_cannot_be_shared():
    dense = dry_run(tern_server.ROOT / "tests/data/golden/qwen3", *WORDS, *SHARED)
    assert dense.returncode != 0 and "the model has no experts that 2 engines could share" in dense.stderr
    uneven = dry_run(EXPERTS, *WORDS, "--data-parallel-size", "8", "--enable-expert-parallel")
    assert uneven.returncode != 0 and "8 engines of 1 ranks cannot share 12 experts evenly" in uneven.stderr
