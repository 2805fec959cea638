"""Several engines with a copy of the model each behind one server, on a CPU: the answers of one engine under load, requests
that follow their beginning, figures, an engine that fails, pictures and grammars."""

import base64
import concurrent.futures
import contextlib
import json
import os
import random
import socket

import pytest

import tern_server
from several import mixed_requests, post, thread_names

TWO = ["--data-parallel-size", "2"]


def engines(server, name):
    """A figure of each engine."""
    out = {}
    for line in server.get("/metrics").splitlines():
        if line.startswith(f'tern:engine_{name}{{engine="'):
            out[line.split('"')[1]] = float(line.rsplit(" ", 1)[1])
    return out


def answers(server, count=48):
    def ask(body):
        status, reply = post(server, "/v1/completions", **body)
        assert status == 200, reply
        return [c["completion_token_ids"] for c in reply["choices"]]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        requests = mixed_requests(count, seed=5, beginnings=5)
        return list(pool.map(ask, [r | {"n": 1 + i % 2} for i, r in enumerate(requests)]))


@pytest.mark.parametrize("ranks", [[], ["--tensor-parallel-size", "2"]], ids=["one rank", "two ranks"])
def test_load_over_two_engines_is_answered_as_by_one(start_cpu, ranks):
    want = answers(start_cpu(*ranks))
    two = start_cpu(*ranks, *TWO, "--max-num-batched-tokens", "64")
    assert thread_names(two.process.pid, "engine") == ["engine-0", "engine-1"]
    assert len(thread_names(two.process.pid, "rank-")) == (4 if ranks else 2)
    assert answers(two) == want
    assert answers(two) == want  # with hits of the prefix caches
    said = sum(len(choice) for answer in want for choice in answer)
    each = engines(two, "generation_tokens_total")
    assert set(each) == {"0", "1"} and min(each.values()) > said / 10, "both take part"
    assert sum(each.values()) == 2 * said == two.metric("fastdeploy:generation_tokens_total")
    assert two.metric("tern:steps_total") == sum(engines(two, "steps_total").values())
    assert two.metric("fastdeploy:max_batch_size") == 16
    assert two.metric("fastdeploy:num_requests_running") == 0 == sum(engines(two, "open_tokens").values())
    config = json.loads(two.get("/config-info"))
    assert config["data_parallel"] == {"size": 2, "first": 0, "count": 2}
    assert two.stop() == 0


def test_what_follows_goes_where_its_beginning_is(start_cpu):
    server = start_cpu(*TWO, "--max-num-seqs", "4")
    dice = random.Random(6)
    talks = [[dice.randrange(5, 90) for _ in range(200)] for _ in range(8)]

    def ask(prompt):
        status, reply = post(
            server, "/v1/completions", prompt=prompt, max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True
        )
        assert status == 200, reply
        return reply["choices"][0]["completion_token_ids"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        first = list(pool.map(ask, talks))
    assert [hit for _, hit in first] == [0] * 8
    for _ in range(2):
        for talk, (ids, _) in zip(talks, first):
            again, hit = ask(talk + ids + [dice.randrange(5, 90) for _ in range(20)])
            assert hit == 192, "three blocks of 64"
            assert len(again) == 6
    hits = engines(server, "prefix_cache_token_num_total")
    assert min(hits.values()) > 0, "conversations began on both"
    assert sum(hits.values()) == 16 * 192 == server.metric("fastdeploy:prefix_cache_token_num_total")


def test_a_client_that_leaves_frees_its_place_on_either_engine(start_cpu):
    server = start_cpu(*TWO)
    body = json.dumps({"prompt": [5, 6, 7], "max_tokens": 480, "stream": True, "ignore_eos": True, "n": 4}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        s.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        s.recv(1000)
        tern_server.wait_for(lambda: min(engines(server, "requests_running").values()) >= 1)
    tern_server.wait_for(lambda: server.metric("fastdeploy:num_requests_running") == 0)
    assert server.metric("fastdeploy:generation_tokens_total") < 4 * 480


@pytest.mark.parametrize("fault", ["trap@4,engine=1", "trap@4,engine=1,rank=1"])
def test_an_engine_that_fails_ends_the_process(start_cpu, fault):
    ranks = ["--tensor-parallel-size", "2"] if "rank" in fault else []
    server = start_cpu(*TWO, *ranks, env={"TERN_FAULT": fault})
    with contextlib.suppress(OSError):  # it may be gone before it has answered
        status, reply = post(server, "/v1/completions", prompt=[5, 6, 7], max_tokens=60, ignore_eos=True, n=2)
        assert status >= 500, reply
    assert server.process.wait(20) != 0
    assert "engine 1: step" in server.text() and "a fault was asked for" in server.text()


def test_pictures_and_grammars_on_both_engines(start_cpu):
    server = start_cpu(*TWO, "--max-model-len", "1024")
    models = tern_server.MODEL.parent
    url = "data:image/png;base64," + base64.b64encode((models / "demo.png").read_bytes()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "OCR:"}]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}

    def ask(n):
        body = dict(messages=[{"role": "user", "content": content if n % 2 else f"{n}+4="}], max_tokens=400, temperature=0)
        if n % 2 == 0:
            body |= dict(response_format=form, max_tokens=60)
        status, reply = post(server, "/v1/chat/completions", **body)
        assert status == 200, reply
        return reply["choices"][0]["message"]["content"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(ask, range(8)))
    want = (models / "demo.txt").read_text().strip()
    for n, text in enumerate(texts):
        if n % 2:
            assert text.strip() == want
        else:
            assert isinstance(json.loads(text)["a"], int), text
    assert min(engines(server, "generation_tokens_total").values()) > 0


def test_fewer_cores_than_engines_run_one(start_cpu):
    server = start_cpu("--data-parallel-size", "8", env={"TERN_TEST_RANKS": "0"})
    if len(os.sched_getaffinity(0)) < 8:
        assert thread_names(server.process.pid, "engine") == ["engine"]
        assert "--data-parallel-size 8 on " in server.text()
        assert engines(server, "steps_total") == {}


def test_one_engine_of_several(start_cpu):
    server = start_cpu(*TWO, "--local-data-parallel-id", "1")
    assert thread_names(server.process.pid, "engine") == ["engine-1"]
    assert json.loads(server.get("/config-info"))["data_parallel"] == {"size": 2, "first": 1, "count": 1}
    assert answers(server, 4) == answers(start_cpu(), 4)
