"""tests/ce/server/test_seed_usage.py, test_params_boundary.py, test_prompt_ids.py, test_max_concurrency.py."""

import base64
import contextlib
import json
import urllib.error
import urllib.request

from fd_requests import ROOT, SECONDS, TEMPLATE, content, post, user

NEWTON = [{"role": "system", "content": "You are a helpful assistant."}, *user("牛顿的三大运动定律是什么？")]
USAGE = {"include_usage": True, "continuous_usage_stats": True}


def check_usage(usage):
    assert 10 <= usage["completion_tokens"] <= 50
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_seed_stream(api):
    def answer():
        chunks = api.chat_chunks(messages=NEWTON, seed=26, max_tokens=50, stream_options=USAGE)
        text = "".join(c["choices"][0]["delta"]["content"] for c in chunks[:-1])
        return text, [c["choices"][0]["logprobs"]["content"][0] for c in chunks[1:-1]]

    assert answer() == answer()


def test_chat_usage_stream(api):
    chunks = api.chat_chunks(messages=NEWTON, max_tokens=50, stream_options=USAGE, metadata={"min_tokens": 10})
    check_usage(chunks[-1]["usage"])


def test_chat_usage_non_stream(api):
    check_usage(api.chat_ok(messages=NEWTON, max_tokens=50, metadata={"min_tokens": 10})["usage"])


def test_non_chat_usage_stream(api):
    chunks = api.completion_chunks(
        prompt="牛顿的三大运动定律是什么？", max_tokens=50, stream_options=USAGE, metadata={"min_tokens": 10}
    )
    check_usage(chunks[-1]["usage"])


def test_non_chat_usage_non_stream(api):
    check_usage(api.completion_ok(prompt="牛顿的三大运动定律是什么？", max_tokens=50, metadata={"min_tokens": 10})["usage"])


def test_max_min_1_token(api):
    body = api.chat_ok(messages=user("非洲的首都是？"), max_tokens=1, metadata={"min_tokens": 1})
    assert body["usage"]["completion_tokens"] == 1
    assert body["choices"][0]["finish_reason"] == "length"


def test_incremental_image_reasoning_consistency(api):
    """The ids that the first answer gives, sent with the same picture, give the same answer."""
    picture = "data:image/png;base64," + base64.b64encode((ROOT / "models" / "demo.png").read_bytes()).decode()
    part = {"type": "image_url", "image_url": {"url": picture}}
    first = api.chat_ok(messages=[{"role": "user", "content": [part, {"type": "text", "text": "OCR:"}]}], return_token_ids=True)
    ids = first["choices"][0]["message"]["prompt_token_ids"]
    assert ids
    second = api.chat_ok(messages=[{"role": "user", "content": [part]}], prompt_token_ids=ids)
    assert content(first) == content(second) and content(first)
    assert first["choices"][0]["message"]["reasoning_content"] == second["choices"][0]["message"]["reasoning_content"]


def test_concurrency(start):
    """Ten requests where five are allowed: five answers and five 429. The first five stay open until the others came."""
    url = start("--max-concurrency", 5, "--max-model-len", 8192).url + "/v1/chat/completions"
    body = {
        **TEMPLATE,
        "messages": user("1+1=？ 直接回答"),
        "max_tokens": 8000,
        "ignore_eos": True,
        "logprobs": False,
        "top_logprobs": None,
    }
    with contextlib.ExitStack() as open_streams:
        for _ in range(5):
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            stream = open_streams.enter_context(urllib.request.urlopen(request, timeout=SECONDS))
            assert stream.status == 200
            assert stream.readline().startswith(b"data: ")
        for _ in range(5):
            assert post(url, {**body, "stream": False, "max_tokens": 1})[0] == 429
