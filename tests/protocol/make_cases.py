#!/usr/bin/env python3
"""Writes the golden transcripts of this folder: requests and the answers the protocol description gives for them.

The server under test stands on the echo engine (the answer is the prompt's tokens again, then the end token) and on the
tokenizer beside this file. Expectations are put together here from the tables of the description, not recorded from a
server. Strings that begin with `$` are wildcards: $any, $string, $int, $number, $seconds, $id:PREFIX (an id that begins so).

Case file: a list of {name, server (config overrides), port (metrics, controller; without it the main one), method, path,
headers, body | raw, status, json | events | text | lines (of a text)}.
Keys of objects must match exactly: none missing, none more.
"""

import json

from cases import (
    answers,
    chat,
    completions,
    control,
    endpoints,
    errors,
    inert,
    lenient,
    masks,
    messages,
    pooling,
    responses,
    routes,
    shapes,
)

MAKERS = (
    answers.answer_cases,
    answers.answer_stream_cases,
    chat.chat_cases,
    chat.stop_and_name_cases,
    chat.stream_cases,
    completions.completion_cases,
    completions.prompt_and_special_token_cases,
    completions.completion_stream_cases,
    completions.scoring_cases,
    errors.error_cases,
    errors.prompt_error_cases,
    errors.byte_error_cases,
    inert.inert_cases,
    lenient.lenient_cases,
    masks.mask_cases,
    endpoints.other_cases,
    routes.route_cases,
    control.control_cases,
    responses.whole_cases,
    responses.stream_cases,
    responses.error_cases,
    messages.whole_cases,
    messages.stream_cases,
    messages.error_cases,
    pooling.embedding_cases,
    pooling.reward_cases,
    pooling.wrong_kind_cases,
)


def main():
    for make in MAKERS:
        make()
    for name, cases in shapes.CASES.items():
        lines = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
        (shapes.HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n")
        print(name, len(cases))


main()
