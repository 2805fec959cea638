#!/usr/bin/env python3
"""Checks that every #include between rooms follows cmake/rooms.txt (docs/architecture.md). Exit 1 and a line per breach."""
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


def breaches(root):
    table = read_table(root / "cmake" / "rooms.txt")
    found, files = [], 0
    # The table itself must point downward: a room only names rooms that stand above it in the file.
    seen = set()
    for room, allowed in table.items():
        found += [f"cmake/rooms.txt: {room} names {other}, which is not below it" for other in allowed - seen]
        seen.add(room)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        files += 1
        rel = path.relative_to(root / "src")
        room = rel.parts[0]
        if room not in table:
            found.append(f"src/{rel}: room '{room}' is not in cmake/rooms.txt")
            continue
        for name in INCLUDE.findall(path.read_text(errors="replace")):
            target = name.split("/")[0]
            if "/" not in name:
                found.append(f"src/{rel}: include \"{name}\" must name its room (room/file.h)")
            elif target in table and target != room and target not in table[room]:
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
