"""A model's tokenizer and chat template, without the model: the program's own, spoken to over pipes."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading

from tern.process import EngineDied, find_program

# What callers of other tokenizers say and what changes nothing here.
_HARMLESS = {"trust_remote_code", "use_fast", "clean_up_tokenization_spaces", "spaces_between_special_tokens"}
_NOTHING = (None, False, "do_not_pad", "do_not_truncate")


class Ids(list):
    """Token ids; ["input_ids"] gives them too, as the tokenizers of PaddlePaddle have it."""

    def __getitem__(self, key):
        if key == "input_ids":
            return list(self)
        return super().__getitem__(key)


class _Lines:
    """A command of the program that answers a line of JSON with one. It ends with this process."""

    def __init__(self, *arguments):
        self._arguments = arguments
        self._lock = threading.Lock()
        self._child, self._owner = None, None

    def ask(self, value):
        data = json.dumps(value).encode() + b"\n"
        with self._lock:
            if self._owner != os.getpid():  # a fork does not share its parent's
                program = find_program()
                self._child = subprocess.Popen(
                    [program, *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                self._owner = os.getpid()
            try:
                self._child.stdin.write(data)
                self._child.stdin.flush()
                line = self._child.stdout.readline()
            except OSError:
                line = b""
            if not line:
                said = self._child.communicate()[1].decode(errors="replace").strip()
                self._owner = None
                raise EngineDied(said or "the program ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def close(self):
        with self._lock:
            if self._owner == os.getpid():
                self._child.stdin.close()
                self._child.wait()
                self._child.stdout.close()
                self._child.stderr.close()
            self._owner = None


def _check(options, where):
    """Refuses what would have to change the result and cannot."""
    for name, value in options.items():
        if name not in _HARMLESS and value not in _NOTHING:
            raise TypeError(f"{where} does not know {name}={value!r}")


class Tokenizer:
    """Text to token ids and back. `model`: a folder, or the name of a model that is here."""

    adds_special_tokens = True  # encode() does, as the tokenizer's files say, unless it is told otherwise

    def __init__(self, model):
        self.name_or_path = str(model)
        self._tokens = _Lines("tokenize", "--json", "--model", self.name_or_path)
        self._templates, self._lock = {}, threading.Lock()
        self._known = None

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *, revision=None, **options):
        """The tokenizer of a folder or of a model by name, which is fetched where it is not here."""
        _check(options, "from_pretrained()")
        name = str(pretrained_model_name_or_path)
        if not os.path.isdir(name):
            command = [find_program(), "pull", name]
            done = subprocess.run(command + (["--revision", revision] if revision else []), stderr=subprocess.PIPE, check=False)
            if done.returncode != 0:
                raise OSError(done.stderr.decode(errors="replace").strip() or f"{name} cannot be fetched")
        return cls(name)

    def encode(self, text, text_pair=None, add_special_tokens=None, **options):
        """Token ids of a text."""
        _check({**options, "text_pair": text_pair}, "encode()")
        special = self.adds_special_tokens and add_special_tokens is not False
        return Ids(self._tokens.ask({"text": text, "add_special_tokens": special})["ids"])

    def __call__(self, text, text_pair=None, add_special_tokens=None, **options):
        """{"input_ids": ids}, or a list of ids for a list of texts."""
        more = {"text_pair": text_pair, "add_special_tokens": add_special_tokens, **options}
        if isinstance(text, str):
            return {"input_ids": list(self.encode(text, **more))}
        return {"input_ids": [list(self.encode(one, **more)) for one in text]}

    def decode(self, token_ids, skip_special_tokens=False, **options):
        _check(options, "decode()")
        return self._tokens.ask({"ids": _numbers(token_ids), "skip_special_tokens": bool(skip_special_tokens)})["text"]

    def batch_decode(self, sequences, skip_special_tokens=False, **options):
        return [self.decode(ids, skip_special_tokens, **options) for ids in sequences]

    def tokenize(self, text, **options):
        """The tokens of a text as the vocabulary spells them."""
        _check(options, "tokenize()")
        return self.convert_ids_to_tokens(self.encode(text, add_special_tokens=False))

    def convert_ids_to_tokens(self, ids, skip_special_tokens=False):
        """One token, or a list of them; an id that is not there is an IndexError."""
        names = self._vocabulary()[1]
        if isinstance(ids, int):
            if ids not in names:
                raise IndexError(f"the vocabulary has no id {ids}")
            return names[ids]
        hidden = set(self.all_special_ids) if skip_special_tokens else ()
        return [self.convert_ids_to_tokens(i) for i in _numbers(ids) if i not in hidden]

    def convert_tokens_to_ids(self, tokens):
        """One id, or a list of them; of a token that is not there the unknown token's, None where there is none."""
        if isinstance(tokens, str):
            found = self._vocabulary()[0].get(tokens)
            return self.unk_token_id if found is None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_tokens_to_string(self, tokens):
        return self.decode(self.convert_tokens_to_ids(tokens))

    def get_vocab(self):
        return dict(self._vocabulary()[0])

    @property
    def vocab_size(self):
        return self._vocabulary()[2]["vocab_size"]

    def __len__(self):
        return self.vocab_size

    @property
    def all_special_tokens(self):
        return list(dict.fromkeys(self._vocabulary()[2]["special_tokens"].values()))

    @property
    def all_special_ids(self):
        return list(dict.fromkeys(self._vocabulary()[2]["special_token_ids"].values()))

    def __getattr__(self, name):
        """bos_token, eos_token_id, ...: of the tokenizer's files, None where they name none."""
        if name.endswith("_token") and not name.startswith("_"):
            return self._vocabulary()[2]["special_tokens"].get(name)
        if name.endswith("_token_id") and not name.startswith("_"):
            return self._vocabulary()[2]["special_token_ids"].get(name)
        raise AttributeError(f"{type(self).__name__} has no {name}: it encodes, decodes and applies chat templates")

    def apply_chat_template(
        self,
        conversation,
        tokenize=True,
        add_generation_prompt=True,
        chat_template=None,
        tools=None,
        documents=None,
        **template_kwargs,
    ):
        """The prompt of a conversation, or of each of a list: its token ids, or with tokenize=False its text.

        `conversation`: messages, or a request with "messages", or the user's text. What is not named above are variables
        of the template.
        """
        if isinstance(conversation, str):
            conversation = [{"role": "user", "content": conversation}]
        if isinstance(conversation, dict):
            tools = conversation.get("tools") if tools is None else tools
            conversation = conversation["messages"]
        more = {"tools": tools, "documents": documents}
        if conversation and not isinstance(conversation[0], dict):
            same = {**more, **template_kwargs}
            return [self.apply_chat_template(one, tokenize, add_generation_prompt, chat_template, **same) for one in conversation]
        asked = {name: value for name, value in more.items() if value is not None}
        asked.update(messages=conversation, add_generation_prompt=add_generation_prompt)
        if template_kwargs:
            asked["chat_template_kwargs"] = template_kwargs
        text = self._renderer(chat_template).ask(asked)["prompt"]
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def close(self):
        """Ends the programs behind it; they start again when they are needed."""
        for lines in (self._tokens, *self._templates.values()):
            lines.close()

    def _renderer(self, template):
        with self._lock:
            if template not in self._templates:
                own = [] if template is None else ["--chat-template", template]
                self._templates[template] = _Lines("render", "--model", self.name_or_path, *own)
            return self._templates[template]

    def _vocabulary(self):
        """Ids by token, tokens by id, and what `tern tokenizer --info` says."""
        with self._lock:
            if self._known is None:
                self._known = self._read_vocabulary()
            return self._known

    def _read_vocabulary(self):
        with tempfile.TemporaryDirectory(prefix="tern-vocabulary-") as folder:
            file = os.path.join(folder, "vocabulary.json")
            command = [find_program(), "tokenizer", "--model", self.name_or_path, "--info", "--vocab-export", file]
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode != 0:
                raise EngineDied(done.stderr.decode(errors="replace").strip())
            with open(file, encoding="utf-8") as text:
                pairs = json.load(text, object_pairs_hook=list)
        ids = {}
        for token, number in pairs:
            ids.setdefault(token, number)  # of equal tokens the first
        return ids, {number: token for token, number in pairs}, json.loads(done.stdout.splitlines()[0])


def _numbers(ids):
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    return [ids] if isinstance(ids, int) else [int(i) for i in ids]
