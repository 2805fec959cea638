"""`tern health`: its exit status by what a server answers; over HTTP, HTTPS and a Unix socket."""

import contextlib
import http.server
import socket
import socketserver
import ssl
import subprocess
import threading

import pytest
from certificates import Authority
from tern_server import TERN


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        status = self.server.status
        self.send_response(status)
        body = b"" if status == 200 else b"Worker Service Not Healthy"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "a client"

    def log_message(self, *words):
        pass


class UnixServer(socketserver.UnixStreamServer):
    pass


@contextlib.contextmanager
def serving(server, status=200):
    server.status, server.asked = status, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def health(*args):
    return subprocess.run([TERN, "health", *map(str, args)], capture_output=True, text=True, timeout=60, check=False)


def tcp():
    return http.server.HTTPServer(("127.0.0.1", 0), Handler)


def test_a_server_that_is_ready():
    with serving(tcp()) as server:
        done = health("--url", f"http://127.0.0.1:{server.server_port}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
        assert health("--quiet", "--url", f"http://127.0.0.1:{server.server_port}/v2/health/ready").stdout == ""
        assert server.asked == ["/health", "/v2/health/ready"]


@pytest.mark.parametrize("status", [404, 304, 503])
def test_a_server_that_is_not_ready(status):
    with serving(tcp(), status) as server:
        done = health("--url", f"http://127.0.0.1:{server.server_port}")
        assert done.returncode == 1 and done.stdout == ""
        assert f"not ready: status {status}" in done.stderr


def test_no_server_and_one_that_says_nothing(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        done = health("--url", f"http://127.0.0.1:{silent.getsockname()[1]}")  # bound, but it does not listen
        assert done.returncode == 1 and "no answer from 127.0.0.1" in done.stderr
        silent.listen()
        done = health("--url", f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", 1, "-q")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    done = health("--uds", tmp_path / "none")
    assert done.returncode == 1 and f"no answer from {tmp_path / 'none'}" in done.stderr


def test_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    with serving(UnixServer(str(path), Handler)) as server:
        assert health("--uds", path).returncode == 0
        assert server.asked == ["/health"]


def test_https_checks_the_certificate_unless_told_otherwise(tmp_path):
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = tcp()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = f"https://127.0.0.1:{server.server_port}"
        assert health("--url", url).returncode == 1
        assert health("--url", url, "--ca-file", authority.file).returncode == 0
        assert health("--url", url, "--insecure").returncode == 0


def test_wrong_arguments_have_a_status_of_their_own():
    assert health("--url", "ftp://x").returncode == 2
    assert health("--uds", "a", "--url", "http://x").returncode == 2
