"""Slow hosts of pictures: whoever sends their URLs waits; data: URLs and other keys do not."""

import base64
import http.client
import json
import pathlib
import socket
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURE = (ROOT / "tests" / "data" / "media" / "scene.png").read_bytes()
DATA = "data:image/png;base64," + base64.b64encode(PICTURE).decode()


class Hosts:
    """A web server whose /slow never ends: .seen counts its requests. stop() ends all connections."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.open, self.changed, self.seen = [], threading.Condition(), 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(peer)
            threading.Thread(target=self.answer, args=(peer,), daemon=True).start()

    def answer(self, peer):
        head = b""
        while b"\r\n\r\n" not in head:
            more = peer.recv(4096)
            if not more:
                return
            head += more
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PICTURE))
        if b"/slow" in head:
            peer.sendall(PICTURE[:100])
            with self.changed:
                self.seen += 1
                self.changed.notify_all()
        else:
            peer.sendall(PICTURE)

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.seen >= count, 30)

    def stop(self):
        self.listener.close()
        for peer in self.open:
            peer.close()


def send(port, urls, key):
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "OCR:"}]}], "max_tokens": 2}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", "authorization": f"Bearer {key}"}
    )
    return c


def status(port, urls, key):
    reply = send(port, urls, key).getresponse()
    reply.read()
    return reply.status


def test_slow_urls_of_one_key_hold_up_nobody_else(start):
    hosts = Hosts()
    # Room for the files of two requests, were they counted before they come.
    s = start(
        "--api-key",
        "one",
        "--api-key",
        "two",
        "--limit-mm-per-prompt",
        '{"image": 8}',
        "--media-fetch-tries",
        1,
        "--allowed-media-domains",
        f"127.0.0.1:{hosts.port}",
        "--max-media-bytes",
        16 << 20,
        "--media-request-file-bytes",
        16 << 20,
        "--media-total-file-bytes",
        32 << 20,
        "--media-timeout",
        100,
        "--media-fetch-timeout",
        90,
    )
    s.wait_ready()
    slow = f"http://127.0.0.1:{hosts.port}/slow"
    waiting = [send(s.port, [slow], "one") for _ in range(40)]
    hosts.wait_for(16)
    for key in ("one", "two"):
        assert status(s.port, [DATA], key) == 200
    assert status(s.port, [f"http://127.0.0.1:{hosts.port}/quick"], "two") == 200
    assert hosts.seen == 16, "a key has half of the threads that fetch"
    for c in waiting:
        c.close()
    hosts.stop()
    assert s.stop() == 0
