"""The process that keeps a run on another machine ends with its work done, also if the one that asked is gone."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

from rlkit.comparison import keeper


def test_a_keeper_that_nobody_listens_to_removes_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    heard, said = os.pipe()
    os.close(heard)  # as if the process that asks had just ended
    ended, alive = os.pipe()  # at its end once the keeper is, as it inherits the other side
    command = [sys.executable, keeper.__file__, str(folder), "5"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, pass_fds=(alive,)) as process:
        os.close(said)
        os.close(alive)
        start = {"command": ["true"], "directory": str(tmp_path), "console": str(tmp_path / "said"), "variables": {}}
        assert process.stdin is not None
        process.stdin.write(json.dumps(start).encode() + b"\n")
        process.stdin.flush()
        assert not select.select([ended], [], [], 1)[0], "it waits for the next line"
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)
    assert not folder.exists()
