"""Requests as FastDeploy's suite makes them."""

import json
import pathlib
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What every request of FastDeploy's suite carries unless a case says otherwise; its 10,000 tokens are 300 here.
TEMPLATE = {
    "model": "default",
    "temperature": 0,
    "top_p": 0,
    "seed": 33,
    "stream": True,
    "logprobs": True,
    "top_logprobs": 5,
    "max_tokens": 300,
}
SECONDS = 60


def post(url, body, headers=None):
    """Status and parsed body."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as r:
            return r.status, json.load(r)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


class Api:
    """Requests as the original's helper makes them: the template, then what the case sets."""

    def __init__(self, url):
        self.url = url

    def send(self, path, data):
        return post(self.url + path, {**TEMPLATE, "stream": False, **data})

    def chat(self, **data):
        return self.send("/v1/chat/completions", data)

    def completion(self, **data):
        return self.send("/v1/completions", data)

    def chat_ok(self, **data):
        status, body = self.chat(**data)
        assert status == 200, body
        return body

    def completion_ok(self, **data):
        status, body = self.completion(**data)
        assert status == 200, body
        return body

    def fault(self, **data):
        """The error of a chat request that must not pass."""
        status, body = self.chat(**data)
        assert status == 400, body
        assert set(body["error"]) == {"message", "type", "param", "code"}
        return body["error"]

    def chunks(self, path, **data):
        """Every chunk of a stream that ends with [DONE]."""
        body = json.dumps({**TEMPLATE, **data, "stream": True}).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS) as r:
            assert r.status == 200
            events = [line[len("data: ") :] for line in r.read().decode().splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    def chat_chunks(self, **data):
        return self.chunks("/v1/chat/completions", **data)

    def completion_chunks(self, **data):
        return self.chunks("/v1/completions", **data)


def user(text):
    return [{"role": "user", "content": text}]


def content(body):
    return body["choices"][0]["message"]["content"]


def token_list(body):
    return [entry["token"] for entry in body["choices"][0]["logprobs"]["content"]]
