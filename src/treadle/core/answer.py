"""Answers from outside: a job waits for somebody who is no worker.

Who holds the token may answer, and nobody else: it is random, made in a run, and never stored. A storage knows its id
only, from which the token cannot be found.
"""

from __future__ import annotations

import hashlib


def id_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
