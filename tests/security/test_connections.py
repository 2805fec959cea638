"""Silent connections take nothing from clients that are at work."""

import contextlib
import socket

import pytest

from attack import MB, complete, connect, head, read_status


def test_newcomers_do_not_push_out_an_upload(start):
    s = start("--max-num-seqs", 4, "--max-model-len", 512, "--max-connections", 16).wait_ready()
    body = b" " * MB + b'{"prompt":[5,6,7],"max_tokens":2}'
    with contextlib.ExitStack() as stack:
        upload = stack.enter_context(connect(s))
        upload.sendall(head("/v1/completions", len(body)) + body[: MB // 2])
        for _ in range(64):
            stack.enter_context(connect(s))
        complete(s)  # a newcomer that asks pushes out one that is silent
        upload.sendall(body[MB // 2 :])
        assert read_status(upload)[0] == 200


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # sends nothing; only finds the way
            return probe.getsockname()[0]
    return None


@pytest.mark.parametrize("trusted", [False, True])
def test_connections_of_one_address(start, trusted):
    address = own_address()
    if address is None or address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    flags = ("--trusted-proxies", f"{address}/32") if trusted else ()
    s = start("--max-num-seqs", 4, "--max-model-len", 512, "--host", "0.0.0.0", "--max-connections-per-address", 3, *flags)
    s.wait_ready()
    with contextlib.ExitStack() as stack:
        open_ = [stack.enter_context(socket.create_connection((address, s.port), 10)) for _ in range(6)]
        answers = []
        for c in open_:
            with contextlib.suppress(OSError):
                c.sendall(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
            answers.append(read_status(c)[0])
        assert answers == ([200] * 6 if trusted else [200] * 3 + [503] * 3)
        for _ in range(5):
            complete(s)  # loopback is not counted
