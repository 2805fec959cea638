"""Guided decoding, forced and strict tool calls, limits of thoughts: over HTTP, whole and streamed, with the shipped model."""

import concurrent.futures
import json
import re
import threading

import jsonschema
import openai
import pydantic
import pytest
from test_answers import say, streamed, whole

ORDER = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "maxLength": 12},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["new", "sale"]}, "maxItems": 3},
        "paid": {"type": "boolean"},
    },
    "required": ["item", "count", "tags", "paid"],
}
TOOLS = [
    {"type": "function", "function": {"name": "order", "parameters": ORDER}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}},
]
TIGHT = "--guided-decoding-disable-any-whitespace"  # the model likes white space
LONG = {"max_tokens": 800, "temperature": 1.0}


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


def both(client, **kw):
    """The whole answer, which the stream must equal: (reasoning, content, calls, finish_reason, usage)."""
    one, two = whole(client, **kw), streamed(client, **kw)
    unnamed = [[call[1:] for call in answer[2]] for answer in (one, two)]  # ids differ
    assert one[:2] == two[:2] and unnamed[0] == unnamed[1] and one[3] == two[3]
    return one


def fault(client, **kw):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="default", messages=say("x"), max_tokens=4, **kw)
    return e.value.body["message"]


@pytest.mark.parametrize("seed", range(4))
def test_schema(client, seed):
    _, content, _, finish, _ = both(client, messages=say("order"), response_format=schema_format(ORDER), seed=seed, **LONG)
    assert finish == "stop"
    jsonschema.validate(json.loads(content), ORDER)


def test_parse_with_pydantic(client):
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=10)
        age: int = pydantic.Field(ge=0, le=120)

    answer = client.chat.completions.parse(model="default", messages=say("who"), response_format=Person, **LONG)
    assert isinstance(answer.choices[0].message.parsed, Person)
    with client.chat.completions.stream(model="default", messages=say("who"), response_format=Person, **LONG) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)


@pytest.mark.parametrize(
    "extra, pattern",
    [
        ({"guided_regex": "[A-C]{3}-[0-9]{2}"}, "[A-C]{3}-[0-9]{2}"),
        ({"guided_choice": ["yes", "no", "perhaps"]}, "yes|no|perhaps"),
        ({"guided_grammar": 'root ::= "a" ("b" | "c")+ "."\n'}, r"a[bc]+\."),
        ({"structured_outputs": {"regex": "x{1,4}y"}}, "x{1,4}y"),
        ({"structured_outputs": {"choice": ["One", "Two"]}}, "One|Two"),
        ({"guided_json": {"type": "integer", "minimum": 10, "maximum": 12}}, "1[0-2]"),
    ],
)
def test_other_forms(client, extra, pattern):
    for seed in range(3):
        content = both(client, messages=say("x"), extra_body=extra, seed=seed, **LONG)[1]
        assert re.fullmatch(pattern, content), content
    done = client.completions.create(model="default", prompt="ab", n=2, extra_body=extra, **LONG)
    assert all(re.fullmatch(pattern, choice.text) for choice in done.choices), done.choices


def test_json_object(client):
    content = both(client, messages=say("x"), response_format={"type": "json_object"}, max_tokens=60, seed=1)[1]
    assert content.startswith("{")
    for field in ({"guided_json_object": True}, {"structured_outputs": {"json_object": True}}):
        content = whole(client, messages=say("x"), max_tokens=30, extra_body=field)[1]
        assert content.startswith("{")


def test_structural_tag(client):
    tag = {
        "type": "structural_tag",
        "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}],
        "triggers": ["<n>"],
    }
    content = whole(client, messages=say("x"), response_format=tag, max_tokens=40, temperature=1.0)[1]
    assert re.fullmatch(r"(?s)((?!<n>).|<n>-?[0-9]+</n>)*(<n>?-?[0-9]*(</?n?)?)?", content), content


