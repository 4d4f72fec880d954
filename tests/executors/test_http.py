"""Services: real sockets on the other side, honest and not."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import App, ConfigError, PayloadError
from treadle.executors.http import HttpExecutor, retry_after
from treadle.ports import Call
from treadle.signing import BadSignature, sign, verify
from treadle.tasks.external.http import Hook, may_ask, read_url

from .bench import ONCE, at_work, ended, until

pytestmark = pytest.mark.anyio
LOCAL = ["127.0.0.0/8"]


class Request:
    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        self.line = first
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
        }
        self.raw = body
        self.json: Any = json.loads(body)


class Service:
    """A server that says exactly the bytes it is told to."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.says: bytes | Callable[[asyncio.StreamWriter], Any] = ok({"fine": True})
        self.port = 0

    async def serve(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, port: int = 0) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, host, port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(
                next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split()[1]
            )
            self.asked.append(Request(head, await reader.readexactly(length)))
            if callable(self.says):
                await self.says(writer)
            else:
                writer.write(self.says)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def ok(value: Any) -> bytes:
    return answer(200, json.dumps(value).encode())


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    server = await service.serve()
    yield service
    server.close()


def an_app(url: str, **options: Any) -> tuple[App, Any]:
    app = App("memory://")
    options = {"name": "notify", "retry": ONCE, "private": LOCAL} | options

    def notify(order: int, text: str = "hello") -> Any: ...

    return app, app.http(url, **options)(notify)


async def what_becomes_of(service: Service, says: Any, **options: Any) -> Any:
    service.says = says
    app, notify = an_app(service.url, **options)
    async with at_work(app):
        return await ended(await notify.enqueue(1), "succeeded", "failed", "scheduled", "waiting")


# What is asked --------------------------------------------------------------------------------------------------------


async def test_the_call_is_posted_as_json_and_the_answer_is_the_result(service: Service) -> None:
    app, notify = an_app(service.url, headers={"Authorization": "Bearer x"})
    async with at_work(app):
        handle = await notify.enqueue(7)
        assert await handle.result("10s") == {"fine": True}
    (asked,) = service.asked
    assert asked.line == "POST /hook HTTP/1.1"
    assert asked.json == {
        "task": "notify",
        "args": {"order": 7, "text": "hello"},
        "job": handle.id,
        "attempt": 1,
        "max_attempts": 1,
        "queue": "default",
    }
    assert asked.headers["host"] == f"127.0.0.1:{service.port}"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["authorization"] == "Bearer x"
    assert asked.headers["idempotency-key"] == handle.id
    assert "x-treadle-signature" not in asked.headers


