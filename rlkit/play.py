"""Look at it in a browser, from this machine only; nothing is written.

python -m rlkit.play [FOLDER]
    the home of runs, of runs/ and comparisons/ here or of a folder of runs: a
    table, several runs' curves over each other, what their settings differ in
python -m rlkit.play env=NAME [env.KEY=V ...] [algo=NAME] [seed=N]
    a map: step every algorithm that keeps a table, and change the world
python -m rlkit.play RUN_FOLDER
    a run, finished or still going on: its curves, what its model writes and
    how each token was judged, or a replay of what its policy does; of a
    comparison its page
"""

import os
import sys
from collections.abc import Sequence

from rlkit.console import guarded, loading
from rlkit.terminal import say


def play(argv: list[str]) -> int:
    import webbrowser

    with loading():
        from rlkit.pages.choice import Play, page_keys, site
        from rlkit.pages.server import Server
        from rlkit.settings import schema
        from rlkit.settings.help import print_pages

    if {"-h", "--help"} & set(argv):
        print_pages(__doc__ or "", [("the page", schema.explain(Play, {}, "run"))])
        return 0
    asked, words = page_keys(argv)
    server = Server(site(words, asked.trust), asked.port)
    try:
        say(f"{server.url}\n(Ctrl-C ends it)")
        if asked.open and has_screen():
            webbrowser.open(server.url)
        server.serve_forever()
    except KeyboardInterrupt:
        say()
    finally:
        server.server_close()
    return 0


def has_screen() -> bool:
    """Whether a graphical browser can be shown; a text browser would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(play, argv)


if __name__ == "__main__":
    sys.exit(main())
