"""The shipped model behind the real `openai` client."""

import concurrent.futures
import json
import socket

import openai
import pytest

from tern_server import wait_for

ASK = [{"role": "user", "content": "What is 12 + 30?"}]
GREEDY = dict(model="default", temperature=0)


def chat(client, messages=ASK, **kw):
    return client.chat.completions.create(messages=messages, **{**GREEDY, **kw})


def test_chat_answers_right(client):
    reply = chat(client)
    assert "42" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_stream_equals_whole(client):
    whole = chat(client)
    text, finish, usage = "", None, None
    for chunk in chat(client, stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].message.content
    assert finish == "stop"
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_logprobs(client):
    reply = chat(client, logprobs=True, top_logprobs=3)
    content = reply.choices[0].logprobs.content
    assert len(content) == reply.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) >= 3
        assert token.top_logprobs[0].logprob >= token.top_logprobs[-1].logprob or token.token == token.top_logprobs[0].token
    # Greedy: the sampled token is the most likely one.
    assert all(abs(t.logprob - max(a.logprob for a in t.top_logprobs)) < 1e-6 for t in content)


def test_prefix_cache_is_reported(client):
    text = [{"role": "user", "content": "Sort these words: " + ", ".join(["pear", "apple", "fig"] * 40)}]
    first = chat(client, text, max_tokens=2)
    second = chat(client, text, max_tokens=2)
    assert second.usage.prompt_tokens_details.cached_tokens >= 64
    assert second.usage.prompt_tokens_details.cached_tokens % 64 == 0
    assert first.choices[0].message.content == second.choices[0].message.content


def test_completions_n_and_echo(client):
    reply = client.completions.create(
        model="default", prompt=["1 2 3", "a b c"], n=2, max_tokens=4, temperature=0.9, seed=5, extra_body={"ignore_eos": True}
    )
    assert [c.index for c in reply.choices] == [0, 1, 2, 3]
    assert reply.usage.completion_tokens == 16
    echoed = client.completions.create(model="default", prompt="1 2 3", echo=True, max_tokens=1, temperature=0)
    assert echoed.choices[0].text.startswith("1 2 3")


def test_seed_repeats(client):
    a, b = (chat(client, temperature=1.5, top_p=1.0, seed=11, max_tokens=24).choices[0].message.content for _ in range(2))
    assert a == b


def test_stop_string_cuts_text_and_usage(client):
    count = [{"role": "user", "content": "Count from 1 to 9."}]
    whole = chat(client, count, max_tokens=40)
    text = whole.choices[0].message.content
    assert "5" in text, text
    cut = chat(client, count, max_tokens=40, stop=["5"])
    assert cut.choices[0].message.content == text.split("5")[0]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens < whole.usage.completion_tokens


def test_max_tokens_is_length(client):
    reply = chat(client, max_tokens=1)
    assert reply.choices[0].finish_reason == "length" and reply.usage.completion_tokens == 1


def test_prompt_token_ids_round_trip(client, server):
    first = chat(client, extra_body={"return_token_ids": True})
    ids = first.choices[0].message.prompt_token_ids
    assert len(ids) == first.usage.prompt_tokens
    again = client.completions.create(model="default", prompt=ids, temperature=0, max_tokens=8)
    assert again.choices[0].text.strip() == first.choices[0].message.content.strip()


@pytest.mark.parametrize(
    "bad",
    [
        dict(messages=[{"role": "user", "content": "x"}], temperature=-1),
        dict(messages=[{"role": "user", "content": "x"}], top_p=1.5),
        dict(messages=[{"role": "user", "content": "x"}], max_tokens=0),
        dict(messages=[{"role": "user", "content": "x"}], n=0),
        dict(messages=[{"role": "user", "content": "word " * 6000}]),
        dict(messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=1000),
        dict(messages="nonsense"),
        dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
        dict(messages=[{"role": "user", "content": "x"}], extra_body={"guided_json": {"type": "array", "uniqueItems": True}}),
    ],
)
def test_client_mistakes_are_400(client, bad):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="default", **bad)
    assert e.value.body["message"]


def test_64_concurrent_streams(server):
    def one(i):
        a, b = 3 + i, 100 + 7 * i
        text = ""
        for chunk in chat(server.client(), [{"role": "user", "content": f"What is {a} + {b}?"}], stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
        return str(a + b) in text

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        right = list(pool.map(one, range(64)))
    assert sum(right) >= 58, f"{sum(right)} of 64 sums right"


def test_disconnect_frees_the_slot(server):
    body = json.dumps(dict(prompt=[5, 6, 7], max_tokens=1500, stream=True, ignore_eos=True)).encode()
    for _ in range(8):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        assert s.recv(64).startswith(b"HTTP/1.1 200")
        s.close()
    wait_for(lambda: server.metric("fastdeploy:num_requests_running") == 0)  # requests of vanished clients end


def test_reader_that_stops_does_not_hold_others(server):
    body = json.dumps(dict(prompt=[5, 6, 7], max_tokens=1900, stream=True, ignore_eos=True)).encode()
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", server.port))
    s.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    try:
        assert "42" in chat(server.client()).choices[0].message.content
    finally:
        s.close()


def test_models_health_metrics(server, client):
    models = client.models.list().data
    assert models[0].id and json.loads(server.get("/v1/models"))["data"][0]["max_model_len"] == 2048
    assert server.get("/health") == ""
    metrics = server.get("/metrics")
    for name in (
        "fastdeploy:num_requests_running",
        "fastdeploy:time_to_first_token_seconds_bucket",
        "fastdeploy:generation_tokens_total",
        "fastdeploy:gpu_cache_usage_perc",
        "http_requests_total",
    ):
        assert name in metrics, name
