"""Who is answered, and what a client cannot do to the server: it needs no browser and no run."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.served import Client, serving

from rlkit.errors import UserError
from rlkit.pages import server as pages
from rlkit.pages.server import LONGEST_BODY, LONGEST_HEAD, Server, Site

HOSTILE = ["-1", "9" * 5000, "1e3", "ten", "", "٣", "0x10", "+5", "1, 1"]  # lengths of a request


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    calls = {"echo": lambda request: request, "odd": lambda request: {"x": [float("nan"), -float("inf")]}}
    with serving(Site("lab.html", calls, calls)) as client:
        yield client


def raw(client: Client, text: bytes, rest: bytes = b"") -> bytes:
    """What is answered to a few bytes, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", client.server.port)) as connection:
        connection.sendall(text)
        if rest:
            connection.sendall(rest)
        found = b""
        try:
            while more := connection.recv(1 << 16):
                found += more
        except ConnectionError:  # it was closed before all was read
            pass
        return found


def head(client: Client, line: str, **headers: str) -> bytes:
    given = {"Host": f"127.0.0.1:{client.server.port}", "X-Token": client.server.token, "Connection": "close"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return "\r\n".join([f"{line} HTTP/1.1", *(f"{name}: {x}" for name, x in given.items()), "", ""]).encode()


def test_only_who_knows_the_token_is_answered(served: Client) -> None:
    token = served.server.token
    assert len(token) >= 22 and served.server.url.endswith(f"/?token={token}")
    with Server(Site("lab.html")) as other:
        assert other.token != token
    for wrong in ("", "x", token[:-1], token + "x", other.token, "ü", "é" * len(token)):
        for method, path, body in (("GET", "/", None), ("GET", "/api/echo", None), ("POST", "/api/echo", {})):
            status, answer = served(method, path, body, X_Token=wrong)
            assert status == 403 and token not in str(answer)
    assert served("GET", f"/?token={token}", X_Token=token)[0] == 200
    assert raw(served, head(served, f"GET /?token={token}").replace(b"X-Token", b"X-None")).startswith(b"HTTP/1.1 200")
    assert raw(served, head(served, "GET /").replace(b"X-Token", b"X-None")).startswith(b"HTTP/1.1 403")
    assert raw(served, head(served, "GET /lab.js").replace(b"X-Token", b"X-None")).startswith(b"HTTP/1.1 200")
    assert served.get(f"/api/echo?a=b&token={token}") == {"a": "b"}, "a call does not see it"
    status, answer = served("GET", "/", Host="rebound.example")
    assert status == 403 and token not in answer["error"]


@pytest.mark.parametrize("length", HOSTILE)
def test_a_length_that_is_none_is_refused(length: str, served: Client, capsys: pytest.CaptureFixture[str]) -> None:
    answer = raw(served, head(served, "POST /api/echo", Content_Type="application/json", Content_Length=length))
    assert answer.startswith((b"HTTP/1.1 411", b"HTTP/1.1 413")), answer
    assert capsys.readouterr().err == ""


def test_what_is_not_finite_is_null(served: Client) -> None:
    assert served.get("/api/odd") == {"x": [None, None]}


def test_a_request_that_is_too_long_is_not_read(served: Client, capsys: pytest.CaptureFixture[str]) -> None:
    longest = LONGEST_HEAD + LONGEST_BODY
    for text in (
        b"GET /" + b"a" * 2 * longest,
        head(served, "GET /", X_Long="a" * 60_000, X_More="a" * 60_000),
        head(served, "GET /", **{f"X_{i}": "a" for i in range(200)}),
    ):
        assert raw(served, text)[9:12] in (b"414", b"431", b""), text[:40]
    body = head(served, "GET /api/echo", Content_Length="7")
    assert raw(served, body, b"GET / x").startswith(b"HTTP/1.1 400"), "what follows is not a request of its own"
    assert served.get("/api/echo") == {} and capsys.readouterr().err == ""


def test_a_client_that_leaves_or_sleeps_is_no_error(
    served: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    post = head(served, "POST /api/echo", Content_Type="application/json", Content_Length="100")
    for text in (b"", b"GET", head(served, "GET /"), post, post + b"{", b"\0\xff\r\n\r\n", b"BREW / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.server.port)) as connection:
            connection.sendall(text)
    monkeypatch.setattr(pages, "IDLE", 0.2)
    monkeypatch.setattr(pages, "WHOLE", 0.2)
    for text in (b"", b"GET / HT", post + b"{"):
        assert raw(served, text) == b"", "it is closed"
    assert served.get("/api/echo") == {} and capsys.readouterr().err == ""


def test_a_request_that_drips_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes early enough; all of them do not."""
    now = [0.0]
    monkeypatch.setattr(pages.time, "monotonic", lambda: now[0])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = pages.Reader(theirs)
        reader.begin()
        for _ in range(3):
            ours.sendall(b"x")
            assert reader.read(1) == b"x"
            now[0] += pages.WHOLE / 3
        with pytest.raises(TimeoutError):
            reader.read(1)


def test_who_holds_connections_open_keeps_nobody_out_for_long(served: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "QUIET", 0.1)
    held = [socket.create_connection(("127.0.0.1", served.server.port)) for _ in range(pages.MOST + 20)]
    try:
        started = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(started) <= pages.MOST
        for connection in held:
            connection.sendall(b"GET / HT")
        began = time.monotonic()
        assert served.get("/api/echo") == {}
        assert time.monotonic() - began < pages.WHOLE
    finally:
        for connection in held:
            connection.close()


def test_many_requests_at_once_are_all_answered(served: Client) -> None:
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(served.get("/api/echo"))) for _ in range(300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{}] * 300


def test_a_connection_stays_open_for_more_requests(served: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port)
    for _ in range(3):
        connection.request("GET", "/api/echo?a=1", headers={"X-Token": served.server.token})
        assert connection.getresponse().read() == b'{"a": "1"}'
    connection.close()


def test_a_mistake_in_one_request_does_not_spoil_the_next_of_the_connection() -> None:
    def within(key: str) -> Site:
        raise UserError("this run is gone")

    with serving(Site("lab.html", {"echo": lambda request: request}, within=within)) as client:
        connection, headers = (
            http.client.HTTPConnection("127.0.0.1", client.server.port),
            {"X-Token": client.server.token},
        )
        connection.request("POST", "/api/ab/play", "{}", {**headers, "Content-Type": "application/json"})
        assert connection.getresponse().read() == b'{"error": "this run is gone"}'
        connection.request("GET", "/api/echo", headers=headers)
        assert connection.getresponse().read() == b"{}"
        connection.close()


@pytest.mark.parametrize("path", ["http://[", "/?" + "&".join(f"a{i}=1" for i in range(30))])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_address_that_cannot_be_read_is_refused_and_the_terminal_stays_quiet(
    method: str, path: str, served: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = raw(served, head(served, f"{method} {path}", X_Token="none"))
    assert answer.startswith(b"HTTP/1.1 400") and b"this address cannot be read" in answer
    assert capsys.readouterr().err == ""


def test_ctrl_c_that_cuts_off_a_request_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may come between the start of a thread and its answer: `socketserver` then closes the connection."""
    opened: list[socket.socket] = []
    monkeypatch.setattr(Server, "verify_request", lambda self, request, address: bool(opened.__iadd__([request])))

    def cut_off(request: object) -> dict[str, object]:
        opened[0].shutdown(socket.SHUT_RDWR)
        opened[0].close()
        return {}

    with serving(Site("lab.html", {"slow": cut_off})) as client:
        assert raw(client, head(client, "GET /api/slow")) == b""
    assert len(opened) == 1 and capsys.readouterr().err == ""
