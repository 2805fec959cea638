"""Several ranks on a CPU behind HTTP: threads for each, the answers of one rank under load, a rank that fails, and what
cannot be shared or is not there in one line."""

import concurrent.futures
import contextlib
import os
import subprocess

import tern_server
from several import FLAGS, FORCED, mixed_requests, post, thread_names


def complete(server, **body):
    """Status and the answer's text."""
    status, reply = post(server, "/v1/completions", **body)
    return status, reply["choices"][0]["text"] if status == 200 else reply


def run(folder, *flags, env=None):
    return subprocess.run(
        [tern_server.TERN, "serve", "--model", tern_server.MODEL, "--port", "0", *FLAGS, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "FD_LOG_DIR": str(folder), **(env or {})},
    )


def answers(server):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        return list(pool.map(lambda r: complete(server, **r), mixed_requests(40, seed=4, beginnings=3)))


def test_load_over_two_ranks(start_cpu):
    one = start_cpu()
    want = answers(one)
    assert thread_names(one.process.pid, "rank-") == ["rank-0"]
    two = start_cpu("--tensor-parallel-size", "2", "--max-num-batched-tokens", "64")
    assert thread_names(two.process.pid, "rank-") == ["rank-0", "rank-1"]
    got = answers(two)
    # Sums over ranks round in another order: a draw may fall on the other side now and then, not often.
    same = sum(a == b for a, b in zip(want, got))
    assert same >= 36, same
    again = answers(two)  # with hits of the prefix cache, in another order
    assert again == got


def test_a_rank_that_fails_ends_the_process(start_cpu):
    server = start_cpu("--tensor-parallel-size", "2", env={"TERN_FAULT": "trap@4,rank=1"})
    with contextlib.suppress(OSError):  # it may be gone before it has answered
        assert complete(server, prompt=[5, 6, 7], max_tokens=30, ignore_eos=True)[0] >= 500
    assert server.process.wait(20) != 0
    assert "a fault was asked for" in server.text()


def test_what_cannot_be_shared_is_one_line(tmp_path):
    done = run(tmp_path, "--tensor-parallel-size", "3", env=FORCED)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if "3 ranks cannot share" in line]
    assert len(lines) == 1 and "these numbers of ranks can: 1, 2" in lines[0], done.stderr


def test_fewer_cores_than_ranks_run_one(start_cpu):
    server = start_cpu("--tensor-parallel-size", "8", env={"TERN_TEST_RANKS": "0"})
    names = thread_names(server.process.pid, "rank-")
    cores = len(os.sched_getaffinity(0))
    if cores < 8:
        assert names == ["rank-0"]
        assert "--tensor-parallel-size 8 on " in server.text()
