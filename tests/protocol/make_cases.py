#!/usr/bin/env python3
"""Writes the golden transcripts of this folder: requests and the answers the protocol description gives for them.

The server under test stands on the echo engine (the answer is the prompt's tokens again, then the end token) and on the
tokenizer beside this file. Expectations are put together here from the tables of the description, not recorded from a
server. Strings that begin with `$` are wildcards: $any, $string, $int, $number, $seconds, $id:PREFIX (an id that begins so).

Case file: a list of {name, server (config overrides), method, path, headers, body | raw, status, json | events | text}.
Keys of objects must match exactly: none missing, none more.
"""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
TOK = json.loads((HERE / "tokenizer" / "tokenizer.json").read_text())
VOCAB = TOK["model"]["vocab"]
NAMES = {v: k for k, v in VOCAB.items()} | {t["id"]: t["content"] for t in TOK["added_tokens"]}
BEGIN, USER, ASSISTANT, END = 900, 901, 902, 903
SPECIAL = {BEGIN, USER, ASSISTANT, END}
VOCAB_SIZE = 906
U, B = NAMES[USER], NAMES[BEGIN]  # what echoed prompts begin with; special tokens stay in the text


def byte_alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[chr(b)] = b
        else:
            table[chr(256 + extra)] = b
            extra += 1
    return table


BYTES_OF = byte_alphabet()


def token_bytes(i):
    if i >= 900:
        return NAMES[i].encode()
    return bytes(BYTES_OF[c] for c in NAMES[i])


def text_of(ids, skip_special=False):
    return b"".join(b"" if i in SPECIAL and skip_special else token_bytes(i) for i in ids).decode("utf-8", "replace")


def token_name(i):
    raw = token_bytes(i)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{b:02x}" for b in raw)


def v(token):
    return VOCAB[token]


# "hi there" as the tokenizer splits it, and the chat prompt of one user message with that text.
HI = [v("h"), v("i"), v("Ġt"), v("h"), v("ere")]
CHAT_HI = [USER, *HI, END, v("Ċ"), ASSISTANT]


def usage(prompt, completion, cached=0):
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached, "image_tokens": 0, "video_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "image_tokens": 0}}


def alternatives(token, k):
    """The echo engine's made-up candidates: the sampled token first, then k from it on."""
    one = lambda i: ((token + i) % VOCAB_SIZE, -0.25 * (i + 1))
    return [one(0)] + [one(i) for i in range(k)]


def entry(pair):
    i, lp = pair
    return {"token": token_name(i), "logprob": lp, "bytes": list(token_bytes(i))}


def chat_logprob(token, k, whole=True, decode=True):
    """Whole answers name the field that an alternative does not have. Without `decode` no token has a name."""
    a = alternatives(token, k)
    more = {"top_logprobs": None} if whole else {}
    nameless = {} if decode else {"token": None, "bytes": None}
    return {**entry(a[0]), **nameless, "top_logprobs": [entry(x) | nameless | more for x in a[1:]]}


def chat_choice(text, finish, index=0, logprobs=None, prompt_logprobs=None, ids=None, prompt=None):
    shown = ids is not None
    message = {"role": "assistant", "content": text, "multimodal_content": None, "reasoning_content": None,
               "audio_content": None, "tool_calls": None, "prompt_token_ids": prompt if shown else None,
               "completion_token_ids": ids, "prompt_tokens": text_of(prompt, False) if shown else None,
               "completion_tokens": text if shown else None}
    if shown:
        message |= {"text_after_process": message["prompt_tokens"], "raw_prediction": text}
    return {"index": index, "message": message, "logprobs": logprobs, "draft_logprobs": None,
            "prompt_logprobs": prompt_logprobs, "finish_reason": finish, "speculate_metrics": None}


def chat(choices, use, model="default"):
    return {"id": "$id:chatcmpl-", "object": "chat.completion", "created": "$int", "model": model, "choices": choices,
            "usage": use}


def text_choice(text, finish, index=0, logprobs=None, prompt_logprobs=None, ids=None, prompt=None, prompt_text=None, raw=None):
    shown = ids is not None
    c = {"index": index, "text": text, "prompt_token_ids": prompt if shown else None, "completion_token_ids": ids,
         "prompt_tokens": prompt_text if shown else None, "completion_tokens": (raw if raw is not None else text) if shown else None,
         "arrival_time": None, "logprobs": logprobs, "draft_logprobs": None, "prompt_logprobs": prompt_logprobs,
         "reasoning_content": None, "finish_reason": finish, "tool_calls": None, "speculate_metrics": None}
    if shown:
        c |= {"text_after_process": c["prompt_tokens"], "raw_prediction": c["completion_tokens"]}
    return c


