"""What tests of attacks share: raw connections, memory of a process, small requests."""

import json
import pathlib
import socket
import urllib.error
import urllib.request

MB = 1 << 20


def peak(pid):
    """Highest resident memory since reset_peak(), in bytes."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise KeyError("VmHWM")


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def reset_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    return resident(pid)


def connect(server, source=None, timeout=30):
    return socket.create_connection(("127.0.0.1", server.port), timeout, (source, 0) if source else None)


def head(path, length, key=None):
    lines = [f"POST {path} HTTP/1.1", "Host: t", "Content-Type: application/json", f"Content-Length: {length}"]
    return ("\r\n".join(lines + ([f"Authorization: Bearer {key}"] if key else [])) + "\r\n\r\n").encode()


def post(server, path, body, timeout=60):
    """(status, headers, body) of one request; `body` is bytes or a value."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as r:
            return r.status, dict(r.headers), r.read()
    except urllib.error.HTTPError as e:
        return e.code, dict(e.headers), e.read()


def complete(server, timeout=60, **more):
    status, _, body = post(server, "/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2, **more}, timeout)
    assert status == 200, body
    return json.loads(body)


def read_status(sock):
    """Status and head of the answer that waits on a raw connection; (0, b"") when it ended without one."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            return 0, data
        data += part
    return int(data.split(b" ", 2)[1]), data.split(b"\r\n\r\n", 1)[0].lower()
