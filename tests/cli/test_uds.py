"""`tern serve --uds`: a Unix socket in the ports' place; `--exit-with-stdin`."""

import os
import signal
import socket
import subprocess
import time

import pytest
from tern_server import MODEL, TERN, wait_for


def start(path, *more, tmp, **kw):
    environment = {**os.environ, "FD_LOG_DIR": str(tmp / "log")}
    command = [TERN, "serve", "--model", str(MODEL), "--uds", str(path), "--max-num-seqs", "4", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, **kw)


def ask(path, target):
    with socket.socket(socket.AF_UNIX) as s:
        wait_for(lambda: s.connect_ex(str(path)) == 0)  # the file is there a moment before the server listens
        s.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := s.recv(65536):
            answer += piece
    return answer.decode()


def listens_on_tcp(pid):
    links = {os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}
    for table in ("tcp", "tcp6"):
        for line in open(f"/proc/{pid}/net/{table}").read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                return True
    return False


def test_routes_stand_on_the_socket_and_no_port_is_open(tmp_path):
    path = tmp_path / "s"
    server = start(path, tmp=tmp_path)
    try:
        wait_for(path.exists)
        assert path.stat().st_mode & 0o777 == 0o600
        assert ask(path, "/health").startswith("HTTP/1.1 200")
        assert "fastdeploy:num_requests_running" in ask(path, "/metrics")
        assert not listens_on_tcp(server.pid)
        again = start(path, tmp=tmp_path)
        assert "another server listens there" in again.communicate(timeout=60)[0] and again.returncode != 0
    finally:
        server.send_signal(signal.SIGTERM)
        output = server.communicate(timeout=30)[0]
    assert f"Running on unix:{path}" in output and "every machine" not in output
    assert server.returncode == 0 and not path.exists()


@pytest.mark.parametrize("flag", ["--port", "--metrics-port", "--controller-port"])
def test_ports_beside_it_are_refused(flag, tmp_path):
    server = start(tmp_path / "s", flag, "8123", tmp=tmp_path)
    output = server.communicate(timeout=60)[0]
    assert server.returncode != 0 and f"leave out {flag}" in output


def test_it_ends_with_standard_input(tmp_path):
    path = tmp_path / "s"
    server = start(path, "--exit-with-stdin", tmp=tmp_path, stdin=subprocess.PIPE)
    wait_for(path.exists)
    server.stdin.write("these bytes are read and dropped\n")
    server.stdin.flush()
    assert ask(path, "/health").startswith("HTTP/1.1 200")
    begun = time.monotonic()
    server.stdin.close()
    assert server.wait(20) == 0 and time.monotonic() - begun < 20
    assert not path.exists()


def test_it_ends_while_the_model_loads(tmp_path):
    server = start(tmp_path / "s", "--exit-with-stdin", tmp=tmp_path, stdin=subprocess.DEVNULL)
    assert server.wait(20) in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
