"""/v1/responses and /v1/messages behind the clients that speak them: openai, anthropic and openai-agents, over answers
from a script (tern serve --scripted) with thoughts and tool calls."""

import asyncio
import json

import agents
import anthropic
import openai
import pytest
from test_answers import ARGS, scripted  # noqa: F401 (a fixture)

FLAGS = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes")


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ANSWERS = (
    {"match": "sunny", "text": "thinking of clocks</think>" + call("clock", '{"zone": "CET"}')},
    {"match": "noon", "text": "both are known</think>Sunny, and noon."},
    {"match": "plan", "text": "I look\nat it</think>\n\nFirst.\n" + call("weather", ARGS)},
    {"match": "long", "text": "</think>one two three four five six seven eight nine ten", "stop": "length"},
    {"match": "travel", "text": "hm</think>" + call("weather", '{"city": "Rome", "days": 1}')},
    {"match": "", "text": "hm</think>Hello."},
)
FUNCTION = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "strict": False,
}
TOOL = {"name": "weather", "description": "Tells the weather.", "input_schema": FUNCTION["parameters"]}


@pytest.fixture
def server(scripted):  # noqa: F811
    return scripted(ANSWERS, *FLAGS, begin="<think>")


def items(response):
    out = []
    for item in response.output:
        if item.type == "reasoning":
            out.append(("reasoning", item.content[0].text))
        elif item.type == "message":
            out.append(("text", item.content[0].text))
        else:
            out.append(("call", item.name, item.arguments))
    return out


def test_responses_whole_and_streamed(server):
    client = server.client()
    for text in ("plan", "hello", "long"):
        ask = dict(model="default", input=text, tools=[FUNCTION], instructions="Be brief.", store=False)
        whole = client.responses.create(**ask)
        events = list(client.responses.create(stream=True, **ask))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert events[0].type == "response.created"
        streamed = events[-1].response
        assert items(streamed) == items(whole)
        assert streamed.usage == whole.usage and streamed.status == whole.status
        for kind, field in (("response.output_text.delta", "text"), ("response.reasoning_text.delta", "reasoning")):
            joined = "".join(e.delta for e in events if e.type == kind)
            assert joined == "".join(i[1] for i in items(whole) if i[0] == field)
        arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
        assert arguments == "".join(i[2] for i in items(whole) if i[0] == "call")
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"


def test_responses_items(server):
    client = server.client()
    whole = client.responses.create(model="default", input="plan", tools=[FUNCTION])
    assert items(whole) == [("reasoning", "I look\nat it"), ("text", "\n\nFirst.\n"), ("call", "weather", ARGS)]
    assert whole.usage.output_tokens_details.reasoning_tokens > 0
    with client.responses.stream(model="default", input="plan", tools=[FUNCTION]) as stream:
        assert items(stream.get_final_response()) == items(whole)
    # The output goes back as it came, with what the tool said.
    history = [{"role": "user", "content": "plan"}, *[i.model_dump() for i in whole.output]]
    history.append({"type": "function_call_output", "call_id": whole.output[-1].call_id, "output": "noon"})
    answer = client.responses.create(model="default", input=history, tools=[FUNCTION])
    assert answer.output_text == "Sunny, and noon."
    with pytest.raises(openai.BadRequestError, match="keeps no answers"):
        client.responses.create(model="default", input="x", previous_response_id=whole.id)


def test_messages_whole_and_streamed(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    for text in ("plan", "hello", "long"):
        ask = dict(
            model="default", max_tokens=400, system="Be brief.", messages=[{"role": "user", "content": text}], tools=[TOOL]
        )
        whole = client.messages.create(**ask)
        with client.messages.stream(**ask) as stream:
            streamed = stream.get_final_message()
        strip = lambda block: {k: v for k, v in block.model_dump().items() if k != "id"}
        assert [strip(b) for b in streamed.content] == [strip(b) for b in whole.content]
        assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
        assert whole.stop_reason == {"plan": "tool_use", "hello": "end_turn", "long": "max_tokens"}[text]
        if text == "plan":
            kinds = [b.type for b in whole.content]
            assert kinds == ["thinking", "text", "tool_use"]
            assert whole.content[0].thinking == "I look\nat it" and whole.content[2].input == json.loads(ARGS)
            blocks, use = [b.model_dump() for b in whole.content], whole.content[2]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "noon"}]}
    history = [
        {"role": "user", "content": "plan"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [result]},
    ]
    answer = client.messages.create(model="default", max_tokens=400, messages=history, tools=[TOOL])
    assert [b.text for b in answer.content if b.type == "text"] == ["Sunny, and noon."]


def test_messages_count_and_errors(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    ask = dict(model="default", messages=[{"role": "user", "content": "hello"}])
    counted = client.messages.count_tokens(**ask).input_tokens
    answer = client.messages.create(max_tokens=40, **ask)
    assert counted == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(max_tokens=0, **ask)
    assert caught.value.body["error"]["type"] == "invalid_request_error"


def test_key_of_messages(scripted):  # noqa: F811
    server = scripted(ANSWERS, *FLAGS, "--api-key", "sesame", begin="<think>")
    ask = dict(model="default", max_tokens=40, messages=[{"role": "user", "content": "hello"}])
    assert anthropic.Anthropic(base_url=server.url, api_key="sesame").messages.create(**ask).stop_reason == "end_turn"
    with pytest.raises(anthropic.AuthenticationError) as caught:
        anthropic.Anthropic(base_url=server.url, api_key="other", max_retries=0).messages.create(**ask)
    assert caught.value.body["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("streams", (False, True))
def test_openai_agents(server, streams):
    """Two tools, each called in a round of its own, then the answer."""
    agents.set_tracing_disabled(True)
    seen = []

    @agents.function_tool(strict_mode=False)
    def weather(city: str, days: int) -> str:
        """Tells the weather."""
        seen.append(("weather", city, days))
        return "sunny"

    @agents.function_tool(strict_mode=False)
    def clock(zone: str) -> str:
        """Tells the time."""
        seen.append(("clock", zone))
        return "noon"

    async def run():
        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        model = agents.OpenAIResponsesModel(model="default", openai_client=client)
        agent = agents.Agent(name="guide", instructions="Help.", model=model, tools=[weather, clock])
        if not streams:
            return await agents.Runner.run(agent, "I travel")
        result = agents.Runner.run_streamed(agent, "I travel")
        async for _ in result.stream_events():
            pass
        return result

    assert asyncio.run(run()).final_output == "Sunny, and noon."
    assert seen == [("weather", "Rome", 1), ("clock", "CET")]
