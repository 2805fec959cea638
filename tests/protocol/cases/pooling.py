"""Embeddings and rewards. The echo engine's vector of a token is its id, its id + 1 and so on."""

import base64
import struct

from .shapes import BEGIN, CHAT_HI, HI, case, error

EMBED, REWARD, STEPS = {"pooling": "embeddings"}, {"pooling": "rewards"}, {"pooling": "steps"}
ASK = [{"role": "user", "content": "hi there"}]
ASKED = CHAT_HI[:-1]  # without a generation prompt


def answer(kind, values, tokens):
    name = "embedding" if kind == "embedding" else "score"
    data = [{"index": i, "object": kind, name: v} for i, v in enumerate(values)]
    return {
        "id": "$id:embd-" if kind == "embedding" else "$id:reward-",
        "object": "list" if kind == "embedding" else "object",
        "created": "$int",
        "model": "default",
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def vector(token, n=3):
    return [token + j for j in range(n)]


def embedding_cases():
    path, plain = "/v1/embeddings", {"normalize": False}

    def embed(name, body, vectors=None, tokens=0, status=200, server=EMBED, **want):
        want = want or {"json": answer("embedding", vectors, tokens)}
        case("pooling", name, path, body, status, server, **want)

    last = vector(HI[-1])
    embed("a text", {"input": "hi there"} | plain, [last], 6)
    embed("a text without special tokens", {"input": "hi there", "add_special_tokens": False} | plain, [last], 5)
    embed("ids", {"input": HI} | plain, [last], 5)
    embed("texts, in order", {"input": ["hi there", "hi"]} | plain, [last, vector(HI[1])], 9)
    embed("lists of ids", {"input": [[7], [8, 9]]} | plain, [vector(7), vector(9)], 3)
    embed("a conversation has no generation prompt", {"messages": ASK} | plain, [vector(ASKED[-1])], len(ASKED))
    embed(
        "a conversation with one", {"messages": ASK, "add_generation_prompt": True} | plain, [vector(CHAT_HI[-1])], len(CHAT_HI)
    )
    embed("a conversation of ids", {"messages": [4, 5]} | plain, [vector(5)], 2)
    embed("dimensions", {"input": [7], "dimensions": 2} | plain, [[7, 8]], 1)
    embed("normalized, after it is cut", {"input": [7], "dimensions": 1}, [[1]], 1)
    packed = base64.b64encode(struct.pack("<3f", *vector(7))).decode()
    embed("base64", {"input": [7], "encoding_format": "base64"} | plain, [packed], 1)
    packed = base64.b64encode(struct.pack("<2f", *vector(7, 2))).decode()
    embed("base64 with padding", {"input": [7], "encoding_format": "base64", "dimensions": 2} | plain, [packed], 1)
    embed("the last tokens", {"input": [7, 8, 9], "truncate_prompt_tokens": 2} | plain, [vector(9)], 2)
    embed("as many as fit", {"input": [7] * 600, "truncate_prompt_tokens": -1} | plain, [vector(7)], 510)
    shown = answer("embedding", [vector(HI[-1])], 6)
    shown["data"][0] |= {"prompt_token_ids": [BEGIN] + HI, "prompt_tokens": "hi there"}
    embed("ids shown", {"input": "hi there", "return_token_ids": True} | plain, json=shown)

    def refused(name, body, message, param, server=EMBED):
        embed(name, body, status=400, server=server, json=error(message, param))

    refused("needs input", {}, "Field required", "input")
    refused("an empty list", {"input": []}, "List should have at least 1 item", "input")
    refused(
        "a mixed list",
        {"input": ["a", [1]]},
        "Input should be a string, a list of strings, a list of ids or a list of lists of ids",
        "input",
    )
    refused("dimensions the model has not", {"input": [7], "dimensions": 4}, "$string", "dimensions")
    refused("encoding", {"input": [7], "encoding_format": "hex"}, "Input should be 'float' or 'base64'", "encoding_format")
    refused("streams", {"input": [7], "stream": True}, "embeddings and rewards are not streamed", "stream")
    refused(
        "priority",
        {"input": [7], "priority": 1},
        "priority needs scheduling by priority, which this server does not have",
        "priority",
    )
    embed(
        "too long",
        {"input": [7] * 600},
        status=400,
        json=error(
            "Input text is too long, length of prompt token(600) + min_dec_len (1) >= max_model_len(512)",
            "input",
            "context_length_exceeded",
        ),
    )


def reward_cases():
    for path in ("/v1/reward", "/v1/chat/reward"):
        case(
            "pooling",
            "the score of a conversation",
            path,
            {"messages": ASK},
            server=REWARD,
            json=answer("reward", [vector(ASKED[-1], 2)], len(ASKED)),
        )
    path = "/v1/reward"
    case(
        "pooling",
        "of every token",
        path,
        {"messages": [4, 5]},
        server=STEPS,
        json=answer("reward", [[vector(4, 2), vector(5, 2)]], 2),
    )
    case(
        "pooling",
        "a reward needs messages",
        path,
        {"input": "hi"},
        400,
        REWARD,
        json=error("Field required", "messages", "missing_required_parameter"),
    )
    for key, value in (("dimensions", 2), ("normalize", True), ("encoding_format", "float")):
        case(
            "pooling",
            f"a score has no {key}",
            path,
            {"messages": ASK, key: value},
            400,
            REWARD,
            json=error(f"{key} belongs to embeddings: scores are given as they are", key),
        )


def wrong_kind_cases():
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
        case(
            "pooling",
            f"a pooling model has no {path}",
            path,
            {},
            400,
            EMBED,
            json=error("this is a pooling model (--runner pooling): it generates no text"),
        )
    for path in ("/v1/embeddings", "/v1/reward", "/v1/chat/reward"):
        case(
            "pooling",
            f"a model of text has no {path}",
            path,
            {},
            400,
            json=error("this model generates text: embeddings and rewards need a pooling model"),
        )
    case(
        "pooling",
        "a model of rewards",
        "/v1/embeddings",
        {"input": [7]},
        400,
        REWARD,
        json=error("this model gives rewards (/v1/reward), no embeddings", "model"),
    )
    case(
        "pooling",
        "a model of embeddings",
        "/v1/reward",
        {"messages": ASK},
        400,
        EMBED,
        json=error("this model gives embeddings (/v1/embeddings), no rewards", "model"),
    )
