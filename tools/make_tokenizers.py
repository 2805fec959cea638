#!/usr/bin/env python3
"""Trains the small tokenizers under tests/data/tokenizers and writes the ids that the reference libraries give.

Every folder is one kind of tokenizer that src/content/text reads; `expected.json` in it holds texts with their ids.
Needs: pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0 (any near version should give the same).
Run from the root of the repository; the files are written again in place.
"""
import base64
import json
import pathlib
import random
import shutil
import tempfile

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "tokenizers"

CORPUS = """
The kettle whistles at seven, and the whole house wakes up slowly. Somebody reads the news aloud: rain in the north,
sunshine in the south, 23 degrees by noon. We'll walk to the market if it doesn't pour; I'd rather not get wet twice.
A server takes a request, turns its text into numbers, asks the model for the next number, and turns it back into text.
It's done thousands of times a second. They've measured it: 1,024 tokens, 16 requests, 3.5 milliseconds per step.
早上七点，水壶响了，整个屋子慢慢醒来。有人大声读新闻：北方有雨，南方晴天，中午二十三度。
服务器收到请求，把文字变成数字，向模型询问下一个数字，再把它变回文字。今天我们学习自然语言处理和大型语言模型。
Der Kessel pfeift um sieben Uhr, und das ganze Haus wacht langsam auf. Größere Mäuse fressen süße Äpfel.
L'été dernier, nous avons marché jusqu'à la mer; où étiez-vous? Ça va bien, merci. El niño pequeño comió una manzana.
Чайник свистит в семь часов, и весь дом медленно просыпается. Сегодня мы изучаем языковые модели.
朝七時にやかんが鳴り、家中がゆっくり目を覚ます。カタカナとひらがなと漢字が混ざった文章です。
주전자가 일곱 시에 울리고 온 집이 천천히 깨어난다.
def add(a, b):
    \"\"\"Return the sum of two numbers.\"\"\"
    return a + b

for (int i = 0; i < n; ++i) {
\tstd::vector<int> row(16, i);
\tif (row[0] != 0) { total += row.size(); }
}
{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}, "days": [1, 2, 3]}
😀 😃 🚀 👍🏽 👨‍👩‍👧‍👦 ❤️ 🇫🇷 ✓ → ≤ ∑ ½ €
""" * 3

TEXTS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\t\t\n  x", "a", " a", "  a", "a ", "a  ", "Hello world",
    " Hello world", "Hello  world", "The kettle whistles at seven.", "WE'LL we'll I'D i'd It'S 's 'ſ", "don't 'tis rock'n'roll",
    "12345 1 22 333 4444 3.14159 1,024", "x=1;y=22;zz=333", "早上七点，水壶响了。", "今天 weather 很好 23 度", "Größere Mäuse", "étiez-vous",
    "e\u0301te\u0301 vs été", "\u1e9b\u0323", "Ａｂｃ１２３ ﬁne", "Чайник свистит", "朝七時にやかん", "주전자가", "שלום עולם", "مرحبا", "हिन्दी में",
    "😀", "😀😃🚀", "👍🏽 👨‍👩‍👧‍👦", "🇫🇷❤️", "\U0001F9FF unseen emoji \U00012000", "tab\tand\u00a0nbsp\u3000wide", "a\u200bb\ufeffc",
    "def add(a, b):\n    return a + b\n", "for (int i = 0; i < n; ++i) {\n\ttotal += i;\n}", "{\"a\": [1, 2, {\"b\": null}]}",
    "<s>Hello</s>", "<|user|>Hi<|end|>\n<|assistant|>", "<|user|> spaced <|end|> out", "a<|end|>b<|end|><|end|>", "<tool>call</tool>",
    "<|user", "▁ literal ▁▁ marks", "<0x41><0xE6>", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "   leading and trailing   ", "line one\nline two\n\n\nline five", "a\r\nb\rc", "½²³ Ⅷ ①", "!!! ??? ... --- ===", "http://example.org/a?b=c&d=%20",
    "    indented\n        more", "\n \n  \n", "x\u0000y", "é" * 40, "你好" * 20, "the " * 30, "1234567890" * 8,
]


