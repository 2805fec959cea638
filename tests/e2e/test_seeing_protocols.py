"""Pictures through /v1/responses and /v1/messages, with the clients that speak them: what a chat says of the same picture,
and each protocol's own errors."""

import base64
import json

import anthropic
import openai
import pytest
from test_pictures import BROKEN, PICTURES, closed, data_url, model, picture, png, seeing, text, web  # noqa: F401 (fixtures)

ONE = PICTURES[0].read_bytes()
EXTRA = {"ignore_eos": True, "temperature": 0}  # which not every client has a word for


@pytest.fixture
def claude(seeing):  # noqa: F811
    return anthropic.Anthropic(base_url=seeing.url, api_key="none", max_retries=0)


def chat(client, *parts):
    return client.chat.completions.create(
        model="default", temperature=0, max_tokens=6, messages=[{"role": "user", "content": list(parts)}], extra_body=EXTRA
    )


def item(*parts, role="user"):
    return {"type": "message", "role": role, "content": list(parts)}


def seen(url, **more):
    return {"type": "input_image", "image_url": url, **more}


def words(text):
    return {"type": "input_text", "text": text}


def respond(client, *parts, **more):
    ask = dict(model="default", temperature=0, max_output_tokens=6, input=[item(*parts)], extra_body=EXTRA)
    return client.responses.create(**(ask | more))


def block(data, mime="image/png"):
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": base64.b64encode(data).decode()}}


def block_of(url):
    return {"type": "image", "source": {"type": "url", "url": url}}


def message(client, *blocks, **more):
    ask = dict(model="default", max_tokens=6, messages=[{"role": "user", "content": list(blocks)}], extra_body=EXTRA)
    return client.messages.create(**(ask | more))


def test_responses_see_what_a_chat_sees(seeing, web):  # noqa: F811
    client = seeing.client()
    want = chat(client, picture(data_url(ONE)), text("OCR:"))
    for url in (data_url(ONE), f"{web.url}/one.png", f"file://{seeing.folder}/files/a b.png"):
        whole = respond(client, seen(url, detail="auto"), words("OCR:"))
        assert whole.output_text == want.choices[0].message.content, url
        assert whole.usage.input_tokens == want.usage.prompt_tokens
        events = list(respond(client, seen(url), words("OCR:"), stream=True))
        assert events[-1].type == "response.incomplete"
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    other = respond(client, seen(data_url(png(280, 140))), words("OCR:"))
    assert other.usage.input_tokens != want.usage.prompt_tokens
    two = respond(client, seen(data_url(ONE)), seen(data_url(png(280, 140))), words("OCR:"))
    pictures = want.usage.prompt_tokens + other.usage.input_tokens
    assert two.usage.input_tokens == pictures - respond(client, words("OCR:")).usage.input_tokens


def test_messages_see_what_a_chat_sees(seeing, claude, web):  # noqa: F811
    want = chat(seeing.client(), picture(data_url(ONE)), text("OCR:"))
    for part in (block(ONE), block_of(f"{web.url}/one.png"), block_of(data_url(ONE))):
        ask = dict(model="default", messages=[{"role": "user", "content": [part, text("OCR:")]}], extra_body=EXTRA, max_tokens=6)
        whole = claude.messages.create(**ask)
        used = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
        assert whole.content[0].text == want.choices[0].message.content
        assert used == want.usage.prompt_tokens
        with claude.messages.stream(**ask) as stream:
            assert stream.get_final_message().content[0].text == whole.content[0].text
        counted = claude.messages.count_tokens(model="default", messages=ask["messages"])
        assert counted.input_tokens == used


def test_the_same_picture_in_three_protocols_is_encoded_once(seeing, claude):  # noqa: F811
    data, client = png(168, 196, 77), seeing.client()
    before = seeing.metric("tern:vision_tower_items_total")
    answers = {
        chat(client, picture(data_url(data)), text("x")).choices[0].message.content,
        respond(client, seen(data_url(data)), words("x")).output_text,
        message(claude, block(data), text("x")).content[0].text,
    }
    assert len(answers) == 1
    assert seeing.metric("tern:vision_tower_items_total") == before + 1


