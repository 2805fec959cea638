"""Models of random weights say anything; under a schema every answer that ends by itself is valid by `jsonschema`. One
model per kind of tokenizer."""

import concurrent.futures
import json

import jsonschema
import openai
import pytest
from tern_server import ROOT

DATA = ROOT / "tests" / "data"
TOKENIZERS = sorted(folder.name for folder in (DATA / "tokenizers").iterdir())
TEXT, NUMBER, FLAG = {"type": "string", "maxLength": 6}, {"type": "integer", "minimum": -5, "maximum": 99}, {"type": "boolean"}


def record(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


SCHEMAS = [
    TEXT,
    NUMBER,
    FLAG,
    {"type": "null"},
    {"type": "number", "minimum": 0.5, "maximum": 2},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 70},
    {"enum": ["red", "green", 3, None, [1], {"a": "ü"}]},
    {"const": {"a": [1, 2, {"b": None}]}},
    {"type": "string", "pattern": "^[a-f]{2,4}-[0-9]+$", "maxLength": 12},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "uuid"},
    {"type": "array", "items": FLAG, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [NUMBER, TEXT], "items": False},
    {"type": "array", "items": {"type": "array", "items": NUMBER, "maxItems": 2}, "maxItems": 3},
    record(a=NUMBER),
    record(a=NUMBER, b=TEXT, c=FLAG),
    record(a=record(b=record(c=FLAG))),
    {**record(a=NUMBER), "properties": {"a": NUMBER, "b": TEXT}},
    {"type": "object", "additionalProperties": FLAG, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^x[0-9]$": NUMBER}, "additionalProperties": False, "minProperties": 1},
    {"anyOf": [NUMBER, record(a=FLAG)]},
    {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 1, "maximum": 5}]},
    {"allOf": [record(a=NUMBER), record(b=FLAG)]},
    {"if": record(k={"const": 1}), "then": record(k=NUMBER, v=FLAG), "else": record(k=NUMBER), "type": "object"},
    {"not": {"type": "object"}, "type": ["integer", "object"], "minimum": 0, "maximum": 9},
    {"$defs": {"n": {"anyOf": [{"type": "null"}, record(next={"$ref": "#/$defs/n"})]}}, "$ref": "#/$defs/n"},
    {"type": ["string", "null"], "maxLength": 2},
    {"type": "object", "properties": {"a": FLAG, "b": FLAG}, "dependentRequired": {"a": ["b"]}},
]


def vocabulary(folder):
    """A bound of the ids that the tokenizer knows."""
    expected = json.loads((folder / "expected.json").read_text())
    ids = [i for case in expected.get("cases", []) for i in case.get("ids", [])] if isinstance(expected, dict) else []
    return max([2048, *ids]) + 1


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_answer_is_valid(start, kind):
    folder = DATA / "tokenizers" / kind
    override = {"vocab_size": vocabulary(folder), "max_position_embeddings": 2048}
    server = start(
        "--load-choices", "dummy", "--tokenizer", folder, "--model-override", json.dumps(override),
        "--max-model-len", 1024, "--max-num-seqs", 16, "--guided-decoding-disable-any-whitespace",
        model=DATA / "golden" / "llama3",
    ).wait_ready()  # fmt: skip
    client = server.client()

    def ask(number):
        schema = SCHEMAS[number % len(SCHEMAS)]
        body = {"guided_json": schema}
        try:
            done = client.completions.create(
                model="default", prompt=[5, 6, 7], max_tokens=700, seed=number, temperature=1.0, top_p=1.0, extra_body=body
            )
        except openai.BadRequestError as e:
            assert kind == "vocab_merges" and "vocabulary cannot write" in str(e), e  # it does not know every byte
            return "refused"
        choice = done.choices[0]
        if choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.text), schema, format_checker=jsonschema.FormatChecker())
        return choice.finish_reason

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        ends = list(pool.map(ask, range(2 * len(SCHEMAS))))
    assert ends.count("stop") + ends.count("refused") >= len(ends) * 0.8, ends
