"""tests/e2e/test_EB_VL_Lite_serving.py and test_paddleocr_vl_serving.py; the pictures are the shipped model's."""

import base64

import openai
import pytest
from fd_requests import ROOT, content, user

GRAVITY = user("Explain gravity in a way that a five-year-old child can understand.")


def picture(task="OCR:"):
    data = base64.b64encode((ROOT / "models" / "demo.png").read_bytes()).decode()
    return [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data, "detail": "high"}},
                {"type": "text", "text": task},
            ],
        }
    ]


SYSTEM = [{"role": "system", "content": "You are a helpful AI assistant."}]


def chat(client, messages, **more):
    extra = more.pop("extra", None)
    return client.chat.completions.create(model="default", messages=messages, **{"temperature": 1, **more}, extra_body=extra)


def usage_has_details(usage):
    assert usage.completion_tokens >= usage.completion_tokens_details.reasoning_tokens


def test_consistency_between_runs(api):
    """PaddleOCR-VL's case; the text read is the shipped model's own."""
    texts = [content(api.chat_ok(messages=picture(), temperature=0.8, top_p=0, seed=13, max_tokens=400)) for _ in range(2)]
    assert texts[0] == texts[1]
    lines = (ROOT / "models" / "demo.txt").read_text().split("\n")
    assert lines[0] in texts[0]


def test_consistency_between_runs_ernie(api):
    bodies = [api.chat_ok(messages=SYSTEM + picture(), temperature=0.8, top_p=0, seed=13, max_tokens=100) for _ in range(2)]
    assert bodies[0]["choices"] == bodies[1]["choices"]


def test_with_metadata(api):
    api.chat_ok(messages=picture(), metadata={"enable_thinking": True}, max_tokens=10)


def test_non_streaming_chat(client):
    answer = chat(client, SYSTEM + picture(), max_tokens=53)
    assert isinstance(answer.choices[0].message.content, str)
    usage_has_details(answer.usage)


def test_streaming_chat(client):
    turns = [
        *SYSTEM,
        *user("List 3 countries and their capitals."),
        {"role": "assistant", "content": "China(Beijing), France(Paris), Australia(Canberra)."},
        *picture(),
    ]
    pieces = []
    for chunk in chat(
        client,
        turns,
        max_tokens=100,
        stream=True,
        extra={"min_tokens": 3},
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    ):
        usage_has_details(chunk.usage)
        pieces += [choice.delta.content for choice in chunk.choices]
    assert len(pieces) > 2


def test_non_streaming_completion(client):
    answer = client.completions.create(model="default", prompt="Hello world", temperature=1, max_tokens=53)
    assert isinstance(answer.choices[0].text, str)
    usage_has_details(answer.usage)


def test_streaming_completion(client):
    pieces = []
    for chunk in client.completions.create(
        model="default", prompt="Hello world", temperature=1, max_tokens=200, stream=True, stream_options={"include_usage": True}
    ):
        if not chunk.choices:
            usage_has_details(chunk.usage)
        pieces += [choice.text for choice in chunk.choices]
    assert pieces


@pytest.mark.parametrize("asked", [True, False])
def test_non_streaming_chat_with_return_token_ids(client, asked):
    message = chat(client, SYSTEM + picture(), max_tokens=53, extra={"return_token_ids": asked}).choices[0].message
    for ids in (message.prompt_token_ids, message.completion_token_ids):
        assert isinstance(ids, list) if asked else ids is None


@pytest.mark.parametrize("asked", [True, False])
def test_streaming_chat_with_return_token_ids(client, asked):
    deltas = [
        c.choices[0].delta
        for c in chat(client, SYSTEM + picture(), max_tokens=53, stream=True, extra={"return_token_ids": asked})
    ]
    if asked:
        assert isinstance(deltas[0].prompt_token_ids, list) and deltas[0].completion_token_ids is None
        assert all(d.prompt_token_ids is None and isinstance(d.completion_token_ids, list) for d in deltas[1:])
    else:
        assert all(d.prompt_token_ids is None and d.completion_token_ids is None for d in deltas)


@pytest.fixture
def thinker(start, tmp_path):
    """A server whose template opens thoughts unless they are switched off, as that of ERNIE-4.5-VL."""
    template = tmp_path / "thinking.jinja"
    end = "{% if enable_thinking is defined and enable_thinking == false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}" + end)
    server = start("--reasoning-parser", "ernie-45-vl", "--chat-template", template)
    return openai.Client(base_url=server.url + "/v1", api_key="x")


def test_chat_with_thinking(thinker):
    answer = chat(thinker, user("Hello"), max_tokens=10, extra={"chat_template_kwargs": {"enable_thinking": True}})
    assert answer.choices[0].message.reasoning_content
    answer = chat(thinker, user("Hello"), max_tokens=10, extra={"chat_template_kwargs": {"enable_thinking": False}})
    assert not answer.choices[0].message.reasoning_content and "</think>" not in answer.choices[0].message.content
    for limit in (3, 5):
        extra = {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_max_tokens": limit}
        usage = chat(thinker, user("Hello"), max_tokens=60, extra=extra).usage
        assert usage.completion_tokens_details.reasoning_tokens <= limit
        chunks = list(
            chat(thinker, user("Hello"), max_tokens=60, stream=True, stream_options={"include_usage": True}, extra=extra)
        )
        assert chunks[-1].usage.completion_tokens_details.reasoning_tokens <= limit


def test_thinking_logic_flag(thinker):
    # Without a limit of its own thinking ends after four fifths of the answer.
    answer = chat(thinker, user("Hello"), max_tokens=50, extra={"chat_template_kwargs": {"enable_thinking": True}})
    assert answer.usage.completion_tokens_details.reasoning_tokens <= 40
    answer = chat(thinker, user("Hello"), max_tokens=20, extra={"chat_template_kwargs": {"enable_thinking": False}})
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


def test_chat_with_completion_token_ids(api):
    message = api.chat_ok(
        messages=user("Hello"), completion_token_ids=[949], return_token_ids=True, reasoning_max_tokens=20, max_tokens=10
    )["choices"][0]["message"]
    assert message["prompt_token_ids"][-1] == 949


def test_chat_with_reasoning_max_tokens(client):
    # Status 500 in the original; --original-error-status is for what is found after validation, and this is not.
    with pytest.raises(openai.BadRequestError, match="reasoning_max_tokens must be greater than 0"):
        chat(
            client,
            user("Hello"),
            max_tokens=10,
            extra={"completion_token_ids": [189], "return_token_ids": True, "reasoning_max_tokens": -1},
        )


def test_chat_with_response_max_tokens(client):
    with pytest.raises(openai.BadRequestError, match="response_max_tokens must be greater than 0"):
        chat(client, user("Hello"), max_tokens=10, extra={"response_max_tokens": -1})
    answer = chat(
        client, GRAVITY, max_tokens=10, extra={"chat_template_kwargs": {"enable_thinking": False}, "response_max_tokens": 3}
    )
    assert "</think>" not in answer.choices[0].message.content
    assert answer.usage.completion_tokens <= 3


def test_chat_with_response_max_tokens_while_thinking(thinker):
    extra = {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_max_tokens": 5, "response_max_tokens": 6}
    usage = chat(thinker, user("Hello"), max_tokens=100, extra=extra).usage
    reasoning = usage.completion_tokens_details.reasoning_tokens
    assert reasoning <= 5 and usage.completion_tokens <= reasoning + 6 + 8  # the mark is several tokens here


@pytest.mark.skip(reason="a number of cache blocks of a released model on a certain GPU, read from a log of the original")
def test_profile_reset_block_num():
    pass
