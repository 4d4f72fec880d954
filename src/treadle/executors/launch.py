"""Launch: the last steps before a program, taken in the child itself.

Run as a script, `python -I -S launch.py SPEC PROGRAM ARGUMENTS…`, and importing nothing of Treadle. Why not
`preexec_fn`: it runs Python between fork and exec, in a process whose other threads have vanished with their locks
held; a pod has such threads. This one costs some milliseconds and cannot hang.

What is done here survives the exec: the parent-death signal, limits, the umask, no_new_privs, the user.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

TYPE_CHECKING = False  # and not `typing`'s: it would be half of the milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
CANNOT_RUN = 126  # as a shell says it
NOT_FOUND = 127
LIMITS = {
    "cpu": "RLIMIT_CPU",
    "memory": "RLIMIT_AS",
    "file": "RLIMIT_FSIZE",
    "processes": "RLIMIT_NPROC",
    "files": "RLIMIT_NOFILE",
    "core": "RLIMIT_CORE",
}


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Die when the thread that started us does. Its process may be gone already: so it is looked for afterwards."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def take_no_privileges() -> None:
    """No set-user-id program makes more of this process than it is, ever."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def set_limits(limits: Mapping[str, int]) -> None:
    """Soft and hard alike, and never above what we have ourselves. The processor's time ends by SIGXCPU, a second
    before the hard end."""
    for name, wanted in limits.items():
        kind = getattr(resource, LIMITS[name])
        hard = resource.getrlimit(kind)[1]
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (most, most + 1 if name == "cpu" and hard == resource.RLIM_INFINITY else most))


def become(user: int, group: int) -> None:
    """Real, effective and saved: what is left of the old one could be taken up again."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux" and _libc().prctl(option, value, 0, 0, 0) != 0:
        import ctypes

        raise OSError(ctypes.get_errno(), f"prctl {option}")


def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def spec(parent: int, limits: Mapping[str, int], environ: Mapping[str, str], user: tuple[int, int] | None) -> str:
    """Everything in one argument. Names of the environment only: what is in it is nobody's who reads /proc."""
    who = "" if user is None else f"{user[0]}:{user[1]}"
    return "/".join([str(parent), who, ",".join(f"{name}={most}" for name, most in limits.items()), ",".join(environ)])


def main(told: str, program: str, *argv: str) -> None:
    parent, who, limits, names = told.split("/")
    # Python ignores these two, and a program that is not Python counts on them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    environ = {name: os.environ[name] for name in names.split(",") if name}  # without what Python puts there itself
    _libc()  # before `become`: the other user may not be able to read this Python
    if who:
        user, group = map(int, who.split(":"))
        become(user, group)
    take_no_privileges()
    die_with_parent(int(parent))  # after `become`, which would clear it
    set_limits({name: int(most) for name, _, most in (each.partition("=") for each in limits.split(",") if each)})
    os.execve(program, [program, *argv], environ)  # noqa: S606 (declared by the app, and checked)


def _last_words(words: str, code: int) -> None:
    os.write(2, f"treadle: {words}\n".encode(errors="replace"))
    os._exit(code)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except FileNotFoundError as error:
        _last_words(f"{sys.argv[2]}: {error.strerror}", NOT_FOUND)
    except BaseException as error:  # whatever it is, the program has not run
        _last_words(f"{sys.argv[2]}: {error}", CANNOT_RUN)
