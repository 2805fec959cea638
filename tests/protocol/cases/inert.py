"""Fields that have no effect in this server."""
import json

from .shapes import ASK, CHAT_HI, HI, U, case, chat, chat_choice, completion, error, first, text_choice, usage


GUIDED = "guided_backend is None, use --guided-decoding-backend to specify the backend at server startup"
OTHER_NAME = "is another server's name for guided decoding; guided_json, guided_regex, guided_grammar, guided_choice and response_format act here"
FORCED = "cannot be kept: to force a call the server needs --tool-call-parser, and --guided-decoding-backend not off"
TRANSFER = "needs prefill and decode in separate servers, which this server does not have yet"
RESPONSE = "needs a server started with --reasoning-parser, or thinking that is off (chat_template_kwargs.enable_thinking: false)"
BEAMS = "needs beam search, which this server does not have"
# Field, a value that asks for something, one that asks for nothing, why it is refused.
INERT = [
    ("structured_outputs", {"json": {}}, None, GUIDED), ("guided_json", {"type": "object"}, None, GUIDED), ("guided_json", "{}", None, GUIDED),
    ("guided_regex", "a+", None, GUIDED), ("guided_choice", ["a", "b"], None, GUIDED), ("guided_grammar", "root ::= a", None, GUIDED),
    ("guided_json_object", True, False, GUIDED), ("structural_tag", "{}", None, GUIDED), ("json_schema", {}, None, OTHER_NAME),
    ("grammar", "root ::= a", None, OTHER_NAME), ("regex", "a", None, OTHER_NAME), ("ebnf", "root ::= a", None, OTHER_NAME),
    ("response_format", {"type": "json_object"}, {"type": "text"}, GUIDED),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, None, GUIDED),
    ("response_format", {"type": "structural_tag", "structures": [], "triggers": []}, None, GUIDED),
    ("functions", [{"name": "f"}], [], "is the obsolete form of `tools`, which acts"),
    ("function_call", {"name": "f"}, "auto", "is the obsolete form of `tool_choice`, which acts"),
    ("parallel_tool_calls", False, True, "cannot be kept: this server finds no tool calls (--tool-call-parser)"),
    ("reasoning_max_tokens", 20, None, "needs a server started with --reasoning-parser"),
    ("thinking_token_budget", 20, None, "needs a server started with --reasoning-parser"),
    ("response_max_tokens", 20, None, RESPONSE),
    ("include_reasoning", False, True, "cannot be kept: this server does not part reasoning from answers (--reasoning-parser)"),
    ("logits_processors_args", {"budget": 3}, {}, "holds a key that no logits processor of this server reads"),
    ("logits_processors", ["a.B"], [], "names processors; a request cannot bring any"),
    ("echo", True, False, "has no effect in chat requests"), ("use_beam_search", True, False, BEAMS), ("length_penalty", 0.8, 1.0, BEAMS),
    ("early_stopping", True, False, BEAMS), ("allowed_token_ids", [1], None, "is not available in this server"),
    ("truncate_prompt_tokens", 5, None, "is not available in this server: prompts are never cut"),
    ("return_tokens_as_token_ids", True, False, "is not available in this server (return_token_ids is)"),
    ("include_draft_logprobs", True, False, "needs speculative decoding, which this server does not have yet"),
    ("priority", 1, 0, "needs scheduling by priority, which this server does not have"), ("disaggregate_info", {}, None, TRANSFER),
    ("kv_transfer_params", {}, None, TRANSFER), ("ec_transfer_params", {}, None, TRANSFER),
    ("vllm_xargs", {"a": 1}, {}, "is not available in this server"),
    ("mm_processor_kwargs", {"max_pixel": 9}, {"video_fps": 2, "min_pixels": 9},
     "holds a key that has no effect; fps, min_frames, max_frames, target_frames, frames_sample, min_pixels and max_pixels have "
     "(also with image_ or video_ in front)"),
    ("media_io_kwargs", {"video": {}}, {}, "is not available in this server (mm_processor_kwargs is)"),
    ("suffix", "x", None, "has no effect in chat requests"),
    ("audio", {"voice": "x"}, None, "needs spoken answers, which this server does not have"),
    ("modalities", ["text", "audio"], ["text"], "needs spoken answers, which this server does not have"),
    ("web_search_options", {}, None, "needs a web search, which this server does not have"),
    ("detokenize", False, True, "cannot be kept: answers are text (return_token_ids adds the ids)"),
    ("verbosity", "low", "medium", "is not available in this server"), ("store", True, False, "cannot be kept: this server stores no answers"),
]
OF_CHATS = "belongs to chat requests: a completion has no messages and no template"
INERT_COMPLETIONS = [
    ("tools", [{"type": "function", "function": {"name": "f"}}], [], OF_CHATS), ("tool_choice", "required", "auto", OF_CHATS),
    ("chat_template", "{{ messages }}", None, OF_CHATS), ("chat_template_kwargs", {"enable_thinking": False}, {}, OF_CHATS),
    ("enable_thinking", False, None, OF_CHATS), ("reasoning_effort", "low", None, OF_CHATS),
    ("reasoning_max_tokens", 5, None, OF_CHATS), ("response_max_tokens", 5, None, OF_CHATS),
    ("thinking_token_budget", 5, None, OF_CHATS), ("documents", [{"text": "x"}], [], OF_CHATS),
    ("mm_processor_kwargs", {"fps": 2}, {}, OF_CHATS), ("continue_final_message", True, False, OF_CHATS),
    ("guided_regex", "a", None, GUIDED),
    ("prompt_embeds", "x", None, "is not available in this server"), ("response_format", {"type": "json_object"}, {"type": "text"}, GUIDED),
]


