"""tests/ce/server/test_completions.py and test_return_token_ids.py. Every request carries logprobs: true, read as 1."""

import pytest

FRUIT, WATER = "水果的营养价值是如何的？", "水的化学式是什么？"
USAGE = {"include_usage": True, "continuous_usage_stats": True}


def by_index(chunks):
    """The chunks of each choice, in order."""
    found = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            found.setdefault(choice["index"], []).append(choice)
    return found


def test_completion_total_tokens(api):
    usage = api.completion_chunks(prompt="你是谁", stream_options=USAGE)[-1]["usage"]
    assert usage["total_tokens"] == usage["completion_tokens"] + usage["prompt_tokens"]


def test_completion_echo_stream_one_prompt_rti(api):
    chunks = api.completion_chunks(prompt=FRUIT, stream_options=USAGE, echo=True, max_tokens=2, return_token_ids=True)
    assert chunks[1]["choices"][0]["text"].startswith(FRUIT), "the first chunk has the prompt's ids, the second its text"


def test_completion_echo_stream_one_prompt(api):
    chunks = api.completion_chunks(prompt=FRUIT, stream_options=USAGE, echo=True, max_tokens=2)
    assert chunks[0]["choices"][0]["text"].startswith(FRUIT)


def test_completion_echo_stream_more_prompt(api):
    chunks = api.completion_chunks(prompt=[FRUIT, WATER], stream_options=USAGE, echo=True, max_tokens=2, return_token_ids=True)
    choices = by_index(chunks)
    assert choices[0][1]["text"].startswith(FRUIT)
    assert choices[1][1]["text"].startswith(WATER)


def test_completion_echo_one_prompt(api):
    assert api.completion_ok(prompt=FRUIT, echo=True, max_tokens=100)["choices"][0]["text"].startswith(FRUIT)


def test_completion_echo_more_prompt(api):
    choices = api.completion_ok(prompt=[FRUIT, WATER], echo=True, max_tokens=100)["choices"]
    assert choices[0]["text"].startswith(FRUIT)
    assert choices[1]["text"].startswith(WATER)


def test_completion_finish_length(api):
    assert api.completion_ok(prompt=FRUIT, max_tokens=10, ignore_eos=True)["choices"][0]["finish_reason"] == "length"


def test_completion_finish_stop(api):
    # A prompt that the shipped model ends by itself.
    body = api.completion_ok(prompt="User: What is 1+1?\nAssistant:", max_tokens=None)
    assert body["choices"][0]["finish_reason"] == "stop"


def test_logprobs_true_is_one(api):
    logprobs = api.completion_ok(prompt="Hello", max_tokens=4, ignore_eos=True)["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == 4
    assert all(1 <= len(top) <= 2 for top in logprobs["top_logprobs"]), "the sampled token and one alternative"


# test_return_token_ids.py


def check_stream(pairs, prompt):
    """pairs: (choice, where its ids and texts are)."""
    assert prompt in pairs[0][1]["prompt_tokens"]
    assert isinstance(pairs[0][1]["prompt_token_ids"], list)
    for choice, place in pairs[1:]:
        text = place["content"] if "content" in place else place["text"]
        assert place["prompt_token_ids"] is None
        assert place["reasoning_content"] or text in place["completion_tokens"]


def test_completion_stream_prompt_tokens_completion_tokens(api):
    chunks = api.completion_chunks(prompt="你是谁", stream_options=USAGE, max_tokens=50, return_token_ids=True)
    check_stream([(c, c) for c in by_index(chunks)[0]], "你是谁")


def test_stream_prompt_tokens_completion_tokens(api):
    chunks = api.chat_chunks(
        messages=[{"role": "user", "content": "你是谁"}], stream_options=USAGE, max_tokens=50, return_token_ids=True
    )
    check_stream([(c, c["delta"]) for c in by_index(chunks)[0]], "你是谁")


def test_completion_prompt_tokens_completion_tokens_return_token_ids(api):
    choice = api.completion_ok(prompt="你是谁", max_tokens=50, return_token_ids=True)["choices"][0]
    assert "你是谁" in choice["prompt_tokens"]
    assert choice["text"] in choice["completion_tokens"]
    assert choice["prompt_token_ids"] and choice["completion_token_ids"]


def test_prompt_tokens_completion_tokens_return_token_ids(api):
    message = api.chat_ok(
        messages=[{"role": "user", "content": "你是谁"}], max_tokens=50, return_token_ids=True, logprobs=False, top_logprobs=None
    )["choices"][0]["message"]
    assert "你是谁" in message["prompt_tokens"]
    assert message["content"] in message["completion_tokens"]


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
def test_prompt_tokens_completion_tokens(api, chat):
    if chat:
        place = api.chat_ok(messages=[{"role": "user", "content": "你是谁"}], max_tokens=50, logprobs=False, top_logprobs=None)[
            "choices"
        ][0]["message"]
    else:
        place = api.completion_ok(prompt="你是谁", max_tokens=50)["choices"][0]
    for key in ("prompt_tokens", "completion_tokens", "prompt_token_ids", "completion_token_ids"):
        assert place[key] is None
