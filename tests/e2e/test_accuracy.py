"""The shipped model's held-out sample through the server: the same answers as the reference gave."""

import concurrent.futures
import json
import pathlib

ROWS = [
    json.loads(line)
    for line in (pathlib.Path(__file__).resolve().parents[2] / "models" / "heldout_sample.jsonl").read_text().splitlines()
]


def test_prompt_ids_and_answers(server):
    client = server.client()

    def ask(row):
        reply = client.chat.completions.create(
            model="default", messages=row["messages"], temperature=0, max_tokens=128, extra_body={"return_token_ids": True}
        )
        message = reply.choices[0].message
        return message.prompt_token_ids == row["prompt_ids"], message.content == row["answer"]

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        results = list(pool.map(ask, ROWS))
    assert all(ids for ids, _ in results), "prompts tokenized differently from the reference"
    right = sum(answer for _, answer in results)
    assert right >= 0.98 * len(ROWS), f"{right} of {len(ROWS)} right"
