"""Start, keys, drain, kill and restart of the whole program."""

import json
import pathlib
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import openai
import pytest

from tern_server import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASK = [{"role": "user", "content": "What is 12 + 30?"}]


def test_console_lines_and_log_files(start):
    s = start("--enable-logprob")
    s.wait_ready()
    text = s.output.read_text()
    assert f"Launching chat completion service at http://127.0.0.1:{s.port}/v1/chat/completions" in text
    assert f"Launching completion service at http://127.0.0.1:{s.port}/v1/completions" in text
    assert f"INFO:     Uvicorn running on http://127.0.0.1:{s.port} (Press CTRL+C to quit)" in text
    log = (s.logs / "fastdeploy.log").read_text()
    assert "Reset block num, the total_block_num:" in log and "prefill_kvcache_block_num:" in log
    assert s.stop() == 0


def test_key_guards_every_route(start):
    s = start("--api-key", "secret-one", "--api-key", "secret-two")
    s.wait_ready()
    for path in ("/v1/models", "/metrics", "/load", "/config-info", "/version", "//v1/models", "/v1/%6dodels"):
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(s.url + path)
        assert e.value.code in (401, 404), path
    assert s.client(api_key="secret-two").models.list().data
    with pytest.raises(openai.AuthenticationError):
        s.client(api_key="wrong").models.list()
    s.stop()
    assert "secret" not in s.output.read_text()


def test_taken_port_is_one_clear_line(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        s = start(port=taken.getsockname()[1])
        assert s.process.wait(20) != 0
        text = s.output.read_text()
        assert str(s.port) in text and "use" in text.lower()
        assert "terminate called" not in text


def test_drain_on_sigterm(start):
    s = start("--timeout-graceful-shutdown", 20)
    s.wait_ready()
    result = {}

    def long_request():
        result["reply"] = s.client().completions.create(
            model="default", prompt=[5, 6, 7], max_tokens=300, extra_body={"ignore_eos": True}
        )

    thread = threading.Thread(target=long_request)
    thread.start()
    wait_for(lambda: s.metric("fastdeploy:num_requests_running") > 0)
    s.process.send_signal(signal.SIGTERM)
    thread.join(30)
    assert result["reply"].usage.completion_tokens == 300
    assert s.process.wait(20) == 0


def test_second_signal_ends_at_once(start):
    s = start(
        "--timeout-graceful-shutdown",
        60,
        "--max-model-len",
        8192,
        "--model-override",
        json.dumps({"max_position_embeddings": 8192}),
    )
    s.wait_ready()
    body = json.dumps(dict(prompt=[5, 6, 7], max_tokens=8000, stream=True, ignore_eos=True)).encode()
    c = socket.create_connection(("127.0.0.1", s.port))
    c.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    assert c.recv(16)
    s.process.send_signal(signal.SIGINT)
    wait_for(lambda: "Stopping" in s.text())
    begin = time.monotonic()
    s.process.send_signal(signal.SIGINT)
    s.process.wait(10)
    assert time.monotonic() - begin < 5


def test_kill_and_restart(start):
    first = start()
    first.wait_ready()
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(10)
    again = start(port=first.port)
    again.wait_ready()
    assert "42" in again.client().chat.completions.create(model="default", messages=ASK, temperature=0).choices[0].message.content


def test_few_blocks_preempt_but_finish(start):
    # Without the reserve for decoding, everybody is admitted and the blocks run out later.
    s = start(
        "--max-model-len",
        512,
        "--num-gpu-blocks-override",
        24,
        "--max-num-seqs",
        8,
        env={"FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL": "0"},
    )
    s.wait_ready()
    replies, threads = [], []

    def ask(i):
        replies.append(
            s.client().completions.create(
                model="default", prompt=[5 + i] * 60, max_tokens=300, temperature=0, extra_body={"ignore_eos": True}
            )
        )

    for i in range(8):
        threads.append(threading.Thread(target=ask, args=(i,)))
        threads[-1].start()
    for t in threads:
        t.join(120)
    assert [r.usage.completion_tokens for r in replies] == [300] * 8
    assert s.metric("fastdeploy:request_preempted_total") > 0


def test_full_disk_for_logs_keeps_serving(start):
    s = start(env={"FD_LOG_DIR": "/dev/full/log"})
    s.wait_ready()
    assert "42" in s.client().chat.completions.create(model="default", messages=ASK, temperature=0).choices[0].message.content


def test_too_little_memory_names_a_flag(start):
    s = start("--num-gpu-blocks-override", 3)
    assert s.process.wait(20) != 0
    text = s.output.read_text()
    assert "--max-model-len" in text or "--num-gpu-blocks-override" in text
