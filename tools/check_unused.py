#!/usr/bin/env python3
"""Finds functions of src/ that nothing needs: symbols with external linkage that no object file outside tests refers to.
Exit 1 and a line per breach.

Reads the object files of a build (default: build/release), which must be up to date; tests, fuzz targets and test helpers
do not count as users. Members may be used by their own file alone; a function outside classes that only its own file uses
belongs into an anonymous namespace, unless a test calls it too. Inline functions and templates are not seen: they are weak
symbols. Where several sources are one object (TERN_UNITY), a source uses a function of another if it has its name.

  check_unused.py [BUILD_FOLDER]
"""

import collections
import functools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Demangled names without parameters (* at the end: all that begin so), and why they stay.
EXCEPTIONS = {
    **dict.fromkeys(
        [
            "tern::cache::EncoderCache::check_invariants",
            "tern::cache::PrefixIndex::check_invariants",
            "tern::device::ComputePool::cpus",
            "tern::engine::Engine::start",
            "tern::image::mode_name",
            "tern::model::architectures",
            "tern::ops::find_backend",
            "tern::ops::pack_weight",
            "tern::serve::MemoryBudget::used",
            "tern::serve::openai::inert_field_names",
            "tern::serve::Server::controller_port",
            "tern::serve::Server::dispatcher",
            "tern::app::LogFiles::dropped",
            "tern::app::TraceFile::dropped",
            "tern::content::Tokenizer::adds_bos",
            "tern::content::Tokenizer::bos_id",
        ],
        "what tests look at or set",
    ),
    **dict.fromkeys(
        [
            "tern::image::RowResizer::height",
            "tern::image::RowResizer::next",
            "tern::image::RowResizer::operator=",
            "tern::image::RowResizer::width",
            "tern::serve::Dispatcher::remove",
        ],
        "a class's whole interface",
    ),
    "tern::cache::PrefixIndex::peek": "several GPUs need it",
    **dict.fromkeys(
        ["tern::content::GrammarVocabulary::*", "tern::content::GrammarCompiler::stats", "tern::content::Matcher::*"],
        "what tests and comparisons look at, and what speculation will need",
    ),
}
# Programs and libraries of their own, without position-independent code or with hidden names: a call inside a file leaves
# no trace.
PROGRAMS = ("tern-video-decoder.dir", "tern_grpc.dir")
NOT_PRODUCT = ("test_", "fuzz_", "tern-fake")
# A class's name begins with a capital letter, a namespace's does not.
MEMBER = re.compile(r"(?:^|::)[A-Z]\w*(?:<.*>)?::[^:]+$")


def object_files(build):
    """The object files of a build, and whether their target is no test; those of files that are gone do not count."""
    commands = build / "compile_commands.json"
    known = None
    if commands.exists():
        known = {build / re.search(r" -o (\S+) ", c["command"])[1] for c in json.loads(commands.read_text())}
    for folder in sorted(build.rglob("CMakeFiles/*.dir")):
        product = not folder.name.startswith(NOT_PRODUCT) and not folder.name.endswith("_fuzz.dir")
        for file in sorted(folder.rglob("*.o")):
            if known is None or file in known:
                yield str(file), product


def read(files):
    """Functions by (file, section, address), which aliases share: their names. And who refers to which name."""
    functions, users = collections.defaultdict(set), collections.defaultdict(set)
    text = subprocess.run(["readelf", "-W", "-s", "-r", *files], capture_output=True, text=True, check=True).stdout
    current = str(files[0])
    for line in text.splitlines():
        if line.startswith("File: "):
            current = line[len("File: ") :]
            continue
        f = line.split()
        if len(f) == 8 and f[3] == "FUNC" and f[4] == "GLOBAL" and f[6] != "UND":
            functions[current, f[6], f[1]].add(f[7])
        elif len(f) >= 5 and len(f[0]) == 16 and f[2].startswith("R_"):
            users[f[4].partition("@")[0]].add(current)
    return functions, users


def with_lists(text):
    """The text, and that of the lists (.inc) that it includes: they name functions that the text does not."""
    lists = [ROOT / "src" / name for name in re.findall(r'^#include "([^"]+\.inc)"', text, re.MULTILINE)]
    return "\n".join([text, *(path.read_text() for path in lists if path.exists())])


@functools.cache
def sources(file):
    """The sources of an object file that was made of several, by path; empty for others."""
    name = pathlib.Path(file).stem
    if pathlib.Path(file).parent.name != "unity":
        return {}
    build = next(folder for folder in pathlib.Path(file).parents if (folder / "unity" / name).exists())
    paths = re.findall(r'^#include "([^"]+)"', (build / "unity" / name).read_text(), re.MULTILINE)
    return {str(path): set(re.findall(r"\w+", with_lists(path.read_text()))) for path in (ROOT / "src" / p for p in paths)}


def demangle(names):
    out = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, out.splitlines(), strict=True))


def breaches(files, exceptions):
    """Lines that say what is wrong with files ({name: is it no test})."""
    functions, users = read(list(files))
    found = []
    for (file, _, _), names in functions.items():
        if not files[file] or any(program in file for program in PROGRAMS):
            continue
        who = set().union(*(users.get(name, set()) for name in names))
        product, tested = {user for user in who if files[user]}, any(not files[user] for user in who)
        if not product - {file} and not (product and tested):
            found.append((file, sorted(names)[0], bool(product), "tests alone" if tested else "nobody"))
    plain = demangle([name for _, name, _, _ in found])
    used_exceptions = set()
    for file, name, by_itself, whom in found:
        shown = plain[name].replace("[abi:cxx11]", "")
        if not shown.startswith("tern::") or (by_itself and MEMBER.search(shown)):
            continue
        matching = {name for name in exceptions if shown == name or (name.endswith("*") and shown.startswith(name[:-1]))}
        if matching:
            used_exceptions |= matching
            continue
        word = re.split(r"\W", shown)[-1]
        named = [path for path, words in sources(file).items() if word in words]
        if by_itself and len(named) > 1:
            continue
        where = re.sub(r"^.*?\.dir/(.*)\.o$|^.*?/(?=src/)", r"\1", named[0] if named else file)
        yield f"{where}: {shown} is used by " + ("its own file alone: make it local" if by_itself else whom)
    for name in sorted(set(exceptions) - used_exceptions):
        yield f"tools/check_unused.py: the exception {name} is not needed"


def main(argv):
    build = pathlib.Path(argv[0]) if argv else ROOT / "build" / "release"
    files = dict(object_files(build))
    if not files:
        print(f"{build} has no object files: build first")
        return 1
    lines = sorted(breaches(files, EXCEPTIONS if not argv else {}))
    print(*lines, sep="\n", end="\n" if lines else "")
    print(f"unused symbols: {len(files)} object files, {len(lines)} breaches")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
