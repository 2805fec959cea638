"""Connections over TLS: streams, pipelines, clients that leave or misbehave, certificates that change."""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import pytest
from certificates import Authority
from tern_server import Server, wait_for

if shutil.which("openssl") is None:
    pytest.skip("no openssl to make certificates with", allow_module_level=True)

STREAM = {"prompt": [5, 6, 7], "max_tokens": 1500, "ignore_eos": True, "stream": True, "temperature": 0}


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.sign("server")
    authority.sign("next")
    return authority


@pytest.fixture(scope="module")
def server(ca, tmp_path_factory):
    flags = ["--ssl-certfile", ca.folder / "server.both.pem", "--max-num-seqs", 16]
    s = Server(tmp_path_factory.mktemp("server"), *flags, trust=ca.file).wait_ready()
    yield s
    assert s.stop() == 0


def post(path, body, more=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


@contextlib.contextmanager
def connect(server):
    with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
        with server.tls.wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as s:
            yield s


def read_all(s):
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data


def begin_stream(s, **more):
    s.sendall(post("/v1/completions", STREAM | more, "Connection: close\r\n"))
    data = b""
    while b"data: " not in data:
        data += s.recv(65536)
    return data


def running(server):
    return server.metric("fastdeploy:num_requests_running")


def test_streams_are_whole_and_their_end_is_said(server):
    with connect(server) as s:
        data = begin_stream(s, max_tokens=300) + read_all(s)  # without close_notify recv() would raise
    assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") and data.count(b"data: {") >= 300


def test_the_openai_client(server):
    import httpx2 as httpx
    import openai

    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", http_client=httpx.Client(verify=server.tls)) as client:
        chunks = list(client.completions.create(model="m", prompt="Hello", max_tokens=5, stream=True))
    assert chunks[-1].choices[0].finish_reason


def test_pipelined_requests_and_large_messages(server):
    large = "word " * 200_000  # many records
    with connect(server) as s:
        s.sendall(
            b"".join(post("/v1/completions", {"prompt": [5, 6], "max_tokens": n, "ignore_eos": True}) for n in range(1, 6))
            + post("/detokenize", {"tokens": [300] * 100_000})
            + post("/tokenize", {"prompt": large}, "Connection: close\r\n")
        )
        answers = read_all(s)
    assert answers.count(b"HTTP/1.1 200 OK") == 6
    for n in range(1, 6):
        assert f'"completion_tokens":{n},'.encode() in answers
    assert len(answers) > 100_000 and answers.count(b"HTTP/1.1 ") == 7  # the text that is too long is refused


@pytest.mark.parametrize("polite", [True, False])
def test_clients_that_leave_free_their_places(server, polite):
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
            s = server.tls.wrap_socket(raw, server_hostname="127.0.0.1")
            begin_stream(s)
            if polite:
                with contextlib.suppress(OSError):
                    s.unwrap()  # says the end; the rest of the stream is not read
            s.close()
    wait_for(lambda: running(server) == 0)


def closed(raw):
    """The other side ends the connection."""
    raw.settimeout(30)
    try:
        while raw.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70000,  # a record beyond its limit
        b"\x80\x2e\x01\x00\x02" + b"\x00" * 44,  # SSL 2
        b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff",  # a message beyond its limit
        b"\x15\x03\x01\x00\x02\x02\x28",  # an alert
        b"\x17\x03\x03\x00\x05hello",  # data before the handshake
        os.urandom(4096),
        b"\x00" * 100_000,
    ],
    ids=["record", "ssl2", "message", "alert", "data", "random", "zeros"],
)
def test_bad_handshakes_end_alone(server, data):
    with connect(server) as s:
        begun = begin_stream(s, max_tokens=200)
        with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
            with contextlib.suppress(ConnectionError):
                raw.sendall(data)
            assert closed(raw)
        assert (begun + read_all(s)).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("data", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], ids=["nothing", "byte", "half"])
def test_slow_handshakes_have_a_deadline(start, ca, data):
    server = start("--ssl-certfile", ca.folder / "server.both.pem", "--header-timeout", 0.5)
    with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
        raw.sendall(data)
        assert closed(raw)


def test_http_without_tls_is_told(server):
    with socket.create_connection(("127.0.0.1", server.port), 30) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
        answer = raw.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ") and b"use https://" in answer


