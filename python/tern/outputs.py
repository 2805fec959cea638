"""What a request gives back: the fields of FastDeploy's RequestOutput."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple


@dataclasses.dataclass
class RequestMetrics:
    """Times are seconds since 1970, durations are seconds; None: a stage this engine does not have.

    `model_execute_time` runs from the arrival to the newest token, `model_forward_time` from the start of inference;
    `first_token_time` is the span from there to the first token.
    """

    arrival_time: float | None = None
    preprocess_start_time: float | None = None
    preprocess_end_time: float | None = None
    scheduler_recv_req_time: float | None = None
    engine_get_req_time: float | None = None
    add_req_to_resource_manager_time: float | None = None
    inference_start_time: float | None = None
    engine_recv_latest_token_time: float | None = None
    engine_recv_first_token_time: float | None = None
    ask_decode_resource_start_time: float | None = None
    ask_decode_resource_finish_time: float | None = None
    wait_for_sending_cache_time: float | None = None
    send_request_output_to_decode_time: float | None = None
    decode_recv_req_time: float | None = None
    decode_preallocate_req_time: float | None = None
    decode_recv_first_token_time: float | None = None
    decode_inference_start_time: float | None = None
    decode_recv_second_token_time: float | None = None
    first_token_time: float | None = None
    time_in_queue: float | None = None
    preprocess_cost_time: float | None = None
    model_forward_time: float | None = None
    model_execute_time: float | None = None
    request_start_time: float | None = None
    llm_engine_recv_req_timestamp: float | None = None
    llm_engine_send_req_to_engine_timestamp: float | None = None
    llm_engine_recv_latest_token_timestamp: float | None = None

    @classmethod
    def of(cls, values):
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in (values or {}).items() if k in known})


@dataclasses.dataclass
class Logprob:
    logprob: float
    rank: int | None = None  # 1: the likeliest
    decoded_token: str | None = None


class LogprobsLists(NamedTuple):
    """For each token of an answer: itself, then the likeliest ones. A rank is None where it is not among those."""

    logprob_token_ids: list[list[int]]
    logprobs: list[list[float]]
    sampled_token_ranks: list[int | None]


@dataclasses.dataclass
class CompletionOutput:
    """One answer. `logprob`: of each token; `logprobs`: for each token the likeliest ones, from token id to Logprob;
    `top_logprobs`: the same as lists, the token itself in front. None if not asked for."""

    index: int = 0
    send_idx: int = 0
    token_ids: list[int] = dataclasses.field(default_factory=list)
    text: str = ""
    reasoning_content: str | None = None
    reasoning_token_num: int = 0
    top_logprobs: LogprobsLists | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    logprob: list[float] | None = None
    draft_top_logprobs: list[Any] | None = None
    draft_token_ids: list[int] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    finish_reason: str | None = None


@dataclasses.dataclass
class RequestOutput:
    """One answer to one prompt, in `outputs`. With n above 1 a prompt has n of these, one behind the other.

    A prompt that was refused has `error_code` other than 200 and `error_msg`; the others of the same call are answered.
    """

    request_id: str = ""
    prompt: Any = None
    prompt_token_ids: list[int] | None = None
    prompt_token_ids_len: int = 0
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    output_type: int = 3
    outputs: Any = None
    finished: bool = False
    metrics: RequestMetrics | None = None
    num_cached_tokens: int = 0
    num_input_image_tokens: int = 0
    num_input_video_tokens: int = 0
    error_code: int = 200
    error_msg: str | None = None


def refused(prompt, status, message):
    return RequestOutput(prompt=prompt, finished=True, error_code=status, error_msg=message)


def _completion(choice, reasoning_tokens):
    message = choice.get("message", choice)
    text = message.get("content") if "message" in choice else choice.get("text")
    out = CompletionOutput(
        index=choice["index"],
        token_ids=message.get("completion_token_ids") or [],
        text=text or "",
        reasoning_content=message.get("reasoning_content"),
        reasoning_token_num=reasoning_tokens,
        tool_calls=message.get("tool_calls"),
        finish_reason=choice.get("finish_reason"),
    )
    take_logprobs(out, choice.get("logprobs"), out.token_ids)
    out.send_idx = max(0, len(out.token_ids) - 1)
    return out


def take_logprobs(out, found, ids):
    """Appends the log-probabilities of a choice or a chunk, of either protocol. `ids`: of its tokens."""
    if not found:
        return
    if out.logprob is None:
        out.logprob, out.logprobs, out.top_logprobs = [], [], LogprobsLists([], [], [])
    if "content" in found:
        entries = found["content"] or []
        ids = [entry["token_id"] for entry in entries]
        values = [entry["logprob"] for entry in entries]
        tops = [[(t["token_id"], t["logprob"], t["token"]) for t in entry["top_logprobs"]] for entry in entries]
    else:
        values = found["token_logprobs"]
        named = zip(found["top_token_ids"], found["top_logprobs"])
        tops = [[(i, value, text) for i, (text, value) in zip(top_ids, top.items())] for top_ids, top in named]
    for token, value, top in zip(ids, values, tops):
        out.logprob.append(value)
        out.logprobs.append({i: Logprob(likely, rank, text) for rank, (i, likely, text) in enumerate(top, 1)})
        lists = out.top_logprobs
        lists.logprob_token_ids.append([token, *(i for i, _, _ in top)])
        lists.logprobs.append([value, *(likely for _, likely, _ in top)])
        lists.sampled_token_ranks.append(next((rank for rank, (i, _, _) in enumerate(top, 1) if i == token), None))


def _prompt_logprobs(found):
    """From the protocol's ids, which are texts there, to numbers; the first token has none."""
    if found is None:
        return None
    return [one and {int(i): Logprob(**values) for i, values in one.items()} for one in found]