async def test_a_signed_request_can_be_verified_and_a_changed_one_cannot(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s3cret")
    await what_becomes_of(service, ok(1), secret="$HOOK_SECRET")
    (asked,) = service.asked
    verify(asked.headers, asked.raw, "s3cret")
    verify(asked.headers, asked.raw, ["new", "s3cret"])
    for headers, body, secret in (
        (asked.headers, asked.raw + b" ", "s3cret"),
        (asked.headers, asked.raw, "other"),
        (asked.headers | {"x-treadle-token": "y"}, asked.raw, "s3cret"),
        (asked.headers | {"x-treadle-token": "\udcff"}, asked.raw, "s3cret"),  # as some servers show what is no UTF-8
        (asked.headers | {"x-treadle-signature": "v1=\udcff"}, asked.raw, "s3cret"),
        (asked.headers | {"x-treadle-timestamp": str(int(time.time()) + 1)}, asked.raw, "s3cret"),
        ({}, asked.raw, "s3cret"),
    ):
        with pytest.raises(BadSignature):
            verify(headers, body, secret)


def test_an_old_request_is_refused_though_its_signature_is_right() -> None:
    headers = sign(b"{}", "s", token="t", at=1000.0)
    verify(headers, b"{}", "s", now=1299.0)
    for now in (1301.0, 699.0):
        with pytest.raises(BadSignature, match="too old"):
            verify(headers, b"{}", "s", now=now)
    with pytest.raises(BadSignature, match="number"):
        verify(headers | {"X-Treadle-Timestamp": "soon"}, b"{}", "s", now=1000.0)
    with pytest.raises(ValueError, match="empty secret"):
        verify(headers, b"{}", "")


async def test_a_secret_that_is_not_there_is_noticed_at_the_start(service: Service) -> None:
    app, _ = an_app(service.url, secret="$NO_SUCH_SECRET")
    with pytest.raises(ConfigError, match="NO_SUCH_SECRET"):
        async with at_work(app):
            pass


async def test_arguments_fill_the_path_and_stay_in_it(service: Service) -> None:
    app = App("memory://")

    @app.http(f"http://127.0.0.1:{service.port}/orders/{{order}}?note={{note}}", private=LOCAL)
    def send(order: str, note: str) -> Any: ...

    async with at_work(app):
        await (await send.enqueue("a/../b?c#d", "x&y=z é")).result("10s")
        for bad in ("..", ".", ""):
            with pytest.raises(PayloadError, match="order"):
                await send.enqueue(bad, "x")
    assert service.asked[0].line == "POST /orders/a%2F..%2Fb%3Fc%23d?note=x%26y%3Dz%20%C3%A9 HTTP/1.1"


# What an answer means -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "result"),
    [
        (answer(200, b'{"a":1}'), {"a": 1}),
        (answer(201, b"[1]"), [1]),
        (answer(202, b"1"), 1),  # no answers= was declared: it is done
        (answer(204), None),
        (answer(200, b"plain \xff"), "plain \ufffd"),
        (answer(200), None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n", [1, 2]),
        (b"HTTP/1.0 200 OK\r\n\r\n[3]", [3]),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + ok([4]), [4]),
    ],
)
async def test_2xx_is_done(service: Service, says: bytes, result: Any) -> None:
    job = await what_becomes_of(service, says)
    assert (job.state, job.result) == ("succeeded", result)


@pytest.mark.parametrize(
    ("says", "state", "attempt", "words"),
    [
        (answer(429, b"", "Retry-After: 30"), "scheduled", 0, None),
        (answer(429), "scheduled", 0, None),
        (answer(503, b"", "Retry-After: 3600"), "scheduled", 1, "status 503"),
        (answer(503, b"sorry"), "scheduled", 1, "status 503: sorry"),
        (answer(500, b"token=abc"), "scheduled", 1, "status 500: token=***"),
        (answer(408), "scheduled", 1, "status 408"),
        (answer(425), "scheduled", 1, "status 425"),
        (answer(400, b"no such order"), "failed", 1, "status 400: no such order"),
        (answer(404), "failed", 1, "status 404"),
        (answer(301, b"", "Location: http://127.0.0.1:1/"), "failed", 1, "redirects are not followed"),
        (answer(307, b"", "Location: http://169.254.169.254/"), "failed", 1, "redirects are not followed"),
    ],
)
async def test_another_status_means_what_it_says(
    service: Service, says: bytes, state: str, attempt: int, words: str | None
) -> None:
    job = await what_becomes_of(service, says, retry=3)
    assert (job.state, job.attempt) == (state, attempt)
    assert job.error is None if words is None else words in job.error.message
    assert len(service.asked) == 1


async def test_retry_after_is_heeded(service: Service) -> None:
    job = await what_becomes_of(service, answer(503, b"", "Retry-After: 3600"), retry=3)
    assert 3590 < job.run_at.timestamp() - time.time() <= 3601


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after("120", 0.0) == 120
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 40.0) == 60
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 4000.0) == 0
    assert retry_after("9" * 40, 0.0) == 86_400
    for nothing in (None, "", "soon", "-5", "1.5", "Thu, 01 Jan"):
        assert retry_after(nothing, 0.0) is None


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\n no colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    ],
)
async def test_garbage_is_a_failed_attempt(service: Service, says: bytes) -> None:
    job = await what_becomes_of(service, says, retry=2)
    assert (job.state, job.attempt, job.error.type) == ("scheduled", 1, "BadResponse")


