"""A process that is asked line by line: it answers, or it is ended, and a fork does not end that of its parent."""

import os
import sys

import pytest

from rlkit.child import Child, NoLine

ECHO = "import sys; [print(line.strip() * 2, flush=True) for line in sys.stdin]"


def python(program: str) -> Child:
    return Child([sys.executable, "-c", program])


def test_each_line_has_an_answer_until_it_is_ended():
    echo = python(ECHO)
    assert [echo.ask("ab", 60), echo.ask("ü", 60)] == ["abab", "üü"]
    assert echo.running
    echo.end()
    assert not echo.running
    with pytest.raises(NoLine):
        echo.ask("ab", 60)


def test_what_hangs_is_ended():
    asleep = python("import time; time.sleep(1000)")
    with pytest.raises(NoLine, match=r"nothing came within 0\.1 seconds"):
        asleep.ask("ab", 0.1)
    assert not asleep.running


def test_what_ended_by_itself_is_said():
    with pytest.raises(NoLine, match="its process ended"):
        python("").line(60)


def test_what_is_no_text_ends_it():
    with pytest.raises(NoLine, match="its process ended"):
        python(r"import sys; sys.stdout.buffer.write(b'\xff\n')").line(60)


def test_it_ends_with_the_object_that_asks():
    child = python(ECHO)
    process = child._process
    del child
    assert process.poll() is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_leaves_the_child_of_its_parent_alone():
    echo = python(ECHO)
    if not (fork := os.fork()):
        try:
            ended = echo.running
            echo.end()
        finally:
            os._exit(ended)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
    assert echo.running and echo.ask("ab", 60) == "abab"
    echo.end()
