"""What a request asks for: the fields of FastDeploy's SamplingParams, checked where they are set."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any


@dataclasses.dataclass
class GuidedDecodingParams:
    """At most one of them. `json`: a schema as text or dict; `choice`: a list of answers; `json_object`: any JSON object."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None

    def __post_init__(self):
        if len(self.fields()) > 1:
            raise ValueError("GuidedDecodingParams takes one of json, regex, choice, grammar, json_object, structural_tag")

    def fields(self):
        """The fields of a request; {} without a constraint."""
        named = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            name if name == "structural_tag" else "guided_" + name: value
            for name, value in named.items()
            if value is not None and value is not False
        }


@dataclasses.dataclass
class SamplingParams:
    """FastDeploy's fields and defaults. None leaves a value to the model's generation_config.json or the server.

    `max_tokens` None: what the context leaves. `logprobs` and `prompt_logprobs`: how many tokens at each position.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_seqs_len: int | None = None
    max_tokens: int | None = None
    reasoning_max_tokens: int | None = None
    min_tokens: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    temp_scaled_logprobs: bool = False
    top_p_normalized_logprobs: bool = False
    bad_words: list[str] | None = None
    bad_words_token_ids: list[int] | None = None
    guided_decoding: GuidedDecodingParams | None = None
    logits_processors_args: dict[str, Any] | None = None
    ignore_eos: bool = False

    def __post_init__(self):
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        low = {"n": 1, "temperature": 0, "top_k": -1, "min_p": 0, "max_tokens": 1, "min_tokens": 0, "prompt_logprobs": -1}
        low.update(logprobs=-1, reasoning_max_tokens=0)
        for name, least in low.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            if value is not None and not -2 <= value <= 2:
                raise ValueError(f"{name} must be in [-2, 2], got {value}")
        if self.repetition_penalty is not None and not self.repetition_penalty > 0:
            raise ValueError(f"repetition_penalty must be above 0, got {self.repetition_penalty}")
        if None not in (self.max_tokens, self.reasoning_max_tokens) and self.reasoning_max_tokens > self.max_tokens:
            raise ValueError(f"reasoning_max_tokens {self.reasoning_max_tokens} is above max_tokens {self.max_tokens}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")

    @classmethod
    def from_dict(cls, req_dict):
        """Of a dict's keys that are fields here."""
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in req_dict.items() if name in known})

    @classmethod
    def from_optional(
        cls,
        n=None,
        best_of=None,
        presence_penalty=None,
        frequency_penalty=None,
        repetition_penalty=None,
        temperature=None,
        top_p=None,
        top_k=None,
        min_p=None,
        seed=None,
        stop=None,
        stop_token_ids=None,
        max_tokens=None,
        **more,
    ):
        """FastDeploy's constructor by place: None is 1 answer, no penalty, temperature 1, and 8192 tokens at most."""
        defaults = {"n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 1.0}
        defaults.update(top_k=0, min_p=0.0, max_tokens=8192)
        given = {**locals(), **more}
        fields = {f.name: given[f.name] for f in dataclasses.fields(cls) if given.get(f.name) is not None}
        if unknown := sorted(set(more) - {f.name for f in dataclasses.fields(cls)}):
            raise TypeError(f"SamplingParams has no {', '.join(unknown)}")
        return cls(**{**defaults, **fields})

    def clone(self):
        return copy.deepcopy(self)

    def fields(self, chat):
        """The fields of a request to /v1/chat/completions or /v1/completions."""
        out = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is None or f.name in ("guided_decoding", "logprobs", "stop_seqs_len"):
                continue
            if f.name == "min_tokens" and value <= 1:
                continue
            if value is not f.default:
                out[f.name] = value
        if self.guided_decoding is not None:
            out.update(self.guided_decoding.fields())
        if self.logprobs is not None:
            out.update({"logprobs": True, "top_logprobs": self.logprobs} if chat else {"logprobs": self.logprobs})
        return out
