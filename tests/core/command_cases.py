"""Commands for typed values: the server makes them (tests/core), and so does the pages' script (tests/browser)."""

from __future__ import annotations

from typing import Final

from treadle.core.command_line import Command, Part, argument, command, option

PAUSE: Final = command("treadle queues pause", "mail", option("reason"), option("until"))
SET: Final = command(
    "treadle queues set", "mail", option("rate", unless="5/m", empty="default"), option("max_workers"), some=True
)
ANSWER: Final = command("treadle jobs answer", "1", argument("value", needed=True))
ENQUEUE: Final = command(
    "treadle enqueue",
    "hello",
    Part(field="arg-name", prefix="name=", text=True, empty=("name=",)),
    Part(field="arg-times", prefix="times=", needed=True),
    option("tags", "--tag", several=True),
)
HOSTILE: Final = (
    "it's down",
    "'; rm -rf ~; echo '",
    "$(reboot) `reboot` $HOME !! ~ * ? [a] {a,b} | & ; < > # \\",
    'two\nlines "quoted"\ttab',
    "emoji 👩‍🚀 שלום naïve",
    "\u202eturned",
    "-rf",
    "--yes",
    "a=b,c:/d.e@f%g+h_i-j",
    "…",
    "''",
    " ",
)

CASES: Final[list[tuple[Command, dict[str, str], str, bool]]] = [
    (PAUSE, {}, "treadle queues pause mail", True),
    (PAUSE, {"reason": "down"}, "treadle queues pause mail --reason down", True),
    (
        PAUSE,
        {"reason": "it's", "until": "2h"},
        """treadle queues pause mail --reason 'it'"'"'s' --until 2h""",
        True,
    ),
    (PAUSE, {"reason": "-x"}, "treadle queues pause mail --reason -x", True),
    (PAUSE, {"reason": "a\x1b[201~b"}, "treadle queues pause mail --reason 'a\x1b[201~b'", False),
    (PAUSE, {"reason": "token=***"}, "treadle queues pause mail --reason 'token=***'", False),
    (SET, {"rate": "5/m"}, "treadle queues set mail …", False),
    (SET, {"rate": ""}, "treadle queues set mail --rate default", True),
    (SET, {"rate": "9/m", "max_workers": "3"}, "treadle queues set mail --rate 9/m --max-workers 3", True),
    (ANSWER, {"value": ""}, "treadle jobs answer 1 …", False),
    (ANSWER, {"value": "-5"}, "treadle jobs answer -- 1 -5", True),
    (ANSWER, {"value": '{"a": [1]}'}, """treadle jobs answer 1 '{"a": [1]}'""", True),
    (ENQUEUE, {}, "treadle enqueue hello name= 'times=…'", False),
    (ENQUEUE, {"arg-name": "42", "arg-times": "2"}, """treadle enqueue hello 'name="42"' times=2""", True),
    (ENQUEUE, {"arg-name": '"', "arg-times": "2"}, """treadle enqueue hello 'name="' times=2""", True),
    (
        ENQUEUE,
        {"arg-name": "bob", "arg-times": "2", "tags": " vip, a b ,,"},
        "treadle enqueue hello name=bob times=2 --tag vip --tag 'a b'",
        True,
    ),
    (
        command("treadle jobs revive", "-tag:test", option("reason")),
        {"reason": "x"},
        "treadle jobs revive --reason x -- -tag:test",
        True,
    ),
    (
        command("treadle jobs reschedule", "id:1", option("delay", empty="--now")),
        {},
        "treadle jobs reschedule id:1 --now",
        True,
    ),
    (
        command("treadle queues scale", "mail", argument("max_workers", empty="none")),
        {"max_workers": ""},
        "treadle queues scale mail none",
        True,
    ),
    (command("treadle schedules add", argument("args", unless="{}")), {"args": "{}"}, "treadle schedules add", True),
]