def random_texts(count: int) -> list[str]:
    rng = random.Random(7)
    words = CORPUS.split()
    marks = [" ", "  ", "\n", "\t", "", "", ".", ",", "'s", " 7", "42", "é", "你", "😀", "<|end|>", "\u0301", "▁", "\u00a0", "\r\n"]
    return ["".join(rng.choice(words) + rng.choice(marks) + rng.choice(marks) for _ in range(rng.randint(1, 9))) for _ in range(count)]


ALL_TEXTS = TEXTS + random_texts(40)

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|assistant|>' }}{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHAT_TOKENS = ["<|user|>", "<|assistant|>", "<|end|>"]


def folder(name: str) -> pathlib.Path:
    path = OUT / name
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


def write_json(path: pathlib.Path, value, indent=None) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def write_expected(path: pathlib.Path, reference: str, encode, encode_special, decode=None) -> None:
    cases = []
    for text in ALL_TEXTS:
        case = {"text": text, "ids": encode(text), "ids_with_special": encode_special(text)}
        if decode is not None:
            case["decoded"] = decode(case["ids"])
        cases.append(case)
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    path.joinpath("expected.json").write_text(
        '{"reference": ' + json.dumps(reference) + ', "cases": [\n' + lines + "\n]}\n", encoding="utf-8")


def expected_of(path: pathlib.Path, tok: tokenizers.Tokenizer) -> None:
    write_expected(path, f"tokenizers {tokenizers.__version__}", lambda t: tok.encode(t, add_special_tokens=False).ids,
                   lambda t: tok.encode(t).ids, lambda ids: tok.decode(ids, skip_special_tokens=False))


def train_byte_level(split, vocab_size: int, specials: list[str], normalizer=None) -> tokenizers.Tokenizer:
    tok = tokenizers.Tokenizer(models.BPE())
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = split
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator([CORPUS], trainer)
    return tok


def isolated(*patterns: str):
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level() -> tokenizers.Tokenizer:
    """tokenizer.json as Qwen has it: NFC, one digit at a time, added tokens at the end."""
    path = folder("byte_level")
    tok = train_byte_level(isolated(QWEN2), 900, [], normalizers.NFC())
    tok.add_special_tokens([AddedToken("<|begin|>", special=True, normalized=False)])
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CHAT_TOKENS])
    tok.add_tokens([AddedToken("<tool>", special=False, normalized=False), AddedToken("</tool>", special=False, normalized=False)])
    begin = tok.token_to_id("<|begin|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", begin)])])
    tok.save(str(path / "tokenizer.json"), pretty=False)
    write_json(path / "tokenizer_config.json", {
        "bos_token": "<|begin|>", "eos_token": {"content": "<|end|>", "lstrip": False}, "pad_token": None,
        "model_max_length": 4096, "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": [{"name": "default", "template": CHAT_TEMPLATE},
                          {"name": "tool_use", "template": "TOOLS {{ tools | tojson }}\n" + CHAT_TEMPLATE}]}, 1)
    expected_of(path, tok)
    return tok


def custom_split() -> None:
    """tokenizer.json with DeepSeek's three splits: not a pattern that our own engine knows."""
    path = folder("custom_split")
    tok = train_byte_level(isolated(*DEEPSEEK), 700, [])
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CHAT_TOKENS])
    tok.save(str(path / "tokenizer.json"), pretty=False)
    expected_of(path, tok)


