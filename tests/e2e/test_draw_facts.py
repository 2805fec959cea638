"""--enable-keep-sampling-mask and --enable-entropy: what tokens were drawn from, against the log-probabilities of the whole
vocabulary."""

import math
import re

import pytest

ASK = [{"role": "user", "content": "What is 12 + 30?"}]
FLAGS = ("--enable-keep-sampling-mask", "--enable-entropy", "--enable-logprob", "--max-logprobs", "-1", "--max-model-len", 512)
ENV = {"FD_USE_GET_SAVE_OUTPUT_V1": "1"}


def ask(server, **more):
    fields = {"ignore_eos": True, "return_token_ids": True, **more.pop("extra_body", {})}
    kw = dict(model="default", messages=ASK, max_tokens=12, temperature=1.0, top_p=1.0, seed=3, extra_body=fields) | more
    return server.client().chat.completions.create(**kw)


def logged(server, request):
    """Entropies of the first choice, and their mean, as the log has them."""
    text = (server.logs / "request.log").read_text()
    values = re.search(rf"Request {request}_0: entropy of tokens 0 to \d+:((?: \d+\.\d+)+)", text)
    mean = re.search(rf"Request {request}_0: entropy (\d+\.\d+) on average of (\d+) tokens", text)
    return [float(v) for v in values[1].split()], float(mean[1]), int(mean[2])


def of_whole_vocabulary(choice):
    """Probabilities of each position, the likeliest first."""
    for entry in choice.logprobs.content:
        yield sorted((math.exp(t.logprob) for t in entry.top_logprobs), reverse=True)


def nucleus(probabilities, top_p):
    above, count = 0.0, 0
    while count < len(probabilities) and above < top_p:
        above += probabilities[count]
        count += 1
    return count


@pytest.mark.parametrize("flags", [(), ("--tensor-parallel-size", 2)], ids=["one rank", "two ranks"])
def test_masks_and_entropies_are_those_of_the_distribution(start, flags):
    server = start(*FLAGS, *flags, env={**ENV, "TERN_TEST_RANKS": "1"}).wait_ready()
    reply = ask(server, top_p=0.9, logprobs=True, extra_body={"top_logprobs": -1})
    choice = reply.choices[0]
    masks, ids = choice.model_extra["sampling_mask"], choice.message.model_extra["completion_token_ids"]
    assert len(masks) == len(ids) == 12 and all(i in mask for i, mask in zip(ids, masks))
    wanted = []
    for probabilities, mask in zip(of_whole_vocabulary(choice), masks):
        assert abs(sum(probabilities) - 1) < 1e-4
        assert len(mask) == len(set(mask)) == nucleus(probabilities, 0.9) and mask == sorted(mask)
        wanted.append(-sum(p * math.log(p) for p in probabilities if p > 0))
    values, mean, count = logged(server, reply.id)
    assert values == pytest.approx(wanted, abs=2e-4)
    assert count == 12 and mean == pytest.approx(sum(values) / 12, abs=1e-4)

    few = ask(server, extra_body={"top_k": 3})
    assert all(len(m) == 3 for m in few.choices[0].model_extra["sampling_mask"])
    greedy = ask(server, temperature=0).choices[0]
    assert greedy.model_extra["sampling_mask"] == [[i] for i in greedy.message.model_extra["completion_token_ids"]]
    assert ask(server).choices[0].model_extra["sampling_mask"] is None, "nothing is left out"


def test_streams_and_samples_have_the_same(start):
    server = start(*FLAGS, env=ENV).wait_ready()
    whole = ask(server, top_p=0.8, n=2)
    streamed = [[], []]
    for chunk in ask(server, top_p=0.8, n=2, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.model_extra.get("sampling_mask") or []
    assert streamed == [c.model_extra["sampling_mask"] for c in whole.choices]
    text = server.client().completions.create(
        model="default", prompt=[5, 6, 7], max_tokens=4, top_p=0.8, seed=1, temperature=1, extra_body={"ignore_eos": True}
    )
    assert len(text.choices[0].model_extra["sampling_mask"]) == 4


def test_without_the_flags_there_is_nothing(server):
    reply = ask(server)
    assert "sampling_mask" not in reply.choices[0].model_extra
    assert "entropy" not in (server.logs / "request.log").read_text()


def test_each_flag_alone(start):
    masks = start("--enable-keep-sampling-mask").wait_ready()
    assert ask(masks, top_p=0.5).choices[0].model_extra["sampling_mask"]
    assert masks.stop() == 0 and "entropy" not in (masks.logs / "request.log").read_text()
    entropy = start("--enable-entropy", env={"FD_LOG_REQUESTS": "0"}).wait_ready()
    reply = ask(entropy, top_p=0.5)
    assert "sampling_mask" not in reply.choices[0].model_extra
    assert len(logged(entropy, reply.id)[0]) == 12, "asked for by its own flag, whatever FD_LOG_REQUESTS says"
