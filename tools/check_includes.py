#!/usr/bin/env python3
"""Checks that every #include between rooms, and between the inner rooms of one room, follows cmake/rooms.txt
(docs/architecture.md). Exit 1 and a line per breach."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def read_table(path):
    table = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            room, _, rest = line.partition(":")
            table[room.strip()] = set(rest.split())
    return table


def room_of(folder, table):
    """The longest room of the table that `folder` lies in: engine/step for engine/step/x, engine for engine/other."""
    parts = folder.split("/")
    while len(parts) > 1 and "/".join(parts) not in table:
        parts.pop()
    return "/".join(parts)


def breaches(root):
    table = read_table(root / "cmake" / "rooms.txt")
    found, files = [], 0
    # The table itself must point downward: a room only names rooms that stand above it in the file.
    seen = set()
    for room, allowed in table.items():
        found += [f"cmake/rooms.txt: {room} names {other}, which is not below it" for other in sorted(allowed - seen)]
        outer = room.split("/")[0]
        found += [
            f"cmake/rooms.txt: the inner room {room} names {other}, which is not of {outer}"
            for other in sorted(allowed)
            if "/" in room and other.split("/")[0] != outer
        ]
        found += [
            f"cmake/rooms.txt: {room} names {other}, an inner room of another room"
            for other in sorted(allowed)
            if "/" not in room and "/" in other and other.split("/")[0] != room
        ]
        if not (root / "src" / room).is_dir() and root == ROOT:
            found.append(f"cmake/rooms.txt: there is no folder src/{room}")
        seen.add(room)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        files += 1
        rel = path.relative_to(root / "src")
        room = rel.parts[0]
        inner = room if "tests" in rel.parts else room_of(rel.parent.as_posix(), table)
        if room not in table:
            found.append(f"src/{rel}: room '{room}' is not in cmake/rooms.txt")
            continue
        for name in INCLUDE.findall(path.read_text(errors="replace")):
            target = name.split("/")[0]
            if "/" not in name:
                found.append(f'src/{rel}: include "{name}" must name its room (room/file.h)')
            elif target == room:
                to = room_of(name.rpartition("/")[0], table)
                if "tests" not in rel.parts and to != inner and to not in table[inner]:
                    found.append(f"src/{rel}: {inner} may not include {to} ({name})")
            elif target in table and target not in table[room]:
                found.append(f"src/{rel}: {room} may not include {target} ({name})")
            elif target not in table and (root / "src" / target).is_dir():
                found.append(f"src/{rel}: include of unknown room {target}")
    return found, files


def main():
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    found, files = breaches(root)
    for line in found:
        print(line)
    print(f"include directions: {files} files, {len(found)} breaches")
    return 1 if found or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
