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
# reasoning parser, tool-call parser, what the call looks like
CALLS = [
    ("qwen3", "hermes", TAGGED),
    ("qwen3", "qwen3", TAGGED),
    ("ernie-x1", "ernie-x1", TAGGED),
    ("ernie-45-vl-thinking", "ernie-45-vl-thinking", TAGGED),
    ("deepseek_r1", "deepseek_v3", DEEPSEEK + "function<｜tool▁sep｜>f\n```json\n" + ARGUMENTS + "\n```" + DEEPSEEK_END),
    ("deepseek", "deepseek_v31", DEEPSEEK + "f<｜tool▁sep｜>" + ARGUMENTS + DEEPSEEK_END),
    ("glm45", "glm45", GLM),
    ("qwen3", "qwen3_coder", CODER),
    ("qwen2_5_vl", "llama3_json", OBJECT.replace("arguments", "parameters")),
    ("ernie-45-vl", "mistral", f"[TOOL_CALLS][{OBJECT}]"),
]


def ids(text):
    return [v(BACK[b]) for b in text.encode()]


def counts(tokens, reasoning):
    use = usage(tokens, tokens + 1)
    use["completion_tokens_details"]["reasoning_tokens"] = reasoning
    return use


def called(content, reasoning, use):
    choice = chat_choice(content, "tool_calls")
    choice["message"] |= {"reasoning_content": reasoning, "tool_calls": [
        {"id": "$id:chatcmpl-tool-", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}]}
    return chat([choice], use)


def answer_cases():
    thoughts = "<think>why</think>"  # three tokens of thoughts; marks do not count
    for reasoning, tools, call in CALLS:
        text = thoughts + call
        case("answers", f"{reasoning} and {tools}: thoughts and a call", server={"parsers": [reasoning, tools]},
             body={"messages": ids(text), "tools": TOOLS}, json=called("", "why", counts(len(ids(text)), 3)))
    server = {"parsers": ["qwen3", "hermes"]}
    text = thoughts + TAGGED
    case("answers", "tools that the request does not have are not called", server=server, body={"messages": ids(text)},
         json=chat([chat_choice(TAGGED, "stop") | {}], counts(len(ids(text)), 3)))
