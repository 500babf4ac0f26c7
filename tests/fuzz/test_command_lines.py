"""Whatever is typed, the command ends soon: it runs, or says in one line what is wrong; never a traceback."""

import os

import worker

COUNT, SEED = int(os.environ.get("FEDLSA_FUZZ", "60")), int(os.environ.get("FEDLSA_SEED", "0"))


def test_bad_command_lines_are_refused_in_one_line():
    wrong, tally = worker.wrong("command_lines", COUNT, SEED)
    assert not wrong, "\n".join(wrong)
    assert tally["refused"] > 0.5 * COUNT
