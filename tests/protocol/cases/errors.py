"""What is refused, and the words for it."""
import json

from .shapes import ASK, CASES, case, chat, error


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
UNCLEAR = "Input should be a valid boolean, unable to interpret input"


def bad(name, body, message, param, server=None, where=CHAT, status=400, code="invalid_value", **kw):
    case("errors", name, where, body, status, server, json=error(message, param, code, **kw))


def low(x):
    return f"Input should be greater than or equal to {x}"


def high(x):
    return f"Input should be less than or equal to {x}"


# A field of a chat, a value, what is said of it.
FIELDS = [
    ("temperature", -0.1, low(0)), ("temperature", "hot", "Input should be a valid number, unable to parse string as a number"), ("temperature", [1], "Input should be a valid number"), ("top_p", 1.5, high(1)),
    ("top_p", -1, low(0)), ("top_k", -2, low(-1)), ("top_k", 1.5, "Input should be a valid integer, got a number with a fractional part"), ("min_p", 2, high(1)),
    ("frequency_penalty", 2.5, high(2)), ("presence_penalty", -2.5, low(-2)), ("repetition_penalty", 0, "Input should be greater than 0"),
    ("repetition_penalty", -1, "Input should be greater than 0"), ("n", 0, low(1)), ("n", 1000000000, high(128)), ("n", -1, low(1)),
    ("seed", -1, low(0)), ("seed", 922337203685477581, high(922337203685477580)), ("seed", 2**63, high(922337203685477580)),
    ("seed", 2**64, "Input should be a valid integer"), ("max_tokens", 0, "max_tokens can be defined [1, 512), but now it's 0."),
    ("max_tokens", -5, "max_tokens can be defined [1, 512), but now it's -5."),
    ("max_completion_tokens", -1, "max_completion_tokens can be defined [1, 512), but now it's -1."), ("min_tokens", -1, low(0)),
    ("stop", 5, "Input should be a valid string or list of strings"),
    ("stop", [5], "Input should be a valid string"), ("stop_token_ids", [906], "Token id 906 is out of range: the vocabulary has 906 tokens"),
    ("stop_token_ids", [-1], "Token id -1 is out of range: the vocabulary has 906 tokens"),
    ("stop_token_ids", "x", "Input should be a valid list"), ("bad_words", {"a": 1}, "Input should be a valid string or list of strings"),
    ("bad_words_token_ids", [1.5], "Input should be a valid integer"), ("prompt_token_ids", [906], "Token id 906 is out of range: the vocabulary has 906 tokens"),
    ("completion_token_ids", [10**12], f"Token id {10**12} is out of range: the vocabulary has 906 tokens"),
    ("model", 7, "Input should be a valid string"), ("request_id", "a b", "request_id may hold visible ASCII characters only"),
    ("user", "a\nb", "user may not hold control characters"), ("stream_options", {}, "Stream options can only be defined when `stream=True`."),
    ("chat_template", "{{ 1 }}", "chat_template of a request is not accepted by this server"), ("tools", {}, "Input should be a valid list"),
    ("chat_template_kwargs", [], "Input should be a valid dictionary"), ("metadata", "x", "Input should be a valid dictionary"),
    ("return_token_ids", 2, UNCLEAR), ("return_token_ids", [], "Input should be a valid boolean"),
    ("reasoning_max_tokens", 0, "reasoning_max_tokens must be greater than 0"), ("reasoning_max_tokens", -1, "reasoning_max_tokens must be greater than 0"),
    ("response_max_tokens", -1, "response_max_tokens must be greater than 0"), ("response_max_tokens", "x", NO_INTEGER), ("logit_bias", {"x": 1}, 'logit_bias: "x" is no token id below 906'),
    ("logit_bias", {"906": 1}, 'logit_bias: "906" is no token id below 906'), ("logit_bias", {"1": "x"}, "logit_bias: a bias must be a number within +-1e6"),
    ("max_streaming_response_tokens", "x", NO_INTEGER),
]


