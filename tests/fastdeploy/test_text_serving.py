"""tests/e2e/test_EB_Lite_serving.py and test_Qwen2-7B-Instruct_serving.py, with the `openai` client as there."""

import concurrent.futures
import urllib.request

import pytest
from fd_requests import post, user

COUNTRIES = [{"role": "system", "content": "You are a helpful AI assistant."}, *user("List 3 countries and their capitals.")]
HELLO, HELLO_PROMPT = user("Hello, how are you?"), "Hello, how are you?"
NINE = [509, 626, 274, 454, 1071, 326, 393, 1869, 937]  # any ids; the original's lie beyond this vocabulary
END = "</s>"


def chat(client, messages=HELLO, **more):
    extra = more.pop("extra", None)
    return client.chat.completions.create(
        model="default", messages=messages, **{"temperature": 1, "max_tokens": 5, **more}, extra_body=extra
    )


def complete(client, prompt=HELLO_PROMPT, **more):
    extra = more.pop("extra", None)
    return client.completions.create(
        model="default", prompt=prompt, **{"temperature": 1, "max_tokens": 5, **more}, extra_body=extra
    )


def test_consistency_between_runs(api):
    body = {"messages": user("用一句话介绍 PaddlePaddle"), "temperature": 0.9, "top_p": 0, "seed": 13}
    texts = [post(api.url + "/v1/chat/completions", {**body, "max_tokens": 200}) for _ in range(2)]
    assert [status for status, _ in texts] == [200, 200]
    assert texts[0][1]["choices"] == texts[1][1]["choices"]


def test_non_streaming_chat(client):
    answer = chat(client, COUNTRIES, max_tokens=1024)
    assert isinstance(answer.choices[0].message.content, str)


def test_non_streaming_chat_finish_reason(client):
    for limit in ({"max_tokens": 5}, {"max_completion_tokens": 5, "max_tokens": None}):
        for n in (1, 2):
            answer = chat(client, COUNTRIES, n=n, **limit)
            assert [c.finish_reason for c in answer.choices] == ["length"] * n


def test_streaming_chat(client):
    turns = [
        *COUNTRIES,
        {"role": "assistant", "content": "China(Beijing), France(Paris), Australia(Canberra)."},
        *user("OK, tell more."),
    ]
    pieces = [c.choices[0].delta.content for c in chat(client, turns, max_tokens=1024, stream=True)]
    assert len(pieces) > 2


def test_non_streaming(client):
    assert complete(client, max_tokens=1024).choices


def test_streaming(client):
    assert [c.choices[0].text for c in complete(client, max_tokens=1024, stream=True)]


def test_non_streaming_chat_with_n(client):
    answer = chat(client, [], n=2, extra={"prompt_token_ids": NINE})
    assert len(answer.choices) == 2
    assert answer.usage.prompt_tokens == 9


def streamed_usage(chunks):
    """Choices that came, and the sum of prompt tokens over usage chunks; other chunks carry no usage."""
    seen, total = set(), 0
    for chunk in chunks:
        if chunk.choices:
            assert chunk.usage is None
            seen.add(chunk.choices[0].index)
        else:
            total += chunk.usage.prompt_tokens
    return seen, total


def test_streaming_chat_with_n(client):
    stream = chat(client, [], n=2, extra={"prompt_token_ids": NINE}, stream=True, stream_options={"include_usage": True})
    assert streamed_usage(stream) == ({0, 1}, 9)


def test_completions_non_streaming_with_n(client):
    choices = complete(client, n=2, max_tokens=1024).choices
    assert len(choices) == 2 and all(isinstance(c.text, str) for c in choices)


def test_completions_streaming_with_n(client):
    seen = {c.choices[0].index for c in complete(client, n=2, max_tokens=1024, stream=True)}
    assert seen == {0, 1}


@pytest.mark.parametrize("stream", [False, True], ids=["non_streaming", "streaming"])
def test_with_stop_str(client, stream):
    """include_stop_str_in_output shows the end token; without it, it does not show."""

    def last(answer, field):
        if not stream:
            return field(answer.choices[0])
        return [field(chunk.choices[0]) for chunk in answer][-1]

    say = (lambda c: c.delta.content) if stream else (lambda c: c.message.content)
    prompt = "User: What is 1+1?\nAssistant:"
    for shown in (True, False):
        more = {"temperature": 0, "max_tokens": 40, "stream": stream, "extra": {"include_stop_str_in_output": shown}}
        assert last(chat(client, user("What is 1+1?"), **more), say).endswith(END) == shown
        assert last(complete(client, prompt, **more), lambda c: c.text).endswith(END) == shown


