"""Answers from a script (tern serve --scripted) through the parsers of thoughts and tool calls, as clients see them:
whole and streamed, for every parser."""

import json
import subprocess
import urllib.request

import openai
import pytest
from tern_server import MODEL, TERN

TEMPLATE = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }}{{ c.function.arguments }}){% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ begin }}{% endif %}"
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
    for name in ("weather", "clock")
]
ARGS = '{"city": "Köln \\"}{", "days": 3}'


def script(folder, *answers):
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(a) + "\n" for a in answers))
    return path


@pytest.fixture
def scripted(start, tmp_path):
    def launch(answers, *flags, begin=""):
        template = tmp_path / "chat.jinja"
        template.write_text(TEMPLATE.replace("{{ begin }}", begin))
        return start(
            "--scripted", script(tmp_path, *answers), "--chat-template", template, "--max-model-len", 2048, *flags
        ).wait_ready()

    return launch


def say(text):
    return [{"role": "user", "content": text}]


def streamed(client, **kw):
    """What the chunks of a stream join to: (reasoning, content, calls, finish_reason, chunks)."""
    reasoning, content, calls, finish, chunks = "", "", [], None, 0
    for chunk in client.chat.completions.create(model="default", stream=True, **kw):
        for choice in chunk.choices:
            chunks += 1
            delta = choice.delta
            content += delta.content or ""
            reasoning += delta.reasoning_content or ""
            for piece in delta.tool_calls or []:
                if piece.id:
                    assert piece.index == len(calls) and piece.type == "function"
                    calls.append([piece.id, piece.function.name, ""])
                calls[piece.index][2] += piece.function.arguments or ""
            finish = choice.finish_reason or finish
    return reasoning, content, calls, finish, chunks


def whole(client, **kw):
    answer = client.chat.completions.create(model="default", **kw)
    choice = answer.choices[0]
    calls = [[c.id, c.function.name, c.function.arguments] for c in choice.message.tool_calls or []]
    return choice.message.reasoning_content or "", choice.message.content or "", calls, choice.finish_reason, answer.usage


def both(server, text, **kw):
    client = server.client()
    one, two = whole(client, messages=say(text), **kw), streamed(client, messages=say(text), **kw)
    assert one[:2] == two[:2] and one[3] == two[3], (one, two)
    assert [c[1:] for c in one[2]] == [c[1:] for c in two[2]]
    for call in one[2] + two[2]:
        assert call[0]
    return one


CALL = '<tool_call>\n{"name": "weather", "arguments": ' + ARGS + "}\n</tool_call>"
GLM = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
CODER = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
V31 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + ARGS + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + ARGS + "\n```<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>"
)

# reasoning parser, tool-call parser, what the prompt ends with, text, thoughts, content, arguments of the call
PARSERS = [
    ("qwen3", "hermes", "", "<think>\nsum\n</think>\n\n", "sum", CALL, ARGS),
    ("qwen3", "qwen3", "<think>\n", "sum</think>", "sum", CALL, ARGS),
    ("ernie-x1", "ernie-x1", "<think>\n", "sum\n</think>\n\n", "sum", CALL, ARGS),
    ("ernie_x1", "ernie-x1", "<think>\n", "sum\n</think>\n\n", "sum", CALL, ARGS),
    ("ernie-45-vl-thinking", "ernie-45-vl-thinking", "<think>\n", "sum\n</think>\n\n", "sum", CALL, ARGS),
    ("deepseek_r1", "deepseek_v3", "", "sum</think>", "sum", V3, ARGS),
    ("deepseek", "deepseek_v31", "<think>", "sum</think>", "sum", V31, ARGS),
    ("deepseek", "deepseek", "<think>", "sum</think>", "sum", V31, ARGS),
    ("glm45", "glm45", "", "<think>sum</think>\n", "sum", GLM, '{"city": "Köln", "days": 3}'),
    ("qwen3", "qwen3_coder", "", "<think>sum</think>", "sum", CODER, '{"city": "Köln", "days": 3}'),
    ("qwen2_5_vl", "llama3_json", "", "<think>sum</think>", "sum", '{"name": "weather", "parameters": ' + ARGS + "}", ARGS),
    (
        "ernie-45-vl",
        "mistral",
        "<think>",
        "sum</think>",
        "sum",
        '[TOOL_CALLS][{"name": "weather", "arguments": ' + ARGS + "}]",
        ARGS,
    ),
    ("ernie-test", "mistral", "<think>", "sum</think>", "sum", "[TOOL_CALLS]weather[ARGS]" + ARGS, ARGS),
]


