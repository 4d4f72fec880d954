from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IGNORING = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
import tests.conftest
signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGINT)
child = "import signal; print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGHUP).name)"
subprocess.run([sys.executable, "-c", child], check=True)
"""


def test_what_tests_start_has_default_signals_although_the_shell_ignores_them() -> None:
    """`nohup make test` and a background job ignore SIGINT and SIGHUP, which an exec hands on: workers that tests
    stopped by these never ended. The tests themselves go on ignoring them."""
    root = Path(__file__).parent.parent
    ran = subprocess.run([sys.executable, "-c", IGNORING], cwd=root, capture_output=True, text=True)
    assert ran.stdout == "default_int_handler SIG_DFL\n", ran.stderr
