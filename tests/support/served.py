"""A page's server in a thread, and requests to it without a browser."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rlkit.pages import choice
from rlkit.pages.server import Server, Site


class Client:
    """A browser's requests without the browser."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        given = {"Content-Type": "application/json"} if body is not None else {}
        given["X-Token"] = self.server.token
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        connection.request(method, path, data, given)
        reply = connection.getresponse()
        content, kind = reply.read(), reply.headers["Content-Type"]
        connection.close()
        return reply.status, json.loads(content) if kind == "application/json" else content

    def post(self, name: str, **request: Any) -> Any:
        status, answer = self("POST", f"/api/{name}", request)
        assert status == 200, answer
        return answer

    def get(self, path: str) -> Any:
        status, answer = self("GET", path)
        assert status == 200, answer
        return answer


def serve(*words: str) -> AbstractContextManager[Client]:
    """The page that `python -m rlkit.play WORDS` opens."""
    return serving(choice.site(words))


@contextmanager
def serving(site: Site) -> Iterator[Client]:
    """Any page, in a thread."""
    with Server(site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # seconds until it sees that it should end
        thread.start()
        try:
            yield Client(server)
        finally:
            server.shutdown()
            thread.join()
