"""tests/ce/server/test_prompt_logprobs.py."""

from fd_requests import user

NEWTON = "牛顿的三大运动定律是什么？"
CHAT = [{"role": "system", "content": "You are a helpful assistant."}, *user(NEWTON)]


def check_rows(rows, asked, decoded=True):
    """The first position has none; the others the asked number, and the prompt's own token where it is not among them."""
    assert rows[0] is None and len(rows) > 1
    for row in rows[1:]:
        top = sorted(row.values(), key=lambda entry: entry["rank"])
        assert top[0]["rank"] == 1
        assert len(top) in (asked, asked + 1)
        for entry in top:
            assert entry["logprob"] <= 0
            assert isinstance(entry["decoded_token"], str) if decoded else entry["decoded_token"] is None


def check_own(rows, prompt_ids):
    """prompt_logprobs 0: the prompt's own tokens alone."""
    assert rows[0] is None
    for row, token in zip(rows[1:], prompt_ids[1:]):
        assert int(next(iter(row))) == token
        entry = next(iter(row.values()))
        assert entry["decoded_token"] is not None and entry["logprob"] <= 0 and entry["rank"] >= 1


def counted(usage, completion):
    assert usage["completion_tokens"] == completion
    assert usage["total_tokens"] == usage["prompt_tokens"] + completion


def test_unstream_with_prompt_logprobs(api):
    body = api.chat_ok(messages=CHAT, max_tokens=3, ignore_eos=True, prompt_logprobs=3)
    counted(body["usage"], 3)
    check_rows(body["choices"][0]["prompt_logprobs"], 3)
    assert len(body["choices"][0]["prompt_logprobs"]) == body["usage"]["prompt_tokens"]


def test_unstream_with_prompt_logprobs_zero(api):
    choice = api.chat_ok(messages=CHAT, max_tokens=3, prompt_logprobs=0, return_token_ids=True)["choices"][0]
    check_own(choice["prompt_logprobs"], choice["message"]["prompt_token_ids"])


def test_unstream_with_prompt_logprobs_none(api):
    body = api.chat_ok(messages=CHAT, max_tokens=3, ignore_eos=True, return_token_ids=True)
    counted(body["usage"], 3)
    assert body["choices"][0]["prompt_logprobs"] is None


def test_unstream_with_prompt_logprobs_n(api):
    choices = api.chat_ok(messages=CHAT, max_tokens=3, prompt_logprobs=3, n=3)["choices"]
    assert len(choices) == 3
    for choice in choices:
        check_rows(choice["prompt_logprobs"], 3)


def test_stream_with_prompt_logprobs(api):
    chunks = api.chat_chunks(messages=CHAT, max_tokens=3, prompt_logprobs=3, return_token_ids=True)
    first, rest = chunks[0]["choices"][0], [c["choices"][0] for c in chunks[1:]]
    check_rows(first["prompt_logprobs"], 3)
    assert len(first["prompt_logprobs"]) == len(first["delta"]["prompt_token_ids"])
    assert all(choice["delta"]["completion_token_ids"] and "prompt_logprobs" not in choice for choice in rest)


def test_unstream_with_prompt_logprobs_completions(api):
    check_rows(api.completion_ok(prompt=NEWTON, max_tokens=3, prompt_logprobs=3)["choices"][0]["prompt_logprobs"], 3)


def test_unstream_with_prompt_logprobs_zero_completions(api):
    choice = api.completion_ok(prompt=NEWTON, max_tokens=3, prompt_logprobs=0, return_token_ids=True)["choices"][0]
    check_own(choice["prompt_logprobs"], choice["prompt_token_ids"])


def test_unstream_with_prompt_logprobs_chunk(api):
    # A prompt of several chunks: 4,096 tokens by 1,024 (32,768 in the original).
    body = api.completion_ok(prompt=[10] * 4096, max_tokens=1, return_token_ids=True)
    assert body["choices"][0]["text"] is not None
    assert body["usage"]["prompt_tokens"] == 4096 and body["usage"]["completion_tokens"] == 1
    assert body["choices"][0]["prompt_logprobs"] is None


def test_unstream_with_prompt_logprobs_none_completions(api):
    body = api.completion_ok(prompt=NEWTON, max_tokens=3, ignore_eos=True, return_token_ids=True)
    counted(body["usage"], 3)
    assert body["choices"][0]["prompt_logprobs"] is None


def test_unstream_with_prompt_logprobs_n_completions(api):
    choices = api.completion_ok(prompt=NEWTON, max_tokens=3, prompt_logprobs=3, n=3)["choices"]
    assert len(choices) == 3
    for choice in choices:
        check_rows(choice["prompt_logprobs"], 3)


def test_stream_with_prompt_logprobs_completions(api):
    chunks = api.completion_chunks(prompt=NEWTON, max_tokens=3, prompt_logprobs=3, return_token_ids=True)
    first, rest = chunks[0]["choices"][0], [c["choices"][0] for c in chunks[1:]]
    check_rows(first["prompt_logprobs"], 3)
    assert len(first["prompt_logprobs"]) == len(first["prompt_token_ids"])
    assert all(choice["completion_token_ids"] and choice.get("prompt_logprobs") is None for choice in rest)


def test_unstream_with_prompt_logprobs_list_completions(api):
    choices = api.completion_ok(prompt=[NEWTON, "什么是机器学习？"], max_tokens=10, prompt_logprobs=3, n=3)["choices"]
    assert len(choices) == 6
    for choice in choices:
        check_rows(choice["prompt_logprobs"], 3)


def test_unstream_with_prompt_logprobs_no_decode_completions(api):
    choice = api.completion_ok(prompt=[NEWTON], max_tokens=10, prompt_logprobs=1, include_logprobs_decode_token=False)["choices"][
        0
    ]
    check_rows(choice["prompt_logprobs"], 1, decoded=False)


def test_unstream_with_prompt_logprobs_no_decode(api):
    choice = api.chat_ok(messages=CHAT, max_tokens=10, top_logprobs=3, prompt_logprobs=1, include_logprobs_decode_token=False)[
        "choices"
    ][0]
    check_rows(choice["prompt_logprobs"], 1, decoded=False)
    for entry in choice["logprobs"]["content"]:
        assert len(entry["top_logprobs"]) == 3
        assert entry["token"] in ("", None)
        assert entry["logprob"] <= 0


def test_error_with_prompt_logprobs(api):
    error = api.fault(messages=CHAT, max_tokens=3, prompt_logprobs=25)
    assert "Number of prompt_logprobs requested (25) exceeds maximum allowed value (20)" in error["message"]
