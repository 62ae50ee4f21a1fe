"""A web server for one person on this machine: static files, and calls that answer with JSON or a picture.

It listens on 127.0.0.1 only. A page of somebody else, open in the same browser, must not reach it: a request whose Host
is not this server's is refused (DNS rebinding), and so is a POST that another origin sent or that is not JSON.
"""

import errno
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from rlkit.api import UserError
from rlkit.terminal import show_traceback

FOLDER = Path(__file__).parent
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LONGEST_BODY = 1 << 16  # bytes of a request
IDLE = 30.0  # seconds after which a silent connection is closed
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Request = socket.socket | tuple[bytes, socket.socket]  # as socketserver has it
Json = dict[str, Any]  # a JSON object, as a page sends or gets it; what it holds is checked where it is read
Call = Callable[[Json], Json | bytes]  # an answer, or a picture


class Refused(Exception):
    """A request that gets no answer but its status and one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class Site:
    """What a server offers: the page at /, and what its scripts may ask for under /api/."""

    page: str  # a file in this folder
    reads: Mapping[str, Call] = field(default_factory=dict)  # GET: the query as a mapping → JSON, or bytes of a PNG
    writes: Mapping[str, Call] = field(default_factory=dict)  # POST: a JSON object → JSON


class Server(ThreadingHTTPServer):
    """Serves a `Site`; port 0 takes a free one. Calls may come from several threads at once."""

    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there it would let two servers share a port

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        self.files = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "used by another program" if error.errno == errno.EADDRINUSE else "not allowed to you"
            raise UserError(f"port={port} is {why}: give another, or port=0 for any that is free") from None
        self.port = int(self.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        self.hosts = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        if self.port == 80:
            self.hosts |= {"127.0.0.1", "localhost"}

    def handle_error(self, request: Request, client_address: object) -> None:
        """A browser that closes a connection is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = IDLE

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
                raise Refused(403, f"this server answers to {self.server.url} only")
            kind, body = found()
        except Refused as refused:
            status, (kind, body) = refused.status, _json({"error": str(refused)})
            self.close_connection = True  # what is left of the request was not read
        except UserError as error:
            status, (kind, body) = 400, _json({"error": str(error)})
        except Exception as error:
            show_traceback()
            line = " ".join(f"{type(error).__name__}: {error}".split())
            status, (kind, body) = 500, _json({"error": f"{line} (the terminal has the details)"})
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def read(self) -> tuple[str, bytes]:
        url = urlsplit(self.path)
        name = url.path.removeprefix("/")
        if name.startswith("api/"):
            return _json(self.call(self.server.site.reads, name)(dict(parse_qsl(url.query))))
        path = self.server.files.get(name or self.server.site.page)
        if path is None:
            raise Refused(404, f"there is no /{name[:80]} here")
        return f"{TYPES[path.suffix]}; charset=utf-8", path.read_bytes()

    def write(self) -> tuple[str, bytes]:
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            raise Refused(403, f"requests from {origin[:80]} are refused")
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "send JSON, with Content-Type: application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(411, "say how long the request is, in Content-Length")
        if int(length) > LONGEST_BODY:
            raise Refused(413, f"a request may have {LONGEST_BODY} bytes")
        call = self.call(self.server.site.writes, urlsplit(self.path).path.removeprefix("/"))
        try:
            request = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise UserError("the request is not valid JSON") from None
        if not isinstance(request, dict):
            raise UserError("the request is not a JSON object")
        return _json(call(request))

    def call(self, calls: Mapping[str, Call], name: str) -> Call:
        found = calls.get(name.removeprefix("api/"))
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
    if isinstance(value, bytes):
        return "image/png", value
    return "application/json", json.dumps(value, allow_nan=False).encode()