HINT = "; leave it out, or start the server with --allow-inert-flags to have it ignored"


def told(field, why):
    return GUIDED if why is GUIDED else f"{field} {why}{HINT}"


def forced_call_cases():
    """tool_choice that forces a call where none can be forced, and a budget without its processor."""
    allowed = {"allow_inert": True, "enable_logprob": True}
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}]}
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        forced = {"messages": ASK, "max_tokens": 2, "tool_choice": choice}
        case("inert", f"tool_choice = {json.dumps(choice)}", body=forced | tools, status=400, json=error(told("tool_choice", FORCED), "tool_choice"))
        case("inert", f"tool_choice = {json.dumps(choice)} with allow_inert", body=forced | tools, server=allowed, json="$any")
        case("inert", f"tool_choice = {json.dumps(choice)} without tools", body=forced, status=400,
             json=error("tool_choice needs tools", "tool_choice"))
    strict = {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}
    case("inert", "strict arguments where calls cannot be held to a schema", body={"messages": ASK, "max_tokens": 2} | strict, status=400,
         json=error(told("tools", "asks for strict arguments, which need --tool-call-parser, and --guided-decoding-backend not off"), "tools"))
    case("inert", "strict arguments with allow_inert", body={"messages": ASK, "max_tokens": 2} | strict, server=allowed, json="$any")
    case("inert", "a budget without its processor", body={"messages": ASK, "logits_processors_args": {"thinking_budget": 3}}, status=400,
         json=error("thinking_budget needs a server started with --logits-processors ThinkingBudgetLogitsProcessor", "logits_processors_args"))


