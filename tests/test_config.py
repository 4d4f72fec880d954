"""Settings: where each one comes from, who outranks whom, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.config import (
    SETTINGS,
    Config,
    DeclaredQueue,
    Limits,
    Setting,
    Timing,
    address,
    load,
    masked,
    shown,
    worker_label,
)
from treadle.core.errors import ConfigError

# For every setting: a value that is not its default, and what becomes of it.
CHOSEN: dict[str, tuple[str, object]] = {
    "app": ("shop.jobs:app", "shop.jobs:app"),
    "url": ("sqlite:////srv/shop.db", "sqlite:////srv/shop.db"),
    "queues": ("mail:10,default", (DeclaredQueue("mail", 10), DeclaredQueue("default"))),
    "slots": ("7", 7),
    "pod_slots": ("20", 20),
    "batch": ("64", 64),
    "threads": ("3", 3),
    "max_threads": ("40", 40),
    "children": ("2", 2),
    "child_calls": ("50", 50),
    "child_memory": ("1GiB", 1 << 30),
    "suspects": ("4", 4),
    "abandoned": ("3", 3),
    "lease": ("2m", 120.0),
    "beat": ("1500ms", 1.5),
    "scan": ("2", 2.0),
    "neighbours": ("2s", 2.0),
    "poll": ("250ms", 0.25),
    "grace": ("1m", 60.0),
    "cancel_grace": ("0", 0.0),
    "overdue": ("1m", 60.0),
    "leader_ttl": ("20s", 20.0),
    "leader_every": ("2s", 2.0),
    "balance": ("1s", 1.0),
    "prune": ("10m", 600.0),
    "roll_up": ("5m", 300.0),
    "call": ("3s", 3.0),
    "loop_lag": ("2s", 2.0),
    "loop_limit": ("1h30m", 5400.0),
    "start_jitter": ("0s", 0.0),
    "synchronous": ("normal", "normal"),
    "ballast": ("no", False),
    "loop": ("asyncio", "asyncio"),
    "schema": ("shop_jobs", "shop_jobs"),
    "listen_url": ("postgresql://db:5432/shop", "postgresql://db:5432/shop"),
    "auto_migrate": ("yes", True),
    "env": ("staging", "staging"),
    "color": ("#b5651d", "#b5651d"),
    "production": ("true", True),
    "no_lead": ("yes", True),
    "health": ("9464", "127.0.0.1:9464"),
    "log_level": ("DEBUG", "debug"),
    "log_format": ("json", "json"),
    "log_jobs": ("yes", True),
    "job_logs": ("Warning", "warning"),
    "worker_prefix": ("shop", "shop"),
    "worker_version": ("1.4", "1.4"),
    "worker_id": ("a1", "a1"),
    "answer_secret": ("s3cret", "s3cret"),
    "web_host": ("10.0.0.7", "10.0.0.7"),
    "web_port": ("9000", 9000),
    "web_token_file": ("/etc/treadle/tokens", "/etc/treadle/tokens"),
    "web_basic": ("ann:viewer", "ann:viewer"),
    "web_password": ("correct-horse", "correct-horse"),
    "web_password_file": ("/etc/treadle/password", "/etc/treadle/password"),
    "web_read_only": ("yes", True),
    "web_hosts": ("jobs.example.com, jobs", ("jobs.example.com", "jobs")),
    "web_redact": ("iban,*.pin", ("iban", "*.pin")),
    "disable": ("cron, web", frozenset({"cron", "web"})),
}


def a_file(folder: Path, text: str, name: str = "treadle.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(**given: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(**given)  # type: ignore[arg-type]
    return str(caught.value).splitlines()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_read_from_flag_environment_and_file(setting: Setting, tmp_path: Path) -> None:
    text, value = CHOSEN[setting.name]
    by_flag = load({setting.name: text}, {}, tmp_path)
    by_environ = load({}, {setting.env: text}, tmp_path)
    path = a_file(tmp_path, f'{setting.name} = "{text}"\n')
    by_file = load({}, {}, tmp_path)

    assert [each.value(setting.name) for each in (by_flag, by_environ, by_file)] == [value] * 3
    assert by_flag.sources[setting.name] == "--" + setting.name.replace("_", "-")
    assert by_environ.sources[setting.name] == setting.env
    assert by_file.sources[setting.name] == f"{path}:1"


def test_every_field_is_a_setting_and_every_setting_has_a_meaning_and_its_true_default(tmp_path: Path) -> None:
    fields = {field for kind in (Config, Timing, Limits) for field in kind.__annotations__}
    fields -= {"timing", "limits", "file", "sources", "commands"}
    assert {setting.name for setting in SETTINGS} == fields == set(CHOSEN)
    built_in = load({}, {}, tmp_path)
    for setting in SETTINGS:
        assert setting.meaning
        assert setting.default == built_in.value(setting.name), setting.name
        assert built_in.sources[setting.name] == "default"
        assert not built_in.is_set(setting.name)


def test_a_flag_outranks_the_environment_and_that_the_file_and_that_the_default(tmp_path: Path) -> None:
    assert load({}, {}, tmp_path).limits.slots == 50
    a_file(tmp_path, "slots = 1")
    assert load({}, {}, tmp_path).limits.slots == 1
    assert load({}, {"TREADLE_SLOTS": "2"}, tmp_path).limits.slots == 2
    assert load({"slots": 3}, {"TREADLE_SLOTS": "2"}, tmp_path).limits.slots == 3
    assert load({"slots": None}, {"TREADLE_SLOTS": "2"}, tmp_path).limits.slots == 2


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load({}, {"TREADLE_SLOTS": "", "TREADLE_QUEUES": " "}, tmp_path) == load({}, {}, tmp_path)


def test_the_file_is_looked_for_up_to_four_parents_and_no_further(tmp_path: Path) -> None:
    a_file(tmp_path, "slots = 4")
    inside, outside = tmp_path / "1/2/3/4", tmp_path / "1/2/3/4/5"
    outside.mkdir(parents=True)
    assert load({}, {}, inside).limits.slots == 4
    assert load({}, {}, outside).limits.slots == 50


def test_the_nearest_file_is_the_only_one(tmp_path: Path) -> None:
    a_file(tmp_path, "slots = 4\nthreads = 4")
    near = tmp_path / "near"
    near.mkdir()
    a_file(near, "slots = 1")
    config = load({}, {}, near)
    assert (config.limits.slots, config.limits.threads) == (1, None)


def test_a_pyproject_counts_only_if_it_has_our_table(tmp_path: Path) -> None:
    near = tmp_path / "near"
    near.mkdir()
    a_file(near, "# nothing about tool.treadle here\n[tool.other]\nslots = 9", "pyproject.toml")
    path = a_file(tmp_path, "[tool.treadle]\nslots = 4", "pyproject.toml")
    config = load({}, {}, near)
    assert config.limits.slots == 4
    assert config.file == path
    assert config.sources["slots"] == f"{path}:2"


def test_treadle_toml_goes_before_pyproject_in_the_same_folder(tmp_path: Path) -> None:
    a_file(tmp_path, "[tool.treadle]\nslots = 4", "pyproject.toml")
    a_file(tmp_path, "slots = 5")
    assert load({}, {}, tmp_path).limits.slots == 5


def test_an_unknown_key_is_an_error_with_place_and_suggestion(tmp_path: Path) -> None:
    path = a_file(tmp_path, 'slots = 5\nlog_levle = "info"\n')
    assert refused(environ={}, cwd=tmp_path) == [f'{path}:2: unknown key "log_levle"; did you mean "log_level"?']


def test_an_unknown_variable_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    assert refused(environ={"TREADLE_QUEUE": "mail"}, cwd=tmp_path) == [
        'unknown variable "TREADLE_QUEUE"; did you mean "TREADLE_QUEUES"?'
    ]


def test_an_unknown_name_like_nothing_else_is_told_where_to_look(tmp_path: Path) -> None:
    assert "treadle doctor" in refused(environ={"TREADLE_XYZZY": "1"}, cwd=tmp_path)[0]


def test_all_errors_come_at_once_each_with_its_setting_and_source(tmp_path: Path) -> None:
    path = a_file(tmp_path, 'lease = "soon"\nbatch = 0\n')
    lines = refused(flags={"threads": -1}, environ={"TREADLE_PRODUCTION": "maybe"}, cwd=tmp_path)
    assert len(lines) == 4
    starts = (
        f"lease ({path}:1): ",
        f"batch ({path}:2): ",
        "production (TREADLE_PRODUCTION): ",
        "threads (--threads): ",
    )
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_a_wrong_value_in_the_file_is_found_even_if_a_flag_outranks_it(tmp_path: Path) -> None:
    a_file(tmp_path, 'slots = "many"')
    assert refused(flags={"slots": 3}, environ={}, cwd=tmp_path)[0].startswith("slots (")


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    path = a_file(tmp_path, "slots = = 3")
    (line,) = refused(environ={}, cwd=tmp_path)
    assert line.startswith(f"{path}: not valid TOML: ")
    assert "line 1" in line


def test_queues_may_be_text_a_list_or_tables(tmp_path: Path) -> None:
    wanted = (DeclaredQueue("mail", 10), DeclaredQueue("default"))
    for text in ('queues = "mail:10, default"', 'queues = ["mail:10", "default"]'):
        a_file(tmp_path, text)
        assert load({}, {}, tmp_path).queues == wanted
    a_file(tmp_path, "queues.mail = { slots = 10, max_workers = 4 }\nqueues.default = {}")
    assert load({}, {}, tmp_path).queues == (DeclaredQueue("mail", 10, 4), DeclaredQueue("default"))
    a_file(tmp_path, "[queues.mail]\nmax_workers = 0")
    config = load({}, {}, tmp_path)
    assert config.queues == (DeclaredQueue("mail", None, 0),)
    assert config.sources["queues"].endswith("treadle.toml:1")


def test_a_flag_chooses_among_the_files_queues_and_keeps_what_the_file_says_of_them(tmp_path: Path) -> None:
    a_file(tmp_path, "queues.mail = { slots = 10, max_workers = 4 }\nqueues.slow = { slots = 1 }")
    assert load({"queues": "mail,new"}, {}, tmp_path).queues == (DeclaredQueue("mail", 10, 4), DeclaredQueue("new"))
    assert load({"queues": "mail:3"}, {}, tmp_path).queues == (DeclaredQueue("mail", 3, 4),)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('queues = "mail,mail:3"', "twice"),
        ('queues = "-mail"', "queue name"),
        ('queues = "mail:0"', "1 to 10,000 slots"),
        ("queues.mail = { slot = 3 }", 'did you mean "slots"?'),
        ("queues.mail = { max_workers = -1 }", "mail.max_workers must be"),
        ("queues.mail = 3", "must be a table"),
        ("queues.mail = { rate = -1 }", "mail: rate must be above zero"),
        ("queues.mail = { cool_base = '2d' }", "mail: cool_base must be from 1s to 24h"),
        ("queues.mail = { agin = 3 }", 'did you mean "aging"?'),
        ("queues.mail = { weight = 0 }", "mail.weight must be"),
        ("queues.mail = { pod_rate = '-5/s' }", "mail.pod_rate rate must be above zero"),
        ("queues.mail = { min = -1 }", "mail.min must be"),
        ("pod_slots = 3\nqueues.mail = { min = 2 }\nqueues.rest = { min = 2 }", "4 together, and pod_slots is 3"),
        ("queues = 3", "must be a list"),
    ],
)
def test_a_wrong_queue_list_says_what_is_wrong(text: str, word: str, tmp_path: Path) -> None:
    a_file(tmp_path, text)
    (line,) = refused(environ={}, cwd=tmp_path)
    assert word in line


def test_a_queue_may_have_a_rate_for_each_pod(tmp_path: Path) -> None:
    a_file(tmp_path, '[queues.mail]\npod_rate = "90/m"\nrate = "5/s"\n[queues.rest]\n')
    config = load({}, {}, tmp_path)
    assert [(queue.name, queue.pod_rate) for queue in config.queues] == [("mail", 1.5), ("rest", None)]
    assert config.queues[0].seed() == {"rate": 5.0}


def test_a_queue_may_have_a_minimum_and_a_weight(tmp_path: Path) -> None:
    a_file(tmp_path, "pod_slots = 8\n[queues.mail]\nmin = 2\nweight = 3\n[queues.rest]\n")
    config = load({}, {}, tmp_path)
    assert config.limits.pod_slots == 8
    assert [(queue.name, queue.min, queue.weight) for queue in config.queues] == [("mail", 2, 3), ("rest", 0, 1)]
    (chosen,) = load({"queues": "mail:4"}, {}, tmp_path).queues
    assert (chosen.slots, chosen.min, chosen.weight) == (4, 2, 3)


def test_a_colour_is_six_hex_digits(tmp_path: Path) -> None:
    assert "#rrggbb" in refused(environ={"TREADLE_COLOR": "red"}, cwd=tmp_path)[0]


def test_durations_are_numbers_or_text_and_never_negative(tmp_path: Path) -> None:
    a_file(tmp_path, 'grace = 1.5\nscan = "1m30s"')
    timing = load({}, {}, tmp_path).timing
    assert (timing.grace, timing.scan) == (1.5, 90.0)
    assert "negative" in refused(environ={"TREADLE_SCAN": "-3"}, cwd=tmp_path)[0]
    assert "longer than nothing" in refused(environ={"TREADLE_POLL": "0"}, cwd=tmp_path)[0]


def test_a_beat_above_half_the_lease_is_refused_and_both_are_named(tmp_path: Path) -> None:
    (line,) = refused(environ={"TREADLE_LEASE": "15s"}, cwd=tmp_path)
    assert line.startswith("beat (default) and lease (TREADLE_LEASE): ")


def test_a_url_in_the_file_may_name_a_variable(tmp_path: Path) -> None:
    a_file(tmp_path, 'url = "$SHOP_DATABASE"')
    assert load({}, {"SHOP_DATABASE": "postgresql://ann:pw@db/shop"}, tmp_path).url == "postgresql://ann:pw@db/shop"
    assert "SHOP_DATABASE is not set" in refused(environ={}, cwd=tmp_path)[0]
    assert load({"url": "memory://"}, {}, tmp_path).url == "memory://"


def test_a_relative_path_in_the_file_is_relative_to_the_file(tmp_path: Path) -> None:
    a_file(tmp_path, 'url = "sqlite:///data/shop.db"')
    below = tmp_path / "below"
    below.mkdir()
    assert load({}, {}, tmp_path).url == "sqlite:///data/shop.db"
    assert load({}, {}, below).url == f"sqlite:///{tmp_path}/data/shop.db"
    assert load({"url": "sqlite:///own.db"}, {}, below).url == "sqlite:///own.db"


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("sqlite:///treadle.db", "sqlite:///treadle.db"),
        ("sqlite:////srv/treadle.db", "sqlite:////srv/treadle.db"),
        ("memory://", "memory://"),
        ("postgresql://ann:s3@cret@db:5432/shop?x=1", "postgresql://ann:***@db:5432/shop?x=1"),
        ("postgresql://ann@db/shop", "postgresql://ann@db/shop"),
        ("postgresql:///shop?user=ann&password=s3cret&x=1", "postgresql:///shop?user=ann&password=***&x=1"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, safe: str) -> None:
    assert masked(url) == safe


def test_an_error_never_holds_the_password(tmp_path: Path) -> None:
    lines = refused(environ={"TREADLE_URL": "ann:s3cret@db"}, cwd=tmp_path)
    assert "s3cret" not in "".join(lines)


def test_the_workers_label() -> None:
    assert worker_label(Config(), "9f3ab2") == "9f3ab2"
    assert worker_label(Config(worker_prefix="shop"), "9f3ab2") == "shop-worker-9f3a"
    assert worker_label(Config(worker_prefix="shop", worker_version="1.4"), "9f3ab2") == "shop-worker-1.4-9f3a"
    assert worker_label(Config(worker_prefix="shop", worker_id="7"), "9f3ab2") == "shop-worker-7"
    assert worker_label(Config(worker_version="1.4", worker_id="7"), "9f3ab2") == "9f3ab2"
    odd = Config(worker_prefix="shop", worker_version="1.4+build 7", worker_id="7")
    assert worker_label(odd, "9f3ab2") == "shop-worker-1.4-build-7-7", "a label has no blanks"


def test_values_are_shown_as_people_write_them() -> None:
    assert shown("url", "postgresql://ann:pw@db/shop") == "postgresql://ann:***@db/shop"
    assert shown("lease", 90.0) == "1m30s"
    assert shown("queues", (DeclaredQueue("mail", 3), DeclaredQueue("slow"))) == "mail:3,slow"
    assert shown("disable", frozenset({"web", "cron"})) == "cron,web"
    assert shown("production", False) == "false"
    assert shown("threads", None) == "unset"


def test_a_queue_in_the_file_may_have_any_live_setting(tmp_path: Path) -> None:
    a_file(tmp_path, '[queues.mail]\nrate = "90/m"\ntimeout = "5m"\nkeep_failed = "forever"\nmax_workers = 3\n')
    (mail,) = load(cwd=tmp_path, environ={}).queues
    assert mail.seed() == {"rate": 1.5, "timeout": 300.0, "keep_failed": -1.0, "max_workers": 3}
    (chosen,) = load({"queues": "mail:7"}, cwd=tmp_path, environ={}).queues
    assert (chosen.slots, chosen.seed()) == (7, mail.seed())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(said: str, expected: tuple[str, int]) -> None:
    assert address(said) == expected
    assert address(load({"health": said}, {}).health or "") == expected


@pytest.mark.parametrize("said", ["localhost", "localhost:", "::1:9464", "127.0.0.1:65536", "a:-1", "a:9²"])
def test_what_is_no_address_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match=r"health \(--health\): must be a port, or host:port"):
        load({"health": said}, {})
