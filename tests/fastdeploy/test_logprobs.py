"""tests/ce/server/test_logprobs.py, test_compare_top_logprobs.py: log-probabilities of what was generated."""

import math

from fd_requests import user

NEWTON = [{"role": "system", "content": "You are a helpful assistant."}, *user("牛顿的三大运动定律是什么？")]


def usage_fits(body):
    usage = body["usage"]
    assert usage["completion_tokens"] == 3
    assert usage["total_tokens"] == usage["prompt_tokens"] + 3


def first_with_text(chunks):
    return next(c["choices"][0] for c in chunks if c["choices"][0]["delta"].get("content"))


def check_entry(entry, alternatives=5):
    assert set(entry) >= {"token", "logprob", "bytes", "top_logprobs"}
    assert entry["logprob"] <= 0
    assert entry["bytes"] == list(entry["token"].encode())
    assert entry["top_logprobs"][0]["token"] == entry["token"], "greedy: the sampled token is the likeliest"
    assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]
    assert len(entry["top_logprobs"]) >= alternatives


def test_unstream_with_logprobs(api):
    body = api.chat_ok(messages=NEWTON, max_tokens=3, ignore_eos=True)
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == 3
    check_entry(entries[0])
    assert entries[0]["top_logprobs"][0]["top_logprobs"] is None
    usage_fits(body)


def test_unstream_without_logprobs(api):
    body = api.chat_ok(messages=NEWTON, max_tokens=3, ignore_eos=True, logprobs=False, top_logprobs=None)
    assert body["choices"][0]["logprobs"] is None
    usage_fits(body)


def test_stream_with_logprobs(api):
    choice = first_with_text(api.chat_chunks(messages=NEWTON, max_tokens=3, ignore_eos=True))
    check_entry(choice["logprobs"]["content"][0])
    assert set(choice["logprobs"]["content"][0]["top_logprobs"][0]) >= {"token", "logprob", "bytes"}


def test_stream_without_logprobs(api):
    choice = first_with_text(api.chat_chunks(messages=NEWTON, max_tokens=3, ignore_eos=True, logprobs=False, top_logprobs=None))
    assert choice["logprobs"] is None


def test_stream_with_temp_scaled_logprobs(api):
    def first(**more):
        chunks = api.chat_chunks(messages=NEWTON, max_tokens=3, ignore_eos=True, temperature=0.8, top_p=0, **more)
        return first_with_text(chunks)["logprobs"]["content"][0]

    plain, scaled = first(), first(temp_scaled_logprobs=True)
    assert plain["token"] == scaled["token"]
    assert scaled["logprob"] > plain["logprob"], "a temperature below 1 makes the likeliest token likelier"
    check_entry(scaled)


def test_stream_with_top_p_normalized_logprobs(api):
    chunks = api.chat_chunks(messages=NEWTON, max_tokens=3, ignore_eos=True, top_p=0, top_p_normalized_logprobs=True)
    entry = first_with_text(chunks)["logprobs"]["content"][0]
    assert entry["logprob"] == 0.0 and entry["top_logprobs"][0]["logprob"] == 0.0, "one token is left"


def test_compare_top_logprobs(api):
    few, many = (
        api.chat_ok(messages=NEWTON, max_tokens=10, top_logprobs=k)["choices"][0]["logprobs"]["content"] for k in (5, 10)
    )
    assert len(few) == len(many)
    for a, b in zip(few, many):
        for x, y in zip(a["top_logprobs"], b["top_logprobs"]):
            assert (x["token"], x["bytes"]) == (y["token"], y["bytes"])
            assert math.isclose(x["logprob"], y["logprob"], abs_tol=1e-5)
