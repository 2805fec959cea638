"""Scalars that are read although they are of another type."""
import json

from .shapes import (
    ASK, CHAT_HI, HI, U, case, chat, chat_choice, completion, completion_logprobs, error, text_choice,
    text_of, usage,
)


def lenient_cases():
    """Scalars as pydantic reads them."""
    n = len(CHAT_HI)
    two = chat([chat_choice(U + "h", "length")], usage(n, 2))
    for value in ("2", " 2 ", "2.0", "+2", 2.0):
        case("lenient", f"max_tokens = {json.dumps(value)}", body={"messages": ASK, "max_tokens": value}, json=two)
    case("lenient", "max_tokens = true", body={"messages": ASK, "max_tokens": True}, json=chat([chat_choice(U, "length")], usage(n, 1)))
    case("lenient", "numbers as strings", body={"messages": ASK, "max_tokens": "2", "temperature": "0.5", "top_p": "1e-1", "seed": "7", "n": "1"},
         json=two)
    for value in (False, 0, 0.0, "false", "No", "off", "F", "n", "0"):
        case("lenient", f"stream = {json.dumps(value)}", body={"messages": ASK, "max_tokens": 2, "stream": value}, json=two)
    for value in (True, 1, 1.0, "true", "YES", "on", "T", "y", "1"):
        case("lenient", f"ignore_eos = {json.dumps(value)}", body={"messages": ASK, "max_tokens": 14, "ignore_eos": value},
             json=chat([chat_choice(text_of((CHAT_HI * 2)[:14]), "length")], usage(n, 14)))
    path, on = "/v1/completions", {"enable_logprob": True}
    case("lenient", "completions logprobs = true is 1", path, {"prompt": HI, "max_tokens": 3, "logprobs": True}, server=on,
         json=completion([text_choice("hi t", "length", logprobs=completion_logprobs(HI[:3], 1))], usage(5, 3)))
    case("lenient", "completions logprobs = false is none", path, {"prompt": HI, "max_tokens": 2, "logprobs": False},
         json=completion([text_choice("hi", "length")], usage(5, 2)))
    case("lenient", "max_completion_tokens = 0 is as if not sent", body={"messages": ASK, "max_completion_tokens": 0, "max_tokens": 2}, json=two)
    case("lenient", "the request's own field comes before metadata's", body={"messages": ASK, "max_tokens": 2, "metadata": {"max_tokens": 5}}, json=two)
    case("lenient", "tool_choice none keeps the tools from the template",
         body={"messages": ASK, "max_tokens": 2, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}, json=two)
    def bad(field, value, message, body=None, where="/v1/chat/completions", param=None):
        case("lenient", f"{field} = {json.dumps(value)}", where, (body or {"messages": ASK}) | {field: value}, 400, on, json=error(message, param or field))
    no_integer = "Input should be a valid integer, unable to parse string as an integer"
    for value in ("", "x", "2.5", "2.", "1 2", "0x10", "++2", "9" * 30):
        bad("max_tokens", value, no_integer)
    bad("max_tokens", [2], "Input should be a valid integer")
    bad("max_tokens", 10.5, "Input should be a valid integer, got a number with a fractional part")
    bad("temperature", "", "Input should be a valid number, unable to parse string as a number")
    bad("temperature", "nan", "Input should be a finite number")
    bad("stream", "perhaps", "Input should be a valid boolean, unable to interpret input")
    bad("stream", 2, "Input should be a valid boolean, unable to interpret input")
    bad("stream", {}, "Input should be a valid boolean")
    bad("top_logprobs", "2", "Input should be a valid integer", {"messages": ASK, "logprobs": True})
    bad("logprobs", "2", "Input should be a valid integer", {"prompt": HI}, path)
    bad("stop_token_ids", ["2"], "Input should be a valid integer")
    bad("model", 7, "Input should be a valid string")
