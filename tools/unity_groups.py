#!/usr/bin/env python3
"""Divides the sources of a target into groups that can be compiled as one file each: prints `GROUP PATH` lines.

  unity_groups.py LINES FILE...

Two files that define a name of the same spelling for themselves alone (in an anonymous namespace, static, a macro, a test
case) never share a group, so nobody has to mind the names of other files. A group closes when it has LINES lines. The
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


def own_names(path):
    """Names that only this file may define when it is compiled with others."""
    names, inside = set(), False
    for line in path.read_text().splitlines():
        if BEGIN.match(line):
            inside = True
        elif inside and END.match(line):
            inside = False
        elif case := CASE.match(line):
            names.add(case.groups())
        elif macro := MACRO.match(line):
            names.add(macro[1])
        elif (inside or line.startswith("static ")) and line and line[0] not in " }/#":
            if kind := TYPE.match(line):
                names.add(kind[1])
            else:  # a function's name stands before its parameters, a variable's before its value
                names.update(re.findall(r"(\w+)(?:\[\w*\])* *[({=;]", line)[:1])
    return names


def groups(paths, most_lines):
    made = []  # [paths, lines, names]
    for path in paths:
        names, lines = own_names(path), len(path.read_text().splitlines())
        for group in made:
            if group[1] + lines <= most_lines and not group[2] & names:
                break
        else:
            group = [[], 0, set()]
            made.append(group)
        group[0].append(path)
        group[1] += lines
        group[2] |= names
    return [group[0] for group in made]


def main():
    for number, group in enumerate(groups([pathlib.Path(p) for p in sorted(sys.argv[2:])], int(sys.argv[1]))):
        for path in group:
            print(f"g{number} {path}")


if __name__ == "__main__":
    main()
