#!/usr/bin/env python3
"""Trains the byte-fallback BPE tokenizer of the demonstration model and writes tokenizer.json and tokenizer_config.json.

Ids 0 to 2 are <unk>, <s> and </s>, 3 to 258 the 256 bytes, then characters and merges. Every digit is a token of its own, a
space belongs to the word after it, a newline stands alone: text cut at a newline therefore has the same ids as the whole,
and an answer as the model wrote it has the same ids as that answer in the history of the next turn. Characters outside the
vocabulary are spelled as their UTF-8 bytes, so any text comes back unchanged.
"""

import argparse, json, os, random
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
import wordlists
from tasks import conversation, example, TASKS

UNK, BOS, EOS = "<unk>", "<s>", "</s>"
BYTES = [f"<0x{b:02X}>" for b in range(256)]
PATTERN = r"\n| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|[^\S\n]+"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['content'] is string %}{% set text = message['content'] %}"
    "{% else %}{% set parts = namespace(text='') %}"
    "{% for part in message['content'] %}{% set parts.text = parts.text + part['text'] %}{% endfor %}"
    "{% set text = parts.text %}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ 'Assistant:\\n' + text + eos_token }}"
    "{% elif message['role'] == 'user' %}{{ 'User: ' + text + '\\n' }}"
    "{% else %}{{ text + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:\\n' }}{% endif %}"
)


def render(messages, add_generation_prompt=False):
    """What the chat template gives, as segments (text, whether it is the model's own text)."""
    out = [(BOS, False)]
    for m in messages:
        if m["role"] == "assistant":
            out += [("Assistant:\n", False), (m["content"] + EOS, True)]
        elif m["role"] == "user":
            out.append(("User: " + m["content"] + "\n", False))
        else:
            out.append((m["content"] + "\n", False))
    return out + ([("Assistant:\n", False)] if add_generation_prompt else [])


def prompt_text(messages):
    return "".join(text for text, _ in render(messages, True))


def corpus(seed, count):
    rng = random.Random(f"tokenizer-{seed}")
    for _ in range(count):
        yield "".join(text for text, _ in render(conversation(rng))[1:]).replace(EOS, "\n")
    for t in TASKS:
        for _ in range(count // 20):
            e = example(rng, task=t)
            yield e["prompt"] + "\n" + e["answer"]
    # Each listed word often enough, with and without a space before it, to become a token or two.
    w = wordlists
    listed = w.WORDS + w.NAMES + w.CITIES + w.JOBS + w.COLORS + w.EVENTS + w.ROOMS + w.WEEKDAYS + w.MONTHS
    for w in listed:
        yield from [f"{w}\n {w} {w}"] * (count // 400)


def train(seed, count, vocab_size):
    tok = Tokenizer(models.BPE(byte_fallback=True, unk_token=UNK))
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    alphabet = ["\n"] + [chr(c) for c in range(32, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[UNK, BOS, EOS] + BYTES,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tok.train_from_iterator(corpus(seed, count), trainer)
    spec = json.loads(tok.to_str())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] in (UNK, BOS, EOS)]  # the bytes are plain vocabulary
    return spec


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", help="folder for tokenizer.json and tokenizer_config.json")
    ap.add_argument("--seed", type=int, default=1, help="default %(default)s")
    ap.add_argument("--count", type=int, default=40000, help="conversations to learn merges from (default %(default)s)")
    ap.add_argument("--vocab-size", type=int, default=2048, help="default %(default)s")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    spec = train(a.seed, a.count, a.vocab_size)
    with open(os.path.join(a.out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(spec, f, ensure_ascii=False, indent=1)
    config = dict(
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        pad_token=UNK,
        add_bos_token=False,
        add_eos_token=False,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
        chat_template=CHAT_TEMPLATE,
    )
    with open(os.path.join(a.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    print(len(spec["model"]["vocab"]), "tokens,", len(spec["model"]["merges"]), "merges")


if __name__ == "__main__":
    main()
