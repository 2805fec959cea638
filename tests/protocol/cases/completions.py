"""Completions, whole and streamed."""
from .shapes import (
    B, BEGIN, END, HI, NAMES, alternatives, case, chat, chat_choice, chunk, completion, completion_logprobs, first,
    list_character, middle, text_choice, text_chunk, token_name, usage, v,
)


def completion_cases():
    path = "/v1/completions"
    case("completions", "text prompt, special tokens added", path, {"prompt": "hi there"},
         json=completion([text_choice(B + "hi there", "stop")], usage(6, 7)))
    case("completions", "ids", path, {"prompt": HI, "max_tokens": 2}, json=completion([text_choice("hi", "length")], usage(5, 2)))
    case("completions", "lists of texts: index is prompt x n + sample", path, {"prompt": ["h", "i"], "n": 2, "max_tokens": 2},
         json=completion([text_choice(t, "length", index=i) for i, t in enumerate([B + "h", B + "h", B + "i", B + "i"])], usage(4, 8)))
    case("completions", "lists of ids", path, {"prompt": [HI, HI[:2]], "max_tokens": 1},
         json=completion([text_choice("h", "length", index=0), text_choice("h", "length", index=1)], usage(7, 2)))
    case("completions", "prompt_token_ids", path, {"prompt_token_ids": HI, "max_tokens": 1},
         json=completion([text_choice("h", "length")], usage(5, 1)))
    case("completions", "max_completion_tokens wins", path, {"prompt": HI, "max_tokens": 1, "max_completion_tokens": 2},
         json=completion([text_choice("hi", "length")], usage(5, 2)))
    case("completions", "echo", path, {"prompt": "hi there", "echo": True, "max_tokens": 3},
         json=completion([text_choice("hi there" + B + "hi", "length")], usage(6, 3)))
    case("completions", "suffix carries extra fields; best_of of n changes nothing", path,
         {"prompt": HI, "suffix": {"max_tokens": 2}, "best_of": 1}, json=completion([text_choice("hi", "length")], usage(5, 2)))
    case("completions", "logprobs", path, {"prompt": HI, "max_tokens": 3, "logprobs": 2}, server={"enable_logprob": True},
         json=completion([text_choice("hi t", "length", logprobs=completion_logprobs(HI[:3], 2))], usage(5, 3)))
    case("completions", "logprobs of bytes that form no character", path,
         {"prompt": list_character(), "max_tokens": 2, "logprobs": 0}, server={"enable_logprob": True},
         json=completion([text_choice("�", "length", logprobs={
             "tokens": ["bytes:\\xe4", "bytes:\\xb8"], "token_logprobs": [-0.25, -0.25],
             "top_logprobs": [{}, {}], "text_offset": [0, 0]})], usage(3, 2)))


def prompt_rows(k, decode=True):
    out = [None]
    for t in HI[1:3]:
        out.append({str(i): {"logprob": lp, "rank": r, "decoded_token": token_name(i) if decode else None}
                    for r, (i, lp) in enumerate(alternatives(t, k)[1:], 1)})
    return out


