"""JSON over HTTP with the standard library: one connection per request, no redirects, answers of limited size."""

import http.client
import json
import os
import socket
from urllib.parse import urlsplit

from rlkit.errors import EngineFailed, UserError, one_line

Json = dict[str, object]
LARGEST = 1 << 26  # most bytes of an answer
CONNECT = 10.0  # seconds to connect to a server
QUICK = 60.0  # seconds to wait for quick answers
PATIENCE = 3600.0  # seconds to wait for long work: the server may have many earlier rows
SHOWN = 300  # most characters of a server's message that are shown
SECRET = "VLLM_API_KEY"  # environment variable with the key of a server that asks for one
# If the other end vanishes, the system notices after about a minute and a half.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Refused(EngineFailed):
    """The server answered with a status that is not a success."""

    def __init__(self, line: str, status: int, said: str) -> None:
        super().__init__(line)
        self.status, self.said = status, said


class Client:
    """A server at http://HOST:PORT; `key` is the key that gave the address."""

    def __init__(self, url: str, key: str) -> None:
        self.named = f"{key}={url}"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # the port is not a number, or a bracket is not closed
            parts, port = urlsplit(""), None
        plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain or not url.isprintable():
            raise UserError(f"{key}={url[:80]!r} is not an address: write http://HOST:PORT, or https://HOST:PORT")
        self.secure, self.host, self.port = parts.scheme == "https", parts.hostname, port

    def ask(self, path: str, body: Json | None = None, patience: float = QUICK) -> Json:
        """The JSON object in the answer to a GET, or to a POST if there is a body; {} where the answer is empty.

        patience: seconds without an answer before giving up.

        Raises: Refused for a status of 400 or more; EngineFailed where there is no answer, or not a JSON object.
        """
        try:
            status, data = self._exchange(path, body, patience)
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise EngineFailed(
                f"{self.named} does not answer {path} ({one_line(why)}): see that it runs there and can be reached"
            ) from None
        found = _parsed(data)
        if status == 401:
            told = f"{SECRET} in the environment is {'another key' if secret() else 'not set'}"
            raise Refused(f"{self.named} refused {path} with status 401, as {told}: set it to the server's", 401, told)
        if status >= 400:
            said = _said(found, data)
            raise Refused(f"{self.named} refused {path} with status {status}: {said}", status, said)
        if status >= 300 or found is None:
            raise EngineFailed(f"{self.named} answered {path} with what is not a JSON object: give a vLLM server")
        return found

    def _exchange(self, path: str, body: Json | None, patience: float) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=CONNECT)
        try:
            connection.connect()
            connection.sock.settimeout(patience)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEP_ALIVE.items():
                if name in vars(socket):  # some systems lack some of them
                    connection.sock.setsockopt(socket.IPPROTO_TCP, vars(socket)[name], value)
            data = None if body is None else json.dumps(body).encode()
            headers = {} if data is None else {"Content-Type": "application/json"}
            headers |= {"Authorization": f"Bearer {key}"} if (key := secret()) else {}
            connection.request("GET" if data is None else "POST", path, data, headers)
            answer = connection.getresponse()
            found = answer.read(LARGEST + 1)
            if len(found) > LARGEST:
                raise http.client.HTTPException(f"its answer has more than {LARGEST:,} bytes")
            if answer.length:  # the server ended meanwhile; `read` with a limit says nothing of it
                raise http.client.IncompleteRead(found, answer.length)
            return answer.status, found
        finally:
            connection.close()


def secret() -> str:
    """The key for servers that ask for one; empty where there is none. It is read when needed, and never shown.

    Raises: UserError where it could not be sent.
    """
    key = os.environ.get(SECRET, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{SECRET} in the environment has characters beyond printable ASCII: correct or unset it")
    return key


def _parsed(data: bytes) -> Json | None:
    """The object in an answer; {} for an empty answer."""
    if not data.strip():
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _said(found: Json | None, data: bytes) -> str:
    """The reason in an answer: error.message, as vLLM writes it, or the first words of the answer."""
    error = (found or {}).get("error")
    said = error.get("message") if isinstance(error, dict) else error
    text = said if isinstance(said, str) else data[:SHOWN].decode("utf-8", "replace")
    if key := secret():
        text = text.replace(key, "***")
    return "".join(c for c in one_line(text) if c.isprintable())[:SHOWN] or "it gave no reason"
