#!/usr/bin/env python3
"""Makes programs and libraries that were linked with a newer glibc start with glibc 2.28, and checks that they do.

  lower_glibc.py FOLDER            changes the ELF files below FOLDER, then checks them
  lower_glibc.py --check FOLDER    only checks: no version of glibc above 2.28 is needed, and no library from elsewhere
  --system PATTERN                 a library that may be the system's

A name with a version above 2.28 loses the version: the dynamic linker then takes the host's. That is right for the names in
SAME, which are in glibc 2.28 and mean the same there, and for those in MADE, which packaging/old_glibc.c makes. A name in
neither list ends the run. The files are changed in place, at the end of stripping and patchelf: nothing moves.
"""

import argparse
import fnmatch
import pathlib
import re
import struct
import subprocess
import sys

MOST = (2, 28)
SHIM = "libtern_old_glibc.so"
# The libraries of glibc itself, of any host.
HOST = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "ld-linux-x86-64.so.2"}
# Beside the names there are glibc's of before 2.34 in libraries of their own.
OLD_HOMES = ("libpthread.so.0", "libdl.so.2", "libresolv.so.2", "libm.so.6", "librt.so.1")


def names_in(text):
    return set(re.findall(r"\S+", text))


# In glibc 2.28 in one of its libraries, with the same meaning. Later versions moved them (2.32, 2.34) or left errno's old
# ways (mathematics). Without a version the dynamic linker takes GLIBC_2.2.5 where a name has it, else the newest: names whose
# first version meant something else (timer_create, pthread_cond_wait) may not stand here.
SAME = names_in("""
    exp exp2 log log2 pow hypot
    dladdr dlclose dlerror dlmopen dlopen dlsym dlvsym
    ns_name_uncompress sem_destroy sem_getvalue sem_init sem_open sem_post sem_timedwait
    sem_trywait sem_unlink sem_wait sem_close shm_open shm_unlink thrd_exit call_once
    pthread_attr_getguardsize pthread_attr_getstack pthread_attr_getstacksize pthread_attr_setguardsize pthread_attr_setstack
    pthread_attr_setstacksize pthread_attr_setaffinity_np pthread_barrier_destroy pthread_barrier_init pthread_barrier_wait
    pthread_cancel pthread_condattr_getclock pthread_condattr_setclock pthread_condattr_setpshared
    pthread_create pthread_detach pthread_getaffinity_np
    pthread_getattr_np pthread_getconcurrency pthread_getcpuclockid pthread_getname_np pthread_getspecific pthread_join
    pthread_key_create __pthread_key_create pthread_key_delete pthread_kill pthread_mutexattr_destroy
    pthread_mutexattr_getkind_np pthread_mutexattr_gettype pthread_mutexattr_init pthread_mutexattr_setprotocol
    pthread_mutexattr_setpshared pthread_mutexattr_setrobust pthread_mutexattr_settype pthread_mutex_consistent
    pthread_mutex_timedlock pthread_mutex_trylock pthread_once pthread_rwlockattr_destroy pthread_rwlockattr_init
    pthread_rwlockattr_setkind_np
    pthread_rwlockattr_setpshared pthread_rwlock_destroy pthread_rwlock_init pthread_rwlock_rdlock
    pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock pthread_rwlock_tryrdlock
    pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock pthread_setaffinity_np pthread_setattr_default_np
    pthread_setconcurrency pthread_setname_np pthread_setspecific pthread_sigmask pthread_spin_destroy pthread_spin_init
    pthread_spin_lock pthread_spin_trylock pthread_spin_unlock pthread_testcancel pthread_timedjoin_np pthread_tryjoin_np
""")
# Made by packaging/old_glibc.c.
MADE = names_in("""
    __libc_single_threaded __libc_start_main _dl_find_object arc4random dn_expand fstat fstat64 fstatat fstatat64 gettid lstat
    lstat64 posix_spawn_file_actions_addclosefrom_np pthread_cond_clockwait pthread_mutex_clocklock res_nsearch res_query sem_clockwait
    stat stat64
""")
# Rust's standard library asks for these weakly and does without.
OPTIONAL = {"posix_spawn_file_actions_addchdir_np", "gettid"}
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 6, 10, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
DT_VERDEF, DT_UNKNOWN = 0x6FFFFFFC, 0x6000F000
SHT_PROGBITS, SHT_DYNSYM, SHT_VERNEED, WEAK, GLOBAL_VERSION = 1, 11, 0x6FFFFFFE, 2, 1


