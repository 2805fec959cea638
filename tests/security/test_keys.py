"""--api-key-file: keys that come and go while the server runs."""

import http.client
import json
import os
import signal
import subprocess
import threading

import pytest
from tern_server import MODEL, TERN, wait_for

BODY = json.dumps({"prompt": [5, 6, 7], "max_tokens": 1})


def ask(port, header=None, path="/v1/completions", body=BODY):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("POST", path, body, {"Content-Type": "application/json", **(header or {})})
    reply = c.getresponse()
    reply.read()
    c.close()
    return reply.status


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def statuses(server, *keys):
    return [ask(server.port, bearer(key)) for key in keys]


def lines(server, text):
    log = server.logs / "fastdeploy.log"
    return sum(text in line for line in log.read_text().splitlines()) if log.exists() else 0


def hang_up(server, text):
    """SIGHUP, until the log has one more line with that text."""
    before = lines(server, text)
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: lines(server, text) > before)
    return lines(server, text) - before


def write(path, text, mode=0o600):
    """As editors and secret stores do: the new file takes the old one's place at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(mode)
    os.replace(fresh, path)


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    write(path, "# team\none\ntwo  # of the second\n")
    return path


def test_keys_of_flag_and_file_count_in_both_headers(start, keys):
    server = start("--api-key", "flag", "--api-key-file", keys).wait_ready()
    assert statuses(server, "flag", "one", "two", "#", "team", "none") == [200, 200, 200, 401, 401, 401]
    assert ask(server.port, {"x-api-key": "two"}) == 200 and ask(server.port, {"x-api-key": "three"}) == 401
    assert ask(server.port) == 401
    assert "every machine" not in server.text() and "others than its owner" not in server.text()


def test_sighup_reads_the_file_again_and_a_bad_one_changes_nothing(start, keys):
    server = start("--api-key-file", keys, env={"FD_API_KEY": "variable"}).wait_ready()
    assert statuses(server, "one", "two", "variable") == [200, 200, 200]
    write(keys, "two\nthree\n", mode=0o640)
    assert hang_up(server, "was read again; 3 keys count") == 1  # with the variable's
    assert statuses(server, "one", "two", "three", "variable") == [401, 200, 200, 200]
    wait_for(lambda: lines(server, "others than its owner may read or change it (mode 0640)") == 1)
    for bad, why in (
        ("", "it holds no key"),
        ("two words\n", "line 1: a key has printable ASCII"),
        ("k" * 2000, "at most 1024 bytes"),
    ):
        write(keys, bad)
        assert hang_up(server, f"{why}") == 1
    keys.unlink()
    assert hang_up(server, "No such file or directory; the keys of before still count") == 1
    assert statuses(server, "one", "two", "three", "variable") == [401, 200, 200, 200]
    assert "two words" not in (server.logs / "fastdeploy.log").read_text()
    write(keys, "four\n")
    hang_up(server, "2 keys count")
    assert statuses(server, "two", "four") == [401, 200]


def test_all_engines_and_open_streams(start, keys):
    """Keys change under load: what is being answered goes on, and no request of a good key is refused."""
    server = start("--api-key-file", keys, "--data-parallel-size", 2, "--max-num-seqs", 8).wait_ready()
    stop, bad = threading.Event(), []

    def work():
        while not stop.is_set():
            status = ask(server.port, bearer("one"))
            if status != 200:
                bad.append(status)

    threads = [threading.Thread(target=work) for _ in range(4)]
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"prompt": [5, 6, 7], "max_tokens": 1500, "ignore_eos": True, "stream": True}
    c.request("POST", "/v1/completions", json.dumps(body), bearer("two"))
    reply = c.getresponse()
    assert reply.status == 200 and reply.readline().startswith(b"data: ")
    for thread in threads:
        thread.start()
    for i in range(30):
        write(keys, f"one\nmore-{i}\n")
        hang_up(server, "was read again; 2 keys count")
        assert statuses(server, "two", f"more-{i}", f"more-{i - 1}") == [401, 200, 401]
    assert reply.read().endswith(b"data: [DONE]\n\n")
    stop.set()
    for thread in threads:
        thread.join()
    assert bad == []


def test_what_was_written_before_the_server_listened_counts(start, keys):
    server = start("--api-key-file", keys)
    wait_for(
        lambda: (
            "configuration:"
            in ((server.logs / "fastdeploy.log").read_text() if (server.logs / "fastdeploy.log").exists() else "")
        )
    )
    write(keys, "late\n")
    server.process.send_signal(signal.SIGHUP)
    server.wait_ready()
    wait_for(lambda: statuses(server, "late", "one") == [200, 401])


@pytest.mark.parametrize(
    "text, why",
    [
        (None, "No such file or directory"),
        ("", "it holds no key"),
        ("# nothing\n", "it holds no key"),
        ("good\nbad key\n", "line 2: a key has printable ASCII characters alone, and no white space"),
        ("k" * 1025, "line 1: a key has at most 1024 bytes"),
    ],
)
def test_a_bad_file_ends_the_start_with_one_line(tmp_path, text, why):
    path = tmp_path / "keys"
    if text is not None:
        write(path, text)
    command = [TERN, "serve", "--model", str(MODEL), "--port", "0", "--api-key-file", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1
    assert f"--api-key-file {path}: {why}" in done.stderr


def test_the_start_names_a_file_that_others_may_read(start, keys):
    keys.chmod(0o644)
    server = start("--api-key-file", keys).wait_ready()
    assert "others than its owner may read or change it (mode 0644)" in server.text()
