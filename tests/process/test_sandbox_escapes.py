"""Attempts to get out of the sandbox, each by a real process, as root and as an ordinary user.

An attempt says ESCAPED, or changes something on the machine that is not its own. That it is a real attempt is shown by
running it as root without a sandbox, wherever that does no harm: then it has to succeed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from interlock.process.sandbox import Limits, Sandbox
from interlock.tools.confinement import SandboxMode

from .boxing import SECRET, Machine, machine, require_bubblewrap, whoever

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Attempt:
    name: str
    command: str
    real: bool = True  # it works without a sandbox, for root, and does no harm there


def in_python(body: str) -> str:
    return f"python3 - <<'END'\nimport os, socket, ctypes, sys\n{body}\nEND"


def syscall(x86: int, arm: int, arguments: str, also: str = "") -> str:
    return in_python(
        f"import platform\n{also}\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"number = {x86} if platform.machine() == 'x86_64' else {arm}\n"
        f"if libc.syscall(number, {arguments}) >= 0: print('ESCAPED')"
    )


WRITING = [
    Attempt("a new file outside", "echo x > $OUTSIDE/new"),
    Attempt("changing a file outside", "echo x >> $OUTSIDE/file"),
    Attempt("removing a file outside", "rm -f $OUTSIDE/file"),
    Attempt("renaming a file outside into the workspace", "mv $OUTSIDE/file ."),
    Attempt("renaming a file outside", "mv $OUTSIDE/file $OUTSIDE/other"),
    Attempt("mode of a file outside", "chmod 0777 $OUTSIDE/file"),
    Attempt("through a link in the workspace", "ln -s $OUTSIDE link && echo x > link/new"),
    Attempt("through a hard link in the workspace", "ln $OUTSIDE/file hard && echo x > hard; cat hard > $OUTSIDE/copy"),
    Attempt("through dots", "echo x > ../../../../../../../..$OUTSIDE/new"),
    Attempt("through the root of oneself", "echo x > /proc/self/root$OUTSIDE/new"),
    Attempt("through the root of process 1", "echo x > /proc/1/root$OUTSIDE/new", real=False),
    Attempt("through the folder of process 1", "cd /proc/1/cwd && echo x > .$OUTSIDE/new", real=False),
    Attempt("into the home folder", "mkdir -p $REAL_HOME/.ssh; echo x > $REAL_HOME/.ssh/authorized_keys"),
    Attempt("settings of the kernel", "f=/proc/sys/vm/swappiness; cat $f > value; cat value > $f && echo ESCAPED"),
    Attempt("the magic key", "echo h > /proc/sysrq-trigger && echo ESCAPED", real=False),
    Attempt("files of /sys", "test -e /sys/kernel && echo ESCAPED"),
    Attempt("making a device", "mknod device c 1 3 && echo x > device && echo ESCAPED"),
    Attempt("devices of the machine", "ls /dev | grep -qE '^(mem|kmsg|vd.|sd.|nvme.*|loop.*|vsock|kvm)$' && echo ESCAPED"),
    Attempt("making the root writable", "mount -o remount,rw,bind / && echo ESCAPED", real=False),
    Attempt("mounting", "mkdir -p m && mount -t tmpfs none m && echo ESCAPED", real=False),
    Attempt("mounting over itself", "mount --bind $OUTSIDE . && echo ESCAPED", real=False),
    Attempt("taking a mount away", "umount -l /home || umount -l /tmp || umount -l . && echo ESCAPED", real=False),
]  # fmt: skip

PROTECTED = [
    Attempt("a hook of git", "echo x > .git/hooks/pre-commit"),
    Attempt("settings of git", "git config core.fsmonitor ./evil"),
    Attempt("settings of git, directly", "echo '[core]' >> .git/config"),
    Attempt("settings of git, replaced", "cp .git/config c; echo x >> c; mv -f c .git/config"),
    Attempt("another folder for the settings of git", "mkdir -p e; cp .git/config e; echo ../e > .git/commondir"),
    Attempt("another folder of hooks in its place", "mv .git/hooks h; mkdir .git/hooks; echo x > .git/hooks/pre-commit"),
    Attempt("another .git in its place", "mv .git g; cp -r g .git; echo x > .git/hooks/pre-commit"),
    Attempt("settings of an agent that has none", "mkdir -p .claude; echo '{}' > .claude/settings.json"),
    Attempt("settings of an agent, as a link", "mkdir mine; ln -sfn mine .claude; echo x > .claude/settings.json"),
    Attempt("settings of this program", "echo x > interlock.toml"),
    Attempt("settings of this program, renamed", "echo x > i; mv -f i interlock.toml"),
]  # fmt: skip

READING = [
    Attempt("keys in the home folder", "cat $REAL_HOME/.ssh/* && echo ESCAPED"),
    Attempt("the home folder by ~", "ls ~/.ssh && echo ESCAPED", real=False),
    Attempt("somebody else's home folder", "cat $OTHER_HOME/diary && echo ESCAPED"),
    Attempt("root's home folder", "ls -A /root | grep -q '^.bashrc$' && echo ESCAPED", real=os.path.exists("/root/.bashrc")),
    Attempt("passwords", "grep -q . /etc/shadow && echo ESCAPED"),
    Attempt("temporary files of others", "cat $HOST_TEMPORARY && echo ESCAPED"),
    Attempt("sockets and secrets of services", "ls -A /run | grep -q . && echo ESCAPED"),
    Attempt("logs", "ls -A /var/log | grep -q . && echo ESCAPED"),
    Attempt("shared memory of others", "touch /dev/shm/$MARKER; ls -A /dev/shm | grep -qv $MARKER && echo ESCAPED", real=False),
    Attempt("variables with secrets", "env | grep -E 'AWS_SECRET|GITHUB_TOKEN' && echo ESCAPED"),
    Attempt("variables of other processes", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a HOST_SECRET && echo ESCAPED"),
    Attempt("descriptors of the program", f"cat /proc/self/fd/$HOST_DESCRIPTOR | grep -q {SECRET} && echo ESCAPED", real=False),
    Attempt("any descriptor but three", "for f in /proc/self/fd/*; do n=${f##*/}; [ $n -gt 2 ] && [ $n -ne 255 ] && [ -e $f ] && echo ESCAPED; done", real=False),
    Attempt("keys of the session", syscall(250, 219, "0, -3, 1"), real=False),
    Attempt("memory of the kernel", "head -c 1 /proc/kcore >/dev/null && echo ESCAPED", real=False),
]  # fmt: skip

NETWORK = [
    Attempt("a service on this machine", in_python("socket.create_connection(('127.0.0.1', int(os.environ['HOST_PORT'])), 5); print('ESCAPED')")),
    Attempt("a datagram to this machine", in_python("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(os.environ['HOST_UDP'])))")),
    Attempt("an abstract socket", in_python("socket.socket(socket.AF_UNIX).connect('\\0' + os.environ['HOST_ABSTRACT']); print('ESCAPED')")),
    Attempt("a socket in the workspace", in_python("socket.socket(socket.AF_UNIX).connect('socket'); print('ESCAPED')")),
    Attempt("the socket of Docker", "test -S /var/run/docker.sock -o -S /run/docker.sock && echo ESCAPED", real=False),
    Attempt("another machine", in_python("import errno\ntry: socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError as e: sys.exit(0 if e.errno == errno.ENETUNREACH else print('ESCAPED', e))\nprint('ESCAPED')"), real=False),
    Attempt("a datagram to another machine", in_python("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)); print('ESCAPED')"), real=False),
    Attempt("a name", in_python("socket.getaddrinfo('example.org', 80); print('ESCAPED')"), real=False),
    Attempt("other interfaces", in_python("assert [name for _, name in socket.if_nameindex()] == ['lo'], print('ESCAPED')"), real=False),
    Attempt("a raw socket", in_python("socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); print('ESCAPED')")),
    Attempt("a packet socket", in_python("socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('ESCAPED')")),
    Attempt("a socket to the host of a virtual machine", in_python("socket.socket(40, socket.SOCK_STREAM); print('ESCAPED')"), real=False),
    Attempt("a ring that makes sockets", syscall(425, 425, "8, room", "room = ctypes.create_string_buffer(256)"), real=False),
]  # fmt: skip

PROCESSES = [
    Attempt("killing a process", "kill -9 $HOST_PID"),
    Attempt("killing all", "kill -9 -1", real=False),
    Attempt("seeing a process", "test -d /proc/$HOST_PID && echo ESCAPED"),
    Attempt("seeing many", "test $(ls /proc | grep -c '^[0-9]') -gt 8 && echo ESCAPED", real=False),
    Attempt("tracing a process", in_python("libc = ctypes.CDLL(None)\nif libc.ptrace(16, int(os.environ['HOST_PID']), 0, 0) == 0: print('ESCAPED')")),
    Attempt("reading the memory of a process", "head -c 0 /proc/$HOST_PID/mem && echo ESCAPED"),
    Attempt("a session of its own", "setsid sleep 1000.${MARKER#interlock-} >/dev/null 2>&1 & sleep 0.1"),
    Attempt("a session of its own, in two steps", "(setsid sh -c 'sleep 1000.${MARKER#interlock-} & exit' >/dev/null 2>&1 &); sleep 0.1"),
    Attempt("not to hang up", "(nohup setsid sleep 1000.${MARKER#interlock-} >/dev/null 2>&1 &); sleep 0.1"),
    Attempt("a process that outlives the shell that keeps it", "setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000.${MARKER#interlock-}' & kill -9 $PPID", real=False),
    Attempt("another root", "chroot / true && echo ESCAPED"),
    Attempt("other namespaces", "nsenter -t 1 -m true && echo ESCAPED", real=False),
    Attempt("a user namespace", "unshare -U true && echo ESCAPED"),
    Attempt("being somebody else", "setpriv --reuid 12345 --clear-groups true && echo ESCAPED"),
    Attempt("su", "su nobody -s /bin/sh -c 'echo ESCAPED'"),
    Attempt("sudo", "sudo -n true && echo ESCAPED", real=False),
    Attempt("programs with the set-user bit", "grep -q 'NoNewPrivs:.0' /proc/self/status && echo ESCAPED"),
    Attempt("leaving a program with the set-user bit", "cp /bin/sh program && chmod 4755 program && test -u program && echo ESCAPED"),
    Attempt("capabilities", "grep -E '^Cap(Eff|Prm|Bnd|Amb):' /proc/self/status | grep -qv 0000000000000000 && echo ESCAPED"),
    Attempt("typing into a terminal", in_python("import fcntl, termios\nmain, other = os.openpty()\nfcntl.ioctl(other, termios.TIOCSTI, b'x'); print('ESCAPED')")),
    Attempt("a terminal", "(exec 3</dev/tty) && echo ESCAPED", real=False),
    Attempt("watching everything", syscall(298, 241, "event, -1, 0, -1, 0", "event = ctypes.create_string_buffer(b'\\x01\\0\\0\\0\\x80\\0\\0\\0', 128)"), real=False),
    Attempt("programs in the kernel", syscall(321, 280, "0, kind, 32", "kind = (ctypes.c_uint32 * 32)(2, 4, 8, 1)"), real=False),
    Attempt("the memory of a crash", "ulimit -c unlimited && echo ESCAPED"),
    Attempt("more files than allowed", "ulimit -Hn $(($(ulimit -Hn) + 1)) && echo ESCAPED", real=False),
]  # fmt: skip

ATTEMPTS = [*WRITING, *READING, *NETWORK, *PROCESSES]


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


@pytest.fixture
def host(uid: int) -> Iterator[Machine]:
    yield from machine(uid)


def named(attempt: Attempt) -> str:
    return attempt.name.replace(" ", "-")


@pytest.mark.parametrize("uid", whoever())
@pytest.mark.parametrize("attempt", [*ATTEMPTS, *PROTECTED], ids=named)
def test_nothing_leaves_a_workspace_that_may_be_written(host: Machine, attempt: Attempt) -> None:
    stays_inside(host, attempt, "workspace-write")


@pytest.mark.parametrize("uid", whoever())
@pytest.mark.parametrize("attempt", [*WRITING, *PROTECTED], ids=named)
def test_nothing_leaves_a_workspace_that_may_only_be_read(host: Machine, attempt: Attempt) -> None:
    stays_inside(host, attempt, "read-only")


def stays_inside(host: Machine, attempt: Attempt, mode: SandboxMode) -> None:
    finished = host.run(attempt.command, Sandbox(mode, root=host.work))
    assert "ESCAPED" not in finished.output
    assert SECRET not in finished.output
    assert host.changed == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may do all of it")
@pytest.mark.parametrize("uid", [pytest.param(0, id="root")])
@pytest.mark.parametrize("attempt", [a for a in [*ATTEMPTS, *PROTECTED] if a.real], ids=named)
def test_each_of_them_succeeds_without_a_sandbox(host: Machine, attempt: Attempt) -> None:
    finished = host.run(attempt.command)
    assert "ESCAPED" in finished.output or host.changed, finished


SMALL = Limits(memory=200 << 20, processes=40, open_files=64, file_size=1 << 20, cpu=1, temporary=4 << 20)


@pytest.mark.parametrize("uid", whoever())
@pytest.mark.parametrize(
    ("command", "says"),
    [
        pytest.param(
            in_python("import time\nfor n in range(150):\n    if os.fork() == 0: time.sleep(100); os._exit(0)\nprint('ALL')"),
            ("BlockingIOError", "more than 40 processes"),
            id="processes",
        ),
        pytest.param(in_python("made = b'1' * (1 << 30); print('ALL')"), ("MemoryError",), id="memory of one"),
        pytest.param(
            "for n in 1 2 3 4; do python3 -c 'import time; made = b\"1\" * (90 << 20); time.sleep(100)' & done; wait; echo ALL",
            ("more than 200 MiB of memory",),
            id="memory of all",
        ),
        pytest.param("head -c 9000000 /dev/zero > big && echo ALL", ("File size limit exceeded",), id="a file"),
        pytest.param(
            "for n in 1 2 3 4 5 6 7 8; do head -c 999999 /dev/zero > /tmp/$n || exit; done; echo ALL",
            ("No space left on device",),
            id="temporary files",
        ),
        pytest.param(
            in_python("kept = [open('/dev/null') for n in range(100)]; print('ALL')"), ("Too many open files",), id="files"
        ),
        pytest.param("while true; do :; done; echo ALL", ("Killed", "killed by 9", "killed by 24"), id="processor time"),
    ],
)  # fmt: skip
def test_nobody_takes_more_than_is_allowed(host: Machine, command: str, says: tuple[str, ...]) -> None:
    finished = host.run(command, Sandbox("workspace-write", root=host.work, limits=SMALL))
    told = f"{finished.output} {finished.exceeded} killed by {finished.killed_by}"
    assert any(one in told for one in says), finished
    assert "ALL" not in finished.output
    assert host.leftovers() == []


@pytest.mark.parametrize("uid", whoever())
def test_a_long_output_is_counted_and_not_kept(host: Machine) -> None:
    finished = host.run(
        "head -c 20000000 /dev/zero | tr '\\0' x", Sandbox("read-only", root=host.work), limit=1000
    )
    assert (finished.code, finished.total, finished.omitted) == (0, 20_000_000, 19_999_000)


@pytest.mark.parametrize("uid", whoever())
def test_a_crash_leaves_no_file(host: Machine) -> None:
    finished = host.run("kill -ABRT $$", Sandbox("workspace-write", root=host.work))
    assert finished.killed_by == 6
    assert sorted(path.name for path in host.work.iterdir()) == [".git", "socket"]


@pytest.mark.parametrize("uid", whoever())
def test_a_program_of_the_workspace_is_not_taken_for_bubblewrap(
    host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bwrap", "git"):
        (host.work / name).write_text(f"#!/bin/sh\necho x > {host.outside}/new\n")
        (host.work / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{host.work}:{os.environ['PATH']}")
    finished = host.run("echo fine", Sandbox("workspace-write", root=host.work))
    assert finished.output == "fine\n"
    assert host.changed == []


@pytest.mark.parametrize("uid", [os.geteuid()])
def test_variables_reach_the_command_but_neither_bubblewrap_nor_the_list_of_processes(host: Machine) -> None:
    """Of a library in the workspace that LD_PRELOAD names, bubblewrap must not hear before it confines."""
    sandbox = Sandbox(
        "workspace-write", root=host.work, environment={"LD_PRELOAD": "library.so", "KEY": SECRET}
    )
    with sandbox.command(["true"], host.work) as confined:
        assert confined.env == {}
        assert SECRET not in " ".join(confined.argv)
    finished = host.run("echo ${#KEY} $LD_PRELOAD 2>/dev/null", sandbox)
    assert f"{len(SECRET)} library.so\n" in finished.output


@pytest.mark.parametrize("uid", whoever())
def test_a_link_in_place_of_a_writable_folder_leads_nowhere(host: Machine) -> None:
    (host.work / "cache").mkdir(mode=0o777)
    os.chown(host.work / "cache", host.uid, host.uid)
    sandbox = Sandbox("workspace-write", root=host.work, writable=["cache"])
    # The folder is a mount of its own while a command runs; somebody else replaces it in between.
    (host.work / "cache").rmdir()
    (host.work / "cache").symlink_to(host.outside)
    with pytest.raises(AssertionError, match="not where it was"):
        host.run("echo x > cache/new", sandbox)
    assert host.changed == []
