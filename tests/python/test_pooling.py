"""LLM.embed and LLM.reward, over small pooling models."""

import math

import pytest
from conftest import MODEL, ROOT
from tern import LLM, EmbeddingRequestOutput, RewardRequestOutput

REWARD = ROOT / "tests" / "data" / "golden_s" / "qwen2_process_reward"
SMALL = {"max_num_seqs": 4, "max_model_len": 512}


@pytest.fixture(scope="module")
def embedder():
    with LLM(MODEL, convert="embed", **SMALL) as made:
        yield made


def test_embeddings_in_order(embedder):
    texts = ["1+1=", "Read the text.", "1+1="]
    outputs = embedder.embed(texts)
    assert [type(x) for x in outputs] == [EmbeddingRequestOutput] * 3
    vectors = [x.outputs.embedding for x in outputs]
    assert vectors[0] == vectors[2] != vectors[1]
    assert all(abs(math.hypot(*v) - 1) < 1e-5 for v in vectors)
    (same,) = embedder.embed(outputs[0].prompt_token_ids)
    assert same.outputs.embedding == vectors[0] and same.finished and same.error_code == 200
    (cut,) = embedder.embed("1+1=", dimensions=4, normalize=False)
    assert len(cut.outputs.embedding) == 4


def test_a_bad_prompt_has_its_own_error(embedder):
    good, bad = embedder.embed(["1+1=", [1] * 2000])
    assert good.error_code == 200 and bad.error_code == 400 and bad.outputs is None
    assert "2000" in bad.error_msg
    (refused,) = embedder.generate("1+1=")
    assert refused.error_code == 400 and "pooling model" in refused.error_msg


def test_rewards():
    with LLM(REWARD, **SMALL) as llm:
        one, two = llm.reward([[5, 6, 7], [8, 9]])
    assert type(one) is RewardRequestOutput and len(one.outputs.score) == 3 and len(two.outputs.score) == 2
    assert all(abs(sum(labels) - 1) < 1e-5 for labels in one.outputs.score)
