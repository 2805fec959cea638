"""What a request may cost in memory is bounded before it is spent, and memory that cannot be had ends one request."""

import contextlib
import os
import pathlib
import resource

import pytest

from attack import MB, complete, connect, head, peak, post, read_status, reset_peak
from tern_server import Server, wait_for

SIZE = 24 * MB


def repeated(before, part, after):
    count = (SIZE - len(before) - len(after)) // (len(part) + 1)
    return (before + ",".join([part] * count) + after).encode()


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    s = Server(tmp_path_factory.mktemp("memory"), "--max-num-seqs", 4, "--max-model-len", 512, "--max-body-bytes", 64 * MB)
    s.wait_ready()
    yield s
    s.stop()


@pytest.mark.parametrize("part", ["1", "[]", "{}", '{"":0}', "[[1]]", '""', '"fifteen bytes.."', "[1,2,3,4]", "1e1"])
def test_json_takes_four_times_its_length(big, part):
    body = repeated('{"prompt":[', part, "]}")
    before = reset_peak(big.process.pid)
    status, _, answer = post(big, "/v1/completions", body)
    assert status == 400, answer[:500]
    assert peak(big.process.pid) - before < 4 * len(body) + 8 * MB
    complete(big)


def test_json_values_have_a_limit(start):
    s = start("--max-num-seqs", 4, "--max-model-len", 512, "--max-json-values", 2000).wait_ready()
    status, _, answer = post(s, "/v1/completions", {"prompt": [1] * 3000})
    assert status == 400 and b"more than 2000 values" in answer
    complete(s)


def test_unfinished_bodies_share_one_budget(start):
    s = start("--max-num-seqs", 4, "--max-model-len", 512, "--max-body-bytes", 60 * MB, "--max-request-memory", 128 * MB)
    s.wait_ready()
    before = reset_peak(s.process.pid)
    part, refused, open_ = b" " * MB, 0, []
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            c = stack.enter_context(connect(s))
            c.sendall(head("/v1/completions", 60 * MB))
            with contextlib.suppress(OSError):
                for _ in range(40):
                    c.sendall(part)
            open_.append(c)
        for c in open_:
            c.settimeout(0.5)
            with contextlib.suppress(OSError):
                status, answer = read_status(c)
                if status:
                    assert status == 503 and b"\r\nretry-after: " in answer
                    refused += 1
        assert 4 <= refused < 8
        complete(s)  # small requests go on meanwhile
        assert peak(s.process.pid) - before < 128 * MB + 64 * MB
    # What the clients left is given back.
    wait_for(lambda: post(s, "/v1/completions", b" " * (50 * MB) + b"[]")[0] == 400)


def test_samples_of_long_prompts_share_the_budget(start):
    s = start("--max-num-seqs", 4, "--max-model-len", 2048, "--max-body-bytes", 512 * 1024, "--max-request-memory", 2 * MB)
    s.wait_ready()
    status, headers, answer = post(s, "/v1/completions", {"prompt": [5] * 2000, "n": 128, "max_tokens": 1})
    assert status == 503 and headers["retry-after"] == "1", answer
    status, _, answer = post(s, "/v1/completions", {"prompt": [5] * 2000, "n": 4, "max_tokens": 1})
    assert status == 200, answer


def bodies():
    text = b'{"messages":[{"role":"user","content":"%s"}],"max_tokens":2}'
    yield "text", text % (b"word " * (30 * MB // 5))
    yield "escapes", text % (b"\\n" * (15 * MB))
    yield "ids", b'{"max_tokens":2,"prompt":[' + b",".join([b"123456"] * (30 * MB // 7)) + b"]}"
    yield "lists", b'{"messages":[' + b",".join([b"[]"] * (8 * MB // 3)) + b"]}"
    yield (
        "picture",
        (
            b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
            + b"A" * (20 * MB)
            + b'"}}]}],"max_tokens":2}'
        ),
    )


def virtual(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * 4096


@pytest.mark.parametrize("room", [4, 24, 64, 160])
def test_address_space_that_is_used_up_ends_one_request(start, room):
    s = start("--max-num-seqs", 4, "--max-model-len", 512, "--max-body-bytes", 64 * MB).wait_ready()
    complete(s)
    limit = virtual(s.process.pid) + room * MB
    resource.prlimit(s.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    for name, body in bodies():
        for path in ("/v1/completions" if name == "ids" else "/v1/chat/completions", "/tokenize"):
            with contextlib.suppress(OSError):  # the connection may end with no answer that could be had
                status = post(s, path, body)[0]
                assert status in (200, 400, 413, 503), (name, path, status)
            assert s.process.poll() is None, (name, path, s.output.read_text(errors="replace")[-2000:])

    def serves_again():
        assert s.process.poll() is None
        with contextlib.suppress(OSError):
            return post(s, "/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2})[0] == 200

    wait_for(serves_again)


def own_group():
    """A cgroup (v2) of this process's own that may have a memory limit; None where none can be made."""
    root = pathlib.Path("/sys/fs/cgroup")
    group = root / f"tern-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.max").write_text(str(1 << 40))
        (group / "memory.swap.max").write_text("0")
        return group
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None


def test_memory_of_a_cgroup_that_is_used_up_ends_one_request(start):
    group = own_group()
    if group is None:
        pytest.skip("no cgroup with a memory limit can be made here")
    try:
        s = start("--max-num-seqs", 4, "--max-model-len", 512, "--max-body-bytes", 64 * MB, "--max-request-memory", 128 * MB)
        s.wait_ready()
        (group / "cgroup.procs").write_text(str(s.process.pid))
        (group / "memory.max").write_text(str(256 * MB))  # the budget and what serving takes
        for _, body in bodies():
            with contextlib.suppress(OSError):
                assert post(s, "/v1/chat/completions", body)[0] in (200, 400, 413, 503)
            assert s.process.poll() is None
        complete(s)
        s.stop()
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()