@pytest.mark.parametrize("row", PARSERS, ids=lambda r: f"{r[0]}+{r[1]}")
def test_every_parser_whole_and_streamed(scripted, row):
    reasoning, tools, begin, thoughts, shown, call, arguments = row
    wrap = (lambda t: f"<response>\n{t}\n</response>") if "x1" in reasoning else (lambda t: t)
    server = scripted(
        [
            {"match": "call", "text": thoughts + call},
            {"match": "cut", "text": thoughts + call[: call.index("weather") + 12], "stop": "length"},
            {"match": "plain", "text": thoughts + wrap("All is well.")},
            {"match": "open", "text": "sum of all" if begin else thoughts[: thoughts.index("sum") + 3], "stop": "length"},
        ],
        "--reasoning-parser",
        reasoning,
        "--tool-call-parser",
        tools,
        begin=begin,
    )
    got = both(server, "plain", tools=TOOLS)
    assert (got[0].strip(), got[1].strip(), got[2], got[3]) == (shown, "All is well.", [], "stop")
    usage = got[4]
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens
    got = both(server, "call", tools=TOOLS)
    assert (got[0].strip(), got[1].strip(), got[3]) == (shown, "", "tool_calls")
    assert len(got[2]) == 1 and got[2][0][1] == "weather"
    assert json.loads(got[2][0][2]) == json.loads(arguments)
    if "<arg" not in call and "<param" not in call:
        assert got[2][0][2] == arguments, "verbatim"
    assert both(server, "cut", tools=TOOLS)[3] == "length"
    if begin or reasoning in ("deepseek_r1", "qwen3", "glm45"):
        got = both(server, "open")
        assert got[1] == "" and got[0].strip().startswith("sum") and got[3] == "length"
    # Without tools nothing is a call.
    got = both(server, "call")
    assert got[2] == [] and got[3] == "stop"


def test_an_openai_client_uses_tools_in_two_rounds(scripted):
    two = CALL + '\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    server = scripted(
        [{"match": "sunny", "text": "Sunny it is."}, {"match": "weather", "text": "<think>which?</think>Let me look.\n" + two}],
        "--reasoning-parser",
        "qwen3",
        "--tool-call-parser",
        "hermes",
    )
    client = server.client()
    messages = say("weather?")
    first = client.chat.completions.create(model="default", messages=messages, tools=TOOLS)
    message = first.choices[0].message
    assert message.reasoning_content == "which?" and message.content.strip() == "Let me look."
    assert first.choices[0].finish_reason == "tool_calls"
    assert [c.function.name for c in message.tool_calls] == ["weather", "clock"]
    assert message.tool_calls[0].id.startswith("chatcmpl-tool-") and message.tool_calls[0].id != message.tool_calls[1].id
    messages.append(message)
    messages += [{"role": "tool", "tool_call_id": c.id, "content": "sunny"} for c in message.tool_calls]
    second = client.chat.completions.create(model="default", messages=messages, tools=TOOLS)
    assert second.choices[0].message.content == "Sunny it is." and second.choices[0].finish_reason == "stop"

    with client.chat.completions.stream(model="default", messages=say("weather?"), tools=TOOLS) as events:
        done = [e for e in events if e.type == "tool_calls.function.arguments.done"]
        final = events.get_final_completion().choices[0]
    assert [e.name for e in done] == ["weather", "clock"]
    assert [json.loads(c.function.arguments) for c in final.message.tool_calls] == [json.loads(ARGS), {}]
    one = streamed(client, messages=say("weather?"), tools=TOOLS, parallel_tool_calls=False)
    assert [c[1] for c in one[2]] == ["weather"] and one[3] == "tool_calls"


