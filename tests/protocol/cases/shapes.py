"""The tokenizer beside the cases, the echo engine's log probabilities and the shapes of answers."""
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parents[1]
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


def entry(pair, ids=False):
    i, lp = pair
    return {"token": token_name(i), "logprob": lp, "bytes": list(token_bytes(i))} | ({"token_id": i} if ids else {})


def chat_logprob(token, k, whole=True, decode=True, ids=False):
    """Whole answers name the field that an alternative does not have. Without `decode` no token has a name."""
    a = alternatives(token, k)
    more = {"top_logprobs": None} if whole else {}
    nameless = {} if decode else {"token": None, "bytes": None}
    return {**entry(a[0], ids), **nameless, "top_logprobs": [entry(x, ids) | nameless | more for x in a[1:]]}


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


def list_character():
    """A three-byte character as single byte tokens."""
    back = {b: c for c, b in BYTES_OF.items()}
    return [v(back[b]) for b in "中".encode()]


def completion_logprobs(ids, k, start=0, with_ids=False):
    out = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    at = start
    for i, piece in zip(ids, pieces(ids)):
        a = alternatives(i, k)
        out["tokens"].append(token_name(i))
        out["token_logprobs"].append(a[0][1])
        out["top_logprobs"].append({token_name(t): lp for t, lp in a[1:]})
        out["text_offset"].append(at)
        if with_ids:
            out.setdefault("top_token_ids", []).append([t for t, _ in a[1:]])
        at += len(piece)
    return out