def byte_fallback() -> None:
    """tokenizer.json as Llama 2 has it: U+2581 for spaces, bytes for what is not in the vocabulary."""
    path = folder("byte_fallback")
    tok = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    plain = [t.replace(" ", "▁") for t in CORPUS.replace("\n", " \n ").split(" ")]
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)],
                                  show_progress=False, limit_alphabet=200)
    tok.train_from_iterator(["▁" + w for w in plain], trainer)
    # The byte tokens must be plain vocabulary, not special ones: write the model again without them.
    state = json.loads(tok.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    tok = tokenizers.Tokenizer.from_str(json.dumps(state))
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CHAT_TOKENS])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    tok.save(str(path / "tokenizer.json"), pretty=False)
    write_json(path / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                                                "tokenizer_class": "LlamaTokenizer", "model_max_length": 10**30}, 1)
    expected_of(path, tok)


def vocab_merges() -> None:
    """vocab.json + merges.txt as GPT-2 has them."""
    path = folder("vocab_merges")
    tok = train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 800, ["<|endoftext|>"])
    model = json.loads(tok.to_str())["model"]
    write_json(path / "vocab.json", model["vocab"])
    lines = ["#version: 0.2"] + [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    path.joinpath("merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    expected_of(path, tok)


def tiktoken_form() -> None:
    """Rank lines as Llama 3's original tokenizer.model; the special tokens stand in tokenizer_config.json."""
    path = folder("tiktoken")
    tok = train_byte_level(isolated(LLAMA3), 800, [])
    back = {c: b for b, c in enumerate_alphabet()}
    model = json.loads(tok.to_str())["model"]
    # Single bytes first, then the merges in their order: the rank is the id.
    ranks = {bytes([b]): b for b in range(256)}
    for merge in model["merges"]:
        left, right = merge if isinstance(merge, list) else merge.split(" ")
        token = bytes(back[c] for c in left + right)
        ranks.setdefault(token, len(ranks))
    path.joinpath("tokenizer.model").write_text(
        "".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()), encoding="utf-8")
    names = ["<|begin_of_text|>", "<|end_of_text|>", *CHAT_TOKENS]
    special = {t: len(ranks) + i for i, t in enumerate(names)}
    write_json(path / "tokenizer_config.json", {
        "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "model_max_length": 8192,
        "added_tokens_decoder": {str(i): {"content": t, "special": True, "normalized": False} for t, i in special.items()}}, 1)
    reference = tiktoken.Encoding("small", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens=special)
    encode = lambda t: reference.encode(t, allowed_special="all")
    write_expected(path, f"tiktoken {tiktoken.__version__}", encode, lambda t: [len(ranks)] + encode(t), reference.decode)


def enumerate_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = 256
    for b in range(256):
        if b in printable:
            yield b, chr(b)
        else:
            yield b, chr(extra)
            extra += 1


def train_sentencepiece(name: str, **options) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        text = pathlib.Path(scratch) / "text"
        text.write_text(CORPUS, encoding="utf-8")
        options.setdefault("input", str(text))
        if "rules" in options:
            rules = pathlib.Path(scratch) / "rules.tsv"
            rules.write_text(options.pop("rules"), encoding="utf-8")
            options["normalization_rule_tsv"] = str(rules)
        sentencepiece.SentencePieceTrainer.train(model_prefix=f"{scratch}/m", minloglevel=2, num_threads=1, **options)
        return pathlib.Path(f"{scratch}/m.model").read_bytes()


def split_added(text: str, added: dict[str, int]):
    """Segments of text between added tokens, longest token first at every place."""
    names = sorted(added, key=len, reverse=True)
    at = start = 0
    while at < len(text):
        hit = next((n for n in names if text.startswith(n, at)), None)
        if hit is None:
            at += 1
            continue
        if at > start:
            yield text[start:at], None
        yield None, added[hit]
        at += len(hit)
        start = at
    if start < len(text):
        yield text[start:], None


def sentencepiece_expected(path: pathlib.Path, model: bytes, added: dict[str, int], bos: list[int]) -> None:
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)

    def encode(text: str) -> list[int]:
        ids = []
        for segment, token in split_added(text, added):
            ids += sp.encode(segment) if token is None else [token]
        return ids

    def decode(ids: list[int]):
        return sp.decode(ids) if all(i < sp.piece_size() and not sp.is_control(i) and not sp.is_unknown(i) for i in ids) else None

    write_expected(path, f"sentencepiece {sentencepiece.__version__}", encode, lambda t: bos + encode(t), decode)


