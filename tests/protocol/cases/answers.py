"""Answers through parsers of thoughts and calls. The prompt is a list of ids, one a character, which the echo engine says
again: so an answer's tokens, its counts and the pieces of a stream are known here."""
from .shapes import BYTES_OF, case, chat, chat_choice, chunk, first, middle, usage, v

BACK = {b: c for c, b in BYTES_OF.items()}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]
ARGUMENTS = '{"city": "Rom", "days": 3}'
OBJECT = '{"name": "f", "arguments": ' + ARGUMENTS + "}"
TAGGED = f"<tool_call>\n{OBJECT}\n</tool_call>"
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
DEEPSEEK_END = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
GLM = ("<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Rom</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>")
CODER = ("<tool_call>\n<function=f>\n<parameter=city>\nRom\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
         "</function>\n</tool_call>")
CALLS = {
    "hermes": TAGGED,
    "qwen3": TAGGED,
    "ernie-x1": TAGGED,
    "ernie-45-vl-thinking": TAGGED,
    "deepseek_v3": DEEPSEEK + "function<｜tool▁sep｜>f\n```json\n" + ARGUMENTS + "\n```" + DEEPSEEK_END,
    "deepseek_v31": DEEPSEEK + "f<｜tool▁sep｜>" + ARGUMENTS + DEEPSEEK_END,
    "glm45": GLM,
    "qwen3_coder": CODER,
    "llama3_json": OBJECT.replace("arguments", "parameters"),
    "mistral": f"[TOOL_CALLS][{OBJECT}]",
}
THOUGHTS = ["ernie-45-vl", "ernie-x1", "ernie-45-vl-thinking", "qwen3", "qwen2_5_vl", "deepseek", "deepseek_r1", "glm45"]


def ids(text):
    return [v(BACK[b]) for b in text.encode()]


def counts(tokens, reasoning):
    use = usage(tokens, tokens + 1)
    use["completion_tokens_details"]["reasoning_tokens"] = reasoning
    return use


def calls(of, id):
    return [{"id": id, "type": "function", "function": {"name": "f", "arguments": of}}]


def answer_cases():
    for tools, call in CALLS.items():
        n = len(ids(call))
        choice = chat_choice(None, "tool_calls")
        choice["message"]["tool_calls"] = calls(ARGUMENTS, "$string" if tools == "mistral" else "$id:chatcmpl-tool-")
        case("answers", f"{tools}: a call", server={"parsers": ["", tools]}, body={"messages": ids(call), "tools": TOOLS},
             json=chat([choice], counts(n, 0)))
        case("answers", f"{tools}: a call that a limit cuts has no tool_calls as its end", server={"parsers": ["", tools]},
             body={"messages": ids(call), "tools": TOOLS, "max_tokens": n - len(ids(call.partition("Rom")[2]))},
             json=chat([chat_choice(None, "length") | {"message": "$any"}], "$any"))
    case("answers", "tools that the request does not have are not called", server={"parsers": ["", "hermes"]},
         body={"messages": ids(TAGGED)}, json=chat([chat_choice(TAGGED, "stop")], counts(len(ids(TAGGED)), 0)))
    # The prompt, which is the answer too, ends with an open thought: the answer begins inside it.
    for reasoning in THOUGHTS:
        tagged = reasoning == "ernie-x1"  # its answers stand in tags; what stands outside is left out
        text = "why</think>\n\n<response>\nSure.\n</response>\n<think>" if tagged else "why</think>Sure.<think>"
        choice = chat_choice("\nSure.\n" if tagged else "Sure.<think>", "stop")
        choice["message"]["reasoning_content"] = "why"
        case("answers", f"{reasoning}: thoughts", server={"parsers": [reasoning, ""]}, body={"messages": ids(text)},
             json=chat([choice], counts(len(ids(text)), 3)))


def piece(reasoning="", call=None, finish=None):
    c = middle("", finish=finish)
    c["delta"] |= {"reasoning_content": reasoning, "tool_calls": call}
    return chunk([c])


def answer_stream_cases():
    """Tokens that show nothing, those of marks and of a call's frame, have no chunk. The name comes whole, arguments
    come as they are drawn."""
    text = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    begun = {"index": 0, "id": "$id:chatcmpl-tool-", "type": "function", "function": {"name": "f"}}
    said = [{"index": 0, "function": {"arguments": c}} for c in "{}"]
    case("answers", "stream: a call", server={"parsers": ["", "hermes"]},
         body={"messages": ids(text), "tools": TOOLS, "stream": True},
         events=[chunk([first()]), *[piece(call=[c]) for c in (begun, *said)], piece(finish="tool_calls"), "[DONE]"])
    case("answers", "stream: thoughts", server={"parsers": ["qwen3", ""]},
         body={"messages": ids("hm</think>So<think>"), "stream": True},
         events=[chunk([first()]), piece("h"), piece("m"), *[chunk([middle(c)]) for c in "So<think>"], piece(finish="stop"),
                 "[DONE]"])
