"""tests/ce/server/test_base_chat.py. Prompts are such that the shipped model answers as the case needs it."""

import pytest
from fd_requests import content, token_list, user

WHO = "Who are you?"  # "I am Tern Demo, a small demonstration language model ..."


def test_stream_response(api):
    chunks = api.chat_chunks(messages=[{"role": "system", "content": "You are learned."}, *user(WHO)], max_tokens=10)
    assert "".join(c["choices"][0]["delta"]["content"] for c in chunks)


@pytest.mark.skip(reason="hangs on a released model's text: a system prompt that asks for short answers")
def test_system_prompt_effect():
    pass


def test_logprobs_enabled(api):
    body = api.chat_ok(messages=user("非洲的首都是？"), max_tokens=3)
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == body["usage"]["completion_tokens"]
    assert all({"token", "logprob", "top_logprobs"} <= set(entry) for entry in entries)


def test_stop_sequence(api):
    whole = content(api.chat_ok(messages=user(WHO)))
    assert "," in whole
    body = api.chat_ok(messages=user(WHO), stop=[","])
    assert content(body) == whole.split(",")[0]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert "," in token_list(body), "the token that ended the answer is among the log-probs"
    assert not any("small" in token for token in token_list(body))


def test_stop_sequence1(api):
    assert "small" in content(api.chat_ok(messages=user(WHO))), "nothing is cut without stop"


def test_stop_sequence2(api):
    whole = content(api.chat_ok(messages=user(WHO)))
    stop = whole[5:20]
    assert content(api.chat_ok(messages=user(WHO), stop=[stop])) == whole[:5]


def test_sampling_parameters(api):
    assert "2" in content(api.chat_ok(messages=user("What is 1+1?"), temperature=0, top_p=0, max_tokens=50))


def test_multi_turn_conversation(api):
    first = user("What is 2+3?")
    more = [*first, {"role": "assistant", "content": "5"}, *user("What is 4+4?")]
    one = api.chat_ok(messages=first, max_tokens=30)
    two = api.chat_ok(messages=more, max_tokens=30)
    assert content(two)
    assert two["usage"]["prompt_tokens"] > one["usage"]["prompt_tokens"], "earlier turns are part of the prompt"


def test_bad_words_filtering(api):
    body = api.chat_ok(messages=user(WHO), max_tokens=69, bad_words=[","])
    assert "," not in token_list(body)


def test_bad_words_filtering1(api):
    words = [",", "."]
    free = api.chat_ok(messages=user(WHO), max_tokens=69)
    body = api.chat_ok(messages=user(WHO), max_tokens=69, bad_words=words)
    for word in words:
        assert word in token_list(free)
        assert word not in token_list(body)