def sentencepiece_ernie() -> None:
    """As ERNIE-4.5: no dummy prefix, digits apart, user-defined pieces, byte fallback, tokens added above the model."""
    path = folder("sentencepiece_ernie")
    model = train_sentencepiece("ernie", model_type="bpe", vocab_size=900, byte_fallback=True, add_dummy_prefix=False,
                                remove_extra_whitespaces=False, normalization_rule_name="identity", split_digits=True,
                                user_defined_symbols=["<|end|>", "<tool>", "\t\t", "    "], control_symbols=["<mask:1>"],
                                character_coverage=0.98, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    path.joinpath("ernie_token_100k.model").write_bytes(model)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    added = {"<|user|>": sp.piece_size() + 2, "<|assistant|>": sp.piece_size() + 3, "<|LOC_0|>": sp.piece_size() + 5}
    write_json(path / "added_tokens.json", added, 1)
    write_json(path / "special_tokens_map.json", {
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>", "mask_token": "<mask:1>",
        "cls_token": "<|user|>", "additional_special_tokens": ["<|user|>", "<|assistant|>"]}, 1)
    write_json(path / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<|user|>",
                                                "tokenizer_class": "Ernie4_5_Tokenizer", "chat_template": CHAT_TEMPLATE}, 1)
    named = {t: sp.piece_to_id(t) for t in ["<s>", "</s>", "<unk>", "<mask:1>"]}
    sentencepiece_expected(path, model, added | named, [])


def sentencepiece_llama() -> None:
    """As Llama 2: a bare tokenizer.model with dummy prefix and byte fallback."""
    path = folder("sentencepiece_llama")
    model = train_sentencepiece("llama", model_type="bpe", vocab_size=800, byte_fallback=True, split_digits=True,
                                normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98)
    path.joinpath("tokenizer.model").write_bytes(model)
    sentencepiece_expected(path, model, {"<unk>": 0, "<s>": 1, "</s>": 2}, [1])


def sentencepiece_unigram() -> None:
    """Unigram with normalisation rules, white space clean-up and no byte fallback."""
    path = folder("sentencepiece_unigram")
    rules = "".join(f"{0xFF21 + i:X}\t{0x41 + i:X}\n{0xFF41 + i:X}\t{0x61 + i:X}\n" for i in range(26))
    rules += "FB01\t66 69\n65 301\tE9\n3000\t20\n9\t20\nA\t20\nD\t20\n200B\t\n"
    model = train_sentencepiece("unigram", model_type="unigram", vocab_size=355, rules=rules, character_coverage=0.98,
                                user_defined_symbols=["<|end|>", "<tool>"])
    path.joinpath("spm.model").write_bytes(model)
    write_json(path / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                                                "add_bos_token": False, "add_eos_token": True}, 1)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    added = {"<unk>": 0, "<s>": 1, "</s>": 2}

    def encode(text: str) -> list[int]:
        return [i for s, t in split_added(text, added) for i in (sp.encode(s) if t is None else [t])]

    write_expected(path, f"sentencepiece {sentencepiece.__version__}", encode, lambda t: encode(t) + [2])


if __name__ == "__main__":
    for make in (byte_level, custom_split, byte_fallback, vocab_merges, tiktoken_form, sentencepiece_ernie, sentencepiece_llama,
                 sentencepiece_unigram):
        make()
        name = make.__name__
        print(name)
    for path in sorted(OUT.iterdir()):
        print(path.name, sum(f.stat().st_size for f in path.iterdir()), "bytes")
