#!/usr/bin/env python3
"""Writes tests/data/templates/cases.json: small templates with what Python's Jinja2 makes of them.

The environment is the one in which Hugging Face renders chat templates. Needs: pip install jinja2==3.1.6.
"""

import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "templates"
NOW = datetime.datetime(2025, 6, 1, 12, 0, 0)

VARS = {
    "messages": [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": 'Grüße 你好 😀 <b>&"quoted"\'</b>'},
        {
            "role": "assistant",
            "content": "<think>\nhm\n</think>\n\nHello",
            "tool_calls": [
                {
                    "type": "function",
                    "function": {"name": "f", "arguments": {"x": 1, "y": 1.0, "z": [True, None, "é"], "s": "a\nb\\"}},
                }
            ],
        },
        {"role": "tool", "content": "42", "name": "f"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "url": "u"}]},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "items": {"type": "array"}},
                    "required": ["x"],
                },
            },
        }
    ],
    "add_generation_prompt": True,
    "documents": None,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "n": 7,
    "neg": -7,
    "big": 123456789012345678,
    "f": 2.5,
    "third": 0.1,
    "small": 1e-7,
    "large": 1e22,
    "whole": 3.0,
    "zero": 0,
    "yes": True,
    "no": False,
    "none": None,
    "text": "The quick  brown\tfox\njumps",
    "empty": "",
    "list": [3, 1, 2],
    "names": ["b", "A", "c"],
    "map": {"b": 1, "a": {"k": "v"}, "items": "own"},
    "nested": [[1, 2], [3, [4]]],
    "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x", "v": 3}],
}