def completion(choices, use, model="default"):
    return {"id": "$id:cmpl-", "object": "text_completion", "created": "$int", "model": model, "choices": choices, "usage": use}


def chunk(choices, chat=True, **more):
    return {"id": "$id:chatcmpl-" if chat else "$id:cmpl-", "object": "chat.completion.chunk" if chat else "text_completion",
            "created": "$int", "model": "default", "choices": choices, **more}


def first(index=0, prompt=None):
    delta = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": None, "prompt_token_ids": prompt,
             "completion_token_ids": None}
    if prompt is not None:
        delta |= {"text_after_process": text_of(prompt, False), "prompt_tokens": text_of(prompt, False)}
    return {"index": index, "delta": delta}


def middle(text, index=0, finish=None, logprobs=None, ids=None):
    delta = {"content": text, "reasoning_content": "", "tool_calls": None, "prompt_token_ids": None, "completion_token_ids": ids}
    if ids is not None:
        delta |= {"raw_prediction": text, "completion_tokens": text}
    c = {"index": index, "delta": delta, "logprobs": logprobs, "arrival_time": "$seconds"}
    return c | ({"finish_reason": finish} if finish else {})


def text_chunk(text, index=0, finish=None, logprobs=None, ids=None, raw=None):
    c = {"index": index, "text": text, "prompt_token_ids": None, "completion_token_ids": ids, "reasoning_content": "",
         "tool_calls": None, "arrival_time": "$seconds", "logprobs": logprobs}
    if ids is not None:
        raw = text if raw is None else raw
        c |= {"raw_prediction": raw, "completion_tokens": raw}
    return c | ({"finish_reason": finish} if finish else {})


def pieces(ids):
    """Text of each token; the parts of a character come with its last token."""
    out, held = [], b""
    for at, i in enumerate(ids):
        held += b"" if i == END and at + 1 == len(ids) else token_bytes(i)  # the end token ends the answer and is not shown
        try:
            out.append(held.decode())
            held = b""
        except UnicodeDecodeError:
            out.append("")
    return out


def error(message, param=None, code="invalid_value", kind="invalid_request_error"):
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


ASK = [{"role": "user", "content": "hi there"}]
CASES = {}


def case(file, name, path="/v1/chat/completions", body=None, status=200, server=None, method="POST", **want):
    CASES.setdefault(file, []).append({"name": name, "server": server or {}, "method": method, "path": path, "body": body,
                                       "status": status, **want})