class Failure(Exception):
    pass


def version_of(name):
    """(2, 34) of GLIBC_2.34; None of other names."""
    head, _, numbers = name.partition("_")
    if head != "GLIBC" or not numbers[:1].isdigit():
        return None
    return tuple(int(n) for n in numbers.split("."))


class Elf:
    """A 64-bit little-endian ELF file with a dynamic section, in memory."""

    def __init__(self, path):
        self.path, self.data = path, bytearray(path.read_bytes())
        self.segments, self.dynamic = [], []
        table, count = self.get("<Q", 32), self.get("<H", 56)
        at = None
        for i in range(count):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", self.data, table + 56 * i)
            if kind == 1:
                self.segments.append((address, size, offset))
            if kind == 2:
                at = offset
        while at is not None:
            tag, value = struct.unpack_from("<qQ", self.data, at)
            if tag == 0:
                break
            self.dynamic.append((tag, value, at))
            at += 16
        self.strings = self.offset(DT_STRTAB)

    def get(self, form, at):
        return struct.unpack_from(form, self.data, at)[0]

    def put(self, form, at, *values):
        struct.pack_into(form, self.data, at, *values)

    def entry(self, tag):
        return next((e for e in self.dynamic if e[0] == tag), None)

    def offset(self, tag):
        """Where in the file the table lies that a dynamic entry names; None without such an entry."""
        found = self.entry(tag)
        if found is None:
            return None
        for address, size, offset in self.segments:
            if address <= found[1] < address + size:
                return found[1] - address + offset
        raise Failure(f"{self.path}: a dynamic entry points outside of the file")

    def text(self, at):
        begin = self.strings + at
        return self.data[begin : self.data.index(0, begin)].decode()

    def needed(self):
        return [self.text(value) for tag, value, _ in self.dynamic if tag == DT_NEEDED]

    def sections(self, kind):
        """(offset of the header, address of the section, its size)"""
        table, size, count = self.get("<Q", 40), self.get("<H", 58), self.get("<H", 60)
        for i in range(count):
            at = table + size * i
            if self.get("<I", at + 4) == kind:
                yield at, self.get("<Q", at + 24), self.get("<Q", at + 32)

    def versions(self):
        """What is needed: a list of (offset, library, [(offset, index, name)])."""
        out, at = [], self.offset(DT_VERNEED)
        while at is not None:
            _, count, file, aux, after = struct.unpack_from("<HHIII", self.data, at)
            names, place = [], at + aux
            for _ in range(count):
                _, _, index, name, step = struct.unpack_from("<IHHII", self.data, place)
                names.append((place, index, self.text(name)))
                place += step
            out.append((at, self.text(file), names))
            at = at + after if after else None
        return out

    def symbols(self):
        """(name, is weak, offset of its version)"""
        versions = self.offset(DT_VERSYM)
        for _, start, size in self.sections(SHT_DYNSYM):
            for i in range(size // 24):
                name, info = struct.unpack_from("<IB", self.data, start + 24 * i)
                yield self.text(name), info >> 4 == WEAK, versions + 2 * i


def too_new(elf):
    """{index: version name} of what is above MOST."""
    return {
        index: name
        for _, _, names in elf.versions()
        for _, index, name in names
        if (version := version_of(name)) is not None and version > MOST
    }


def drop_versions(elf, indices):
    """Takes entries out of the chains of needed versions; a library without any goes, too."""
    kept = []
    for at, _, names in elf.versions():
        left = [place for place, index, _ in names if index not in indices]
        if not left:
            continue
        elf.put("<H", at + 2, len(left))
        elf.put("<I", at + 8, left[0] - at)
        for place, after in zip(left, left[1:] + [0]):
            elf.put("<I", place + 12, after - place if after else 0)
        kept.append(at)
    if not kept:
        # No library may have an empty list: the entries that name it get a tag that nobody knows.
        # The same with its symbols' indices into the list, unless the library has versions of its own.
        for tag in (DT_VERNEED, DT_VERNEEDNUM) + (() if elf.entry(DT_VERDEF) else (DT_VERSYM,)):
            elf.put("<q", elf.entry(tag)[2], DT_UNKNOWN)
        for header, _, _ in elf.sections(SHT_VERNEED):
            elf.put("<I", header + 4, SHT_PROGBITS)
        return
    for at, after in zip(kept, kept[1:] + [0]):
        elf.put("<I", at + 12, after - at if after else 0)
    first = elf.entry(DT_VERNEED)
    moved = kept[0] - elf.offset(DT_VERNEED)
    elf.put("<Q", first[2] + 8, first[1] + moved)
    elf.put("<Q", elf.entry(DT_VERNEEDNUM)[2] + 8, len(kept))
    for header, _, _ in elf.sections(SHT_VERNEED):  # what readelf goes by
        elf.put("<I", header + 44, len(kept))
        for field in (16, 24):
            elf.put("<Q", header + field, elf.get("<Q", header + field) + moved)


def unknown_names(elf):
    """Names of a later version that are in neither list."""
    indices = too_new(elf)
    found = ((name, weak) for name, weak, at in elf.symbols() if elf.get("<H", at) & 0x7FFF in indices) if indices else ()
    return sorted({name for name, weak in found if name not in SAME | MADE | (OPTIONAL if weak else set())})


def lower(path):
    """Gives the names that lost their version."""
    elf = Elf(path)
    indices = too_new(elf)
    if not indices:
        return []
    if unknown := unknown_names(elf):
        what = ", ".join(unknown)
        raise Failure(
            f"{path}: needs {what} of a glibc above 2.28. Add each to SAME in tools/lower_glibc.py if glibc 2.28 has it with "
            "the same meaning, else make it in packaging/old_glibc.c and add it to MADE"
        )
    added = [SHIM] if path.name != SHIM else list(OLD_HOMES)
    missing = [name for name in added if name not in elf.needed()]
    if missing:
        # patchelf puts each before those that are there, so that the last named is found first.
        options = [word for name in reversed(missing) for word in ("--add-needed", name)]
        subprocess.run(["patchelf", *options, str(path)], check=True)
        elf = Elf(path)
        indices = too_new(elf)
    names = []
    for name, _, at in elf.symbols():
        if elf.get("<H", at) & 0x7FFF in indices:
            elf.put("<H", at, GLOBAL_VERSION)
            names.append(name)
    drop_versions(elf, indices)
    path.write_bytes(elf.data)
    return names


def elf_files(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                if file.read(6) == b"\x7fELF\x02\x01":
                    yield path


def check(folder, system=()):
    """What keeps the files below a folder from starting with glibc 2.28 alone, a line each; and the highest version needed."""
    wrong, highest = [], (2, 0)
    files = list(elf_files(folder))
    own = {path.name for path in files}
    for path in files:
        elf = Elf(path)
        for name in elf.needed():
            if name not in own | HOST and not any(fnmatch.fnmatch(name, pattern) for pattern in system):
                wrong.append(f"{path}: needs {name}, which is neither shipped nor glibc's")
        for _, library, names in elf.versions():
            for _, _, name in names:
                version = version_of(name)
                if version and version > MOST:
                    wrong.append(f"{path}: needs {name} of {library}")
                elif version:
                    highest = max(highest, version)
                elif library in HOST:
                    wrong.append(f"{path}: needs {name} of {library}, which other hosts need not have")
    if not files:
        wrong.append(f"{folder}: holds no ELF file")
    return wrong, highest, len(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--system", action="append", default=[])
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    if not options.check:
        failures = []
        for path in elf_files(options.folder):
            try:
                lower(path)
            except Failure as failure:
                failures.append(str(failure))
        for line in failures:
            print(f"lower_glibc: {line}", file=sys.stderr)
        if failures:
            return 1
    wrong, highest, count = check(options.folder, options.system)
    for line in wrong:
        print(f"lower_glibc: {line}", file=sys.stderr)
    print(f"{options.folder}: {count} files need glibc {'.'.join(map(str, highest))} of the host, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
