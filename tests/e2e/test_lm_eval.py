"""lm-eval's local-completions over a task of a local JSON file: a client that is installed by hand. And what it relies
on, asked directly: log-likelihoods of given texts."""

import json

import pytest
from tern_server import MODEL

YAML = """task: tern_local
dataset_path: json
dataset_kwargs:
  data_files: {file}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
"""


def score(client, ids, ahead):
    """The log-likelihood of ids[ahead:] behind ids[:ahead]."""
    answer = client.completions.create(model="default", prompt=ids, echo=True, logprobs=1, max_tokens=0)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.token_logprobs) == len(ids) and logprobs.token_logprobs[0] is None
    return sum(logprobs.token_logprobs[ahead:])


def test_scores_are_those_of_the_answer(client):
    """What the model said itself has as a prompt the log-probs it had as an answer."""
    said = client.completions.create(
        model="default", prompt="What is 12 + 30?", temperature=0, max_tokens=8, logprobs=1, extra_body={"return_token_ids": True}
    ).choices[0]
    extra = said.model_extra
    prompt, answer = extra["prompt_token_ids"], extra["completion_token_ids"][: len(said.logprobs.token_logprobs)]
    scored = score(client, prompt + answer, len(prompt))
    assert abs(scored - sum(said.logprobs.token_logprobs)) < 1e-3 * len(answer)


def test_lm_eval(server, tmp_path):
    lm_eval = pytest.importorskip("lm_eval", reason="pip install lm-eval[api] transformers")
    pytest.importorskip("transformers")
    from lm_eval.tasks import TaskManager

    rows = [
        {"question": "What is 12 + 30? 12 + 30 =", "choices": [" 42", " 17"], "answer": 0},
        {"question": "What is 2 + 2? 2 + 2 =", "choices": [" 9", " 4"], "answer": 1},
    ]
    file = tmp_path / "rows.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "task.yaml").write_text(YAML.format(file=file))
    result = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=f"base_url={server.url}/v1/completions,model=default,tokenizer={MODEL},num_concurrent=1",
        tasks=["tern_local"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
    )
    assert set(result["results"]) == {"tern_local"}
    assert 0 <= result["results"]["tern_local"]["acc,none"] <= 1
    assert len(result["samples"]["tern_local"]) == len(rows)