def test_mixed_rows_do_not_disturb_one_another(client):
    plain = whole(client, messages=say("Who are you?"), max_tokens=40, temperature=0)[1]
    guided = whole(client, messages=say("order"), response_format=schema_format(ORDER), seed=7, **LONG)[1]

    def ask(number):
        if number % 2:
            return whole(client, messages=say("Who are you?"), max_tokens=40, temperature=0)[1] == plain
        return whole(client, messages=say("order"), response_format=schema_format(ORDER), seed=7, **LONG)[1] == guided

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(48)))


@pytest.mark.parametrize(
    "extra, parts",
    [
        ({"guided_json": {"properties": {"a": {"uniqueItems": True}}}}, ["guided_json", "uniqueItems", "/properties/a"]),
        ({"guided_regex": "(a"}, ["guided_regex"]),
        ({"guided_regex": "(?=a)b"}, ["guided_regex"]),
        ({"guided_grammar": "root ::= nothing"}, ["guided_grammar"]),
        ({"guided_json": "{"}, ["guided_json", "JSON"]),
        ({"structured_outputs": {}}, ["structured_outputs"]),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, ["structured_outputs"]),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, ["response_format", "guided_regex"]),
        ({"guided_regex": "a", "ignore_eos": True}, ["ignore_eos"]),
        ({"guided_json": {"$ref": "http://127.0.0.1/x"}}, ["guided_json", "$ref"]),
    ],
)
def test_what_cannot_be_enforced_is_refused(client, extra, parts):
    message = fault(client, extra_body=extra)
    assert all(part in message for part in parts), message


HOSTILE = [
    {"guided_regex": "(a+)+b"},
    {"guided_regex": "(.{1,1000}){1,1000}"},
    {"guided_regex": "(" * 5000 + ")" * 5000},
    {"guided_json": {"enum": [f"v{i}" for i in range(100_000)]}},
    {"guided_json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}},
    {
        "guided_json": {
            "allOf": [{"oneOf": [{"properties": {f"k{i}{j}": {"type": "string"}}} for j in range(20)]} for i in range(20)]
        }
    },
    {
        "guided_grammar": "start: "
        + " ".join(f"a{i}?" for i in range(300))
        + "\n"
        + "\n".join(f'a{i}: "x" a{(i + 1) % 300}?' for i in range(300))
    },
]


def test_hostile_texts_hold_nobody_up(server):
    client = server.client()
    expected = whole(client, messages=say("Who are you?"), max_tokens=30, temperature=0)[1]
    done = threading.Event()
    answers = []

    def others():
        while not done.is_set():
            answers.append(whole(client, messages=say("Who are you?"), max_tokens=30, temperature=0)[1])

    def send(extra):
        try:
            return whole(client, messages=say("x"), max_tokens=8, extra_body=extra)[3]
        except openai.APIStatusError as e:
            return e.status_code

    other = threading.Thread(target=others)
    other.start()
    with concurrent.futures.ThreadPoolExecutor(len(HOSTILE)) as pool:
        ends = list(pool.map(send, HOSTILE))
    done.set()
    other.join()
    assert all(end in (400, "stop", "length") for end in ends), ends
    assert answers and set(answers) == {expected}


def test_off(start):
    client = start("--guided-decoding-backend", "off", "--max-model-len", 512).wait_ready().client()
    words = "guided_backend is None, use --guided-decoding-backend to specify the backend at server startup"
    assert fault(client, response_format={"type": "json_object"}) == words
    assert fault(client, extra_body={"guided_regex": "a"}) == words


def test_white_space_and_additional_properties(start):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]}
    tight = start(TIGHT, "--max-model-len", 512).wait_ready().client()
    for seed in range(4):
        content = whole(tight, messages=say("x"), response_format=schema_format(schema), seed=seed, **LONG)[1]
        assert re.fullmatch(r'\{"a":[0-9]\}', content), content
    opened = start("--max-model-len", 512, env={"FD_GUIDANCE_DISABLE_ADDITIONAL": "0"}).wait_ready().client()
    contents = [
        whole(opened, messages=say("x"), response_format=schema_format(schema), seed=seed, max_tokens=200, temperature=2.0)[1]
        for seed in range(12)
    ]
    assert any(re.match(r'\{\s*"a"\s*:\s*[0-9]\s*,', content) for content in contents), contents


