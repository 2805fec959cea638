#!/usr/bin/env python3
"""Writes tests/data/templates/histories.json: conversations as clients send them back, and their prompts as transformers
renders them. Needs transformers (5.24) and Jinja2 (3.1.6), which the repository's tests do not.

    python3 tools/make_histories.py [FOLDER OF THIRD-PARTY TEMPLATES, .../data/chat/templates]

Prompts of the repository's own templates stand in the file as text, those of others as a hash of the text (128 bits of
SHA-256). What a template wants is written down below by hand, template by template; the server finds it out by itself.
"""

import copy
import hashlib
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

ROOT = pathlib.Path(__file__).resolve().parent.parent
OWN = ROOT / "tests/data/templates/own"
OUT = ROOT / "tests/data/templates/histories.json"
OWN_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

ABSENT = object()
# What stands for no content in (system, user, assistant, assistant with calls, tool); what arguments are; whether the
# calls show only where content is null; whether text that is no JSON object may stay where objects are wanted.
E, N, A = "", None, ABSENT
FORMS = {
    "joined": ((E, E, E, N, E), "object", False, True),
    "null_calls": ((E, E, N, N, E), "text", True, True),
    "key_asked": ((E, E, E, N, E), "object", False, True),
    "parts": (([], [], [], [], N), "sent", False, True),
    "written_arguments": ((E, E, E, N, E), "text", False, True),
    "either_arguments": ((N, N, N, N, N), "sent", False, True),
    "parameters": ((N, N, N, N, N), "object", False, False),
    "alternating": ((E, E, E, N, E), "object", False, True),
    "tern-demo-ocr": (([], [], [], [], E), "sent", False, True),
    "minicpm": ((E, E, E, E, E), "sent", False, True),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ((E, E, E, N, E), "sent", False, True),
    "PaddlePaddle-PaddleOCR-VL-1.6": (([], [], [], [], N), "sent", False, True),
    "PaddlePaddle-PaddleOCR-VL": (([], [], [], [], N), "sent", False, True),
    "Qwen-Qwen2.5-7B-Instruct": ((E, E, E, N, E), "object", False, True),
    "Qwen-Qwen3": ((E, N, N, N, N), "sent", False, True),
    "baidu-ERNIE-4.5-default": ((E, E, E, E, N), "sent", False, True),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ((E, E, N, N, E), "text", True, True),
    "functionary-qwen2.5-text-only": ((E, N, E, N, E), "text", False, True),
    "llama-cpp-deepseek-r1": ((E, E, N, N, E), "text", True, True),
    "meta-llama-Llama-3-8B": ((E, E, E, E, E), "sent", False, True),
    "meta-llama-Llama-3.1-8B-Instruct": ((E, E, E, N, E), "object", False, True),
    "microsoft-Phi-3.5-mini-instruct": ((E, E, E, E, N), "sent", False, True),
    "mistral-common-v1_spm": ((E, E, E, E, N), "sent", False, True),
    "mistral-common-v2_spm": ((E, E, E, N, E), "text", False, True),
    "mistral-common-v3_spm": ((E, E, E, N, E), "text", False, True),
    "mistralai-Mistral-Nemo-Instruct-2407": ((E, E, E, N, E), "object", False, True),
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Where"}},
                "required": ["city"],
            },
        },
    }
]


def call(arguments, id="abcdef123", name="weather"):
    function = {"name": name}
    if arguments is not ABSENT:
        function["arguments"] = arguments
    return {"id": id, "type": "function", "function": function}


def user(text="Hi"):
    return {"role": "user", "content": text}


def calls(*arguments, content=None, **more):
    ids = ["abcdef123", "abcdef124", "abcdef125"]
    return {"role": "assistant", "content": content, "tool_calls": [call(a, id) for a, id in zip(arguments, ids)], **more}


def result(content="17 C", id="abcdef123"):
    return {"role": "tool", "tool_call_id": id, "name": "weather", "content": content}


# Keys that an answer has beside its text: OpenAI's, and those of this server.
NULLS = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": None}
OURS = {
    "multimodal_content": None,
    "reasoning_content": None,
    "audio_content": None,
    "prompt_token_ids": None,
    "completion_token_ids": None,
    "prompt_tokens": None,
    "completion_tokens": None,
}