def prompt_and_special_token_cases():
    path = "/v1/completions"
    case("completions", "prompt_logprobs", path, {"prompt": HI[:3], "max_tokens": 1, "prompt_logprobs": 2},
         server={"enable_logprob": True}, json=completion([text_choice("h", "length", prompt_logprobs=prompt_rows(2))], usage(3, 1)))
    case("completions", "prompt_logprobs without their texts", path,
         {"prompt": HI[:3], "max_tokens": 1, "prompt_logprobs": 2, "include_logprobs_decode_token": False},
         server={"enable_logprob": True},
         json=completion([text_choice("h", "length", prompt_logprobs=prompt_rows(2, False))], usage(3, 1)))
    case("completions_stream", "prompt_logprobs in the first chunk", path,
         {"prompt": HI[:3], "max_tokens": 2, "prompt_logprobs": 2, "stream": True}, server={"enable_logprob": True},
         events=[chunk([text_chunk("h") | {"prompt_logprobs": prompt_rows(2)}], False),
                 chunk([text_chunk("i", finish="length")], False), "[DONE]"])
    case("chat_stream", "prompt_logprobs in the first chunk",
         body={"messages": HI[:3], "max_tokens": 1, "prompt_logprobs": 2, "stream": True}, server={"enable_logprob": True},
         events=[chunk([first() | {"prompt_logprobs": prompt_rows(2)}]), chunk([middle("h", finish="length")]), "[DONE]"])
    shown = [v("h"), END, v("i")]
    case("completions", "special tokens stay in the text", path, {"prompt": shown, "max_tokens": 3, "ignore_eos": True},
         json=completion([text_choice("h" + NAMES[END] + "i", "length")], usage(3, 3)))
    case("completions", "special tokens left out on demand; offsets know", path,
         {"prompt": shown, "max_tokens": 3, "ignore_eos": True, "skip_special_tokens": True, "logprobs": 1},
         server={"enable_logprob": True},
         json=completion([text_choice("hi", "length", logprobs=completion_logprobs(shown, 1) | {"text_offset": [0, 1, 1]})],
                         usage(3, 3)))
    case("completions", "special tokens left out for all", path,
         {"prompt": shown, "max_tokens": 3, "ignore_eos": True, "skip_special_tokens": False},
         server={"skip_special_tokens": True}, json=completion([text_choice("hi", "length")], usage(3, 3)))
    case("completions", "include_stop_str_in_output shows the end token", path,
         {"prompt": HI[:1], "include_stop_str_in_output": True}, json=completion([text_choice("h" + NAMES[END], "stop")], usage(1, 2)))
    case("completions_stream", "include_stop_str_in_output shows the end token", path,
         {"prompt": HI[:1], "include_stop_str_in_output": True, "stream": True},
         events=[chunk([text_chunk("h")], False), chunk([text_chunk(NAMES[END], finish="stop")], False), "[DONE]"])
    case("completions", "offsets: behind the echoed prompt, of tokens and not of held text", path,
         {"prompt": HI, "echo": False, "logprobs": 0, "stop": ["hex"]}, server={"enable_logprob": True},
         json=completion([text_choice("hi there", "stop", logprobs=completion_logprobs(HI, 0) | {
             "tokens": [token_name(i) for i in HI + [END]], "token_logprobs": [-0.25] * 6, "top_logprobs": [{}] * 6,
             "text_offset": [0, 1, 2, 4, 5, 8]})], usage(5, 6)))
    cut = list_character()[:2] + [v("h")]  # the first two bytes of a character, then a letter
    case("completions", "offsets: a character that is never finished belongs to its own tokens", path,
         {"prompt": cut, "max_tokens": 3, "logprobs": 0}, server={"enable_logprob": True},
         json=completion([text_choice("\ufffdh", "length", logprobs=completion_logprobs(cut, 0) | {"text_offset": [0, 0, 1]})],
                         usage(3, 3)))


def scored(answer, k):
    """Log-probs of "hi there" and its answer: nothing stands in front of the first token."""
    prompt = completion_logprobs(HI, k)
    for key in ("token_logprobs", "top_logprobs"):
        prompt[key][0] = None
    rest = completion_logprobs(answer, k, start=len("hi there"))
    return {key: prompt[key] + rest[key] for key in prompt}