@pytest.fixture
def caller(start):
    def launch(*flags):
        return start("--tool-call-parser", "hermes", "--max-model-len", 1024, TIGHT, *flags).wait_ready().client()

    return launch


def test_forced_calls(caller):
    client = caller()
    for seed in range(4):
        _, content, calls, finish, _ = both(client, messages=say("x"), tools=TOOLS, tool_choice="required", seed=seed, **LONG)
        assert content == "" and calls
        if finish == "tool_calls":
            for _, name, arguments in calls:
                jsonschema.validate(json.loads(arguments), TOOLS[["order", "stop"].index(name)]["function"]["parameters"])
        else:
            assert finish == "length"
        named = {"type": "function", "function": {"name": "order"}}
        _, content, calls, finish, _ = both(client, messages=say("x"), tools=TOOLS, tool_choice=named, seed=seed, **LONG)
        assert content == "" and finish == "tool_calls" and [c[1] for c in calls] == ["order"]
        jsonschema.validate(json.loads(calls[0][2]), ORDER)
        one = both(client, messages=say("x"), tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed, **LONG)
        assert len(one[2]) == 1 and one[3] == "tool_calls"
    assert "tool_choice" in fault(client, tool_choice="required")
    assert "guided_regex" in fault(client, tools=TOOLS, tool_choice="required", extra_body={"guided_regex": "a"})


def test_tools_beside_a_response_format(caller):
    client = caller()
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    for seed in range(6):
        _, content, calls, finish, _ = both(
            client, messages=say("x"), tools=TOOLS, response_format=schema_format(schema), seed=seed, **LONG
        )
        if calls:
            assert content == "" and finish in ("tool_calls", "length")
        else:
            jsonschema.validate(json.loads(content), schema)


def test_fields_of_structured_outputs_hold_beside_tools(start):
    client = start("--tool-call-parser", "hermes", "--max-model-len", 1024).wait_ready().client()
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"enum": [3]}}, "required": ["a", "b"]}
    outputs = {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}
    seen = [
        whole(client, messages=say("x"), tools=TOOLS, extra_body=outputs, seed=seed, max_tokens=80, temperature=1.0)[1]
        for seed in range(8)
    ]
    assert any(seen) and all(re.fullmatch(r'\{"a":[12],"b":3\}', content) for content in seen if content), seen


def test_strict_schemas_are_checked(caller):
    strict = {
        "name": "f",
        "strict": True,
        "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
    }
    message = fault(caller(), tools=[{"type": "function", "function": strict}], tool_choice="required")
    assert "uniqueItems" in message and "tool f" in message


THINKING = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"


def test_limits_of_thoughts(start, tmp_path):
    template = tmp_path / "thinking.jinja"
    template.write_text(THINKING)
    client = (
        start("--reasoning-parser", "deepseek_r1", "--chat-template", template, "--max-model-len", 1024, TIGHT,
              "--logits-processors", "ThinkingBudgetLogitsProcessor").wait_ready().client()
    )  # fmt: skip
    for limit in (1, 7, 30):
        extra = {"reasoning_max_tokens": limit, "response_max_tokens": 9}
        reasoning, content, _, finish, usage = both(
            client, messages=say("x"), extra_body=extra, max_tokens=200, seed=3, temperature=1.0
        )
        assert usage.completion_tokens_details.reasoning_tokens <= limit
        assert finish in ("stop", "length") and "</think>" not in reasoning + content
        assert usage.completion_tokens <= limit + 9 + 8  # the mark is several tokens of this vocabulary
        extra = {"reasoning_max_tokens": limit}
        _, content, _, finish, _ = both(
            client, messages=say("x"), extra_body=extra, response_format=schema_format(ORDER), seed=limit, **LONG
        )
        jsonschema.validate(json.loads(content), ORDER)
    extra = {"logits_processors_args": {"thinking_budget": 20, "think_stop_sentence": "Enough."}}
    reasoning, content, *_ = both(client, messages=say("x"), extra_body=extra, max_tokens=60, seed=1, temperature=1.0)
    assert reasoning.endswith("Enough."), reasoning