def check_ids(place, asked):
    for ids in (place.prompt_token_ids, place.completion_token_ids):
        assert isinstance(ids, list) if asked else ids is None


def check_streamed_ids(places, asked):
    if not asked:
        return [check_ids(place, False) for place in places]
    assert isinstance(places[0].prompt_token_ids, list) and places[0].completion_token_ids is None
    for place in places[1:]:
        assert place.prompt_token_ids is None and isinstance(place.completion_token_ids, list)


@pytest.mark.parametrize("asked", [True, False])
def test_non_streaming_chat_with_return_token_ids(client, asked):
    check_ids(chat(client, extra={"return_token_ids": asked}).choices[0].message, asked)


@pytest.mark.parametrize("asked", [True, False])
def test_streaming_chat_with_return_token_ids(client, asked):
    check_streamed_ids([c.choices[0].delta for c in chat(client, stream=True, extra={"return_token_ids": asked})], asked)


@pytest.mark.parametrize("asked", [True, False])
def test_non_streaming_completion_with_return_token_ids(client, asked):
    check_ids(complete(client, extra={"return_token_ids": asked}).choices[0], asked)


@pytest.mark.parametrize("asked", [True, False])
def test_streaming_completion_with_return_token_ids(client, asked):
    check_streamed_ids([c.choices[0] for c in complete(client, stream=True, extra={"return_token_ids": asked})], asked)


def test_non_streaming_chat_with_prompt_token_ids(client):
    assert chat(client, [], extra={"prompt_token_ids": NINE}).usage.prompt_tokens == 9


def test_streaming_chat_with_prompt_token_ids(client):
    stream = chat(client, [], extra={"prompt_token_ids": NINE}, stream=True, stream_options={"include_usage": True})
    assert streamed_usage(stream) == ({0}, 9)


IDS = [
    ({"prompt": "", "extra": {"prompt_token_ids": NINE}}, 1, 9),
    ({"prompt": NINE}, 1, 9),
    ({"prompt": "", "extra": {"prompt_token_ids": [NINE, [1, 2, 3]]}}, 2, 12),
    ({"prompt": [NINE, [1, 2, 3]]}, 2, 12),
]


@pytest.mark.parametrize("sent, prompts, tokens", IDS, ids=["ids", "prompt", "lists of ids", "prompt of lists"])
def test_non_streaming_completion_with_prompt_token_ids(client, sent, prompts, tokens):
    answer = complete(client, **sent)
    assert len(answer.choices) == prompts and answer.usage.prompt_tokens == tokens


@pytest.mark.parametrize("sent, prompts, tokens", IDS, ids=["ids", "prompt", "lists of ids", "prompt of lists"])
def test_streaming_completion_with_prompt_token_ids(client, sent, prompts, tokens):
    stream = complete(client, **sent, stream=True, stream_options={"include_usage": True})
    assert streamed_usage(stream) == (set(range(prompts)), tokens)


def test_non_streaming_chat_completion_disable_chat_template(api):
    """The rendered prompt, sent raw, gives the same answer."""
    one = api.chat_ok(messages=HELLO, max_tokens=10, return_token_ids=True)
    rendered = one["choices"][0]["message"]["prompt_tokens"]
    two = api.chat_ok(messages=user(rendered), max_tokens=10, disable_chat_template=True, return_token_ids=True)
    assert two["choices"][0]["message"]["prompt_token_ids"] == one["choices"][0]["message"]["prompt_token_ids"]
    assert two["choices"][0]["message"]["content"] == one["choices"][0]["message"]["content"]


def test_non_streaming_chat_with_min_tokens(client):
    assert chat(client, max_tokens=1010, extra={"min_tokens": 1000}).usage.completion_tokens >= 1000


def test_non_streaming_min_max_token_equals_one(client):
    answer = chat(client, user("Hello"), max_tokens=1, temperature=0)
    assert answer.usage.completion_tokens == 1
    assert isinstance(answer.choices[0].message.content, str)


