"""Odd cases, one after the other in a process with a limit on memory, and whoever starts that process again.

    python tests/fuzz/worker.py MODULE COUNT SEED FIRST

runs the cases FIRST ... COUNT - 1 of a module and prints a line of JSON before and after each. A case that takes too
long ends the process with its traceback; `wrong` then goes on with the next one in a new process.
"""

import collections
import faulthandler
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings

SECONDS = 60.0  # that a case may take, on a busy machine
MEMORY = 3 * 2**30  # bytes of addresses beyond those of the process with its libraries


def wrong(module, count, seed):
    """A line for each case that went wrong, and how often each outcome came."""
    first, lines, tally = 0, [], collections.Counter()
    while first < count:
        command = [sys.executable, __file__, module, str(count), str(seed), str(first)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        name = None
        for line in map(json.loads, done.stdout.splitlines()):
            if "name" in line:
                name, first = line["name"], line["k"] + 1
                continue
            tally[line["outcome"]] += 1
            if line["bad"]:
                lines.append(f"{name}: {line['bad']}")
            name = None
        if name is None:
            if done.returncode:
                raise RuntimeError(done.stderr)
            break
        stack = [text.strip() for text in done.stderr.splitlines() if "fedlsa/" in text]
        lines.append(f"{name}: took too long or died, exit code {done.returncode}; {stack[:3]}")
    return lines, tally


def say(**line):
    print(json.dumps(line), file=OUT, flush=True)


def main(module, count, seed, first):
    os.chdir(tempfile.mkdtemp())
    warnings.simplefilter("ignore")
    cases = importlib.import_module(module)
    cases.prepare()
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    for k, (name, run) in enumerate(cases.cases(int(count), int(seed))):
        if k < int(first):
            continue
        say(k=k, name=name)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            outcome, bad = run()
        except BaseException as error:
            from calls import innermost

            place = ":".join(map(str, innermost(error)))
            outcome, bad = "untyped", f"{type(error).__name__}: {' '.join(str(error).split())[:120]} ({place})"
        finally:
            faulthandler.cancel_dump_traceback_later()
        say(outcome=outcome, bad=bad)


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "w")  # what cases print goes elsewhere
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(*sys.argv[1:])
