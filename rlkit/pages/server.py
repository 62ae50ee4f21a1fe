"""A web server for one person on this machine: static files, and calls that answer with JSON or a picture.

It listens on 127.0.0.1 only, where every user of the machine and every page in the same browser could reach it. So each
call must carry the token that stands in the address which the terminal shows; the pages send it themselves. It is not
in a cookie: a browser gives those to any program that listens on another port of this machine. A request whose Host is
not this server's is refused (DNS rebinding), and so is a POST that another origin sent or that is not JSON.
"""

import errno
import hmac
import http.client
import io
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from rlkit.errors import UserError, one_line
from rlkit.recording.writers import finite
from rlkit.terminal import show_traceback

FOLDER = Path(__file__).parent
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TOKEN = "X-Token"  # the header in which a page sends it
LONGEST_BODY = 1 << 16  # bytes of a request
LONGEST_HEAD = 1 << 15  # bytes of what stands before it
IDLE = 30.0  # seconds in which a request must begin, and its answer be taken
WHOLE = 5.0  # seconds from its first byte in which a request must come
MOST = 64  # connections at a time; who comes later takes the place of those that were QUIET
QUIET = 1.0  # seconds in which no request with the token came
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

FOREIGN = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # no script, and no origin

Request = socket.socket | tuple[bytes, socket.socket]  # as socketserver has it
Json = dict[str, Any]  # a JSON object, as a page sends or gets it; what it holds is checked where it is read
Call = Callable[[Json], Json | bytes]  # an answer, or a picture


class Document(bytes):
    """HTML that a folder holds, and anybody may have written it: the browser shows it in a sandbox."""


class Refused(Exception):
    """A request that gets no answer but its status and one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class Site:
    """What a server offers: the page at /, and what its scripts may ask for under /api/."""

    page: str  # a file in this folder, or a call
    reads: Mapping[str, Call] = field(default_factory=dict)  # GET: the query as a mapping → JSON, or bytes of a PNG
    writes: Mapping[str, Call] = field(default_factory=dict)  # POST: a JSON object → JSON
    within: "Callable[[str], Site] | None" = None  # by KEY, the site that /api/KEY/NAME is for


class Server(ThreadingHTTPServer):
    """Serves a `Site`; port 0 takes a free one. Calls may come from several threads at once."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait
    allow_reuse_address = os.name != "nt"  # there it would let two servers share a port

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site, self.token, self.room = site, secrets.token_urlsafe(24), threading.BoundedSemaphore(MOST)
        self.waiting: dict[socket.socket, float] = {}  # since when a connection has shown no token
        self.files = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "used by another program" if error.errno == errno.EADDRINUSE else "not allowed to you"
            raise UserError(f"port={port} is {why}: give another, or port=0 for any that is free") from None
        self.port = int(self.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/?token={self.token}"
        self.hosts = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        self.hosts |= {"127.0.0.1", "localhost"} if self.port == 80 else set()

    def process_request(self, request: Request, client_address: Any) -> None:
        """Answer in a thread of its own; where there is no room, those that only hold a place have to go."""
        while not self.room.acquire(timeout=QUIET / 10):
            self.drop_quiet()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads can be started
            self.room.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Request, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def drop_quiet(self) -> None:
        """End the connections that have been quiet; the thread of each sees that there is nobody."""
        for connection, since in list(self.waiting.items()):
            if time.monotonic() - since > QUIET:
                with suppress(OSError):  # it has ended in between
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Request, client_address: object) -> None:
        """A client that leaves, sleeps or says too much is not an error, nor is one that Ctrl-C cut off."""
        closed = isinstance(request, socket.socket) and request.fileno() < 0
        if not closed and not isinstance(sys.exception(), ConnectionError | TimeoutError | http.client.HTTPException):
            show_traceback()