def error_cases():
    bad("messages missing", {}, "Field required", "messages", code="missing_required_parameter")
    bad("messages of a wrong type", {"messages": "x"}, "Input should be a valid list", "list[any]")
    bad("no message", {"messages": []}, "List should have at least 1 item", "messages")
    bad("message without a role", {"messages": [{"content": "x"}]}, "Field required", "role")
    bad("prompt missing", {}, "Field required", "prompt", where=COMPLETIONS)
    bad("body is a list", [1], "Input should be a valid dictionary", "body")
    for field, value, message in FIELDS:
        bad(f"{field} = {json.dumps(value)}", {"messages": ASK, field: value}, message, field)
    bad("raw_request in metadata", {"messages": ASK, "metadata": {"raw_request": True}},
        "The parameter `raw_request` is not supported now, please use completion api instead.", "raw_request")
    bad("values in metadata are checked too", {"messages": ASK, "metadata": {"top_p": 7}}, high(1), "top_p")
    bad("min_tokens above max_tokens", {"messages": ASK, "max_tokens": 2, "min_tokens": 3},
        "min_tokens must be less than or equal to max_tokens=2, got 3.", "min_tokens")
    bad("six stop strings", {"messages": ASK, "stop": list("abcdef")},
        "Length of stop (6) exceeds the limit max_stop_seqs_num(5). Please reduce the number of stop or set a larger "
        "max_stop_seqs_num by `FD_MAX_STOP_SEQS_NUM`", "stop")
    bad("a stop string of many tokens", {"messages": ASK, "stop": ["hi there hi there"]},
        "Length of stop_seqs(11) exceeds the limit stop_seqs_max_len(8). Please reduce the length of stop sequences or set a "
        "larger stop_seqs_max_len by `FD_STOP_SEQS_MAX_LEN`", "stop")
    bad("logprobs disabled", {"messages": ASK, "logprobs": True},
        "Logprobs is disabled, please enable it in startup config.", "logprobs")
    bad("completions logprobs disabled", {"prompt": "x", "logprobs": 1}, "Logprobs is disabled, please enable it in startup config.",
        "logprobs", where=COMPLETIONS)
    on = {"enable_logprob": True}
    bad("top_logprobs without logprobs", {"messages": ASK, "top_logprobs": 2},
        "when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs", server=on)
    bad("too many top_logprobs", {"messages": ASK, "logprobs": True, "top_logprobs": 21},
        "Number of top_logprobs requested (21) exceeds maximum allowed value (20).", "top_logprobs", server=on)
    bad("whole vocabulary needs its flag", {"messages": ASK, "logprobs": True, "top_logprobs": -1},
        "Number of top_logprobs requested (-1) exceeds maximum allowed value (20).", "top_logprobs", server=on)
    bad("top_logprobs below -1", {"messages": ASK, "logprobs": True, "top_logprobs": -2}, low(-1), "top_logprobs", server=on)
    bad("prompt_logprobs beside a prefix cache", {"messages": ASK, "prompt_logprobs": 1},
        "prompt_logprobs needs a server started with --no-enable-prefix-caching", "prompt_logprobs",
        server=on | {"prompt_logprobs_allowed": False})


