"""What the kernel refuses to a sandboxed process, whatever namespaces it is in.

Lives here: `program`, a seccomp filter as the bytes that bubblewrap takes. It refuses what reaches past namespaces
without any privilege: sockets of families that have no network namespace of their own (such as the one between a
virtual machine and its host), the keys of the session, typing into a terminal, programs that others would run with
the rights of this user, and doors to the kernel that are seldom needed.

Source: Linux, Documentation/userspace-api/seccomp_filter.rst; the list follows what Flatpak, Docker and Nix refuse.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _MACHINE, _FIRST, _SECOND, _THIRD = (
    0,
    4,
    16,
    24,
    32,
)  # in struct seccomp_data; low halves of arguments

_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX
_OTHERS_RIGHTS = 0o6000  # set-user and set-group
_X32 = 0x40000000  # set in the numbers of the x32 interface


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of system calls. keys: add_key, request_key, keyctl; inside: bpf, perf_event_open, userfaultfd.

    modes: those that change the mode of a file, each with the place of the mode among its arguments.
    """

    audit: int
    socket: int
    ioctl: int
    keys: tuple[int, int, int]
    inside: tuple[int, int, int]
    modes: tuple[tuple[int, int], ...]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 41, 16, (248, 249, 250), (321, 298, 323), ((90, _SECOND), (91, _SECOND), (268, _THIRD))
    ),
    "aarch64": _Machine(0xC00000B7, 198, 29, (217, 218, 219), (280, 241, 282), ((52, _SECOND), (53, _THIRD))),
}
_FCHMODAT2 = (452, _THIRD)  # the same everywhere
_IO_URING = (425, 426, 427)  # the same everywhere; it opens sockets without the system call of that name


def program(machine: str | None = None) -> bytes | None:
    """The filter for this kind of machine (`x86_64`, `aarch64`); None where there is none.

    Programs for another instruction set of the same processor, such as 32-bit ones, are killed at their first call.
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    lines: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, known.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(errno.ENOSYS),
    ]
    for number in (*known.keys, *known.inside):
        lines += [(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    for number in _IO_URING:
        lines += [(_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]  # programs have another way
    # Each check is skipped as a whole by other calls, and ends with an answer for this one.
    for number, mode in (*known.modes, _FCHMODAT2):
        lines += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, mode), (_ANY_BIT, 0, 1, _OTHERS_RIGHTS)]
        lines += [_refuse(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    commands = [(_EQUAL, 0, 1, command) for command in _TERMINAL]
    lines.append((_EQUAL, 0, 2 + 2 * len(commands), known.ioctl))
    lines.append((_LOAD, 0, 0, _SECOND))
    for command in commands:
        lines += [command, _refuse(errno.EPERM)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    lines.append((_EQUAL, 0, 2 + 2 * len(_FAMILIES), known.socket))
    lines.append((_LOAD, 0, 0, _FIRST))
    for family in _FAMILIES:
        lines += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    lines.append(_refuse(errno.EAFNOSUPPORT))
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _refuse(number: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, 0x00050000 | number)