def inert_cases():
    """Fields without effect: refused, let pass with allow_inert, and no fault with a value that asks for nothing."""
    forced_call_cases()
    allowed = {"allow_inert": True, "enable_logprob": True}
    n = len(CHAT_HI)
    hint = HINT
    for field, asks, neutral, why in INERT:
        name = f"{field} = {json.dumps(asks)}"
        body = {"messages": ASK, "max_tokens": 2}
        good = chat([chat_choice(U + "h", "length")], usage(n, 2))
        case("inert", name, body=body | {field: asks}, status=400, json=error(told(field, why), field))
        case("inert", f"{name} with allow_inert", body=body | {field: asks}, server=allowed, json=good)
        case("inert", f"{field} = {json.dumps(neutral)}", body=body | {field: neutral}, json=good)
    path = "/v1/completions"
    body = {"prompt": HI, "max_tokens": 2}
    good = completion([text_choice("hi", "length")], usage(5, 2))
    for field, asks, neutral, why in INERT_COMPLETIONS:
        name = f"completions: {field} = {json.dumps(asks)}"
        case("inert", name, path, body | {field: asks}, 400, json=error(told(field, why), field))
        case("inert", f"{name} with allow_inert", path, body | {field: asks}, server=allowed, json=good)
        case("inert", f"completions: {field} = {json.dumps(neutral)}", path, body | {field: neutral}, json=good)
    def bad(name, body, message, param, where="/v1/chat/completions", server=None):
        case("inert", name, where, body, 400, server, json=error(message, param))
    # Types and ranges come first, also with allow_inert.
    for server in ({}, allowed):
        bad("a range before a field without effect", {"messages": ASK, "guided_regex": "a", "top_p": 7},
            "Input should be less than or equal to 1", "top_p", server=server)
        bad("two kinds of guided decoding", {"messages": ASK, "guided_regex": "a", "guided_grammar": "b"},
            "You can only use one kind of guided decoding ('guided_json', 'guided_regex', 'guided_choice', 'guided_grammar', "
            "'structural_tag').", "guided_json", server=server)
        for field, value, message in [
                ("guided_choice", "x", "Input should be a valid list"), ("guided_choice", [1], "Input should be a valid string"),
                ("guided_regex", 1, "Input should be a valid string"), ("guided_json", 1, "Input should be a valid string or dictionary"),
                ("response_format", {"a": 1}, "Input should have a type"), ("response_format", "json", "Input should be a valid dictionary"),
                ("response_format", {"type": "xml"}, "response_format: type should be 'text', 'json_object', 'json_schema' or 'structural_tag'"),
                ("response_format", {"type": "json_schema"}, "response_format of type json_schema needs json_schema"),
                ("tool_choice", "always", "Input should be 'none', 'auto', 'required' or a named tool"),
                ("parallel_tool_calls", "perhaps", "Input should be a valid boolean, unable to interpret input"),
                ("priority", "high", "Input should be a valid number, unable to parse string as a number"),
                ("reasoning_max_tokens", -1, "reasoning_max_tokens must be greater than 0")]:
            bad(f"{field} = {json.dumps(value)}: type", {"messages": ASK, field: value}, message, field, server=server)
    # What acts where the field itself does not need anything.
    for name, off in [("chat_template_kwargs.enable_thinking", {"chat_template_kwargs": {"enable_thinking": False}}),
                      ("chat_template_kwargs.thinking", {"chat_template_kwargs": {"thinking": False}}),
                      ("options.thinking_mode", {"chat_template_kwargs": {"options": {"thinking_mode": "close"}}}),
                      ("enable_thinking", {"enable_thinking": False}), ("metadata.enable_thinking", {"metadata": {"enable_thinking": False}})]:
        case("inert", f"response_max_tokens acts: {name} is off", body={"messages": ASK, "max_tokens": 9, "response_max_tokens": 2} | off,
             json=chat([chat_choice(U + "h", "length")], usage(n, 2)))
    case("inert", "the template's switch comes before the top-level field", status=400,
         body={"messages": ASK, "response_max_tokens": 2, "enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}},
         json=error(f"response_max_tokens {RESPONSE}{hint}", "response_max_tokens"))
    case("inert", "/tokenize does not mind", "/tokenize", {"messages": ASK, "guided_regex": "a"},
         json={"count": n, "max_model_len": 512, "tokens": CHAT_HI, "token_strs": None})