async def test_an_answer_without_end_is_read_as_far_as_it_is_wanted(service: Service) -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    job = await what_becomes_of(service, flood, response="64KiB")
    assert (job.state, job.result) == ("succeeded", None)  # it was done; what it said is not kept
    assert job.warning == "result not kept: the response is larger than response= allows"


@pytest.mark.parametrize("length", ["Content-Length: 99999999", "Transfer-Encoding: chunked"])
async def test_an_answer_that_says_how_long_it_is_is_bounded_as_well(service: Service, length: str) -> None:
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 500 No\r\n{length}\r\n\r\n".encode())
        if "chunked" in length:
            writer.write(b"5F5E0FF\r\n")
        while sent < 99_999_999:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    job = await what_becomes_of(service, flood, response="64KiB", retry=2)
    assert job.state == "scheduled"
    assert len(job.error.message) <= 2048
    assert sent < 20_000_000  # what fits into the buffers of two sockets


async def test_an_answer_that_drips_is_ended_by_the_timeout(service: Service) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.05)

    job = await what_becomes_of(service, drip, timeout=0.4)
    assert (job.state, job.error.kind, job.error.type) == ("failed", "timeout", "")


async def test_a_service_that_is_away_is_asked_again(service: Service) -> None:
    app, notify = an_app("http://127.0.0.1:9/", retry=2)
    async with at_work(app):
        job = await ended(await notify.enqueue(1), "scheduled", "failed")
    assert (job.state, job.attempt, job.error.type) == ("scheduled", 1, "ConnectionRefusedError")


async def test_30_seconds_unless_said() -> None:
    _, notify = an_app("http://127.0.0.1:9/")
    assert notify.timeout == 30
    assert an_app("http://127.0.0.1:9/", timeout="5m")[1].timeout == 300


# Answers later --------------------------------------------------------------------------------------------------------


async def test_202_parks_the_job_until_the_service_answers(service: Service) -> None:
    service.says = answer(202)
    app, notify = an_app(service.url, answers="1h", answer_url="https://jobs.example.com/answers/{token}")
    async with at_work(app):
        handle = await notify.enqueue(1)
        await ended(handle, "waiting")
        told = service.asked[0].json
        assert told["answer_url"] == f"https://jobs.example.com/answers/{told['answer_token']}"
        assert await app.answers.give(told["answer_token"], {"made": 3}) == "won"
        assert await handle.result("10s") == {"made": 3}
        assert len(service.asked) == 1
        assert (await handle.status()).attempt == 1


async def test_a_later_answer_may_be_an_error_and_then_it_is_asked_again(service: Service) -> None:
    service.says = answer(202)
    app, notify = an_app(service.url, answers="1h", retry=1)
    async with at_work(app):
        handle = await notify.enqueue(1)
        await ended(handle, "waiting")
        await app.answers.fail(service.asked[0].json["answer_token"], "no paper")
        job = await ended(handle)
    assert job.state == "failed"
    assert "no paper" in job.error.message


async def test_who_may_answer_later_may_also_answer_at_once(service: Service) -> None:
    job = await what_becomes_of(service, ok(5), answers="1h")
    assert (job.state, job.result) == ("succeeded", 5)


# Whom we ask: SSRF ----------------------------------------------------------------------------------------------------

PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::1",
    "2002:a00:1::",
    "2001:db8::1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b:1::7f00:1",
    "fec0::1",
    "5f00::1",
    "2001::1",  # Teredo
    "2002:808:808::1",  # 6to4, whatever is in it
    "2001:4860:4860::8888%eth0",
    "not an address",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_not_asked(address: str) -> None:
    assert not may_ask(address, False)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_a_public_address_is(address: str) -> None:
    assert may_ask(address, False)


