"""Tokenizer and Ernie4_5Tokenizer: the program's tokenizer and templates without a model."""

import json
import os
import subprocess
import sys

import pytest
from conftest import MODEL, ROOT
from tern import Tokenizer
from tern.process import EngineDied

ASK = [{"role": "user", "content": "1+1="}]
PROMPT = "<s>User: 1+1=\nAssistant:\n"


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer.from_pretrained(MODEL, trust_remote_code=True)
    yield made
    made.close()


def test_ids_and_back(tokenizer, llm):
    text = "Hello there, 你好 \U0001f600\n"
    ids = tokenizer.encode(text)
    assert ids == ids["input_ids"] == tokenizer(text)["input_ids"] == llm.generate(text)[0].prompt_token_ids
    assert tokenizer.decode(ids) == text and tokenizer.decode(ids[0]) == tokenizer.decode([ids[0]])
    assert tokenizer([text, "a"])["input_ids"] == [ids, tokenizer.encode("a")]
    assert tokenizer.batch_decode([ids, ids]) == [text, text]


def test_tokens_of_the_vocabulary(tokenizer):
    words = json.loads((MODEL / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = tokenizer.tokenize("Hello there")
    assert [words[token] for token in tokens] == tokenizer.encode("Hello there")
    assert tokenizer.convert_tokens_to_ids(tokens) == tokenizer.encode("Hello there")
    assert tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids("<s>")) == "<s>"
    assert tokenizer.convert_tokens_to_string(tokens) == "Hello there"
    assert tokenizer.convert_tokens_to_ids("no such token") == tokenizer.unk_token_id
    assert len(tokenizer) == tokenizer.vocab_size and tokenizer.get_vocab()["</s>"] == tokenizer.eos_token_id
    assert tokenizer.eos_token == "</s>" and tokenizer.eos_token in tokenizer.all_special_tokens
    assert tokenizer.convert_ids_to_tokens([tokenizer.eos_token_id, 300], skip_special_tokens=True) == [
        tokenizer.convert_ids_to_tokens(300)
    ]
    with pytest.raises(IndexError, match="99999999"):
        tokenizer.convert_ids_to_tokens(99999999)


def test_chat_templates(tokenizer, llm):
    assert tokenizer.apply_chat_template(ASK, tokenize=False) == PROMPT
    assert tokenizer.apply_chat_template({"messages": ASK}, tokenize=False) == PROMPT
    assert tokenizer.apply_chat_template("1+1=", tokenize=False, add_generation_prompt=False) == PROMPT[: -len("Assistant:\n")]
    assert tokenizer.apply_chat_template([ASK, ASK]) == [tokenizer.apply_chat_template(ASK)] * 2
    assert tokenizer.apply_chat_template(ASK) == llm.chat(ASK)[0].prompt_token_ids
    own = "{{ word }}: {{ messages[0].content }}"
    assert tokenizer.apply_chat_template(ASK, tokenize=False, chat_template=own, word="Say") == "Say: 1+1="


def test_what_it_cannot_do_is_named(tokenizer):
    with pytest.raises(TypeError, match="return_tensors"):
        tokenizer("a", return_tensors="np")
    with pytest.raises(TypeError, match="padding"):
        tokenizer.encode("a", padding=True)
    with pytest.raises(TypeError, match="model_max"):
        Tokenizer.from_pretrained(MODEL, model_max_length=3)
    with pytest.raises(AttributeError, match="save_pretrained"):
        tokenizer.save_pretrained("x")
    with pytest.raises(ValueError, match="99999999"):
        tokenizer.decode([99999999])
    assert tokenizer.decode(tokenizer.encode("still here")) == "still here"


def test_a_folder_without_a_tokenizer(tmp_path):
    with pytest.raises(EngineDied, match="tokenizer"):
        Tokenizer(tmp_path).encode("a")
    with pytest.raises(EngineDied):
        Tokenizer(tmp_path).vocab_size
    with pytest.raises(OSError, match="no-such-name"):
        Tokenizer.from_pretrained("no-such-name")


def test_a_fork_has_its_own(tokenizer):
    wanted = tokenizer.encode("abc")
    child = os.fork()
    if child == 0:
        os._exit(0 if tokenizer.encode("abc") == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert tokenizer.encode("abc") == wanted


def test_by_fastdeploys_name():
    script = (
        "from fastdeploy.input.ernie4_5_tokenizer import Ernie4_5Tokenizer as T\n"
        f"t = T.from_pretrained({str(MODEL)!r})\n"
        "print(t.encode(text='1+1=', add_special_tokens=False)['input_ids'], t.convert_tokens_to_ids(t.tokenize('1+1=')))"
    )
    path = f"{ROOT / 'python'}:{ROOT / 'python' / 'compat'}"
    run = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    ids = Tokenizer(MODEL).encode("1+1=")
    assert run.stdout.strip() == f"{list(ids)} {list(ids)}"
