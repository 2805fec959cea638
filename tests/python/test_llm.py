"""The offline API against the model of the repository."""

import json
import threading

import pytest
from conftest import FLAGS, MODEL, ROOT
from tern import LLM, GuidedDecodingParams, RequestOutput, SamplingParams

ASK = [{"role": "user", "content": "1+1="}]
GREEDY = SamplingParams(temperature=0, max_tokens=8)


def test_every_form_of_a_prompt(llm):
    ids = llm.generate("1+1=", GREEDY)[0].prompt_token_ids
    same = llm.generate(["1+1=", ids, {"prompt": "1+1="}, {"prompt_token_ids": ids}], GREEDY)
    assert [type(x) for x in same] == [RequestOutput] * 4
    assert len({x.outputs.text for x in same}) == 1
    assert llm.generate(ids, GREEDY)[0].outputs.token_ids == same[0].outputs.token_ids
    first = same[0]
    assert first.prompt == "1+1=" and first.finished and first.error_code == 200
    assert first.prompt_token_ids_len == len(ids)
    assert first.metrics.arrival_time > 1e9 and first.metrics.first_token_time > 0


def test_chat_calculates(llm):
    assert llm.chat(ASK, GREEDY)[0].outputs.text == "2"
    both = llm.chat([ASK, [{"role": "user", "content": "2+3="}]], GREEDY)
    assert [x.outputs.text for x in both] == ["2", "5"]


def test_results_are_in_order(llm):
    sums = [[{"role": "user", "content": f"{a}+{b}="}] for a in range(1, 8) for b in range(1, 8)]
    answers = [x.outputs.text for x in llm.chat(sums, GREEDY)]
    assert answers == [str(a + b) for a in range(1, 8) for b in range(1, 8)]


def test_params_for_each_and_several_answers(llm):
    short, long = SamplingParams(max_tokens=2, ignore_eos=True), SamplingParams(max_tokens=5, ignore_eos=True, n=2, seed=3)
    outputs = llm.generate(["a", "b"], [short, long])
    assert [len(x.outputs.token_ids) for x in outputs] == [2, 5, 5]
    assert [x.outputs.index for x in outputs] == [0, 0, 1]
    with pytest.raises(ValueError, match="2 prompts and 1 sampling_params"):
        llm.generate(["a", "b"], [short])


def test_a_bad_prompt_has_its_own_error(llm):
    outputs = llm.generate(["1+1=", [1] * 5000, "1+1="], GREEDY)
    assert [x.error_code for x in outputs] == [200, 400, 200]
    assert "5000" in outputs[1].error_msg and outputs[1].outputs is None


def test_a_stream_grows_to_the_whole_answer(llm):
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)
    whole = llm.generate(["a", "b c"], params)
    seen = 0
    for state in llm.generate(["a", "b c"], params, stream=True):
        tokens = sum(len(x.outputs.token_ids) for x in state if x)
        assert tokens >= seen
        seen = tokens
    assert seen == 24
    for x, y in zip(state, whole):
        assert (x.outputs.text, x.outputs.token_ids) == (y.outputs.text, y.outputs.token_ids)
        assert x.outputs.logprob == pytest.approx(y.outputs.logprob, abs=1e-5)
        assert x.prompt_token_ids == y.prompt_token_ids and x.finished


def test_a_stream_that_is_left_is_aborted(llm):
    many = SamplingParams(max_tokens=900, ignore_eos=True)
    for _ in llm.generate(["a"] * 4, many, stream=True):
        break
    assert llm.chat(ASK, GREEDY)[0].outputs.text == "2"


def test_log_probabilities_by_id(llm):
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=3)
    chatted = llm.chat(ASK, params)[0]
    done = llm.generate(chatted.prompt_token_ids, params)[0]
    for out in (chatted.outputs, done.outputs):
        (token,) = out.token_ids
        assert len(out.logprob) == 1 and len(out.logprobs[0]) == 3
        best = out.logprobs[0][token]
        assert (best.rank, best.decoded_token) == (1, "2") and best.logprob == pytest.approx(out.logprob[0], abs=1e-5)
        lists = out.top_logprobs
        assert lists.logprob_token_ids == [[token, *out.logprobs[0]]] and lists.sampled_token_ranks == [1]
        assert lists.logprobs[0] == [out.logprob[0], *(x.logprob for x in out.logprobs[0].values())]
    assert list(chatted.outputs.logprobs[0]) == list(done.outputs.logprobs[0])


def test_log_probabilities_of_prompts():
    with LLM(MODEL, enable_logprob=True, enable_prefix_caching=False, **FLAGS) as llm:
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2)
        out = llm.generate("1+1=", params)[0]
        *_, ((streamed,)) = llm.generate("1+1=", params, stream=True)
    assert streamed.prompt_logprobs == out.prompt_logprobs
    assert len(out.prompt_logprobs) == out.prompt_token_ids_len and out.prompt_logprobs[0] is None
    for token, likely in zip(out.prompt_token_ids[1:], out.prompt_logprobs[1:]):
        assert likely[token].rank >= 1 and likely[token].logprob <= 0


def test_prompts_of_a_model_that_thinks(llm):
    """Its answers are parted as those of chats are, and the prompts are the same."""
    with LLM(MODEL, reasoning_parser="ernie-45-vl", enable_logprob=True, **FLAGS) as parted:
        for prompt in ("1+1=", llm.generate("1+1=", GREEDY)[0].prompt_token_ids):
            plain, one = llm.generate(prompt, GREEDY)[0], parted.generate(prompt, GREEDY)[0]
            assert one.error_code == 200, one.error_msg
            assert (one.outputs.token_ids, one.prompt_token_ids) == (plain.outputs.token_ids, plain.prompt_token_ids)


def test_guided_answers(llm):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    params = SamplingParams(max_tokens=60, guided_decoding=GuidedDecodingParams(json=schema), temperature=0)
    assert isinstance(json.loads(llm.chat(ASK, params)[0].outputs.text)["a"], int)
    choice = SamplingParams(max_tokens=10, guided_decoding=GuidedDecodingParams(choice=["yes", "no"]))
    assert llm.chat(ASK, choice)[0].outputs.text in ("yes", "no")
    with pytest.raises(ValueError, match="takes one of"):
        GuidedDecodingParams(regex="a", choice=["b"])


@pytest.mark.parametrize("wrong", [{"top_p": 2}, {"n": 0}, {"temperature": -1}, {"max_tokens": 0}, {"repetition_penalty": 0}])
def test_wrong_params_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingParams(**wrong)


def test_threads_share_it(llm):
    answers = {}

    def ask(i):
        answers[i] = llm.chat([{"role": "user", "content": f"{i}+1="}], GREEDY, use_tqdm=False)[0].outputs.text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == {i: str(i + 1) for i in range(1, 9)}