def test_a_tool_shows_a_picture(seeing, claude):  # noqa: F811
    """A result of a tool may hold one, in either protocol. The template of this model says nothing of tools: what counts is
    that the picture is prepared, and that a broken one is a fault of its place."""
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    history = [item(words("look")), call]
    result = {"type": "function_call_output", "call_id": "c1", "output": [seen(data_url(BROKEN["text"]))]}
    with pytest.raises(openai.BadRequestError) as e:
        seeing.client().responses.create(model="default", input=[*history, result], max_output_tokens=2)
    assert e.value.param == "input[2].output[0]"
    blocks = [{"type": "tool_result", "tool_use_id": "c1", "content": [text("here"), block(BROKEN["text"])]}]
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    with pytest.raises(anthropic.BadRequestError) as e:
        claude.messages.create(
            model="default",
            max_tokens=2,
            messages=[
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": blocks},
            ],
        )
    assert e.value.body["error"]["message"].startswith("messages[2].content[0].content[1]: ")


@pytest.mark.parametrize("name", BROKEN)
def test_broken_pictures(seeing, claude, name):  # noqa: F811
    """400 in each protocol's form, with the picture's place in the client's own words."""
    data = BROKEN[name]
    with pytest.raises(openai.BadRequestError) as e:
        respond(seeing.client(), words("x"), seen(data_url(ONE)), seen(data_url(data)))
    assert e.value.param == "input[0].content[2]" and e.value.code == "invalid_value" and e.value.body["message"]
    with pytest.raises(openai.BadRequestError):
        respond(seeing.client(), seen(data_url(data)), stream=True)
    with pytest.raises(anthropic.BadRequestError) as e:
        message(claude, text("x"), block(ONE), block(data))
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error"
    assert e.value.body["error"]["message"].startswith("messages[0].content[2]: ")
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.count_tokens(model="default", messages=[{"role": "user", "content": [block(data)]}])


@pytest.mark.parametrize(
    "url", ["data:image/png;base64,%%%", "ftp://example.org/a.png", "http://", "nonsense", "file:///etc/passwd"]
)
def test_addresses_that_are_none(seeing, claude, url):  # noqa: F811
    with pytest.raises(openai.BadRequestError) as e:
        respond(seeing.client(), seen(url))
    assert e.value.param == "input[0].content[0]"
    with pytest.raises(anthropic.BadRequestError) as e:
        message(claude, block_of(url))
    assert e.value.body["error"]["message"].startswith("messages[0].content[0]: ")


def test_private_addresses_and_too_many_pictures(closed, web):  # noqa: F811
    before = len(web.seen)
    claude = anthropic.Anthropic(base_url=closed.url, api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError):
        respond(closed.client(), seen(f"{web.url}/one.png"))
    with pytest.raises(anthropic.BadRequestError):
        message(claude, block_of(f"{web.url}/one.png"))
    assert len(web.seen) == before, "somebody was asked"
    with pytest.raises(openai.BadRequestError, match="limit is 1"):
        respond(closed.client(), seen(data_url(ONE)), seen(data_url(ONE)))
    with pytest.raises(anthropic.BadRequestError, match="limit is 1"):
        message(claude, block(ONE), block(ONE))


def test_a_model_of_text_says_so(start, seeing):  # noqa: F811
    server = start("--deploy-modality", "text").wait_ready()
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError) as e:
        respond(server.client(), seen(data_url(ONE)))
    told = json.dumps(e.value.body)
    with pytest.raises(anthropic.BadRequestError) as e:
        message(claude, block(ONE))
    assert "image" in told and "image" in e.value.body["error"]["message"]
