"""Conversations that go on: the server's own answers sent back as the `openai` client holds them, and local time."""

import datetime
import json
import os
import subprocess
import urllib.request

import pytest
from tern_server import MODEL, ROOT, TERN, Server

TEMPLATES = sorted((ROOT / "tests/data/templates/own").glob("*.jinja"))
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "abcdef123", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Par'}}],
}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "content": "17 C"}


@pytest.fixture(scope="module")
def open_server(tmp_path_factory):
    s = Server(tmp_path_factory.mktemp("histories"), "--allow-request-chat-template", "--max-model-len", 2048)
    yield s.wait_ready()
    s.stop()


def test_an_answer_sent_back_goes_on(open_server):
    client = open_server.client()
    sources = {path.stem: path.read_text() for path in TEMPLATES}
    assert len(sources) >= 8
    for name, source in {**sources, "the model's own": None}.items():
        body = {"chat_template": source} if source else {}
        messages = [{"role": "user", "content": "What is 2 + 3?"}]
        for turn in range(3):
            reply = client.chat.completions.create(
                model="default", messages=messages, max_tokens=4, temperature=0, extra_body=body
            )
            messages += [reply.choices[0].message.model_dump(), {"role": "user", "content": f"And turn {turn}?"}]
        # A call that max_tokens cut ends no conversation.
        ended = messages[:1] + [CALL, RESULT]
        reply = client.chat.completions.create(model="default", messages=ended, max_tokens=4, temperature=0, extra_body=body)
        assert reply.choices[0].finish_reason in ("stop", "length"), name


def test_strftime_is_local_time(start):
    template = "{{ strftime_now('%Y-%m-%d %H') }}{# #}"
    zone = {"TZ": "XXX-14"}  # 14 hours before UTC

    def hour():
        return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=14)).strftime("%Y-%m-%d %H")

    before = hour()
    s = start("--chat-template", template, env=zone).wait_ready()
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "return_token_ids": True}
    request = urllib.request.Request(
        s.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        shown = json.load(answer)["choices"][0]["message"]["prompt_tokens"]
    line = json.dumps({"messages": body["messages"]}) + "\n"
    rendered = subprocess.run(
        [TERN, "render", "--model", str(MODEL), "--chat-template", template],
        input=line,
        capture_output=True,
        text=True,
        env={**os.environ, **zone},
        timeout=60,
        check=True,
    ).stdout
    assert before <= shown <= hour()
    assert before <= json.loads(rendered)["prompt"] <= hour()