def prompt_error_cases():
    bad("unknown model", {"messages": ASK, "model": "other"}, "Unsupported model: [other], support [tiny] or default", "model",
        server={"served_model_name": "tiny"}, code="model_not_support")
    bad("prompt too long", {"messages": [7] * 511}, "Input text is too long, length of prompt token(511) + min_dec_len (1) >= max_model_len(512)",
        "messages", code="context_length_exceeded")
    bad("prompt and min_tokens too long", {"prompt": [7] * 400, "min_tokens": 112},
        "Input text is too long, length of prompt token(400) + min_dec_len (112) >= max_model_len(512)", "prompt", where=COMPLETIONS,
        code="context_length_exceeded")
    case("errors", "original status on demand", CHAT, {"messages": [7] * 511}, 500, {"original_error_status": True},
         json=error("Input text is too long, length of prompt token(511) + min_dec_len (1) >= max_model_len(512)", "messages",
                    "context_length_exceeded"))
    bad("empty prompt", {"prompt": []}, "List should have at least 1 item", "prompt", where=COMPLETIONS)
    bad("an empty prompt in a list", {"prompt": [[]]}, "the prompt has no tokens", "prompt", where=COMPLETIONS)
    bad("mixed prompts", {"prompt": ["a", [1]]}, "Input should be a string, a list of strings, a list of ids or a list of lists of ids", "prompt", where=COMPLETIONS)
    bad("prompts x n", {"prompt": ["a"] * 200, "n": 128}, "prompts x n may be at most 1024", "n", where=COMPLETIONS)
    bad("too many prompts", {"prompt": ["a"] * 257}, "List should have at most 256 items, not 257", "prompt", where=COMPLETIONS)
    bad("suffix as a list", {"prompt": "x", "suffix": ["abc"]}, "Input should be a valid dictionary", "suffix", where=COMPLETIONS)
    bad("suffix as a text, where no tokens mark a gap", {"prompt": "x", "suffix": "abc"},
        "suffix: this model's vocabulary has no tokens for filling a gap", "suffix", where=COMPLETIONS)
    bad("suffix beside ids", {"prompt": [5], "suffix": "abc"}, "suffix needs a prompt of text", "suffix", where=COMPLETIONS)
    bad("suffix beside echo", {"prompt": "x", "suffix": "abc", "echo": True}, "echo together with suffix is not available", "echo",
        where=COMPLETIONS)
    bad("max_tokens below 0", {"prompt": "x", "max_tokens": -1}, "max_tokens can be defined [0, 512), but now it's -1.", "max_tokens",
        where=COMPLETIONS)
    bad("best_of below n", {"prompt": "x", "n": 3, "best_of": 2}, "best_of must not be below n=3", "best_of", where=COMPLETIONS)
    bad("best_of in a stream", {"prompt": "x", "best_of": 2, "stream": True},
        "best_of above n cannot be streamed: all samples must have ended", "best_of", where=COMPLETIONS)
    bad("a picture", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        "this model takes text only: a content part of type image_url cannot be used", "content")
    bad("unknown part", {"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "Unknown content part type: smell", "content")
    bad("logits_processors_args without the processor", {"messages": ASK, "logits_processors_args": {"logit_bias": {"1": 1}}},
        "logit_bias needs a server started with --logits-processors LogitBiasLogitsProcessor", "logits_processors_args")
    bad("reserved template variable", {"messages": ASK, "chat_template_kwargs": {"messages": []}}, "$string", "chat_template_kwargs")


def byte_error_cases():
    for name, raw in [("not JSON", "{"), ("two values", "{} {}"), ("NaN", '{"temperature": NaN}'), ("infinity", '{"temperature": Infinity}'),
                      ("single quotes", "{'a': 1}"), ("empty body", ""), ("lone surrogate", '{"prompt": "\\ud800"}'), ("deep", "[" * 100 + "]" * 100)]:
        CASES["errors"].append({"name": f"JSON: {name}", "server": {}, "method": "POST", "path": COMPLETIONS, "raw": raw, "status": 400,
                                "json": error("$string", "body")})
    CASES["errors"].append({"name": "number beyond doubles", "server": {}, "method": "POST", "path": COMPLETIONS,
                            "raw": '{"prompt": "x", "temperature": 1e999}', "status": 400, "json": error("$string", "$string")})
    CASES["errors"].append({"name": "invalid UTF-8", "server": {}, "method": "POST", "path": COMPLETIONS, "raw_hex": '{"prompt": "'.encode().hex() + "ff" + '"}'.encode().hex(),
                            "status": 400, "json": error("$string", "body")})