def take_usage(output, usage):
    details = usage.get("prompt_tokens_details") or {}
    output.prompt_token_ids_len = usage["prompt_tokens"]
    output.num_cached_tokens = details.get("cached_tokens", 0)
    output.num_input_image_tokens = details.get("image_tokens", 0)
    output.num_input_video_tokens = details.get("video_tokens", 0)


def from_answer(prompt, answer):
    """RequestOutputs, one per choice, from a whole answer of /v1/chat/completions or /v1/completions."""
    usage, outputs = answer["usage"], []
    choices = answer["choices"]
    # Usage counts the thoughts of all choices together: with several they are not known one by one.
    thoughts = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0) if len(choices) == 1 else 0
    for choice in choices:
        message = choice.get("message", choice)
        output = RequestOutput(
            request_id=answer["id"],
            prompt=prompt,
            prompt_token_ids=message.get("prompt_token_ids"),
            prompt_logprobs=_prompt_logprobs(choice.get("prompt_logprobs")),
            outputs=_completion(choice, thoughts),
            finished=True,
            metrics=RequestMetrics.of(choice.get("metrics")),
        )
        take_usage(output, usage)
        outputs.append(output)
    return outputs


@dataclasses.dataclass
class EmbeddingOutput:
    embedding: list[float]


@dataclasses.dataclass
class RewardOutput:
    score: list  # of labels, or a list of such lists where several tokens are scored


@dataclasses.dataclass
class PoolingRequestOutput:
    """What a pooling model made of one prompt; `outputs` is None where it refused, and error_msg says why."""

    request_id: str = ""
    prompt: Any = None
    prompt_token_ids: list[int] | None = None
    outputs: Any = None
    finished: bool = False
    error_code: int = 200
    error_msg: str | None = None


class EmbeddingRequestOutput(PoolingRequestOutput):
    """`outputs` is an EmbeddingOutput."""


class RewardRequestOutput(PoolingRequestOutput):
    """`outputs` is a RewardOutput."""


def from_vector(kind, prompt, status, answer):
    if status != 200:
        return kind(prompt=prompt, finished=True, error_code=status, error_msg=answer["error"]["message"])
    data = answer["data"][0]
    outputs = EmbeddingOutput(data["embedding"]) if "embedding" in data else RewardOutput(data["score"])
    return kind(answer["id"], prompt, data.get("prompt_token_ids"), outputs, True)


class Growing:
    """RequestOutputs, one per choice, that grow with the chunks of a stream."""

    def __init__(self, prompt, n):
        self.outputs = [RequestOutput(prompt=prompt, outputs=CompletionOutput(index=i)) for i in range(n)]

    def take(self, chunk):
        """True when a choice has something new."""
        if "error" in chunk:
            for output in self.outputs:
                output.error_code, output.error_msg = int(chunk["error"].get("code") or 500), chunk["error"]["message"]
                output.finished = True
            return True
        for choice in chunk["choices"]:
            self._take_choice(choice, chunk)
        if chunk.get("usage") and len(self.outputs) == 1:
            take_usage(self.outputs[0], chunk["usage"])
        return bool(chunk["choices"])

    def _take_choice(self, choice, chunk):
        output = self.outputs[choice["index"]]
        news = choice.get("delta", choice)
        done = output.outputs
        output.request_id = chunk["id"]
        if news.get("prompt_token_ids"):
            output.prompt_token_ids = news["prompt_token_ids"]
            output.prompt_token_ids_len = len(output.prompt_token_ids)
        done.token_ids += news.get("completion_token_ids") or []
        done.send_idx = max(0, len(done.token_ids) - 1)
        done.text += (news.get("content") if "delta" in choice else news.get("text")) or ""
        if news.get("reasoning_content"):
            done.reasoning_content = (done.reasoning_content or "") + news["reasoning_content"]
        for call in news.get("tool_calls") or []:
            self._take_call(done, call)
        take_logprobs(done, choice.get("logprobs"), news.get("completion_token_ids") or [])
        if choice.get("prompt_logprobs"):
            output.prompt_logprobs = _prompt_logprobs(choice["prompt_logprobs"])
        if chunk.get("metrics"):
            output.metrics = RequestMetrics.of(chunk["metrics"])
        if choice.get("finish_reason"):
            done.finish_reason, output.finished = choice["finish_reason"], True

    @staticmethod
    def _take_call(done, call):
        done.tool_calls = done.tool_calls or []
        while len(done.tool_calls) <= call["index"]:
            done.tool_calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        known, news = done.tool_calls[call["index"]], call.get("function") or {}
        known["id"] = call.get("id") or known["id"]
        known["function"]["name"] += news.get("name") or ""
        known["function"]["arguments"] += news.get("arguments") or ""