class OwnRecords:
    """A connection whose bytes on the wire the test has in its hands."""

    def __init__(self, server):
        self.raw = socket.create_connection(("127.0.0.1", server.port), 30)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = server.tls.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.step(self.tls.do_handshake)

    def step(self, what, *arguments):
        while True:
            try:
                result = what(*arguments)
            except ssl.SSLWantReadError:
                self.raw.sendall(self.outgoing.read())
                self.incoming.write(self.raw.recv(65536))
                continue
            self.raw.sendall(self.outgoing.read())
            return result


@pytest.mark.parametrize(
    "data", [b"\x17\x03\x03\xff\xff" + b"x" * 70000, b"\x17\x03\x03\x00\x20" + b"x" * 32], ids=["too long", "forged"]
)
def test_bad_records_end_their_connection_alone(server, data):
    own = OwnRecords(server)
    own.step(own.tls.write, b"GET /hea")
    with contextlib.suppress(ConnectionError):
        own.raw.sendall(data)
    assert closed(own.raw)
    assert server.get("/version")


def test_a_request_in_single_bytes(server):
    own = OwnRecords(server)
    for byte in b"GET /version HTTP/1.1\r\nHost: t\r\n\r\n":
        own.step(own.tls.write, bytes([byte]))
    assert own.step(own.tls.read, 65536).startswith(b"HTTP/1.1 200 OK")
    own.raw.close()


def s_client(server, ca, version):
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", version, "-crlf", "-CAfile", str(ca.file)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_keys_may_change_and_nothing_is_negotiated_again(server, ca):
    request = b"GET /version HTTP/1.1\nHost: t\nConnection: close\n\n"
    new_keys = s_client(server, ca, "-tls1_3")
    new_keys.stdin.write(b"K\n")  # and asks for ours
    new_keys.stdin.flush()
    for line in new_keys.stdout:
        if b"KEYUPDATE" in line:
            break
    new_keys.stdin.write(request)
    new_keys.stdin.flush()
    assert b'"version"' in new_keys.stdout.read()
    new_keys.wait(30)
    again = s_client(server, ca, "-tls1_2")
    again.stdin.write(b"R\n")
    again.stdin.flush()
    said = again.stdout.read()
    assert b"RENEGOTIATING" in said and b"no renegotiation" in said.lower(), said[-400:]
    again.wait(30)
    assert server.get("/version")


def serial(server):
    with connect(server) as s:
        return s.getpeercert()["serialNumber"]


def replace(path, source):
    fresh = path.with_suffix(".new")
    shutil.copy(source, fresh)
    os.replace(fresh, path)


def hang_up(server, text):
    log = server.logs / "fastdeploy.log"
    before = log.read_text().count(text)
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: log.read_text().count(text) > before)


def test_certificates_change_under_load(start, ca, tmp_path):
    pem = tmp_path / "server.pem"
    replace(pem, ca.folder / "server.both.pem")
    server = start("--ssl-certfile", pem, "--max-num-seqs", 8, trust=ca.file).wait_ready()
    stop, bad, done = threading.Event(), [], []

    def work():
        while not stop.is_set():
            try:
                done.append(server.get("/version"))
            except OSError as error:
                bad.append(error)

    with connect(server) as stream:
        data = begin_stream(stream)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        first = serial(server)
        seen = [first]
        for i in range(20):
            replace(pem, ca.folder / ("next.both.pem" if i % 2 == 0 else "server.both.pem"))
            hang_up(server, "new connections get its certificate")
            seen.append(serial(server))
        for broken in ("", (ca.folder / "server.pem").read_text(), "garbage"):
            pem.write_text(broken)
            hang_up(server, "the certificate of before is still shown")
        assert serial(server) == seen[-1]
        stop.set()
        for thread in threads:
            thread.join()
        assert (data + read_all(stream)).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert bad == [] and done and seen[::2] == [first] * 11 and len(set(seen)) == 2


def test_redirects_name_the_protocol(server):
    with connect(server) as s:
        s.sendall(b"GET /v1/models/ HTTP/1.1\r\nHost: t.example\r\nConnection: close\r\n\r\n")
        assert b"location: https://t.example/v1/models\r\n" in read_all(s)


def test_metrics_speak_it_and_the_controller_of_this_machine_does_not(start, ca):
    server = start("--ssl-certfile", ca.folder / "server.both.pem", "--metrics-port", 0, "--controller-port", 0, trust=ca.file)
    server.wait_ready()
    said = server.text()
    assert "Launching metrics service at https://" in said and "Uvicorn running on https://" in said
