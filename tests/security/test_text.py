"""Texts that no context can hold: refused for little memory, and nobody else waits for them."""

import http.client
import json
import pathlib

import pytest

NOISE = 16 << 20  # bytes; threads and buffers that are there whatever the text
BODY = 16 << 20  # bytes; at 350 bytes of memory for each, as once, this would be 5.6 GB


def peak_memory(server):
    """Most bytes of memory that the server ever had."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


def send(port, path, body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    return c


def ask(port, path, body):
    reply = send(port, path, body).getresponse()
    return reply.status, json.loads(reply.read())


def small_chat(port):
    return ask(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})[0]


LONG = "7" * BODY


@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/completions", {"prompt": LONG}),
        ("/tokenize", {"prompt": LONG}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
    ],
    ids=["completions", "tokenize", "chat"],
)
def test_digits_beyond_the_context_cost_at_most_eight_times_their_bytes(start, path, body):
    s = start("--max-model-len", 1024).wait_ready()
    assert small_chat(s.port) == 200
    before = peak_memory(s)
    status, answer = ask(s.port, path, body)
    assert status == 400, answer
    assert answer["error"]["code"] == "context_length_exceeded", answer
    assert peak_memory(s) - before < 8 * BODY + NOISE
    assert small_chat(s.port) == 200


def test_tokenize_counts_more_than_the_context_holds(start):
    s = start("--max-model-len", 1024).wait_ready()
    status, answer = ask(s.port, "/tokenize", {"prompt": "7" * 3000})
    assert status == 200 and answer["count"] >= 3000


def test_abandoned_texts_are_dropped(start):
    s = start("--max-model-len", 1024).wait_ready()
    before = peak_memory(s)
    for _ in range(6):
        send(s.port, "/v1/completions", {"prompt": "7" * (BODY // 4)}).close()
    assert small_chat(s.port) == 200  # within the client's timeout of the baseline: seconds, not minutes
    assert peak_memory(s) - before < 8 * 6 * BODY // 4 + NOISE
