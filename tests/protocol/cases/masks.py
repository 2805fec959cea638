"""--enable-keep-sampling-mask: the ids that truncation left, which the echo engine makes up: the token and the next id."""
from .answers import TAGGED, TOOLS, counts, ids
from .shapes import (
    ASK, CHAT_HI, HI, U, USER, VOCAB_SIZE, case, chat, chat_choice, chunk, completion, first, middle, text_chunk,
    text_choice, usage, v,
)

ON = {"sampling_mask": True}


def kept(tokens):
    return [[i] + [i + 1] * (i + 1 < VOCAB_SIZE) for i in tokens]


def mask_cases():
    n = len(CHAT_HI)
    mask = {"sampling_mask": kept(CHAT_HI[:2])}
    case("chat", "sampling masks", server=ON, body={"messages": ASK, "max_tokens": 2},
         json=chat([chat_choice(U + "h", "length") | mask], usage(n, 2)))
    case("chat", "a greedy token was drawn from itself", server=ON, body={"messages": ASK, "max_tokens": 2, "temperature": 0},
         json=chat([chat_choice(U + "h", "length") | {"sampling_mask": [[i] for i in CHAT_HI[:2]]}], usage(n, 2)))
    case("chat", "nothing truncated, no mask", server=ON, body={"messages": ASK, "max_tokens": 2, "top_p": 1},
         json=chat([chat_choice(U + "h", "length") | {"sampling_mask": None}], usage(n, 2)))
    case("chat_stream", "sampling masks", server=ON, body={"messages": ASK, "stream": True, "max_tokens": 2},
         events=[chunk([first()]), chunk([middle(U) | {"sampling_mask": kept([USER])}]),
                 chunk([middle("h", finish="length") | {"sampling_mask": kept([v("h")])}]), "[DONE]"])
    path = "/v1/completions"
    case("completions", "sampling masks", path, {"prompt": HI, "max_tokens": 2}, server=ON,
         json=completion([text_choice("hi", "length") | {"sampling_mask": kept(HI[:2])}], usage(5, 2)))
    case("completions_stream", "sampling masks", path, {"prompt": HI, "max_tokens": 2, "stream": True}, server=ON,
         events=[chunk([text_chunk("h") | {"sampling_mask": kept(HI[:1])}], False),
                 chunk([text_chunk("i", finish="length") | {"sampling_mask": kept(HI[1:2])}], False), "[DONE]"])
    # Tokens that a parser holds back show theirs with the next that is shown: here none but the last.
    call = ids(TAGGED)
    choice = chat_choice(None, "tool_calls")
    choice["message"]["tool_calls"] = "$any"
    case("answers", "a call: masks of all its tokens", server=ON | {"parsers": ["", "hermes"]},
         body={"messages": call, "tools": TOOLS},
         json=chat([choice | {"sampling_mask": kept(call + [903])}], counts(len(call), 0)))
    case("answers", "a call in a stream: masks of tokens that are held back", server=ON | {"parsers": ["", "hermes"]},
         body={"messages": call[:5], "tools": TOOLS, "stream": True, "max_tokens": 5},
         events=[chunk([first()]), chunk([middle("<tool", finish="length") | {"sampling_mask": kept(call[:5])}]), "[DONE]"])
