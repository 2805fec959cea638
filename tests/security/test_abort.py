"""Aborting: work that is linear in what is named and what runs, and nobody else's requests."""

import http.client
import json
import socket
import time

from tern_server import wait_for

RUNS = dict(prompt=[5, 6, 7], max_tokens=1000, ignore_eos=True)


def send(port, path, body, key=None):
    """A connection whose request is on its way."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    c.request("POST", path, json.dumps(body), headers)
    return c


def ask(port, path, body, key=None):
    reply = send(port, path, body, key).getresponse()
    return reply.status, json.loads(reply.read())


def wait_open(server, name, count):
    wait_for(lambda: server.metric(name) >= count)


def test_thousands_of_ids_against_a_thousand_samples_do_not_stop_the_server(start):
    s = start("--max-num-seqs", 16, "--max-model-len", 1024)
    s.wait_ready()
    client = send(s.port, "/v1/completions", {**RUNS, "prompt": [[5, 6, 7]] * 8, "n": 128, "request_id": "r"})
    wait_open(s, "fastdeploy:num_requests_waiting", 8 * 128 - 16)
    # Half of the names are found 1024 times each, the other half nowhere: comparing name by name held the I/O thread for
    # 14 s, a lookup takes milliseconds.
    ids = ["cmpl-r"] * 2048 + [f"cmpl-nobody-{i}" for i in range(2048)]
    begin = time.monotonic()
    abort = send(s.port, "/v1/abort_requests", {"req_ids": ids})
    assert s.get("/health") == ""
    reply = json.loads(abort.getresponse().read())["result"]
    assert time.monotonic() - begin < 5
    aborted = [a["request_id"] for a in reply["aborted"]]
    assert len(aborted) == len(set(aborted)) >= 1024 - 16 and "cmpl-r_1023" in aborted
    assert reply["not_found"] == ids[2048:]
    answer = json.loads(client.getresponse().read())
    assert {choice["finish_reason"] for choice in answer["choices"]} <= {"abort", "length"}
    assert s.stop() == 0


def test_a_key_ends_its_own_requests_only(start):
    s = start("--api-key", "one", "--api-key", "two", "--metrics-open")
    s.wait_ready()
    mine = send(s.port, "/v1/completions", {**RUNS, "request_id": "mine"}, "one")
    wait_open(s, "fastdeploy:num_requests_running", 1)
    for body in ({"abort_all": True}, {"req_ids": ["cmpl-mine", "cmpl-mine_0"]}):
        status, reply = ask(s.port, "/v1/abort_requests", body, "two")
        assert status == 200 and reply["result"]["aborted"] == []
        assert reply["result"]["not_found"] == body.get("req_ids", [])
    status, reply = ask(s.port, "/v1/abort_requests", {"req_ids": ["cmpl-mine"]}, "one")
    assert [a["request_id"] for a in reply["result"]["aborted"]] == ["cmpl-mine_0"]
    answer = json.loads(mine.getresponse().read())
    assert answer["choices"][0]["finish_reason"] == "abort"


def test_a_client_that_has_closed_its_sending_half_gets_its_answer(server):
    body = json.dumps({**RUNS, "max_tokens": 50})
    c = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    c.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    c.shutdown(socket.SHUT_WR)
    reply = http.client.HTTPResponse(c)
    reply.begin()  # skips interim responses
    assert reply.status == 200
    assert json.loads(reply.read())["usage"]["completion_tokens"] == 50