def words_and_ids(api, path, stream, **more):
    """Texts and ids of every token of an answer."""
    fields = {"messages": HELLO} if "chat" in path else {"prompt": HELLO_PROMPT}
    fields |= {"max_tokens": 20, "return_token_ids": True, "ignore_eos": True, **more}
    if stream:
        parts = [c["choices"][0] for c in api.chunks(path, **fields)][1:]
        places = [part.get("delta", part) for part in parts]
        return [p.get("content", p.get("text")) for p in places], [i for p in places for i in p["completion_token_ids"]]
    choice = api.send(path, fields)[1]["choices"][0]
    tokens = choice["logprobs"]["tokens"] if "text" in choice else [e["token"] for e in choice["logprobs"]["content"]]
    return tokens, choice.get("message", choice)["completion_token_ids"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"], ids=["chat", "completion"])
@pytest.mark.parametrize("stream", [False, True], ids=["non_streaming", "streaming"])
def test_with_bad_words(api, path, stream):
    words, ids = words_and_ids(api, path, stream)
    some = slice(4, 8)
    assert len(ids) == 20
    for ban in ({"bad_words": [w.strip() for w in words[some] if w.strip()]}, {"bad_words_token_ids": ids[some]}):
        _, other = words_and_ids(api, path, stream, **ban)
        if "bad_words_token_ids" in ban:
            assert not set(other) & set(ids[some])
        else:
            assert other != ids, "some word was among the likeliest"


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_streaming_chat_finish_reason(client, n, limit):
    more = {"max_tokens": None, limit: 5}
    ends = {
        c.choices[0].index: c.choices[0].finish_reason
        for c in chat(client, COUNTRIES, n=n, stream=True, **more)
        if c.choices[0].finish_reason
    }
    assert ends == {i: "length" for i in range(n)}


@pytest.mark.skip(reason="a number of cache blocks of a released model on a certain GPU, read from a log of the original")
def test_profile_reset_block_num():
    pass


# test_Qwen2-7B-Instruct_serving.py


def valid(body):
    assert isinstance(body["id"], str) and isinstance(body["object"], str) and isinstance(body["created"], int)
    for choice in body["choices"]:
        assert isinstance(choice["message"]["role"], str) and isinstance(choice["message"]["content"], str)
        assert isinstance(choice["index"], int) and isinstance(choice["finish_reason"], str)


def ask(api, messages):
    return post(api.url + "/v1/chat/completions", {"messages": messages})


@pytest.mark.parametrize(
    "messages",
    [
        user("你好"),
        user("用一句话介绍 FastDeploy"),
        [*user("你是谁？"), {"role": "assistant", "content": "我是AI助手"}, *user("你能做什么？")],
    ],
    ids=["valid_chat-1", "valid_chat-2", "multi_turn_conversation"],
)
def test_valid_chat(api, messages):
    status, body = ask(api, messages)
    assert status == 200
    valid(body)


@pytest.mark.parametrize("messages", [[], [{}], [{"content": "hello"}]], ids=["no message", "nothing", "no role"])
def test_invalid_chat(api, messages):
    status, body = ask(api, messages)
    assert status == 400 and body["error"]["message"]


@pytest.mark.skip(reason="differs: a message without content is an empty one, as in the original's newer models that see")
def test_invalid_chat_without_content():
    pass


def test_exceed_context_length(api):
    status, body = ask(api, user("你好，" * 20000))
    assert status == 400 and "token" in body["error"]["message"]


def test_concurrent_perf(api):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert [status for status, _ in pool.map(lambda _: ask(api, user("Introduce FastDeploy.")), range(8))] == [200] * 8


def test_metrics_endpoint(api):
    with urllib.request.urlopen(api.url + "/metrics", timeout=5) as r:
        assert r.status == 200 and "text/plain" in r.headers["Content-Type"]
        values = dict(line.rsplit(" ", 1) for line in r.read().decode().splitlines() if line and not line.startswith("#"))
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "time_to_first_token_seconds_sum",
        "time_per_output_token_seconds_sum",
        "e2e_request_latency_seconds_sum",
        "request_inference_time_seconds_sum",
        "request_queue_time_seconds_sum",
        "request_prefill_time_seconds_sum",
        "request_decode_time_seconds_sum",
        "prompt_tokens_total",
        "generation_tokens_total",
        "request_prompt_tokens_sum",
        "request_generation_tokens_sum",
        "gpu_cache_usage_perc",
        "request_params_max_tokens_sum",
        "request_success_total",
    ):
        found = [value for key, value in values.items() if key.split("{")[0] == "fastdeploy:" + name]
        assert found and all(float(value) >= 0 for value in found), name