def conversations():
    said = {"role": "assistant", "content": "Hello!"}
    nested = {"ö": ["日本", {"deep": [[], {}, None, True]}], "n": -3, "f": 1.0, "e": 2.5e-7, "quote": "a\"b\\c\n<&>'"}
    text = json.dumps({"city": "Paris"})
    out = {
        "our answer": [user(), {**said, **NULLS, **OURS}, user("And?")],
        "tool_calls empty": [user(), {**said, "tool_calls": []}, user("And?")],
        "name and refusal null": [{**user(), "name": None}, {**said, "refusal": None, "name": None}, user("And?")],
        "function_call null": [user(), {**said, "function_call": None}, user("And?")],
        "audio null": [user(), {**said, "audio": None}, user("And?")],
        "thoughts": [user(), {**said, "reasoning_content": "Hm."}, user("And?")],
        "thoughts in the text": [user(), {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello!"}, user("And?")],
        "assistant null": [user(), {"role": "assistant", "content": None}, user("And?")],
        "assistant without content": [user(), {"role": "assistant"}, user("And?")],
        "user null": [user(None)],
        "user without content": [{"role": "user"}],
        "system null": [{"role": "system", "content": None}, user()],
        "two systems": [{"role": "system", "content": "One."}, {"role": "system", "content": "Two."}, user()],
        "system in the middle": [user(), said, {"role": "system", "content": "Now short."}, user("And?")],
        "two users": [user(), user("And?")],
        "no messages but the answer": [said],
    }
    for name, arguments in {
        "text": text,
        "object": {"city": "Paris"},
        "empty text": "",
        "spaces": " ",
        "null": None,
        "absent": ABSENT,
        "empty object": {},
        "empty object as text": "{}",
        "cut": '{"city": "Par',
        "list as text": "[1, 2]",
        "word": "Paris",
        "unicode text": json.dumps(nested, ensure_ascii=False),
        "escaped text": json.dumps(nested),
        "nested object": nested,
        "odd spacing": '{ "city" :"Paris","days":3 }',
    }.items():
        out["arguments " + name] = [user(), calls(arguments), result(), said, user("And?")]
    out |= {
        "call answered": [user(), calls(text, **{"refusal": None, "audio": None, "function_call": None}), result()],
        "call without content": [user(), {k: v for k, v in calls(text).items() if k != "content"}, result()],
        "call with empty content": [user(), calls(text, content=""), result()],
        "call with content": [user(), calls(text, content="Let me see."), result(), said, user("And?")],
        "call with thoughts": [user(), calls(text, reasoning_content="Hm."), result()],
        "two calls": [user(), calls(text, '{"city": "Rome"}'), result(), result("21 C", "abcdef124")],
        "tool null": [user(), calls(text), result(None)],
        "tool without content": [user(), calls(text), {"role": "tool", "tool_call_id": "abcdef123"}],
        "tool empty": [user(), calls(text), result("")],
        "call with null keys": [
            user(),
            {"role": "assistant", "content": None, "tool_calls": [{**call(text), "index": None, "custom": None}]},
            result(),
        ],
    }
    return out


def slot(message):
    role = message["role"]
    if role == "assistant":
        return 3 if message.get("tool_calls") else 2
    return {"system": 0, "user": 1}.get(role, 4)


def shaped(messages, form):
    none, arguments, calls_need_null, any_text = form
    out = copy.deepcopy(messages)
    lists = none[1] == []
    for message in out:
        for key in [k for k, v in message.items() if v is None and k != "content"]:
            del message[key]
        if message.get("tool_calls") == []:
            del message["tool_calls"]
        for item in message.get("tool_calls", []):
            for key in [k for k, v in item.items() if v is None]:
                del item[key]
        content = message.get("content")
        calling = slot(message) == 3
        if calling and calls_need_null and content == "":
            content = None
        if content is None:
            message.pop("content", None)
            if none[slot(message)] is not ABSENT:
                message["content"] = none[slot(message)]
        elif lists and slot(message) != 4:
            message["content"] = [{"type": "text", "text": content}]
        for item in message.get("tool_calls", []):
            function = item["function"]
            given = function.get("arguments")
            if given is None:
                given = "{}" if arguments == "text" else {}
            elif arguments == "text" and not isinstance(given, str):
                given = json.dumps(given, ensure_ascii=False)
            elif arguments == "object" and isinstance(given, str):
                try:
                    opened = json.loads(given) if given.strip() else {}
                except ValueError:
                    opened = given
                given = opened if isinstance(opened, dict) else given if any_text else {"arguments": given}
            function["arguments"] = given
    return out


def render(source, messages, tools, tokens):
    try:
        return _compile_jinja_template(source).render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=True, **tokens
        )
    except Exception:  # the template raises: the request is refused
        return None


def main():
    cases = {}
    for name, messages in conversations().items():
        clean = json.loads(json.dumps(messages, default=lambda _: "ABSENT"))
        for message in clean:
            for item in message.get("tool_calls") or []:
                if item["function"].get("arguments") == "ABSENT":
                    del item["function"]["arguments"]
        cases[name] = clean
    results = {}

    def take(name, source, tokens, hashed):
        results[name] = {}
        for case, messages in cases.items():
            tools = TOOLS if "call" in case or "argument" in case or "tool " in case or "Hermes" in name else None
            if name == "llama-cpp-deepseek-r1":
                tools = None  # Python cannot write its list of tools
            text = render(source, shaped(messages, FORMS[name]), tools, tokens)
            if text is not None and hashed:
                text = hashlib.sha256(text.encode()).hexdigest()[:32]
            results[name][case] = text

    for path in sorted(OWN.glob("*.jinja")):
        take(path.stem, path.read_text(), OWN_TOKENS, False)
    demo = json.loads((ROOT / "models/tern-demo-ocr/tokenizer_config.json").read_text())
    take("tern-demo-ocr", demo["chat_template"], OWN_TOKENS, False)
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
        tokens = json.loads((folder.parent / "rendered.json").read_text())["special_tokens"]
        for path in sorted(folder.glob("*.jinja")):
            take(path.stem, path.read_text(), tokens[path.name], True)
        other = json.loads((folder.parent.parent / "tokenizers/minicpm/tokenizer_config.json").read_text())
        take("minicpm", other["chat_template"], OWN_TOKENS, True)
    lines = [f'{{"reference": "transformers 5.24.0, Jinja2 3.1.6", "tools": {json.dumps(TOOLS)},\n"conversations": {{']
    dump = lambda x: json.dumps(x, ensure_ascii=False)
    lines.append(",\n".join(f"{dump(k)}: {dump(v)}" for k, v in cases.items()) + '},\n"own": {')
    for hashed in (False, True):
        names = [n for n in results if (n == "tern-demo-ocr" or (OWN / (n + ".jinja")).exists()) != hashed]
        body = ",\n".join(
            f"{dump(n)}: {{" + ",\n ".join(f"{dump(c)}: {dump(t)}" for c, t in results[n].items()) + "}" for n in names
        )
        lines.append(body + ("}}" if hashed else '},\n"others": {'))
    OUT.write_text("\n".join(lines) + "\n")
    for name, by_case in results.items():
        print(name, "refuses", [c for c, t in by_case.items() if t is None])


main()