def chat_cases():
    answer = CHAT_HI + [END]
    n = len(CHAT_HI)
    text = text_of(CHAT_HI)
    case("chat", "whole answer, every null present", body={"messages": ASK},
         json=chat([chat_choice(text, "stop")], usage(n, n + 1)))
    case("chat", "max_tokens ends with length", body={"messages": ASK, "max_tokens": 3},
         json=chat([chat_choice(U + "hi", "length")], usage(n, 3)))
    case("chat", "max_completion_tokens wins", body={"messages": ASK, "max_tokens": 2, "max_completion_tokens": 4},
         json=chat([chat_choice(U + "hi t", "length")], usage(n, 4)))
    case("chat", "ignore_eos runs on", body={"messages": ASK, "max_tokens": 14, "ignore_eos": True},
         json=chat([chat_choice(text_of((CHAT_HI * 2)[:14]), "length")], usage(n, 14)))
    case("chat", "n samples, prompt counted once", body={"messages": ASK, "max_tokens": 2, "n": 3},
         json=chat([chat_choice(U + "h", "length", index=i) for i in range(3)], usage(n, 6)))
    case("chat", "logprobs: sampled first, then the asked number", server={"enable_logprob": True},
         body={"messages": ASK, "max_tokens": 3, "logprobs": True, "top_logprobs": 2},
         json=chat([chat_choice(U + "hi", "length", logprobs={"content": [chat_logprob(t, 2) for t in CHAT_HI[:3]], "refusal": None})],
                   usage(n, 3)))
    case("chat", "logprobs without alternatives", server={"enable_logprob": True},
         body={"messages": ASK, "max_tokens": 2, "logprobs": True},
         json=chat([chat_choice(U + "h", "length", logprobs={"content": [chat_logprob(t, 0) for t in CHAT_HI[:2]], "refusal": None})],
                   usage(n, 2)))
    case("chat", "include_logprobs_decode_token false: no names", server={"enable_logprob": True},
         body={"messages": ASK, "max_tokens": 2, "logprobs": True, "top_logprobs": 1, "include_logprobs_decode_token": False},
         json=chat([chat_choice(U + "h", "length",
                                logprobs={"content": [chat_logprob(t, 1, decode=False) for t in CHAT_HI[:2]], "refusal": None})],
                   usage(n, 2)))
    case("chat", "return_token_ids", body={"messages": ASK, "return_token_ids": True},
         json=chat([chat_choice(text, "stop", ids=answer, prompt=CHAT_HI)], usage(n, n + 1)))
    case("chat", "messages as token ids", body={"messages": HI, "max_tokens": 2},
         json=chat([chat_choice("hi", "length")], usage(5, 2)))
    case("chat", "prompt_token_ids beside messages", body={"messages": ASK, "prompt_token_ids": HI, "max_tokens": 2},
         json=chat([chat_choice("hi", "length")], usage(5, 2)))
    case("chat", "completion_token_ids continue the prompt",
         body={"messages": ASK, "prompt_token_ids": HI, "completion_token_ids": [v("h")], "max_tokens": 6},
         json=chat([chat_choice("hi thereh", "length")], usage(6, 6)))
    case("chat", "disable_chat_template takes the first message raw",
         body={"messages": ASK, "disable_chat_template": True, "max_tokens": 2},
         json=chat([chat_choice("hi", "length")], usage(5, 2)))
    case("chat", "text parts are joined", body={"messages": [{"role": "user", "content": [{"type": "text", "text": "hi there"}]}]},
         json=chat([chat_choice(text, "stop")], usage(n, n + 1)))
    case("chat", "metadata stands for top-level fields", body={"messages": ASK, "metadata": {"max_tokens": 2}},
         json=chat([chat_choice(U + "h", "length")], usage(n, 2)))
    case("chat", "unknown fields are ignored", body={"messages": ASK, "max_tokens": 2, "no_such_field": {"a": 1}, "tool_choice": "auto"},
         json=chat([chat_choice(U + "h", "length")], usage(n, 2)))
    case("chat", "stop string cuts the text and what follows is not counted", body={"messages": ASK, "stop": "there"},
         json=chat([chat_choice(U + "hi ", "stop")], usage(n, 6)))
    case("chat", "stop string kept on demand", body={"messages": ASK, "stop": ["there"], "include_stop_str_in_output": True},
         json=chat([chat_choice(U + "hi there", "stop")], usage(n, 6)))
    case("chat", "stop string inside a token", body={"messages": ASK, "stop": ["re"]},
         json=chat([chat_choice(U + "hi the", "stop")], usage(n, 6)))
    case("chat", "stop_token_ids", body={"messages": ASK, "stop_token_ids": [v("Ġt")]},
         json=chat([chat_choice(U + "hi", "stop")], usage(n, 4)))
    case("chat", "served name is checked and echoed", server={"served_model_name": "tiny"},
         body={"messages": ASK, "model": "tiny", "max_tokens": 2}, json=chat([chat_choice(U + "h", "length")], usage(n, 2), model="tiny"))
    case("chat", "default stands for the served name", server={"served_model_name": "tiny"},
         body={"messages": ASK, "model": "default", "max_tokens": 2}, json=chat([chat_choice(U + "h", "length")], usage(n, 2), model="tiny"))
    case("chat", "request id gets its prefix", body={"messages": ASK, "request_id": "abc", "max_tokens": 1},
         json=chat([chat_choice(U, "length")], usage(n, 1)) | {"id": "chatcmpl-abc"})
    case("chat", "user becomes part of the id", body={"messages": ASK, "user": "u1", "max_tokens": 1},
         json=chat([chat_choice(U, "length")], usage(n, 1)) | {"id": "$id:chatcmpl-u1-"})


