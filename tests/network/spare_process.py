"""A process that has read all modules and waits: asked by a line of JSON, it forks, and its child runs a command.

So a test starts real processes, a coordinator or a site each, in a tenth of a second instead of three. They are ended
by their own ids; when the test that asked is gone, so are they.

    {"words": [...], "log": FILE, "env": {...}}  ->  the id of a new process that runs `fedlsa WORDS`
    {"poll": ID}                                 ->  its exit code (minus the signal), or null while it runs
"""

import json
import os
import signal
import sys
import threading
import time


def run(asked):
    """In the child: its own session, its own log, nothing of ours; it does not outlive us."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    os.setsid()
    out = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(out, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(asked["env"])
    sys.argv = ["fedlsa", *asked["words"]]
    code = 1
    try:
        from fedlsa.cli import main

        code = main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def prepare():
    """Read everything that a coordinator and a site use, and have the compiled steps ready; no thread is started."""
    import numpy as np

    import fedlsa.cli.network_command
    import fedlsa.network.coordinator.commands
    import fedlsa.network.site.join  # noqa: F401
    from fedlsa.engine.local import Means, Rows, alias_slots

    z, one = np.zeros(2), np.eye(2)
    Means(one, z)(z, z, 0.1, 1, 0, 0, 0)
    Rows(one, one, z, 0.0, alias_slots(2))(z, z, 0.1, 1, 0, 0, 0)


def serve():
    living = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "poll" in asked:
            pid, status = os.waitpid(asked["poll"], os.WNOHANG) if asked["poll"] in living else (0, 0)
            living.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                run(asked)
            living.add(answer)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    prepare()
    serve()
