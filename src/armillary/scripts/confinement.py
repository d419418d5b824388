"""Drops the privileges of a cell: resource limits and process flags first, then a seccomp filter that allows only the
system calls that an interpreter needs to compute and to use its two pipes. Each step is checked; a cell that could not
be confined runs no script. This module imports nothing of the server's, because a cell loads it by itself.
"""

from __future__ import annotations

import ctypes
import os
import struct

try:
    import resource
except ImportError:  # Windows, where no cell is started
    pass

ADDRESS_SPACE_BYTES = 1 << 30
_NICENESS = 5
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_SIGKILL = 9

# Instructions of the kernel's packet filter (BPF): load a word, compare, test bits, return.
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _IF_EQUAL, _IF_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | 1  # EPERM
# Offsets in the `seccomp_data` that a filter reads.
_CALL_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 32
_EXECUTABLE = 4

# System-call numbers of the generic table, which newer architectures use.
_GENERIC = (
    # read write pselect ppoll exit exit_group futex clock_gettime yield restart sigaltstack sigaction sigprocmask
    # sigreturn times getrusage gettimeofday getpid brk munmap mremap madvise getrandom
    (63, 64, 72, 73, 93, 94, 98, 113, 124, 128, 132, 134, 135, 139, 153, 165, 169, 172, 214, 215, 216, 233, 278),
    (222, 226),
    261,
)
# For each architecture: its audit number, the harmless calls, the calls that map memory, and the one that sets limits.
_MACHINES = {
    "x86_64": (
        0xC000003E,
        # read write poll munmap brk sigaction sigprocmask sigreturn select yield mremap madvise getpid exit
        # gettimeofday getrusage times sigaltstack futex restart clock_gettime exit_group pselect getrandom
        (0, 1, 7, 11, 12, 13, 14, 15, 23, 24, 25, 28, 39, 60, 96, 98, 100, 131, 202, 219, 228, 231, 270, 318),
        (9, 10),
        302,
    ),
    "aarch64": (0xC00000B7, *_GENERIC),
    "riscv64": (0xC00000F3, *_GENERIC),
}


class NotConfined(Exception):
    """A step of the confinement failed; `args[0]` says which."""


def give_up_everything(*, needs_filter: bool = True) -> None:
    """From here on the process can open no file or socket and start no process, even if a script takes over the engine.
    Raises NotConfined if a step fails; without `needs_filter` the seccomp filter may be missing, and only the limits
    apply."""
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "prctl"):
        _prctl(library, _PR_SET_PDEATHSIG, _SIGKILL)  # the kernel ends a cell with its server
        _prctl(library, _PR_SET_NO_NEW_PRIVS, 1)
        _prctl(library, _PR_SET_DUMPABLE, 0)
    elif needs_filter:
        raise NotConfined("this system has no seccomp")
    os.closerange(3, 1024)
    os.nice(_NICENESS)  # the server has priority
    for name, most in (
        (resource.RLIMIT_NOFILE, 0),  # the two pipes stay open; nothing else can be opened
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, ADDRESS_SPACE_BYTES),
    ):
        try:
            resource.setrlimit(name, (most, most))
            is_set = resource.getrlimit(name) == (most, most)
        except (OSError, ValueError):
            is_set = False
        # macOS has no limit of the address space: there, without a filter, the engine's own limit of memory remains.
        if not is_set and (needs_filter or name != resource.RLIMIT_AS):
            raise NotConfined("the limits of the process cannot be set")
    try:
        _install_filter(library, os.uname().machine)
    except NotConfined:
        if needs_filter:
            raise


def _install_filter(library: ctypes.CDLL, machine: str) -> None:
    program = filter_program(machine)
    if program is None:
        raise NotConfined(f"no filter of system calls is known for {machine}")
    kept = ctypes.create_string_buffer(program, len(program))
    count = len(program) // _INSTRUCTION.size
    header = struct.pack("@HP", count, ctypes.addressof(kept))
    _prctl(library, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(header))
    # Emulators and sandboxes may accept the filter without applying it. Without a filter this call cannot fail.
    if library.getppid() != -1:
        raise NotConfined("the kernel took the filter of system calls (seccomp) without applying it")


def _prctl(library: ctypes.CDLL, option: int, second: int, third: object = 0) -> None:
    if library.prctl(option, second, third, 0, 0) != 0:
        what = "the filter of system calls (seccomp)" if option == _PR_SET_SECCOMP else f"prctl option {option}"
        raise NotConfined(f"the kernel refuses {what}: {os.strerror(ctypes.get_errno())}")


def filter_program(machine: str) -> bytes | None:
    """Calls that are not listed fail with EPERM; calls of another architecture end the process."""
    if machine not in _MACHINES:
        return None
    architecture, harmless, mapping, limiting = _MACHINES[machine]
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    steps.append((_LOAD, 0, 0, _CALL_NUMBER))
    for number in harmless:
        steps += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for number in mapping:  # allowed only without PROT_EXEC
        steps += [(_IF_EQUAL, 0, 4, number), (_LOAD, 0, 0, _THIRD_ARGUMENT), (_IF_BITS, 1, 0, _EXECUTABLE)]
        steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    # Only the limits of this process, which cannot be raised.
    steps += [(_IF_EQUAL, 0, 4, limiting), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_IF_EQUAL, 0, 1, 0)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    steps.append((_RETURN, 0, 0, _REFUSE))
    return b"".join([_INSTRUCTION.pack(*step) for step in steps])
