"""Chats, whole and streamed."""
from .shapes import (
    ASK, CHAT_HI, END, HI, NAMES, ASSISTANT, U, USER, case, chat, chat_choice, chat_logprob, chunk, first,
    list_character, middle, pieces, text_of, usage, v,
)


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
    case("chat", "return_token_ids names the ids of logprobs too", server={"enable_logprob": True},
         body={"messages": ASK, "return_token_ids": True, "max_tokens": 2, "logprobs": True, "top_logprobs": 2},
         json=chat([chat_choice(U + "h", "length", ids=CHAT_HI[:2], prompt=CHAT_HI,
                                logprobs={"content": [chat_logprob(t, 2, ids=True) for t in CHAT_HI[:2]], "refusal": None})],
                   usage(n, 2)))
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


def stop_and_name_cases():
    n = len(CHAT_HI)
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