SNIPPETS = r"""
{{ messages[0].content | trim }}|{{ messages[0]['content'].strip() }}|{{ messages[-1].role }}
{{ messages[1].content }}|{{ messages[1]['content'] | e }}|{{ messages[1].content | length }}
{{ messages[2].tool_calls[0].function.arguments | tojson }}
{{ messages[2].tool_calls[0].function.arguments | tojson(indent=2) }}
{{ tools | tojson }}
{{ tools | tojson(indent=4) }}
{{ [1, 2.0, "a", none, true] | tojson(separators=(",", ":")) }}|{{ {"b": 1, "a": 2} | tojson(sort_keys=true) }}|{{ "é" | tojson(ensure_ascii=true) }}
{{ tools[0].function.parameters.properties.items() | list | length }}|{{ tools[0].function.parameters.properties["items"].type }}
{{ yes }}|{{ no }}|{{ none }}|{{ n }}|{{ f }}|{{ third }}|{{ small }}|{{ large }}|{{ whole }}|{{ big }}|{{ missing }}|
{{ list }}|{{ map }}|{{ nested }}|{{ (1,) }}|{{ (1, 2) }}|{{ [] }}|{{ {} }}|{{ ["it's", 'q"q', "n\nt\t\\"] }}
{{ n + 1 }}|{{ n - 10 }}|{{ n * 2 }}|{{ n / 2 }}|{{ n // 2 }}|{{ neg // 2 }}|{{ n % 3 }}|{{ neg % 3 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ -n }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}
{{ "a" ~ 1 ~ true ~ none ~ 2.0 ~ [1] }}|{{ "a" + "b" }}|{{ "ab" * 3 }}|{{ [1] * 2 + [2] }}|{{ yes + 1 }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ "a" < "b" }}|{{ 1 == 1.0 }}|{{ true == 1 }}|{{ "1" == 1 }}|{{ [1,2] == [1,2] }}|{{ {"a":1} == {"a":1.0} }}|{{ [1] < [2] }}
{{ 1 in list }}|{{ 9 not in list }}|{{ "qu" in text }}|{{ "a" in map }}|{{ none in [none] }}|{{ "x" in missing }}
{{ text[4:9] }}|{{ text[-5:] }}|{{ text[::-1] }}|{{ list[1:] }}|{{ list[::-1] }}|{{ list[5:] }}|{{ text[100:] }}|{{ list[-2] }}|{{ text[0] }}|{{ text[-1] }}|{{ list[9] }}|
{{ yes and "x" }}|{{ no or "y" }}|{{ not yes }}|{{ empty or none or "z" }}|{{ "t" if n > 5 else "f" }}|{{ "t" if n > 50 }}|
{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }} {{ m.role }};{% endfor %}
{% for a, b in map.items() %}{{ a }}={{ b }},{% endfor %}|{% for k in map %}{{ k }},{% endfor %}|{% for k, v in map | dictsort %}{{ k }}{% endfor %}
{% for x in list if x > 1 %}{{ x }}{{ loop.index0 }}{% else %}none{% endfor %}|{% for x in [] %}{{ x }}{% else %}empty{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}|{{ range(3) | list }}|{{ range(5, 0, -2) | list }}
{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == "user" %}{% set ns.found = true %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.found }}{{ ns.n }}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}|{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set block %}a{{ n }}b{% endset %}{{ block | upper }}{{ block | length }}
{% macro m(a, b="B", c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=1, a=2) }}{{ m("x") | length }}
{% macro outer(x) %}{{ caller() }}{{ x }}{% endmacro %}{% call outer(3) %}in{{ n }}{% endcall %}
{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}|{% filter upper %}abc {{ n }}{% endfilter %}
{% for x in nested recursive %}{% if x is iterable and x is not string %}({{ loop(x) }}){% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}
{{ loop is defined }}|{{ missing is defined }}|{{ none is none }}|{{ n is number }}|{{ yes is number }}|{{ text is string }}|{{ map is mapping }}|{{ list is sequence }}|{{ map is iterable }}|{{ n is iterable }}
{{ n is odd }}|{{ n is even }}|{{ 9 is divisibleby(3) }}|{{ n is integer }}|{{ f is float }}|{{ yes is boolean }}|{{ yes is true }}|{{ 1 is true }}|{{ n is eq(7) }}|{{ n is in([7]) }}|{{ "AB" is upper }}|{{ missing is undefined }}
{{ text.split() }}|{{ text.split(" ") }}|{{ "a,b,c".split(",", 1) }}|{{ "a,b,c".rsplit(",", 1) }}|{{ " a  b ".split(None, 1) }}|{{ " a  b c ".rsplit(None, 1) }}|{{ "a\nb\n".splitlines() }}
{{ "xxabxx".strip("x") }}|{{ "xxabxx".lstrip("x") }}|{{ "xxabxx".rstrip("x") }}|{{ "</think>x</think>y".split("</think>")[-1].lstrip("\n") }}
{{ "abc".startswith("ab") }}|{{ "abc".endswith(("x", "c")) }}|{{ "aXbX".replace("X", "-", 1) }}|{{ "abc".find("c") }}|{{ "abc".find("z") }}|{{ "aba".count("a") }}|{{ "äbc".index("c") }}
{{ "hello world".title() }}|{{ "hELLO".capitalize() }}|{{ "Ab".swapcase() }}|{{ "-".join(names) }}|{{ "7".zfill(3) }}|{{ "-7".zfill(4) }}|{{ "a".center(4, "*") }}|{{ "a".ljust(3) }}|{{ "a".rjust(3) }}|
{{ "a=b=c".partition("=") }}|{{ "a=b=c".rpartition("=") }}|{{ "abc".removeprefix("a") }}|{{ "12".isdigit() }}|{{ "ab1".isalnum() }}|{{ " ".isspace() }}|{{ "ab".isalpha() }}
{{ "{} {name} {!r:>5} {{}}".format("x", "y", name=3) }}|{{ "{:.2f}|{:>6}|{:06.2f}|{:,}|{:x}|{:5d}|{:<4}|{:^5}".format(3.14159, "ab", 2.5, 1234567, 255, 42, "a", "b") }}
{{ "%s is %d and %.2f %5s|%-5s|%05d %% %x" | format("a", 3, 2.5, "b", "c", 42, 255) }}|{{ "%s %s" % (1, "b") }}|{{ "%(a)s" % {"a": 2} }}|{{ "%r" % "q" }}
{{ "{} {0}".format(1) }}
{{ map.get("a") }}|{{ map.get("z") }}|{{ map.get("z", 5) }}|{{ map.keys() | list }}|{{ map["items"] }}|{{ dict(a=1, b=2) }}
{{ list | sort }}|{{ list | sort(reverse=true) }}|{{ names | sort }}|{{ names | sort(case_sensitive=true) }}|{{ rows | sort(attribute="v") | map(attribute="v") | list }}|{{ list | max }}|{{ list | min }}|{{ list | sum }}|{{ rows | sum(attribute="v") }}
{{ names | join(", ") }}|{{ list | join }}|{{ rows | join("-", attribute="k") }}|{{ list | first }}|{{ list | last }}|{{ text | first }}|{{ list | reverse | list }}|{{ "abc" | reverse }}|{{ [1, 1, 2] | unique | list }}
{{ rows | selectattr("k", "equalto", "x") | map(attribute="v") | list }}|{{ rows | rejectattr("v", "gt", 1) | list | length }}|{{ list | select("odd") | list }}|{{ list | reject("equalto", 1) | list }}|{{ names | map("upper") | join }}
{{ rows | map(attribute="zz", default="d") | list }}|{% for g, items in rows | groupby("k") %}{{ g }}{{ items | length }}{% endfor %}|{{ list | batch(2) | list }}|{{ range(5) | slice(2) | list }}
{{ "a b" | replace(" ", "_") }}|{{ "Ab" | lower }}|{{ "ab cd" | title }}|{{ "x\ny\n\nz" | indent(2) }}|{{ "x\ny" | indent(2, true) }}|{{ "ab" | center(6) }}|{{ "a b c" | wordcount }}
{{ "3" | int }}|{{ "3.7" | int }}|{{ "x" | int }}|{{ "x" | int(5) }}|{{ "2.5" | float }}|{{ 3.7 | int }}|{{ 2.5 | round }}|{{ 2.567 | round(2) }}|{{ 2.1 | round(0, "ceil") }}|{{ -3 | abs }}|{{ 42 | string }}
{{ missing | default("d") }}|{{ empty | default("d") }}|{{ empty | default("d", true) }}|{{ none | default("d") }}|{{ missing | d }}|{{ missing | length }}|{{ missing | list }}
{{ ("<a>" | safe) + "<b>" }}|{{ "<b>" + ("<a>" | safe) }}|{{ ("<a>" | safe) ~ "<b>" }}|{{ "<a>" | e + "<" }}|{{ ("<a>" | safe | upper) + "<b>" }}|{{ "<" | safe | e }}
{{ strftime_now("%d %b %Y %H:%M:%S %A %B %j %y %p %I %e %-d %%") }}
{{- "trim" -}}   
   x {#- comment -#}   y
{% if true %}
  kept
{% endif %}
{%- if true -%}  a  {%- endif -%}  b
  {% set q = 1 %}  lstrip{{ q }}
{%+ if true %}plus{% endif %}
{% raw %}{{ not }} {% this %}{% endraw %}
{% generation %}gen{{ n }}{% endgeneration %}|{%- generation -%} x {%- endgeneration -%}|
{{ "adjacent" }}{{ 'sq\'s' }}{{ "\u00e9\x41\t|" }}{{ 1_000 }}{{ 1e3 }}{{ 0.5 }}
{{ messages | map(attribute="role") | join(",") }}|{{ messages | selectattr("role", "in", ["user", "tool"]) | list | length }}
{{ raise_exception("stop here: " ~ n) }}
{{ missing.attribute }}
{{ missing + "x" }}
{{ "a" + 1 }}
{{ 1 + "a" }}
{{ list.append(1) }}
{{ 1 / 0 }}
{{ none.x }}|{{ none.x is defined }}|{{ text.nope is defined }}|{{ list.nope }}|{{ messages[0].nope is defined }}|
{{ none | length }}
{% for x in none %}{% endfor %}
{{ none() }}
{{ messages.x.y }}
{{ undefined_function() }}
{{ "abc"[1.5:] }}
{{ text.__class__ }}|{{ "".__class__.__mro__ }}
{% for x in 5 %}{% endfor %}
{{ [3, "a"] | sort }}
{{ {"a": 1}["b"] }}|{{ {"a": 1}.b is defined }}|{{ {1: "one", true: "t"}[1] }}|{{ {(1): 2}[1.0] }}
{{ range(2, 8)[3] }}|{{ range(4)[-1] }}|{{ range(0) | length }}
{%- set content = messages[2].content -%}{%- if '</think>' in content -%}{%- set parts = content.split('</think>') -%}{{ parts[0].split('<think>')[-1].strip('\n') }}#{{ parts[-1].lstrip('\n') }}{%- endif -%}
{%- for m in messages if m.role != 'tool' -%}{{ '<|im_start|>' + m.role + '\n' }}{%- if m.content is string -%}{{ m.content }}{%- else -%}{%- for c in m.content -%}{%- if c.type == 'image' or 'image' in c -%}<img>{%- elif 'text' in c -%}{{ c.text }}{%- endif -%}{%- endfor -%}{%- endif -%}{{ '<|im_end|>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
{{ bos_token }}{% for message in messages[1:] %}{{ loop.previtem.role if loop.previtem is defined }}>{{ message.role }}<{{ loop.nextitem.role if not loop.last }} {{ loop.cycle("a", "b") }}{{ loop.changed(message.role) }}{% endfor %}
"""


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main() -> None:
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    # One snippet a line; those over several lines stand below.
    snippets = [s for s in SNIPPETS.split("\n") if s]
    snippets += [
        "{% if true %}\n  kept\n{% endif %}\n",
        "line\n",
        "line\n\n",
        "  {% for x in [1, 2] %}\n  - {{ x }}\n  {% endfor %}\nend\n",
        "{# c #}\nafter comment\n",
        "{{ n }}\n{{ n }}\n",
        "a\n  {%- if true %}\nb\n  {%- endif %}\nc",
        "x {% if true %} y {% endif %} z\n",
    ]
    cases = []
    for source in snippets:
        case = {"template": source}
        try:
            case["text"] = env.from_string(source).render(**VARS)
        except Exception as error:  # any failure of the reference is a failure of the request
            case["error"] = type(error).__name__
        cases.append(case)
    OUT.mkdir(parents=True, exist_ok=True)
    body = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    head = json.dumps(
        {"reference": f"Jinja2 {jinja2.__version__}", "unix_seconds": 1748779200, "variables": VARS}, ensure_ascii=False
    )
    OUT.joinpath("cases.json").write_text(head[:-1] + ', "cases": [\n' + body + "\n]}\n", encoding="utf-8")
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors")


if __name__ == "__main__":
    main()
