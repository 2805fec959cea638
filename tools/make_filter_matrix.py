#!/usr/bin/env python3
"""Writes tests/data/templates/filters.json: every filter and test of the template language on every kind of value, with
what Jinja2 3.1.6 makes of it in the environment of transformers 5.24. null: Python raises, so the render must fail."""

import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/templates/filters.json"
VALUES = ["nothing", "none", "''", "'abc'", "' A b-c '", "'12'", "'-3.7'", "0", "7", "-7", "2.5", "true", "false", "[]",
          "[3, 1, 2]", "['b', 'A', 'b']", "[none, 1]", "['a', 1]", "[[1, 2], [3]]", "{}", "{'b': 1, 'a': 2}",
          "[{'k': 1}, {'k': 0}, {'j': 1}]", "range(3)", "'<é&日>'"]
LISTED = ["select", "select('none')", "select('defined')", "select('string')", "reject", "reject('none')",
          "selectattr('k')", "selectattr('k', 'defined')", "selectattr('k', 'equalto', 1)", "rejectattr('k')",
          "rejectattr('k', 'none')", "map('upper')", "map('string')", "map(attribute='k')",
          "map(attribute='k', default='d')", "unique", "batch(2)", "batch(2, 'x')", "slice(2)", "slice(2, 'x')", "reverse",
          "items", "groupby('k')"]
PLAIN = ["abs", "attr('k')", "attr('upper') is defined", "capitalize", "center(9)", "count", "default('d')", "d('d', true)",
         "dictsort", "dictsort(by='value')", "dictsort(reverse=true)", "e", "escape", "first", "float", "float('d')",
         "forceescape", "format(1)", "indent", "indent(2, true)", "int", "int('d')", "join", "join('-')",
         "join('-', attribute='k')", "last", "length", "list", "lower", "max", "min", "max(attribute='k')", "pprint",
         "replace('b', 'X')", "round", "round(1, 'floor')", "safe", "sort", "sort(reverse=true)", "sort(attribute='k')",
         "string", "sum", "sum(attribute='k')", "sum(start=1)", "title", "tojson", "tojson(indent=2)", "trim", "trim('ab ')",
         "truncate(2)", "truncate(3, true, '', 0)", "upper", "urlencode", "wordcount"]
TESTS = ["boolean", "callable", "defined", "divisibleby(2)", "divisibleby(none)", "eq(1)", "equalto(none)", "escaped", "even",
         "false", "filter", "float", "ge(1)", "greaterthan('b')", "gt(none)", "in([1, 'abc', none])", "in('abcd')",
         "in({'abc': 1})", "in(none)", "integer", "iterable", "le(1)", "lessthan(1)", "lower", "lt('b')", "mapping", "ne(1)",
         "none", "number", "odd", "sameas(none)", "sameas(true)", "sequence", "string", "test", "true", "undefined", "upper"]


def render(source):
    try:
        return _compile_jinja_template(source).render()
    except Exception:
        return None


def main():
    expressions = [f"V|{f}|list" for f in LISTED] + [f"V|{f}" for f in PLAIN] + [f"V is {t}" for t in TESTS]
    expressions += ["V + 'x'", "'x' ~ V", "V == none", "V in [none]", "'a' in V", "V[0]", "V.k", "V['k']", "not V", "V < 1",
                    "V * 2", "V % 2", "-V", "V[1:]"]
    lines = []
    for expression in expressions:
        row = [render("{{ " + expression.replace("V", "(" + value + ")") + " }}") for value in VALUES]
        lines.append(json.dumps([expression, row], ensure_ascii=False))
    head = '{"reference": "transformers 5.24.0, Jinja2 3.1.6",\n"values": ' + json.dumps(VALUES, ensure_ascii=False)
    OUT.write_text(head + ',\n"rows": [\n' + ",\n".join(lines) + "]}\n")


main()
