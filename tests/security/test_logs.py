"""Logs never block a request, and no request makes more than a few lines."""

import fcntl
import os
import threading

from attack import complete, post
from tern_server import Server

PIPE = 4096  # bytes that a pipe holds; the least that the kernel gives


def test_bad_words_make_few_lines(start):
    s = start("--max-num-seqs", 4, "--max-model-len", 512).wait_ready()
    size = s.output.stat().st_size
    status, _, answer = post(
        s, "/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2, "bad_words": [f"two words {i}" for i in range(1024)]}
    )
    assert status == 200, answer
    s.stop()
    assert s.output.stat().st_size - size < 4096
    log = sum(f.stat().st_size for f in s.output.parent.rglob("*.log.*"))
    assert log < 64 << 10


def served_through(tmp_path, write):
    s = Server(tmp_path, "--max-num-seqs", 4, "--max-model-len", 512, stdout=write)
    os.close(write)
    return s


def test_nobody_reads_stderr_and_stdout(tmp_path):
    """Bad words, one line each request, fill the pipe that nobody reads; requests go on."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE)
    s = served_through(tmp_path, write)
    try:
        s.wait_ready()
        word = {"bad_words": ["not one token at all"]}
        for _ in range(3 * PIPE // 70):  # a line of some 70 bytes each: more than the pipe holds
            complete(s, timeout=20, max_tokens=1, **word)
        complete(s, timeout=20)
        text = bytearray()

        def drain():
            while part := os.read(read, 65536):
                text.extend(part)

        reader = threading.Thread(target=drain)
        reader.start()
        s.stop()
        reader.join(20)
        assert b"bad words are skipped" in text
        assert all(line.startswith(b"tern: ") for line in text.splitlines() if b"skipped" in line), "lines are whole"
    finally:
        os.close(read)
        s.end()


def test_the_end_does_not_wait_for_a_reader(tmp_path):
    read, write = os.pipe()
    os.set_blocking(write, False)
    while True:  # full before the server starts
        try:
            os.write(write, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(write, True)
    s = served_through(tmp_path, write)
    try:
        s.wait_ready()
        complete(s)
        assert s.stop() == 0
    finally:
        os.close(read)
        s.end()