def stream_cases():
    answer, n = CHAT_HI + [END], len(CHAT_HI)
    parts = pieces(answer)
    def body(texts, finish="stop"):
        return [chunk([middle(t, finish=finish if i == len(texts) - 1 else None)]) for i, t in enumerate(texts)]
    case("chat_stream", "first, middle, last, done; no usage without stream_options", body={"messages": ASK, "stream": True},
         events=[chunk([first()]), *body(parts), "[DONE]"])
    case("chat_stream", "stream_options means a usage chunk", body={"messages": ASK, "stream": True, "max_tokens": 2, "stream_options": {}},
         events=[chunk([first()]), *body([U, "h"], "length"), chunk([], usage=usage(n, 2)), "[DONE]"])
    case("chat_stream", "continuous usage without a usage chunk",
         body={"messages": ASK, "stream": True, "max_tokens": 2,
               "stream_options": {"include_usage": False, "continuous_usage_stats": True}},
         events=[chunk([first()], usage=usage(n, 0)), chunk([middle(U)], usage=usage(n, 1)),
                 chunk([middle("h", finish="length")], usage=usage(n, 2)), "[DONE]"])
    case("chat_stream", "return_token_ids", body={"messages": ASK, "stream": True, "max_tokens": 2, "return_token_ids": True},
         events=[chunk([first(prompt=CHAT_HI)]), chunk([middle(U, ids=[USER])]),
                 chunk([middle("h", ids=[v("h")], finish="length")]), "[DONE]"])
    case("chat_stream", "logprobs", server={"enable_logprob": True},
         body={"messages": ASK, "stream": True, "max_tokens": 2, "logprobs": True, "top_logprobs": 1},
         events=[chunk([first()])] +
                [chunk([middle(t, finish=f, logprobs={"content": [chat_logprob(i, 1, False)], "refusal": None})])
                 for t, f, i in ((U, None, USER), ("h", "length", v("h")))] + ["[DONE]"])
    case("chat_stream", "three tokens per chunk",
         body={"messages": ASK, "stream": True, "max_tokens": 4, "max_streaming_response_tokens": 3},
         events=[chunk([first()]), chunk([middle(U), middle("h"), middle("i")]), chunk([middle(" t", finish="length")]), "[DONE]"])
    points = ["arrival_time", "preprocess_start_time", "preprocess_end_time", "scheduler_recv_req_time", "engine_get_req_time",
              "add_req_to_resource_manager_time", "inference_start_time", "engine_recv_latest_token_time",
              "engine_recv_first_token_time", "request_start_time", "llm_engine_recv_req_timestamp",
              "llm_engine_send_req_to_engine_timestamp", "llm_engine_recv_latest_token_timestamp"]
    spans = ["first_token_time", "time_in_queue", "preprocess_cost_time", "model_forward_time", "model_execute_time"]
    apart = ["ask_decode_resource_start_time", "ask_decode_resource_finish_time", "wait_for_sending_cache_time",
             "send_request_output_to_decode_time", "decode_recv_req_time", "decode_preallocate_req_time",
             "decode_recv_first_token_time", "decode_inference_start_time", "decode_recv_second_token_time"]
    metrics = {k: "$number" for k in points} | {k: "$seconds" for k in spans} | {k: None for k in apart}
    case("chat_stream", "collect_metrics", body={"messages": ASK, "stream": True, "max_tokens": 1, "collect_metrics": True},
         events=[chunk([first()], metrics=metrics), chunk([middle(U, finish="length")], metrics=metrics), "[DONE]"])
    case("chat_stream", "stop string: held text never shows", body={"messages": ASK, "stream": True, "stop": ["there"]},
         events=[chunk([first()]), *body([U, "h", "i", " ", "", ""]), "[DONE]"])
    case("chat_stream", "text that might have been a stop string comes later", body={"messages": ASK, "stream": True, "stop": ["thx"]},
         events=[chunk([first()]), *body([U, "h", "i", " ", "", "there", NAMES[END], "\n", NAMES[ASSISTANT], ""]), "[DONE]"])
    broken = [v("h")] + list_character()
    case("chat_stream", "a character comes whole, with its last token", body={"messages": broken, "stream": True},
         events=[chunk([first()]), *body(pieces(broken + [END])), "[DONE]"])


def list_character():
    """A three-byte character as single byte tokens."""
    back = {b: c for c, b in BYTES_OF.items()}
    return [v(back[b]) for b in "中".encode()]


def completion_logprobs(ids, k, start=0):
    out = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    at = start
    for i, piece in zip(ids, pieces(ids)):
        a = alternatives(i, k)
        out["tokens"].append(token_name(i))
        out["token_logprobs"].append(a[0][1])
        out["top_logprobs"].append({token_name(t): lp for t, lp in a[1:]})
        out["text_offset"].append(at)
        at += len(piece)
    return out


