"""What tests start with torchrun: all runs of a JSON file, one after the other, by ranks that meet once."""

import json
import sys
from pathlib import Path

from rlkit import ranks, session
from rlkit.settings import config

if __name__ == "__main__":
    ranks.join()
    for words in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        session.carry_out(config.read(words), session.Watch(quiet=True))
    ranks.everyones(None)
    ranks.leave()