def scoring_cases():
    path = "/v1/completions"
    on = {"enable_logprob": True}
    body = {"prompt": HI, "echo": True, "logprobs": 1}
    case("completions", "echo with logprobs scores the prompt", path, body | {"max_tokens": 1}, server=on,
         json=completion([text_choice("hi thereh", "length", logprobs=scored(HI[:1], 1))], usage(5, 1)))
    case("completions", "max_tokens 0 scores and says nothing", path, body | {"max_tokens": 0}, server=on,
         json=completion([text_choice("hi there", "length", logprobs=scored([], 1))], usage(5, 0)))
    case("completions", "max_tokens 0 without echo", path, {"prompt": HI, "max_tokens": 0},
         json=completion([text_choice("", "length")], usage(5, 0)))
    begun = scored([], 1)
    for key, value in (("tokens", NAMES[BEGIN]), ("text_offset", 0)):
        begun[key].insert(0, value)
    begun["token_logprobs"] = [None] + [-0.25] * 5
    case("completions", "offsets count in the client's text, which has no token of its own in front", path,
         {"prompt": "hi there", "echo": True, "logprobs": 1, "max_tokens": 0}, server=on,
         json=completion([text_choice("hi there", "length", logprobs=begun | {"top_logprobs": "$any"})], usage(6, 0)))
    case("completions_stream", "echo with logprobs", path, body | {"max_tokens": 2, "stream": True}, server=on,
         events=[chunk([text_chunk("hi thereh", logprobs=scored(HI[:1], 1))], False),
                 chunk([text_chunk("i", finish="length", logprobs=completion_logprobs(HI[1:2], 1, start=9))], False), "[DONE]"])
    case("completions_stream", "max_tokens 0", path, body | {"max_tokens": 0, "stream": True}, server=on,
         events=[chunk([text_chunk("hi there", finish="length", logprobs=scored([], 1))], False), "[DONE]"])
    case("completions", "best_of: so many are made, n are shown", path, {"prompt": HI, "max_tokens": 2, "n": 2, "best_of": 4},
         json=completion([text_choice("hi", "length", index=i) for i in range(2)], usage(5, 8)))
    case("chat", "best_of", body={"messages": HI, "max_tokens": 2, "best_of": 3},
         json=chat([chat_choice("hi", "length")], usage(5, 6)))


def completion_stream_cases():
    path = "/v1/completions"
    prompt = [BEGIN] + HI
    case("completions", "return_token_ids", path, {"prompt": "hi there", "max_tokens": 2, "return_token_ids": True},
         json=completion([text_choice(B + "h", "length", ids=[BEGIN, v("h")], prompt=prompt, prompt_text="hi there")], usage(6, 2)))
    case("completions", "return_token_ids names the ids of logprobs too", path,
         {"prompt": "hi there", "max_tokens": 2, "return_token_ids": True, "logprobs": 2}, server={"enable_logprob": True},
         json=completion([text_choice(B + "h", "length", ids=[BEGIN, v("h")], prompt=prompt, prompt_text="hi there",
                                      logprobs=completion_logprobs([BEGIN, v("h")], 2, with_ids=True))], usage(6, 2)))
    case("completions_stream", "chunks, usage once per finished choice", path,
         {"prompt": [HI[:1], HI[1:2]], "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True}}, unordered=True,
         events=[chunk([text_chunk("h", 0, "length")], False), chunk([], False, usage=usage(1, 1)),
                 chunk([text_chunk("i", 1, "length")], False), chunk([], False, usage=usage(1, 1)), "[DONE]"])
    case("completions_stream", "echo in the first chunk", path, {"prompt": "hi there", "max_tokens": 3, "stream": True, "echo": True},
         events=[chunk([text_chunk("hi there" + B)], False), chunk([text_chunk("h")], False),
                 chunk([text_chunk("i", finish="length")], False), "[DONE]"])
    case("completions_stream", "return_token_ids: the prompt's ids come first", path,
         {"prompt": HI, "max_tokens": 2, "stream": True, "return_token_ids": True},
         events=[chunk([{"index": 0, "text": "", "prompt_token_ids": HI, "text_after_process": "hi there",
                         "prompt_tokens": "hi there", "completion_token_ids": None}], False),
                 chunk([text_chunk("h", ids=HI[:1])], False), chunk([text_chunk("i", ids=HI[1:2], finish="length")], False), "[DONE]"])
    case("completions_stream", "logprobs", path, {"prompt": HI, "max_tokens": 2, "stream": True, "logprobs": 1},
         server={"enable_logprob": True},
         events=[chunk([text_chunk("h", logprobs=completion_logprobs(HI[:1], 1))], False),
                 chunk([text_chunk("i", finish="length", logprobs=completion_logprobs(HI[1:2], 1, start=1))], False), "[DONE]"])
    case("completions_stream", "end token", path, {"prompt": HI[:1], "stream": True},
         events=[chunk([text_chunk("h")], False), chunk([text_chunk("", finish="stop")], False), "[DONE]"])