def completion_cases():
    path = "/v1/completions"
    prompt = [BEGIN] + HI
    case("completions", "text prompt, special tokens added", path, {"prompt": "hi there"},
         json=completion([text_choice(B + "hi there", "stop")], usage(6, 7)))
    case("completions", "ids", path, {"prompt": HI, "max_tokens": 2}, json=completion([text_choice("hi", "length")], usage(5, 2)))
    case("completions", "lists of texts: index is prompt x n + sample", path, {"prompt": ["h", "i"], "n": 2, "max_tokens": 2},
         json=completion([text_choice(t, "length", index=i) for i, t in enumerate([B + "h", B + "h", B + "i", B + "i"])], usage(4, 8)))
    case("completions", "lists of ids", path, {"prompt": [HI, HI[:2]], "max_tokens": 1},
         json=completion([text_choice("h", "length", index=0), text_choice("h", "length", index=1)], usage(7, 2)))
    case("completions", "prompt_token_ids", path, {"prompt_token_ids": HI, "max_tokens": 1},
         json=completion([text_choice("h", "length")], usage(5, 1)))
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
    def rows(k, decode=True):
        out = [None]
        for t in HI[1:3]:
            out.append({str(i): {"logprob": lp, "rank": r, "decoded_token": token_name(i) if decode else None}
                        for r, (i, lp) in enumerate(alternatives(t, k)[1:], 1)})
        return out
    case("completions", "prompt_logprobs", path, {"prompt": HI[:3], "max_tokens": 1, "prompt_logprobs": 2},
         server={"enable_logprob": True}, json=completion([text_choice("h", "length", prompt_logprobs=rows(2))], usage(3, 1)))
    case("completions", "prompt_logprobs without their texts", path,
         {"prompt": HI[:3], "max_tokens": 1, "prompt_logprobs": 2, "include_logprobs_decode_token": False},
         server={"enable_logprob": True},
         json=completion([text_choice("h", "length", prompt_logprobs=rows(2, False))], usage(3, 1)))
    case("completions_stream", "prompt_logprobs in the first chunk", path,
         {"prompt": HI[:3], "max_tokens": 2, "prompt_logprobs": 2, "stream": True}, server={"enable_logprob": True},
         events=[chunk([text_chunk("h") | {"prompt_logprobs": rows(2)}], False),
                 chunk([text_chunk("i", finish="length")], False), "[DONE]"])
    case("chat_stream", "prompt_logprobs in the first chunk",
         body={"messages": HI[:3], "max_tokens": 1, "prompt_logprobs": 2, "stream": True}, server={"enable_logprob": True},
         events=[chunk([first() | {"prompt_logprobs": rows(2)}]), chunk([middle("h", finish="length")]), "[DONE]"])
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
    case("completions", "return_token_ids", path, {"prompt": "hi there", "max_tokens": 2, "return_token_ids": True},
         json=completion([text_choice(B + "h", "length", ids=[BEGIN, v("h")], prompt=prompt, prompt_text="hi there")], usage(6, 2)))
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