async def test_private_addresses_are_refused_unless_allowed(service: Service) -> None:
    for private in (False, ["10.0.0.0/8"]):
        app, notify = an_app(service.url, private=private, retry=5)
        async with at_work(app):
            job = await ended(await notify.enqueue(1))
        assert (job.state, job.attempt) == ("failed", 1)
        assert "may not be asked" in job.error.message
    assert service.asked == []


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost.", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1",
        "127.0.0.1.",
        "127。0。0。1", "①②⑦.0.0.1", "１２７.0.0.1", "0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1]", "[::]",
        "[0:0:0:0:0:ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]",
    ],
)  # fmt: skip
async def test_a_name_for_a_private_address_does_not_help(service: Service, host: str) -> None:
    app, notify = an_app(f"http://{host}:{service.port}/", private=False)
    async with at_work(app):
        job = await ended(await notify.enqueue(1))
    assert job.state == "failed"
    assert "may not be asked" in job.error.message  # judged, and never asked a name server or connected to
    assert service.asked == []


async def test_a_name_is_resolved_once_and_the_address_that_was_looked_at_is_asked(service: Service) -> None:
    """DNS rebinding: the second answer of the resolver is another one. There is no second question."""
    inner = Service()
    server = await inner.serve("127.0.0.2", port=service.port)
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]])

    async def resolve(host: str, port: int) -> list[str]:
        return next(answers)

    hook = Hook(lambda order: None, "t", f"http://hooks.example.com:{service.port}/", {"private": ["127.0.0.1/32"]})
    executor = HttpExecutor([hook], lambda name: hook, resolve=resolve)
    call = Call(len, (), {}, a_job())
    assert await executor.run(call) == {"fine": True}
    assert len(service.asked) == 1
    assert service.asked[0].headers["host"] == f"hooks.example.com:{service.port}"
    with pytest.raises(Exception, match="may not be asked"):
        await executor.run(call)
    assert inner.asked == []
    server.close()


async def test_of_several_addresses_only_those_that_are_allowed_are_tried(service: Service) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["10.0.0.1", "169.254.169.254", "127.0.0.3", "127.0.0.1"]  # nobody listens at the third

    hook = Hook(lambda order: None, "t", f"http://x.example.com:{service.port}/", {"private": LOCAL})
    executor = HttpExecutor([hook], lambda name: hook, resolve=resolve)
    assert await executor.run(Call(len, (), {}, a_job())) == {"fine": True}


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://hooks.example.com/x", True),
        ("https://HOOKS.example.com./x", True),
        ("https://hooks.example.com:443/", True),
        ("https://hooks.example.com:22/", False),
        ("https://a.shop.example.org/", True),
        ("https://shop.example.org/", False),
        ("https://evilshop.example.org/", False),
        ("https://internal:8080/", True),
        ("https://internal/", False),
        ("https://evil.com/hooks.example.com", False),
        ("https://hooks.example.com@evil.com/", False),
        ("https://user:password@hooks.example.com/", False),
        ("https://evil.com#hooks.example.com", False),
        ("https://evil.com\\@hooks.example.com/", False),
        ("https://hooks.example.com.evil.com/", False),
        ("ftp://hooks.example.com/", False),
        ("file:///etc/passwd", False),
        ("https:///x", False),
        ("https://hooks.example.com/\r\nX: y", False),
        ("https://hooks.example.com:99999/", False),
        ("//hooks.example.com/", False),
        ("", False),
    ],
)
async def test_a_job_chooses_among_the_hosts_that_are_allowed(url: str, allowed: bool) -> None:
    app = App("memory://")

    @app.http("{url}", allow=["hooks.example.com", "*.shop.example.org", "internal:8080"])
    def deliver(url: str) -> Any: ...

    if allowed:
        await deliver.enqueue(url)
    else:
        with pytest.raises(PayloadError, match="url"):
            await deliver.enqueue(url)


