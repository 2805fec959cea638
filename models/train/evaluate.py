#!/usr/bin/env python3
"""Scores a checkpoint on the held-out prompts and on the unseen forms: exact match of the greedy answer, and bits per token.

The weights are those of the file (bfloat16); they are used with float32 arithmetic, and once more with bfloat16 arithmetic.
Bits per token is the mean of -log2 p over the tokens of the right answers with their end token; "with prompts" is the mean
over all tokens after the first.
"""

import argparse, collections, json, math, os
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from model import greedy, load_checkpoint
from tasks import TASKS, test_set
from tokenizer import EOS, prompt_text


@torch.no_grad()
def bits(model, prompts, answers, device, batch=256):
    """Per example: bits of the answer, its tokens, bits of the whole text after the first token, its tokens."""
    out = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]) + len(answers[i]))
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        rows = [prompts[i] + answers[i] for i in part]
        width = max(map(len, rows))
        ids = torch.tensor([r + [0] * (width - len(r)) for r in rows], device=device)
        logp = F.log_softmax(model(ids)[:, :-1].double(), -1).gather(2, ids[:, 1:, None])[..., 0] / -math.log(2)
        for i, r, v in zip(part, rows, logp.cpu()):
            p = len(prompts[i])
            out[i] = (float(v[p - 1 : len(r) - 1].sum()), len(r) - p, float(v[: len(r) - 1].sum()), len(r) - 1)
    return out


def table(rows, outputs):
    right = collections.defaultdict(list)
    for r, o in zip(rows, outputs):
        right[r["task"]].append(o == r["answer"])
    return {t: [sum(v), len(v)] for t, v in right.items()}


def check_transformers(folder, prompts, texts, device):
    """Largest logit difference from the reference implementation, and whether its tokenizer and template agree."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    mine, tok, worst, agree = load_checkpoint(folder, device), AutoTokenizer.from_pretrained(folder), 0.0, True
    with torch.no_grad():
        for ids, (messages, text) in zip(prompts, texts):
            x = torch.tensor([ids], device=device)
            worst = max(worst, float((reference(x).logits - mine(x)).abs().max()))
            agree &= (
                tok.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) == text
                and tok(text, add_special_tokens=False).input_ids == ids
            )
    return dict(largest_logit_difference=worst, tokenizer_and_template_agree=agree)


def score(rows, outputs, outputs_low, b):
    """b: what bits() gives."""
    per_task = table(rows, outputs)
    per_form = collections.defaultdict(list)
    for r, o in zip(rows, outputs):
        per_form[r["form"]].append(o == r["answer"])
    ratio = lambda i: round(sum(x[i] for x in b) / sum(x[i + 1] for x in b), 4)
    return dict(
        exact_match=sum(v[0] for v in per_task.values()) / len(rows),
        per_task={t: per_task[t] for t in TASKS},
        bits_per_token=ratio(0),
        bits_per_token_with_prompts=ratio(2),
        answer_tokens=sum(x[1] for x in b),
        exact_match_bfloat16_arithmetic=sum(o == r["answer"] for o, r in zip(outputs_low, rows)) / len(rows),
        weakest_forms=sorted([[f, sum(v), len(v)] for f, v in per_form.items() if not all(v)], key=lambda x: x[1] / x[2])[:20],
    )


def show(split, rows, outputs, s, most):
    print(
        f"== {split}: {len(rows)} prompts, exact match {s['exact_match']:.4f}, bfloat16 arithmetic {s['exact_match_bfloat16_arithmetic']:.4f}, "
        f"bits per token {s['bits_per_token']:.4f}, with prompts {s['bits_per_token_with_prompts']:.4f}"
    )
    shown = collections.Counter()
    for t, (k, n) in s["per_task"].items():
        print(f"   {t:10} {k:4}/{n:4} {k / n:.4f}")
    for r, o in zip(rows, outputs):
        shown[r["task"]] += o != r["answer"]
        if o != r["answer"] and shown[r["task"]] <= most:
            print("   wrong:", r["form"], repr(r["messages"][-1]["content"]), "->", repr(o), "not", repr(r["answer"]))


def small_talk(model, tok, device):
    chats = [
        [dict(role="user", content=t)]
        for t in (
            "Hello",
            "Who are you?",
            "What can you do?",
            "What is 17 + 25?",
            "What is the capital of France?",
            "Thank you!",
            "Sort these words: zebra, apple, moon",
        )
    ]
    chats.append(
        [
            dict(role="system", content="Your name is Clara."),
            dict(role="user", content="Hi"),
            dict(role="assistant", content="Hello! How can I help you?"),
            dict(role="user", content="Who are you?"),
        ]
    )
    for m, i in zip(chats, greedy(model, [tok.encode(prompt_text(m), add_special_tokens=False).ids for m in chats], 128, device)):
        print(repr(m[-1]["content"]), "->", repr(tok.decode(i)))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", help="checkpoint folder")
    ap.add_argument("--count", type=int, default=5000, help="held-out prompts (default %(default)s)")
    ap.add_argument("--unseen", type=int, default=1000, help="prompts in unseen forms (default %(default)s)")
    ap.add_argument("--device", default="cuda", help="default %(default)s")
    ap.add_argument("--out", help="file for the scores as JSON")
    ap.add_argument(
        "--sample", help="file for the first 200 held-out prompts with ids, right answers and the model's answers (JSONL)"
    )
    ap.add_argument("--check-transformers", action="store_true", help="compare with the transformers implementation")
    ap.add_argument("--show-errors", type=int, default=10, help="wrong answers to print for each task (default %(default)s)")
    a = ap.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    tok = Tokenizer.from_file(os.path.join(a.model, "tokenizer.json"))
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids
    model, scores = load_checkpoint(a.model, a.device), {}
    low = load_checkpoint(a.model, a.device, torch.bfloat16)
    for split, count in (("held_out", a.count), ("unseen", a.unseen)):
        rows = test_set(split, count)
        prompts, answers = [encode(prompt_text(r["messages"])) for r in rows], [encode(r["answer"] + EOS) for r in rows]
        ids = greedy(model, prompts, 128, a.device)
        outputs, outputs_low = ([tok.decode(i) for i in x] for x in (ids, greedy(low, prompts, 128, a.device)))
        b = bits(model, prompts, answers, a.device)
        s = scores[split] = score(rows, outputs, outputs_low, b)
        show(split, rows, outputs, s, a.show_errors)
        if split == "held_out" and a.sample:
            with open(a.sample, "w") as f:
                for r, p, i, o, x in list(zip(rows, prompts, ids, outputs, b))[:200]:
                    f.write(json.dumps(dict(r, prompt_ids=p, model_ids=i, model_answer=o, answer_bits=round(x[0], 6))) + "\n")
        if split == "held_out" and a.check_transformers:
            scores["transformers"] = check_transformers(
                a.model, prompts[:20], [(r["messages"], prompt_text(r["messages"])) for r in rows[:20]], a.device
            )
            print("transformers:", scores["transformers"])
    small_talk(model, tok, a.device)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(scores, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