def error_cases():
    chat_path, path = "/v1/chat/completions", "/v1/completions"
    def bad(name, body, message, param, server=None, where=chat_path, status=400, code="invalid_value", **kw):
        case("errors", name, where, body, status, server, json=error(message, param, code, **kw))
    bad("messages missing", {}, "Field required", "messages", code="missing_required_parameter")
    bad("messages of a wrong type", {"messages": "x"}, "Input should be a valid list", "list[any]")
    bad("no message", {"messages": []}, "List should have at least 1 item", "messages")
    bad("message without a role", {"messages": [{"content": "x"}]}, "Field required", "role")
    bad("prompt missing", {}, "Field required", "prompt", where=path)
    bad("body is a list", [1], "Input should be a valid dictionary", "body")
    low = lambda x: f"Input should be greater than or equal to {x}"
    high = lambda x: f"Input should be less than or equal to {x}"
    no_integer = "Input should be a valid integer, unable to parse string as an integer"
    unclear = "Input should be a valid boolean, unable to interpret input"
    for field, value, message in [
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
            ("return_token_ids", 2, unclear), ("return_token_ids", [], "Input should be a valid boolean"),
            ("reasoning_max_tokens", 0, "reasoning_max_tokens must be greater than 0"), ("reasoning_max_tokens", -1, "reasoning_max_tokens must be greater than 0"),
            ("response_max_tokens", -1, "response_max_tokens must be greater than 0"), ("response_max_tokens", "x", no_integer), ("logit_bias", {"x": 1}, 'logit_bias: "x" is no token id below 906'),
            ("logit_bias", {"906": 1}, 'logit_bias: "906" is no token id below 906'), ("logit_bias", {"1": "x"}, "logit_bias: a bias must be a number within +-1e6"),
            ("max_streaming_response_tokens", "x", no_integer)]:
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
        "logprobs", where=path)
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
    bad("unknown model", {"messages": ASK, "model": "other"}, "Unsupported model: [other], support [tiny] or default", "model",
        server={"served_model_name": "tiny"}, code="model_not_support")
    bad("prompt too long", {"messages": [7] * 511}, "Input text is too long, length of prompt token(511) + min_dec_len (1) >= max_model_len(512)",
        "messages", code="context_length_exceeded")
    bad("prompt and min_tokens too long", {"prompt": [7] * 400, "min_tokens": 112},
        "Input text is too long, length of prompt token(400) + min_dec_len (112) >= max_model_len(512)", "prompt", where=path,
        code="context_length_exceeded")
    case("errors", "original status on demand", chat_path, {"messages": [7] * 511}, 500, {"original_error_status": True},
         json=error("Input text is too long, length of prompt token(511) + min_dec_len (1) >= max_model_len(512)", "messages",
                    "context_length_exceeded"))
    bad("empty prompt", {"prompt": []}, "List should have at least 1 item", "prompt", where=path)
    bad("an empty prompt in a list", {"prompt": [[]]}, "the prompt has no tokens", "prompt", where=path)
    bad("mixed prompts", {"prompt": ["a", [1]]}, "Input should be a string, a list of strings, a list of ids or a list of lists of ids", "prompt", where=path)
    bad("prompts x n", {"prompt": ["a"] * 200, "n": 128}, "prompts x n may be at most 1024", "n", where=path)
    bad("too many prompts", {"prompt": ["a"] * 257}, "List should have at most 256 items, not 257", "prompt", where=path)
    bad("suffix as a string", {"prompt": "x", "suffix": "abc"}, "Input should be a valid dictionary", "suffix", where=path)
    bad("a picture", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        "this model takes text only: a content part of type image_url cannot be used", "content")
    bad("unknown part", {"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "Unknown content part type: smell", "content")
    bad("logits_processors_args without the processor", {"messages": ASK, "logits_processors_args": {"logit_bias": {"1": 1}}},
        "logit_bias needs a server started with --logits-processors LogitBiasLogitsProcessor", "logits_processors_args")
    bad("reserved template variable", {"messages": ASK, "chat_template_kwargs": {"messages": []}}, "$string", "chat_template_kwargs")
    for name, raw in [("not JSON", "{"), ("two values", "{} {}"), ("NaN", '{"temperature": NaN}'), ("infinity", '{"temperature": Infinity}'),
                      ("single quotes", "{'a': 1}"), ("empty body", ""), ("lone surrogate", '{"prompt": "\\ud800"}'), ("deep", "[" * 100 + "]" * 100)]:
        CASES["errors"].append({"name": f"JSON: {name}", "server": {}, "method": "POST", "path": path, "raw": raw, "status": 400,
                                "json": error("$string", "body")})
    CASES["errors"].append({"name": "number beyond doubles", "server": {}, "method": "POST", "path": path,
                            "raw": '{"prompt": "x", "temperature": 1e999}', "status": 400, "json": error("$string", "$string")})
    CASES["errors"].append({"name": "invalid UTF-8", "server": {}, "method": "POST", "path": path, "raw_hex": '{"prompt": "'.encode().hex() + "ff" + '"}'.encode().hex(),
                            "status": 400, "json": error("$string", "body")})


GUIDED = "needs guided decoding, which this server does not have yet"
FORCED = "cannot be kept: this server does not force tool calls yet"
TRANSFER = "needs prefill and decode in separate servers, which this server does not have yet"
BEAMS = "needs beam search, which this server does not have"
# Field, a value that asks for something, one that asks for nothing, why it is refused.
INERT = [
    ("structured_outputs", {"json": {}}, None, GUIDED), ("guided_json", {"type": "object"}, None, GUIDED), ("guided_json", "{}", None, GUIDED),
    ("guided_regex", "a+", None, GUIDED), ("guided_choice", ["a", "b"], None, GUIDED), ("guided_grammar", "root ::= a", None, GUIDED),
    ("guided_json_object", True, False, GUIDED), ("structural_tag", "{}", None, GUIDED), ("json_schema", {}, None, GUIDED),
    ("grammar", "root ::= a", None, GUIDED), ("regex", "a", None, GUIDED), ("ebnf", "root ::= a", None, GUIDED),
    ("response_format", {"type": "json_object"}, {"type": "text"}, GUIDED),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, None, GUIDED),
    ("response_format", {"type": "structural_tag", "structures": [], "triggers": []}, None, GUIDED),
    ("tool_choice", "required", "auto", FORCED), ("tool_choice", {"type": "function", "function": {"name": "f"}}, "none", FORCED),
    ("functions", [{"name": "f"}], [], "is the obsolete form of `tools`, which acts"), ("function_call", {"name": "f"}, "auto", FORCED),
    ("parallel_tool_calls", False, True, "cannot be kept: this server finds no tool calls (--tool-call-parser)"),
    ("reasoning_max_tokens", 20, None, "needs a limit on reasoning, which this server does not have yet"),
    ("thinking_token_budget", 20, None, "needs a limit on reasoning, which this server does not have yet"),
    ("response_max_tokens", 20, None, "acts only where thinking is off (chat_template_kwargs.enable_thinking: false)"),
    ("include_reasoning", False, True, "cannot be kept: this server does not part reasoning from answers (--reasoning-parser)"),
    ("logits_processors_args", {"thinking_budget": 3}, {}, "holds a key that no logits processor of this server reads"),
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
    ("audio", {"voice": "x"}, None, "needs spoken answers, which this server does not have"),
    ("modalities", ["text", "audio"], ["text"], "needs spoken answers, which this server does not have"),
    ("web_search_options", {}, None, "needs a web search, which this server does not have"),
    ("best_of", 2, 1, "above n has no effect: n answers are made and given"),
    ("detokenize", False, True, "cannot be kept: answers are text (return_token_ids adds the ids)"),
    ("verbosity", "low", "medium", "is not available in this server"), ("store", True, False, "cannot be kept: this server stores no answers"),
]
INERT_COMPLETIONS = [
    ("best_of", 2, 1, "above n has no effect: n answers are made and given"), ("guided_regex", "a", None, GUIDED),
    ("prompt_embeds", "x", None, "is not available in this server"), ("response_format", {"type": "json_object"}, {"type": "text"}, GUIDED),
]


def inert_cases():
    """Fields without effect: refused, let pass with allow_inert, and no fault with a value that asks for nothing."""
    allowed = {"allow_inert": True, "enable_logprob": True}
    n = len(CHAT_HI)
    hint = "; leave it out, or start the server with --allow-inert-flags to have it ignored"
    for field, asks, neutral, why in INERT:
        name = f"{field} = {json.dumps(asks)}"
        body = {"messages": ASK, "max_tokens": 2}
        good = chat([chat_choice(U + "h", "length")], usage(n, 2))
        case("inert", name, body=body | {field: asks}, status=400, json=error(f"{field} {why}{hint}", field))
        case("inert", f"{name} with allow_inert", body=body | {field: asks}, server=allowed, json=good)
        case("inert", f"{field} = {json.dumps(neutral)}", body=body | {field: neutral}, json=good)
    path = "/v1/completions"
    body = {"prompt": HI, "max_tokens": 2}
    good = completion([text_choice("hi", "length")], usage(5, 2))
    for field, asks, neutral, why in INERT_COMPLETIONS:
        name = f"completions: {field} = {json.dumps(asks)}"
        case("inert", name, path, body | {field: asks}, 400, json=error(f"{field} {why}{hint}", field))
        case("inert", f"{name} with allow_inert", path, body | {field: asks}, server=allowed, json=good)
        case("inert", f"completions: {field} = {json.dumps(neutral)}", path, body | {field: neutral}, json=good)
    both = {"prompt": "hi there", "max_tokens": 1, "echo": True, "logprobs": 1}
    case("inert", "echo together with logprobs", path, both, 400, {"enable_logprob": True}, json=error(
        "echo together with logprobs has no effect on logprobs: those of the prompt would be missing (prompt_logprobs has them)" + hint, "echo"))
    case("inert", "echo together with logprobs and allow_inert", path, both, server=allowed, json="$any")
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
         json=error("response_max_tokens acts only where thinking is off (chat_template_kwargs.enable_thinking: false)" + hint,
                    "response_max_tokens"))
    case("inert", "/tokenize does not mind", "/tokenize", {"messages": ASK, "guided_regex": "a"},
         json={"count": n, "max_model_len": 512, "tokens": CHAT_HI, "token_strs": None})


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


