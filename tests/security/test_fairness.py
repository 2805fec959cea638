"""Many samples of one client do not keep out another's chat."""

import contextlib
import json

import pytest

from attack import connect, head, read_status
from tern_server import wait_for


@pytest.mark.parametrize("who", ["keys", "addresses"])
def test_many_samples_do_not_keep_out_a_chat(start, who):
    flags = ("--api-key", "first", "--api-key", "second", "--metrics-open") if who == "keys" else ()
    s = start("--max-num-seqs", 4, "--max-model-len", 2048, *flags).wait_ready()
    flood = json.dumps({"prompt": [5, 6, 7], "n": 128, "max_tokens": 300, "ignore_eos": True}).encode()
    chat = json.dumps({"prompt": [5, 6, 8], "max_tokens": 4, "stream": True}).encode()
    keys = ("first", "second") if who == "keys" else (None, None)
    with contextlib.ExitStack() as stack:
        for _ in range(32):
            c = stack.enter_context(connect(s, "127.0.0.1"))
            c.sendall(head("/v1/completions", len(flood), keys[0]) + flood)
        wait_for(lambda: s.metric("fastdeploy:num_requests_waiting") >= 512)  # into the engine
        c = stack.enter_context(connect(s, "127.0.0.2", timeout=60))
        c.sendall(head("/v1/completions", len(chat), keys[1]) + chat)
        assert read_status(c)[0] == 200
        data = b""
        while b"[DONE]" not in data:
            part = c.recv(65536)
            assert part, data
            data += part
