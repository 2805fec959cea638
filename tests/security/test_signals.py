"""SIGHUP reopens the logs and ends nothing; a second SIGTERM still gives streams their end."""

import http.client
import json
import pathlib
import signal
import time

import pytest

from tern_server import wait_for

STREAM = {"prompt": [5, 6, 7], "max_tokens": 1500, "ignore_eos": True, "stream": True, "temperature": 0}


def open_stream(port, **fields):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("POST", "/v1/completions", json.dumps(STREAM | fields), {"Content-Type": "application/json"})
    reply = c.getresponse()
    assert reply.status == 200 and reply.readline().startswith(b"data: ")
    return c, reply


def blocks_hangup(process):
    assert process.poll() is None
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("SigBlk:")[1].split()[0], 16) & 1 == 1


def test_sighup_at_any_time_ends_nothing(start):
    server = start("--max-model-len", 2048)
    # From the first line of the program on (no program can do anything about a signal before it), while it loads.
    wait_for(lambda: blocks_hangup(server.process))
    while not server.output.read_text():
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.01)
        assert server.process.poll() is None
    server.wait_ready()
    _, reply = open_stream(server.port, max_tokens=200)
    for _ in range(50):
        server.process.send_signal(signal.SIGHUP)
    assert reply.read().endswith(b"data: [DONE]\n\n")
    assert server.stop() == 0


def test_sighup_opens_the_log_files_anew(start):
    server = start().wait_ready()
    folder = server.logs
    link = folder / "fastdeploy.log"
    wait_for(lambda: link.exists() and "ready after" in link.read_text())
    file = link.resolve()
    moved = folder / "moved"
    file.rename(moved)
    size = moved.stat().st_size
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: file.exists() and "SIGHUP" in file.read_text())
    assert moved.stat().st_size == size and link.resolve() == file
    assert server.stop() == 0


@pytest.mark.parametrize("signals", [1, 2])
def test_streams_get_their_end(start, signals):
    # With one signal the time to drain is over at once; the second one cuts it short.
    server = start(
        "--timeout-graceful-shutdown", 0 if signals == 1 else 600, "--max-model-len", 2048, "--max-num-seqs", 8
    ).wait_ready()
    streams = [open_stream(server.port) for _ in range(4)]
    for _ in range(signals):
        server.process.send_signal(signal.SIGTERM)
        if signals == 2:
            wait_for(lambda: "Stopping" in server.output.read_text())
    for _, reply in streams:
        rest = reply.read()  # raises IncompleteRead where the last chunk is missing
        assert b'"finish_reason":"abort"' in rest and rest.endswith(b"data: [DONE]\n\n"), rest[-300:]
    assert server.process.wait(20) == 0
