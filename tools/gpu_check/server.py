"""`tern serve` as a child process, and requests to it. Nothing but the standard library."""

import concurrent.futures
import http.client
import json
import os
import signal
import socket
import subprocess
import time


class ServerError(Exception):
    pass


class Server:
    def __init__(self, run, model, *flags, env=None, device=None, name="server"):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.output = run.places.out / f"{run.stage.name}-{name}.txt"
        command = [
            run.places.tern,
            "serve",
            "--model",
            str(model),
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--device",
            device or run.places.device,
            "--exit-with-stdin",  # a check that is killed leaves no server behind
            *map(str, flags),
        ]
        with open(self.output, "wb") as out:
            out.write((" ".join(f"{k}={v}" for k, v in (env or {}).items()) + " " + " ".join(command) + "\n").encode())
            out.flush()
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, env={**os.environ, **(env or {})}
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def text(self):
        return self.output.read_text(errors="replace")

    def ready(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise ServerError(f"the server ended with {self.process.returncode}: {self.text()[-1500:]}")
            try:
                if self.get("/health", timeout=2)[0] == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.02)
        raise ServerError(f"the server was not ready after {seconds} s: {self.text()[-1500:]}")

    def stop(self, seconds=30):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                return self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
                return -9
        return self.process.returncode

    def request(self, method, path, body=None, timeout=300):
        """(status, bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(
                method,
                path,
                json.dumps(body) if body is not None else None,
                {"Content-Type": "application/json"} if body is not None else {},
            )
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def get(self, path, timeout=30):
        return self.request("GET", path, timeout=timeout)

    def metric(self, name):
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith(name + " ") or line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
        return None

    def post(self, path, timeout=300, **body):
        status, data = self.request("POST", path, body, timeout)
        if status != 200:
            raise ServerError(f"status {status}: {data[:300].decode(errors='replace')}")
        return json.loads(data)

    def complete(self, ids, tokens, timeout=300, **more):
        """Choices of a completion of token ids: greedy, to the full length, with ids, unless `more` says otherwise."""
        body = dict(prompt=ids, max_tokens=tokens, temperature=0, ignore_eos=True, return_token_ids=True)
        return self.post("/v1/completions", timeout, **{**body, **more})["choices"]

    def ids(self, ids, tokens, **more):
        return self.complete(ids, tokens, **more)[0]["completion_token_ids"]

    def chat(self, content, tokens, timeout=300, **more):
        body = dict(messages=[{"role": "user", "content": content}], max_tokens=tokens, temperature=0)
        return self.post("/v1/chat/completions", timeout, **{**body, **more})

    def stream(self, content, tokens, **more):
        """Text of a streamed chat, and how many events brought it."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            c.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(
                    {
                        **dict(messages=[{"role": "user", "content": content}], max_tokens=tokens, temperature=0, stream=True),
                        **more,
                    }
                ),
                {"Content-Type": "application/json"},
            )
            r = c.getresponse()
            text, events = "", 0
            for line in r:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    chunk = json.loads(line[6:])
                    if "error" in chunk:
                        raise ServerError(str(chunk["error"])[:300])
                    for choice in chunk["choices"]:
                        text += choice["delta"].get("content") or ""
                        events += 1
            return text, events
        finally:
            c.close()


def together(function, items, threads):
    """[function(item)] with so many at a time; an exception takes the place of its result."""

    def safe(item):
        try:
            return function(item)
        except Exception as e:
            return e

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(safe, items))