def other_cases():
    def get(name, path, status=200, method="GET", server=None, **want):
        case("endpoints", name, path, None, status, server, method, **want)
    get("health", "/health", text="")
    get("ping", "/ping", text="")
    get("ping by POST", "/ping", method="POST", text="")
    get("version", "/version", json={"version": "$string"})
    get("models", "/v1/models", json={"object": "list", "data": [{
        "id": "models/tiny", "object": "model", "created": "$int", "owned_by": "FastDeploy", "root": "models/tiny", "parent": None,
        "max_model_len": 512, "permission": [{
            "id": "$id:modelperm-", "object": "model_permission", "created": "$int", "allow_create_engine": False,
            "allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False, "allow_view": True,
            "allow_fine_tuning": False, "organization": "*", "group": None, "is_blocking": False}]}]})
    get("unknown path", "/v1/nothing", 404, json={"detail": "Not Found"})
    get("unknown path by POST", "/", 404, method="POST", json={"detail": "Not Found"})
    get("wrong method", "/v1/chat/completions", 405, json={"detail": "Method Not Allowed"})
    get("wrong method", "/health", 405, method="POST", json={"detail": "Method Not Allowed"})
    get("wrong method", "/v1/models", 405, method="DELETE", json={"detail": "Method Not Allowed"})
    get("config", "/config-info", server={"config_info": '{"max_num_seqs":8}'}, json={"max_num_seqs": 8})
    get("not paused", "/v1/is_paused", json={"request_id": "$id:control-", "status": "success", "error_message": None, "result": {"is_paused": False}})
    get("pause", "/v1/pause", 501, method="POST", json={"request_id": "$id:control-", "status": "error", "error_message": "$string", "result": None})
    get("weights", "/clear_load_weight", 404, text="Dynamic Load Weight Disabled.")
    get("embeddings", "/v1/embeddings", 400, method="POST", json=error("$string"))
    case("endpoints", "tokenize", "/tokenize", {"prompt": "hi there"},
         json={"count": 6, "max_model_len": 512, "tokens": [BEGIN] + HI, "token_strs": None})
    case("endpoints", "tokenize without special tokens", "/tokenize", {"prompt": "hi there", "add_special_tokens": False},
         json={"count": 5, "max_model_len": 512, "tokens": HI, "token_strs": None})
    case("endpoints", "tokenize a chat", "/tokenize", {"messages": ASK},
         json={"count": 9, "max_model_len": 512, "tokens": CHAT_HI, "token_strs": None})
    case("endpoints", "detokenize", "/detokenize", {"tokens": HI}, json={"prompt": "hi there"})
    case("endpoints", "detokenize needs tokens", "/detokenize", {}, 400, json=error("Field required", "tokens"))
    case("endpoints", "detokenize range", "/detokenize", {"tokens": [906]}, 400,
         json=error("Token id 906 is out of range: the vocabulary has 906 tokens", "tokens"))
    case("endpoints", "abort: nothing runs", "/v1/abort_requests", {"abort_all": True},
         json={"request_id": "$id:control-", "status": "success", "error_message": None, "result": {"aborted": [], "not_found": []}})
    case("endpoints", "abort: not found", "/v1/abort_requests", {"req_ids": ["x"]},
         json={"request_id": "$id:control-", "status": "success", "error_message": None, "result": {"aborted": [], "not_found": ["x"]}})
    case("endpoints", "abort: nothing named", "/v1/abort_requests", {}, 400, json=error("abort_all or req_ids is needed", "req_ids"))
    case("endpoints", "tools reach the template, text stays in content", "/v1/chat/completions",
         {"messages": ASK, "tools": [{"type": "function", "function": {"name": "f"}}], "disable_chat_template": False, "max_tokens": 2},
         json=chat([chat_choice("TO", "length")], {**usage(0, 2), "prompt_tokens": "$int", "total_tokens": "$int"}))


def main():
    for make in (chat_cases, stream_cases, completion_cases, error_cases, inert_cases, lenient_cases, other_cases):
        make()
    for name, cases in CASES.items():
        lines = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
        (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n")
        print(name, len(cases))


main()