class Reader(io.RawIOBase):
    """What a client sends: so many bytes at most, and within the time, however slowly it drips."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.left, self.until, self.begun = connection, 0, 0.0, False

    def begin(self) -> None:
        """Wait for the next request."""
        self.left, self.until, self.begun = LONGEST_HEAD + LONGEST_BODY, time.monotonic() + IDLE, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # Any: as io has it
        seconds = self.until - time.monotonic()
        if self.left <= 0:
            raise http.client.LineTooLong("request")
        if seconds <= 0:
            raise TimeoutError
        self.connection.settimeout(seconds)
        got = self.connection.recv_into(buffer)
        self.left -= got
        if not self.begun:
            self.begun, self.until = True, time.monotonic() + WHOLE
        return got


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.reader = Reader(self.connection)
        self.rfile = io.BufferedReader(self.reader)

    def handle_one_request(self) -> None:
        self.reader.begin()
        self.server.waiting.setdefault(self.connection, time.monotonic())
        super().handle_one_request()

    def finish(self) -> None:
        self.server.waiting.pop(self.connection, None)
        super().finish()

    def do_GET(self) -> None:
        self.answer(self.read)

    def do_HEAD(self) -> None:
        self.answer(self.read)

    def do_POST(self) -> None:
        self.answer(self.write)

    def answer(self, found: Callable[[], tuple[str, bytes]]) -> None:
        """Send what was asked for, or say in one line why not."""
        status = 200
        try:
            if self.headers.get("Host", "").lower() not in self.server.hosts:
                raise Refused(403, f"this server answers to 127.0.0.1:{self.server.port} only")
            kind, body = found()
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            raise  # there is nobody to answer
        except Refused as refused:
            status, (kind, body) = refused.status, _json({"error": str(refused)})
            self.close_connection = True  # what is left of the request was not read
        except UserError as error:
            status, (kind, body) = 400, _json({"error": str(error)})
        except Exception as error:
            show_traceback()
            line = f"{type(error).__name__}: {one_line(error)}"
            status, (kind, body) = 500, _json({"error": f"{line} (the terminal has the details)"})
        self.connection.settimeout(IDLE)
        self.send_response(status)
        policy = {"Content-Security-Policy": FOREIGN} if isinstance(body, Document) else {}
        for name, value in (HEADERS | policy).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def read(self) -> tuple[str, bytes]:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            raise Refused(400, f"{self.command} has no body")
        name, query = self.address()
        if not name or name.startswith("api/"):
            self.check_token(query.pop("token", ""))
        if (name := name or self.server.site.page).startswith("api/"):
            return _json(self.call("reads", name)(query))
        path = self.server.files.get(name)
        if path is None:
            raise Refused(404, f"there is no /{name[:80]} here")
        return f"{TYPES[path.suffix]}; charset=utf-8", path.read_bytes()

    def write(self) -> tuple[str, bytes]:
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            raise Refused(403, f"requests from {origin[:80]} are refused")
        name, query = self.address()
        self.check_token(query.get("token", ""))
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "send JSON, with Content-Type: application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise Refused(411, "say how long the request is, in Content-Length")
        if len(length) > len(str(LONGEST_BODY)) or int(length) > LONGEST_BODY:
            raise Refused(413, f"a request may have {LONGEST_BODY} bytes")
        try:  # before a call is looked up, which may fail: the connection goes on behind what was read
            request = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise UserError("the request is not valid JSON") from None
        if not isinstance(request, dict):
            raise UserError("the request is not a JSON object")
        return _json(self.call("writes", name)(request))

    def address(self) -> tuple[str, dict[str, str]]:
        """What is asked for, and its query."""
        try:
            url = urlsplit(self.path)
            return url.path.removeprefix("/"), dict(parse_qsl(url.query, max_num_fields=20))
        except ValueError:
            raise Refused(400, "this address cannot be read") from None

    def check_token(self, given: str) -> None:
        """Refuse those who do not know the address that the terminal shows; how long it takes tells nothing."""
        told = self.headers.get(TOKEN, given)
        if not hmac.compare_digest(told.encode(errors="replace"), self.server.token.encode()):
            raise Refused(403, "open the whole address that the terminal shows, with its token")
        self.server.waiting.pop(self.connection, None)

    def call(self, kind: Literal["reads", "writes"], name: str) -> Call:
        site, (key, within, rest) = self.server.site, name.removeprefix("api/").partition("/")
        if within and site.within is not None:
            site, key = site.within(key), rest
        found = (site.reads if kind == "reads" else site.writes).get(key)
        if found is None:
            raise Refused(404, f"there is no {self.command} /{name[:80]} here")
        return found

    def log_message(self, format: str, *args: object) -> None:
        """The terminal is for errors."""


def number(request: Mapping[str, object], key: str, low: float, high: float) -> float:
    """A number of a request within its limits."""
    given = request.get(key)
    try:
        if not isinstance(given, str | int | float):
            raise TypeError
        value = float(given)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{key} is missing or no number: give one from {low:g} to {high:g}") from None
    if not low <= value <= high:
        raise UserError(f"{key}={value:g} is not allowed: give a number from {low:g} to {high:g}")
    return value


def _json(value: object) -> tuple[str, bytes]:
    if isinstance(value, Document):
        return "text/html; charset=utf-8", value
    if isinstance(value, bytes):
        return "image/png", value
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:  # what diverged is not finite
        text = json.dumps(finite(value), allow_nan=False)
    return "application/json", text.encode()
