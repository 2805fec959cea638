"""What clients of OpenAI, vLLM and FastDeploy expect around a request, through the real program."""

import http.client
import json
import socket

import openai
import pytest

NAME = "org/demo v1"
PAGE = {"Origin": "https://app.example"}


@pytest.fixture(scope="module")
def page_server(tmp_path_factory, server):
    # A name with a slash, pages of one origin, and every address of localhost.
    s = type(server)(
        tmp_path_factory.mktemp("pages"),
        "--host",
        "localhost",
        "--served-model-name",
        NAME,
        "--allowed-origins",
        '["https://app.example"]',
        "--allow-credentials",
    )
    yield s.wait_ready()
    s.stop()


def ask(s, method, path, body=None, headers=None, host="localhost"):
    c = http.client.HTTPConnection(host, s.port, timeout=60)
    c.request(method, path, None if body is None else json.dumps(body), headers or {})
    reply = c.getresponse()
    return reply, reply.read()


def test_models_are_found_by_name(page_server):
    client = page_server.client()
    assert client.models.list().data[0].id == NAME
    assert client.models.retrieve(NAME).id == NAME
    with pytest.raises(openai.NotFoundError) as e:
        client.models.retrieve("org/other")
    assert e.value.code == "model_not_found" and e.value.param == "model"


def test_request_ids_go_and_come(page_server):
    client = page_server.client()
    mine = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "1 + 1"}], max_tokens=1, extra_headers={"X-Request-Id": "trace-17"}
    )
    assert mine._request_id == "trace-17"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "1 + 1"}])
    assert len(e.value.request_id) == 32
    with client.completions.with_streaming_response.create(
        model=NAME, prompt=[5, 6], max_tokens=1, stream=True, extra_headers={"X-Request-Id": "trace-18"}
    ) as reply:
        assert reply.headers["x-request-id"] == "trace-18"


def test_a_page_of_an_allowed_origin(page_server):
    asked, _ = ask(
        page_server,
        "OPTIONS",
        "/v1/chat/completions",
        headers={**PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"},
    )
    assert asked.status == 200
    assert asked.headers["access-control-allow-origin"] == PAGE["Origin"]
    assert asked.headers["access-control-allow-credentials"] == "true"
    assert asked.headers["access-control-allow-headers"] == "authorization, content-type"
    for path, body, status in (("/v1/completions", {"prompt": [5, 6], "max_tokens": 1}, 200), ("/v1/completions", {}, 400)):
        reply, _ = ask(page_server, "POST", path, body, {**PAGE, "Content-Type": "application/json"})
        assert reply.status == status and reply.headers["access-control-allow-origin"] == PAGE["Origin"]
    other, _ = ask(page_server, "GET", "/v1/models", headers={"Origin": "https://evil.example"})
    assert other.status == 200 and other.headers["access-control-allow-origin"] is None


def test_localhost_is_every_family(page_server):
    families = {info[0] for info in socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)}
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        if family == socket.AF_INET or family in families:
            assert ask(page_server, "GET", "/health", host=host)[0].status == 200


def test_slashes_and_byte_order_marks(page_server):
    reply, _ = ask(page_server, "GET", "/v1/models/?a=1")
    assert reply.status == 307
    assert reply.headers["location"] == f"http://localhost:{page_server.port}/v1/models?a=1"
    c = http.client.HTTPConnection("localhost", page_server.port, timeout=60)
    c.request("POST", "/v1/completions", b"\xef\xbb\xbf" + json.dumps({"prompt": [5, 6], "max_tokens": 1}).encode())
    assert c.getresponse().status == 200


def test_a_page_that_describes_the_routes(page_server):
    described = json.loads(page_server.get("/openapi.json"))["paths"]
    listed = json.loads(page_server.get("/load"))["routes"]
    assert {r["path"] for r in listed} <= set(described)
    for path, item in described.items():
        for method in item:
            reply, body = ask(page_server, method.upper(), path.replace("{model}", "x"), {} if method == "post" else None)
            assert reply.status != 405 and body != b'{"detail":"Not Found"}', (method, path)


def test_continuing_the_last_message(client, server):
    messages = [{"role": "user", "content": "What is 12 + 30?"}, {"role": "assistant", "content": "4"}]
    going_on = {"continue_final_message": True, "add_generation_prompt": False}
    reply, body = ask(
        server, "POST", "/tokenize", {"messages": messages, "return_token_strs": True, **going_on}, host="127.0.0.1"
    )
    assert reply.status == 200
    counted = json.loads(body)
    assert counted["token_strs"][-1].endswith("4") and len(counted["token_strs"]) == counted["count"]
    chat = client.chat.completions.create(model="default", messages=messages, temperature=0, max_tokens=8, extra_body=going_on)
    plain = client.completions.create(model="default", prompt=counted["tokens"], temperature=0, max_tokens=8)
    assert chat.usage.prompt_tokens == counted["count"]
    assert chat.choices[0].message.content.strip() == plain.choices[0].text.strip()
    assert chat.choices[0].message.content.startswith("2"), "42, begun with a 4"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="default", messages=messages, extra_body={"continue_final_message": True})
    assert e.value.param == "continue_final_message"
