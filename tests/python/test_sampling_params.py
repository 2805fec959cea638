"""SamplingParams: defaults, bounds, and the request it makes."""

import pytest
from tern import GuidedDecodingParams, SamplingParams


def test_what_is_not_set_is_not_asked_for():
    assert SamplingParams().fields(True) == SamplingParams().fields(False) == {}
    asked = SamplingParams(temperature=0, top_k=5, stop="x", logprobs=2, guided_decoding=GuidedDecodingParams(choice=["a"]))
    assert asked.fields(False) == {"temperature": 0, "top_k": 5, "stop": ["x"], "logprobs": 2, "guided_choice": ["a"]}
    assert asked.fields(True)["logprobs"] is True and asked.fields(True)["top_logprobs"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"presence_penalty": 2.5},
        {"frequency_penalty": -2.5},
        {"top_k": -2},
        {"min_p": 1.5},
        {"min_tokens": 9, "max_tokens": 8},
        {"reasoning_max_tokens": 9, "max_tokens": 8},
        {"prompt_logprobs": -2},
    ],
)
def test_bounds(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingParams(**wrong)


def test_the_constructor_by_place_and_copies():
    made = SamplingParams.from_optional(None, None, None, 0.5, None, None, 0.8, None, None, seed=3, bad_words=["x"])
    assert (made.n, made.presence_penalty, made.frequency_penalty, made.repetition_penalty) == (1, 0.0, 0.5, 1.0)
    assert (made.temperature, made.top_p, made.max_tokens, made.seed, made.bad_words) == (1.0, 0.8, 8192, 3, ["x"])
    with pytest.raises(TypeError, match="beams"):
        SamplingParams.from_optional(beams=3)
    copy = made.clone()
    copy.bad_words.append("y")
    assert made.bad_words == ["x"] and copy.seed == 3
    assert SamplingParams.from_dict({"top_p": 0.5, "messages": []}) == SamplingParams(top_p=0.5)
