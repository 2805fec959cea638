#!/usr/bin/env python3
"""Divides the sources of a target into groups that can be compiled as one file each: prints `GROUP PATH` lines.

  unity_groups.py LINES FILE...

A file that defines a name for itself alone (in an anonymous namespace, static, a macro, a test case) never shares a group
with one that has this name too, as its own or, if it is a type's, as somebody else's; so nobody has to mind the names of
other files. A group closes when it has LINES lines. The
reading is by shape, not by grammar: a name too many separates two files that could be together, which costs nothing; a
name missed is an error of the compiler that names both places.
"""

import pathlib
import re
import sys

BEGIN = re.compile(r"namespace \{")
END = re.compile(r"\}\s*// namespace\s*$")
CASE = re.compile(r"(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\((\w+), *(\w+)")
TYPE = re.compile(r"(?:template *<.*> )?(?:struct|class|enum class|enum|union|using|concept) (\w+)")
MACRO = re.compile(r"#define (\w+)")
FUNCTION = re.compile(r"[^=;{]*?(\w+)\(")
LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
TYPE_NAME = re.compile(r"(?<![\w.>:])[A-Z]\w*")


def own_names(lines):
    """Names that only this file may define when it is compiled with others."""
    names, inside = set(), False
    for line in lines:
        if BEGIN.match(line):
            inside = True
        elif inside and END.match(line):
            inside = False
        elif case := CASE.match(line):
            names.add("_".join(case.groups()))
        elif macro := MACRO.match(line):
            names.add(macro[1])
        elif (inside or line.startswith("static ")) and line and line[0] not in " }/#":
            if kind := TYPE.match(line):
                names.add(kind[1])
            elif function := FUNCTION.match(line):
                names.add(function[1])
            else:  # a variable's name stands before its value; a line may have several
                names.update(re.findall(r"(\w+)(?:\[\w*\])* *[{=;]", line))
    return names


def used_types(lines):
    """Words of the code that could be types of other files: no members, nothing in quotes or remarks."""
    types = set()
    for line in lines:
        types.update(TYPE_NAME.findall(LITERAL.sub('""', line).split("//")[0]))
    return types


def groups(paths, most_lines):
    made = []  # [paths, lines, own names, types used]
    for path in paths:
        text = path.read_text().splitlines()
        own, used = own_names(text), used_types(text)
        for group in made:
            if group[1] + len(text) <= most_lines and not own & (group[2] | group[3]) and not used & group[2]:
                break
        else:
            group = [[], 0, set(), set()]
            made.append(group)
        group[0].append(path)
        group[1] += len(text)
        group[2] |= own
        group[3] |= used
    return [group[0] for group in made]


def main():
    for number, group in enumerate(groups([pathlib.Path(p) for p in sorted(sys.argv[2:])], int(sys.argv[1]))):
        for path in group:
            print(f"g{number} {path}")


if __name__ == "__main__":
    main()
