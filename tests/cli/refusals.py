"""What is the same in every refusal of a command."""


def refused(ran, *words):
    """The command ended with code 2 and one line that holds all words; nothing was printed."""
    code, out, err = ran
    assert (code, out) == (2, "")
    assert err.startswith("fedlsa: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err, err