def test_stop_strings_limits_and_fields(scripted):
    server = scripted(
        [{"match": "", "text": "<think>one two</think>three four " + CALL}],
        "--reasoning-parser",
        "qwen3",
        "--tool-call-parser",
        "hermes",
        "--enable-logprob",
    )
    assert both(server, "x", stop=["four"])[:2] == ("one two", "three ")
    assert both(server, "x", stop=["</think>"])[:2] == ("one two", "")
    got = both(server, "x", stop=["<tool_call>"], tools=TOOLS)
    assert got[1].strip() == "three four" and got[2] == [] and got[3] == "stop"
    assert both(server, "x", max_tokens=3)[3] == "length"
    assert both(server, "x", tools=TOOLS, tool_choice="none")[2] == []
    hidden = both(server, "x", extra_body={"include_reasoning": False})
    assert hidden[0] == "" and hidden[4].completion_tokens_details.reasoning_tokens > 0
    client = server.client()
    plain = client.chat.completions.create(
        model="default", messages=say("x"), tools=TOOLS, logprobs=True, extra_body={"return_token_ids": True}
    )
    ids = plain.choices[0].message.completion_token_ids
    assert len(plain.choices[0].logprobs.content) == len(ids) == plain.usage.completion_tokens
    pieces, tokens, raw = [], 0, ""
    for chunk in client.chat.completions.create(
        model="default",
        messages=say("x"),
        tools=TOOLS,
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    ):
        for choice in chunk.choices:
            pieces += choice.delta.completion_token_ids or []
            tokens += len(choice.logprobs.content) if choice.logprobs else 0
            raw += getattr(choice.delta, "raw_prediction", None) or ""
        last = chunk
    assert pieces == ids and tokens == len(ids) and raw == plain.choices[0].message.raw_prediction
    assert last.usage.completion_tokens_details == plain.usage.completion_tokens_details


def test_bad_tools_are_named(scripted):
    server = scripted([{"text": "x"}], "--tool-call-parser", "hermes")
    client = server.client()

    def refused(**kw):
        with pytest.raises(openai.BadRequestError) as error:
            client.chat.completions.create(model="default", messages=say("x"), **kw)
        return error.value.body["param"]

    def tool(**function):
        return [{"type": "function", "function": function}]

    assert refused(tools=[{"type": "function"}]) == "tools[0].function"
    assert refused(tools=TOOLS + [{"type": "function", "function": {}}]) == "tools[2].function.name"
    assert refused(tools=tool(name="")) == "tools[0].function.name"
    assert refused(tools=tool(name="f", parameters=[1])) == "tools[0].function.parameters"
    assert refused(tools=[{"type": "retrieval", "function": {"name": "f"}}]) == "tools[0].type"
    assert refused(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "g"}}) == "tool_choice.function.name"
    assert refused(tool_choice="required") == "tool_choice"


def test_a_scripts_pace_and_misses(scripted):
    server = scripted([{"match": "slow", "text": "a b c d", "token_delay_ms": 30}])
    chunks = streamed(server.client(), messages=say("slow"))[4]
    assert chunks > 4
    with pytest.raises(openai.BadRequestError) as error:
        server.client().chat.completions.create(model="default", messages=say("fast"))
    assert "no line of the script matches" in str(error.value)
    body = json.dumps({"model": "default", "prompt": "slow", "max_tokens": 2}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        assert json.load(reply)["choices"][0]["finish_reason"] == "length"


def test_a_script_has_made_up_masks(scripted):
    server = scripted([{"text": "a b c d"}], "--enable-keep-sampling-mask")
    answer = server.client().chat.completions.create(model="default", messages=say("hi"))
    masks = answer.choices[0].model_extra["sampling_mask"]
    assert len(masks) == answer.usage.completion_tokens and all(masks)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no answers"),
        ('{"text": "a"}\n{"text": }', "answers.jsonl, line 2: "),
        ('{"text": "a", "stop": "eos"}', "answers.jsonl, line 1: "),
    ],
)
def test_a_wrong_script_ends_the_start(tmp_path, text, message):
    path = tmp_path / "answers.jsonl"
    path.write_text(text)
    done = subprocess.run(
        [TERN, "serve", "--model", str(MODEL), "--port", "0", "--scripted", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode != 0
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("tern: --scripted: ") and message in line
