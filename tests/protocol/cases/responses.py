"""/v1/responses: items in, items out; a stream is numbered events around the same items."""
from .answers import ARGUMENTS, TAGGED, TOOLS, ids
from .shapes import CHAT_HI, HI, U, case, chat_logprob, error, text_of

PATH = "/v1/responses"
FUNCTION = {"type": "function", "name": "f", "parameters": TOOLS[0]["function"]["parameters"]}


def usage(prompt, completion, reasoning=0):
    return {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": completion, "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": prompt + completion}


def response(output, use, status="completed", **more):
    return {"id": "$id:resp_", "object": "response", "created_at": "$int", "status": status, "model": "default",
            "background": False, "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "previous_response_id": None, "service_tier": "default", "store": False, "truncation": "disabled",
            "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "prompt_cache_key": None,
            "safety_identifier": None, "user": None, "metadata": {}, "parallel_tool_calls": True,
            "reasoning": {"effort": None, "summary": None}, "temperature": 1.0, "text": {"format": {"type": "text"}},
            "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 0.7, "output": output, "usage": use} | more


def text_part(text, logprobs=()):
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def message(text, status="completed", logprobs=()):
    return {"id": "$id:msg_", "status": status, "type": "message", "role": "assistant", "content": [text_part(text, logprobs)]}


def reasoning(text, status="completed"):
    return {"id": "$id:rs_", "status": status, "type": "reasoning", "summary": [],
            "content": [{"type": "reasoning_text", "text": text}]}


def call(arguments, status="completed"):
    return {"id": "$id:fc_", "status": status, "type": "function_call", "call_id": "$id:chatcmpl-tool-", "name": "f",
            "arguments": arguments}


def whole_cases():
    n, text = len(CHAT_HI), text_of(CHAT_HI)
    done = response([message(text)], usage(n, n + 1))
    case("responses", "a text", PATH, {"input": "hi there"}, json=done)
    for name, content in (("a message", "hi there"), ("a message of parts", [{"type": "input_text", "text": "hi there"}])):
        case("responses", name, PATH, {"input": [{"role": "user", "content": content}]}, json=done)
        case("responses", f"{name}, typed", PATH, {"input": [{"type": "message", "role": "user", "content": content}]}, json=done)
    case("responses", "a limit", PATH, {"input": "hi there", "max_output_tokens": 3},
         json=response([message(U + "hi", "incomplete")], usage(n, 3), "incomplete", max_output_tokens=3))
    case("responses", "log-probs", PATH,
         {"input": "hi there", "max_output_tokens": 2, "top_logprobs": 2, "include": ["message.output_text.logprobs"]},
         server={"enable_logprob": True},
         json=response([message(U + "h", "incomplete", [chat_logprob(t, 2, whole=False) for t in CHAT_HI[:2]])], usage(n, 2),
                       "incomplete", max_output_tokens=2, top_logprobs=2))
    length = len(ids(TAGGED))
    case("responses", "a call", PATH, {"input": "x", "prompt_token_ids": ids(TAGGED), "tools": [FUNCTION, {"type": "web_search"}]},
         server={"parsers": ["", "hermes"]}, json=response([call(ARGUMENTS)], usage(length, length + 1), tools=[FUNCTION]))
    said = "why</think>Sure.<think>"
    length = len(ids(said))
    case("responses", "thoughts", PATH, {"input": "x", "prompt_token_ids": ids(said)}, server={"parsers": ["qwen3", ""]},
         json=response([reasoning("why"), message("Sure.<think>")], usage(length, length + 1, 3)))
    # What the template made of the items: instructions and the developer's message are one system message, the turn of
    # the assistant is one message. The echo engine says it again up to the first end token.
    case("responses", "items of a conversation", PATH,
         {"instructions": "hi", "max_output_tokens": 3, "input": [
             {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "there"}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
             {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
             {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
             {"type": "function_call_output", "call_id": "c1", "output": "there"}]},
         json=response(["$any"], "$any", "incomplete", max_output_tokens=3, instructions="hi"))
    codex_case()


def codex_case():
    """What Codex sends: a custom tool and a web search beside its functions, reasoning that it asks for encrypted."""
    shell = {"type": "function", "name": "shell", "description": "Runs a shell command.", "strict": False, "parameters": {
        "type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"],
        "additionalProperties": False}}
    body = {
        "model": "default", "instructions": "hi there",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "there"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": None},
            {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "hi"},
        ],
        "tools": [shell, {"type": "custom", "name": "apply_patch", "description": "Edits files.",
                          "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
                  {"type": "web_search", "external_web_access": False}, {"type": "local_shell"}],
        "tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False, "stream": False, "include": ["reasoning.encrypted_content"], "service_tier": "auto",
        "prompt_cache_key": "0199", "text": {"verbosity": "medium"}, "client_metadata": {"x": "y"}, "max_output_tokens": 2,
    }
    case("responses", "Codex", PATH, body, server={"parsers": ["", "hermes"]},
         json=response(["$any"], "$any", "incomplete", max_output_tokens=2, instructions="hi there", tools=[shell],
                       reasoning={"effort": "medium", "summary": "auto"}, prompt_cache_key="0199",
                       text={"verbosity": "medium", "format": {"type": "text"}}))


class Events:
    """Numbers events as they come."""

    def __init__(self, **shown):
        self.list = []
        self.shown = shown
        for name in ("created", "in_progress"):
            self.add(f"response.{name}", response=response([], None, "in_progress", **shown))

    def add(self, type, /, **fields):
        self.list.append({"type": type, "sequence_number": len(self.list), **fields})

    def block(self, index, item, kind, pieces, logprobs=()):
        place = {"output_index": index, "item_id": item["id"]}
        texted = kind == "output_text"
        call = kind == "function_call_arguments"
        if not call:
            place["content_index"] = 0
        begun = item | {"status": "in_progress"} | ({"arguments": ""} if call else {"content": []})
        self.add("response.output_item.added", output_index=index, item=begun)
        if not call:
            part = text_part("") if texted else {"type": "reasoning_text", "text": ""}
            self.add("response.content_part.added", **place, part=part)
        scores = list(logprobs) or [None] * len(pieces)
        for piece, score in zip(pieces, scores):
            self.add(f"response.{kind}.delta", **place, delta=piece, **({"logprobs": [score] if score else []} if texted else {}))
        if call:
            self.add(f"response.{kind}.done", **place, name=item["name"], arguments=item["arguments"])
        else:
            part = item["content"][0]
            self.add(f"response.{kind}.done", **place, text=part["text"], **({"logprobs": part["logprobs"]} if texted else {}))
            self.add("response.content_part.done", **place, part=part)
        self.add("response.output_item.done", output_index=index, item=item)

    def end(self, output, use, status="completed"):
        self.add(f"response.{status}", response=response(output, use, status, **self.shown))
        return self.list


def stream_cases():
    server = {"parsers": ["qwen3", "hermes"]}
    begin = {"input": "x", "stream": True}
    text = "hm</think>So<think>"
    events = Events()
    items = [reasoning("hm"), message("So<think>")]
    events.block(0, items[0], "reasoning_text", "hm")
    events.block(1, items[1], "output_text", "So<think>")
    case("responses", "stream: thoughts and a text", PATH, begin | {"prompt_token_ids": ids(text)}, server=server,
         events=events.end(items, usage(len(ids(text)), len(ids(text)) + 1, 2)))

    text = 'a</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>.<think>'
    events = Events(tools=[FUNCTION])
    items = [reasoning("a"), call("{}"), message(".<think>")]
    events.block(0, items[0], "reasoning_text", "a")
    events.block(1, items[1], "function_call_arguments", "{}")
    events.block(2, items[2], "output_text", [".", "<th", *"ink>"])  # "<t" may begin another call
    case("responses", "stream: thoughts, a call and a text, and no text of white space between", PATH,
         begin | {"prompt_token_ids": ids(text), "tools": [FUNCTION]}, server=server,
         events=events.end(items, usage(len(ids(text)), len(ids(text)) + 1, 1)))

    events = Events(max_output_tokens=2, top_logprobs=1)
    scores = [chat_logprob(t, 1, whole=False) for t in HI[:2]]
    items = [message("hi", "incomplete", scores)]
    events.block(0, items[0], "output_text", "hi", scores)
    case("responses", "stream: a limit, log-probs", PATH,
         begin | {"prompt_token_ids": HI, "max_output_tokens": 2, "top_logprobs": 1}, server={"enable_logprob": True},
         events=events.end(items, usage(5, 2), "incomplete"))


def error_cases():
    keeps = "this server keeps no answers: send the whole conversation as input"
    for body, param, words in (
        ({}, "input", "Field required"),
        ({"input": []}, "input", "List should have at least 1 item"),
        ({"input": 5}, "input", "Input should be a valid string or list"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id", f"previous_response_id is not available: {keeps}"),
        ({"input": "x", "conversation": "c"}, "conversation", f"conversation is not available: {keeps}"),
        ({"input": "x", "background": True}, "background", f"background is not available: {keeps}"),
        ({"input": "x", "store": True}, "store", "store cannot be kept: this server stores no answers"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt", "prompt names a stored template, and this server stores none"),
        ({"input": "x", "truncation": "auto"}, "truncation", "truncation can only be 'disabled': prompts are never cut"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "Input should be greater than or equal to 1"),
        ({"input": "x", "include": ["all"]}, "include", "include: all is not known"),
        ({"input": "x", "n": 2}, "n", "n can only be 1: a response is one answer"),
        ({"input": ["x"]}, "input[0]", "Input should be a valid dictionary"),
        ({"input": [{"role": "user"}]}, "input[0].content", "Field required"),
        ({"input": [{"content": "x"}]}, "input[0].role", "Field required"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role",
         "Input should be 'user', 'assistant', 'system' or 'developer'"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0].type",
         "a content part of type input_file cannot be used here"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0].image_url",
         "input_image needs image_url: this server keeps no files"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type",
         "item_reference names what a server has kept, and this one keeps nothing: send the item itself"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0].type", "an item of type web_search_call cannot be used here"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments", "Field required"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name", "Field required"),
        ({"input": "x", "tools": [{"name": "f"}]}, "tools[0].type", "Field required"),
        ({"input": "x", "tools": [FUNCTION | {"parameters": []}]}, "tools[0].parameters", "Input should be a valid dictionary"),
        ({"input": "x", "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name",
         "tool_choice names a tool that is not among tools: g"),
        ({"input": "x", "tools": [FUNCTION], "tool_choice": {"type": "mcp"}}, "tool_choice",
         "tool_choice: only functions can be chosen, not mcp"),
        ({"input": "x", "tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
         "tool_choice.tools", "tool_choice allows none of the tools"),
        ({"input": "x", "text": {"format": "json"}}, "text.format", "Input should be a valid dictionary"),
    ):
        case("responses", f"fault: {param}", PATH, body, 400, json=error(words, param))