def test_a_url_is_read_as_a_server_will_read_it() -> None:
    target = read_url("https://Example.COM/a b".replace(" ", "%20") + "?q=ü")
    assert (target.host, target.port, target.path) == ("example.com", 443, "/a%20b?q=%C3%BC")
    assert read_url("http://[::1]:8080").authority == "[::1]:8080"
    assert read_url("http://bücher.example").host == "xn--bcher-kva.example"
    # Found by fuzzing: the encoding takes U+02DB apart into a space and an accent, and keeps the space.
    for host in ("\u02db", "a\u02db.example", "a,b", "fe80::1%25eth0", "a%2fb"):
        with pytest.raises(ValueError, match=r"host|cannot be read"):
            read_url(f"http://{'[' + host + ']' if '::' in host else host}/")


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("ftp://x/", {}, "https"),
        ("https://{order}.example.com/", {}, "host is chosen here"),
        ("https://x.example.com:{order}/", {}, "host is chosen here|cannot be read"),
        ("{order}", {}, "allow"),
        ("https://x.example.com/{nothing}", {}, "nothing"),
        ("https://x.example.com/", {"allow": "x.example.com"}, "list"),
        ("https://x.example.com/", {"allow": ["https://x"]}, "not a host"),
        ("https://x.example.com/", {"allow": ["y.example.com"]}, "not among those"),
        ("https://x.example.com:8443/", {"allow": ["x.example.com:443"]}, "not among those"),
        ("https://x.example.com/", {"private": ["10.0.0.1/8"]}, "private"),
        ("https://x.example.com/", {"secret": ""}, "secret must not be empty"),
        ("https://x.example.com/", {"headers": {"Host": "y"}}, "Host"),
        ("https://x.example.com/", {"headers": {"X-A": "y\r\nX-B: z"}}, "X-A"),
        ("https://x.example.com/", {"headers": {"X-Treadle-Signature": "y"}}, "X-Treadle"),
        ("https://x.example.com/", {"answers": "1h", "answer_url": "https://y/"}, "token"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_declared(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        an_app(url, **options)


def test_a_declared_port_needs_no_entry_of_its_own() -> None:
    _, notify = an_app("https://x.example.com:8443/", allow=["*.example.com"])
    notify.bind(1)


# TLS ------------------------------------------------------------------------------------------------------------------


async def test_a_certificate_must_be_for_the_name_and_from_somebody_we_trust(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2"),
            *("-subj", "/CN=hooks.test", "-addext", "subjectAltName=DNS:hooks.test"),
        ],
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    service = Service()
    server = await service.serve(tls=tls)

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def ask(host: str, ca: str | None) -> Any:
        hook = Hook(lambda order: None, "t", f"https://{host}:{service.port}/", {"private": LOCAL, "ca": ca})
        executor = HttpExecutor([hook], lambda name: hook, resolve=resolve)
        return await executor.run(Call(len, (), {}, a_job()))

    assert await ask("hooks.test", str(cert)) == {"fine": True}
    for host, ca in (("other.test", str(cert)), ("hooks.test", None)):
        with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(host, ca)
    assert len(service.asked) == 1
    server.close()


async def test_a_cancel_ends_the_request(service: Service) -> None:
    gone = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        try:
            while True:  # until there is nobody any more
                writer.write(b"HTTP/1.1 100 Continue\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    service.says = wait
    app, notify = an_app(service.url)
    async with at_work(app):
        handle = await notify.enqueue(1)
        await until(lambda: service.asked)
        await handle.cancel()
        assert (await ended(handle)).state == "cancelled"
        async with asyncio.timeout(5):
            await gone.wait()


def a_job() -> Any:
    from treadle.core.job import Job, State

    return Job(id="j", task="t", queue="q", state=State.RUNNING, attempt=1, args='{"order":1}', token="tok")
