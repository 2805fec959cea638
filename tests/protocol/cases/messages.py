"""/v1/messages: blocks in, blocks out, errors in a form of their own."""
from .answers import ARGUMENTS, TAGGED, TOOLS, ids
from .shapes import CHAT_HI, HI, U, case, text_of

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
TOOL = {"name": "f", "input_schema": TOOLS[0]["function"]["parameters"]}
ASK = {"messages": [{"role": "user", "content": "hi there"}], "max_tokens": 64}


def usage(prompt, completion):
    return {"input_tokens": prompt, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": completion}


def message(content, use, stop="end_turn", sequence=None):
    return {"id": "$id:msg_", "type": "message", "role": "assistant", "model": "default", "content": content,
            "stop_reason": stop, "stop_sequence": sequence, "usage": use}


def text(words):
    return {"type": "text", "text": words}


def thinking(words):
    return {"type": "thinking", "thinking": words, "signature": ""}


def use_of(tool_input):
    return {"type": "tool_use", "id": "$id:chatcmpl-tool-", "name": "f", "input": tool_input}


def whole_cases():
    n, said = len(CHAT_HI), text_of(CHAT_HI)
    done = message([text(said)], usage(n, n + 1))
    case("messages", "a text", PATH, ASK, json=done)
    case("messages", "a text block", PATH, ASK | {"messages": [{"role": "user", "content": [text("hi there")]}]}, json=done)
    case("messages", "a limit", PATH, ASK | {"max_tokens": 3}, json=message([text(U + "hi")], usage(n, 3), "max_tokens"))
    case("messages", "a stop sequence", PATH, ASK | {"stop_sequences": ["x", " t"]},
         json=message([text(U + "hi")], usage(n, 4), "stop_sequence", " t"))
    length = len(ids(TAGGED))
    case("messages", "a call", PATH, ASK | {"prompt_token_ids": ids(TAGGED), "max_tokens": 200,
                                            "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]},
         server={"parsers": ["", "hermes"]},
         json=message([use_of({"city": "Rom", "days": 3})], usage(length, length + 1), "tool_use"))
    cut = length - len(ids(TAGGED.partition("Rom")[2]))
    case("messages", "a call that a limit cuts", PATH, ASK | {"prompt_token_ids": ids(TAGGED), "max_tokens": cut, "tools": [TOOL]},
         server={"parsers": ["", "hermes"]},
         json=message([use_of({"arguments": ARGUMENTS.partition("Rom")[0] + "Rom"})], usage(length, cut), "max_tokens"))
    words = "why</think>Sure.<think>"
    length = len(ids(words))
    case("messages", "thoughts", PATH, ASK | {"prompt_token_ids": ids(words)}, server={"parsers": ["qwen3", ""]},
         json=message([thinking("why"), text("Sure.<think>")], usage(length, length + 1)))
    history = [
        {"role": "user", "content": [text("hi"), text("there")]},
        {"role": "assistant", "content": [thinking("hm"), text("hi"), {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [text("there")]}, text("hi")]},
    ]
    case("messages", "blocks of a conversation", PATH,
         ASK | {"system": [text("hi"), text("there") | {"cache_control": {"type": "ephemeral"}}], "messages": history, "max_tokens": 2},
         json=message(["$any"], "$any", "max_tokens"))
    case("messages", "an answer that goes on", PATH,
         {"messages": [*ASK["messages"], {"role": "assistant", "content": "hi"}], "max_tokens": 2},
         json=message([text(U + "h")], "$any", "max_tokens"))
    case("messages", "count", COUNT, {"messages": ASK["messages"]}, json={"input_tokens": n})
    case("messages", "count: a longer text has more", COUNT, {"messages": ASK["messages"], "system": "hi"}, json={"input_tokens": "$int"})


def stream(begin, blocks, use, stop, sequence=None):
    events = [{"type": "message_start", "message": message([], begin, None)}]
    for i, (block, kind, key, pieces) in enumerate(blocks):
        empty = block | ({"input": {}} if kind == "input_json_delta" else {key: ""})
        events.append({"type": "content_block_start", "index": i, "content_block": empty})
        events += [{"type": "content_block_delta", "index": i, "delta": {"type": kind, key: p}} for p in pieces]
        events.append({"type": "content_block_stop", "index": i})
    return [*events, {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": sequence}, "usage": use},
            {"type": "message_stop"}]


def stream_cases():
    server = {"parsers": ["qwen3", "hermes"]}
    begin = ASK | {"stream": True, "max_tokens": 200}
    words = "hm</think>So<think>"
    n = len(ids(words))
    case("messages", "stream: thoughts and a text", PATH, begin | {"prompt_token_ids": ids(words)}, server=server,
         events=stream(usage(n, 1), [(thinking(""), "thinking_delta", "thinking", "hm"), (text(""), "text_delta", "text", "So<think>")],
                       usage(n, n + 1), "end_turn"))
    words = 'a</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>.<think>'
    n = len(ids(words))
    case("messages", "stream: thoughts and a call", PATH, begin | {"prompt_token_ids": ids(words), "tools": [TOOL]}, server=server,
         events=stream(usage(n, 1), [(thinking(""), "thinking_delta", "thinking", "a"),
                                     (use_of({}), "input_json_delta", "partial_json", "{}"),
                                     (text(""), "text_delta", "text", [".", "<th", *"ink>"])], usage(n, n + 1), "tool_use"))
    case("messages", "stream: a limit", PATH, begin | {"prompt_token_ids": HI, "max_tokens": 2},
         events=stream(usage(5, 1), [(text(""), "text_delta", "text", "hi")], usage(5, 2), "max_tokens"))


def fault(words, kind="invalid_request_error"):
    return {"type": "error", "error": {"type": kind, "message": words}}


def error_cases():
    one = ASK["messages"]

    def said(*content, role="user"):
        return {"messages": [{"role": role, "content": list(content)}], "max_tokens": 4}

    for body, words in (
        ({"max_tokens": 4}, "messages: Field required"),
        ({"messages": one}, "max_tokens: Field required"),
        ({"messages": [], "max_tokens": 4}, "messages: at least one message is required"),
        ({"messages": one, "max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        ({"messages": one, "max_tokens": 4, "temperature": "hot"}, "temperature: Input should be a valid number, unable to parse string as a number"),
        ({"messages": [{"role": "system", "content": "x"}], "max_tokens": 4}, "messages[0].role: Input should be 'user' or 'assistant'"),
        ({"messages": [{"role": "user"}], "max_tokens": 4}, "messages[0].content: Field required"),
        (said({"type": "text"}), "messages[0].content[0].text: Field required"),
        (said({"type": "document"}), "messages[0].content[0]: a block of type document cannot be used here"),
        (said({"type": "redacted_thinking", "data": "x"}, role="assistant"),
         "messages[0].content[0]: a block of type redacted_thinking cannot be used here"),
        (said({"type": "image"}), "messages[0].content[0].source: Field required"),
        (said({"type": "image", "source": {"type": "file", "file_id": "f"}}),
         "messages[0].content[0].source.type: Input should be 'base64' or 'url'"),
        (said({"type": "tool_result", "content": "x"}), "messages[0].content[0].tool_use_id: Field required"),
        (said({"type": "tool_use", "id": "t", "name": "f", "input": []}, role="assistant"),
         "messages[0].content[0].input: Input should be a valid dictionary"),
        (said({"type": "tool_use", "id": "t", "name": "f", "input": {}}, role="assistant"),
         "messages: the last tool_use has no tool_result behind it"),
        (ASK | {"system": [{"type": "image"}]}, "system[0]: a block of type image cannot be used here"),
        (ASK | {"tools": [{"name": "f"}]}, "tools[0].input_schema: Input should be a valid dictionary"),
        (ASK | {"tools": [{"input_schema": {}}]}, "tools[0].name: Field required"),
        (ASK | {"tools": [TOOL], "tool_choice": {"type": "any of them"}},
         "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'"),
        (ASK | {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
         "tool_choice.name: tool_choice names a tool that is not among tools: g"),
        (ASK | {"thinking": {"type": "enabled"}}, "thinking.budget_tokens: Field required"),
        (ASK | {"thinking": {"type": "deep"}}, "thinking.type: Input should be 'enabled', 'disabled' or 'adaptive'"),
        (ASK | {"output_config": {"format": {"type": "text"}}}, "output_config.format.type: Input should be 'json_schema'"),
        (ASK | {"stop_sequences": "x"}, "stop_sequences: Input should be a valid list"),
        (ASK | {"n": 2}, "n can only be 1: a message is one answer"),
    ):
        case("messages", f"fault: {words.split(':')[0]}", PATH, body, 400, json=fault(words))
    case("messages", "fault: no JSON", PATH, None, 400, json=fault("$string"), raw="{")
    case("messages", "fault of a count", COUNT, {}, 400, json=fault("messages: Field required"))
    case("messages", "wrong method", PATH, None, 405, method="GET", json=fault("Method Not Allowed"))
