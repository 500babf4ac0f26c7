"""The page is served to this machine alone, and everything that can be wrong with the command is one line."""

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import fedlsa as fl
from fedlsa.cli import main
from fedlsa.errors import ArgumentError
from fedlsa.explore import answers, page
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, SETTINGS, PageSettings
from fedlsa.explore.pool import Progress
from fedlsa.explore.uploads import Uploads
from fedlsa.pages.web_server import PageRequest

RING = "agents=2&rounds=3&local_steps=2"
S = PageSettings(agents=3, rounds=5, local_steps=5)
Q = Question.of(S)
EACH = len(METHODS) + 1  # what is asked for one setting: its curves and its agents


class Asked:
    """Answers that are there, as a pool gives them."""

    def __init__(self, found):
        self.found = found

    def __iter__(self):
        return iter(self.found)

    def close(self):
        """Nobody listens any more."""


class Pool:
    """Answers in this process, and keeps what it was asked, by topic."""

    def __init__(self):
        self.asked = {}

    def ask(self, topic, questions, lane="quick", pause=None, number=0):
        self.asked.setdefault(topic[1], []).extend(questions)

        def found():
            for i, (function, arguments) in enumerate(questions):
                yield Progress(0, "idle", None)
                try:
                    yield Progress(i, "done", function(*arguments))
                except fl.errors.FedLSAError as error:
                    yield Progress(i, "failed", str(error))

        return Asked(found())


@pytest.fixture
def served(monkeypatch):
    """A page whose sliders rest at once, and its pool."""
    monkeypatch.setattr(page, "CALM", 0)
    monkeypatch.setattr(page, "REST", 0)
    return page.ExplorerPage(Uploads(), Pool())


def lines(served, topic="curves", s=S, **more):
    """The answer to a question, line by line."""
    route = served.routes()[f"/{topic}"]
    shown = route.answer(PageRequest({**s.query(), "page": "me", "n": "1", **more}))
    return [json.loads(line) for line in b"".join(shown.body).decode().splitlines()]


def test_the_first_line_says_what_was_understood_and_the_last_that_it_is_the_last(served):
    first, *_, last = lines(served, agents="0", colour="red", step_size="fast")
    assert first["refused"] == {
        "agents": "agents N must be a positive integer and at most 200; got 0",
        "colour": "names must be of the page's settings; got 'colour'",
        "step_size": "step size η must be a number; got 'fast'",
    }
    assert first["settings"]["rounds"] == 5
    assert set(first["settings"]) == set(SETTINGS)
    assert last == {"end": True}


def test_curves_come_together_then_words_code_floors_and_limits(served):
    _, known, *more, _ = lines(served)
    assert [m["name"] for m in known["known"]["error"]["methods"]] == list(METHODS)
    assert known["plane"]["agents"][0]["name"] == "agent 1"
    (take,) = [line["take"] for line in more if "take" in line]
    assert "fl.theory.exact" in take["error"]
    assert "floor" in more[-1]["known"]["words"][0]
    assert more[-1]["known"]["limits"].count("0.") == len(METHODS)
    assert all("plane" not in line and "error" not in line.get("known", {}) for line in more)


def test_the_three_do_not_wait_for_what_takes_longer_of_the_one_beside_them(served):
    lines(served, s=replace(S, beside="late"))
    limits, floors = (
        [names[-1] for function, names in served.pool.asked["limits"] if function is of]
        for of in (answers.limit, answers.floor)
    )
    assert limits == floors == [*METHODS, "Delayed"]
    order = [(function.__name__, names[-1]) for function, names in served.pool.asked["limits"]]
    assert order.index(("limit", METHODS[-1])) < order.index(("floor", "Delayed"))


def test_what_the_next_step_asks_has_been_answered_before(served):
    lines(served)
    lines(served, s=replace(S, local_steps=3))
    assert set(served.pool.asked["curves"][EACH:]) <= set(served.pool.asked["ahead"][: 2 * EACH])


@pytest.mark.parametrize(
    ("moved", "before", "name", "values"),
    [
        ("", "", "local_steps", [7, 3]),
        ("local_steps", "7", "local_steps", [3, 7]),
        ("local_steps", "3", "local_steps", [7, 3]),
        ("agents", "4", "agents", [2, 4]),
        ("x", "samples", "local_steps", [7, 3]),
        ("nothing", "<b>", "local_steps", [7, 3]),
    ],
)
def test_the_next_steps_are_those_of_the_slider_that_was_moved_last(moved, before, name, values):
    expected = [Question.of(replace(S, **{name: value})) for value in values]
    assert answers.next_steps(Q, moved, before) == expected


def test_keys_name_what_each_answer_depends_on():
    def changed(**to):
        other = Question.of(replace(S, **to))
        return {topic for topic, of in answers.DEPENDS_ON.items() if answers.key(of(other)) != answers.key(of(Q))}

    assert changed(x="bytes") == changed(round=7) == set()
    assert changed(epsilon=0.5) == {"plans"}
    assert changed(step_size=0.2) == changed(seeds=3) == {"curves", "simulate"}
    assert changed(rounds=9) == {"curves", "simulate", "map"}
    assert changed(moves="1:1,0") == changed(agents=2) == {"curves", "simulate", "map", "plans"}


def test_a_simulation_shows_progress_at_once_and_its_seeds(served):
    s = replace(S, seeds=3)
    _, begun, *_, found, _ = lines(served, "simulate", s)
    assert begun == {"share": 0.0}
    run = fl.simulate(Question.of(s).problem(), s.method("SCAFFLSA"), 5, 3)
    assert found["runs"]["SCAFFLSA"]["mean"] == pytest.approx(run["squared_error"].values.mean(axis=0), rel=1e-9)


def test_the_map_says_when_rows_ran_out_of_time(served, monkeypatch):
    monkeypatch.setattr(page, "MAP_STEPS", (1, 10))
    *_, last, _ = lines(served, "map")
    assert last["progress"] == "After 5 rounds of independent observations."
    monkeypatch.setattr(answers, "ROW_SECONDS", -1.0)
    *_, last, _ = lines(served, "map")
    assert last["progress"].endswith("Some cells ran out of time: draw the map again to go on.")
    assert "Left out" in last["row"][0][2]


def test_plans_are_those_of_the_library_and_can_be_put_into_the_sliders(served):
    found = lines(served, "plans")
    plans = {line["method"]: line for line in found if "method" in line}
    for name in METHODS:
        plan = fl.plan(Q.problem(), S.epsilon, method=name.lower())
        assert plans[name]["cells"][2] == str(plan.rounds)
        assert plans[name]["settings"]["step_size"] == plan.algorithm.step_size
        assert plans[name]["settings"]["rounds"] == plan.rounds
    assert {line["chart"]["y"]["label"] for line in found if "chart" in line} == {"rounds"}
    assert not any("communications" in line.get("busy", "") for line in found)
    assert found[-2]["busy"] == ""
    assert len(found[-2]["marks"]) >= len(METHODS)


def test_files_that_are_uploaded_are_fitted_and_bad_ones_are_one_line(served):
    good, files = b"a,b,y\n1,2,3\n2,1,4\n0,5,1\n4,4,0\n3,1,2\n", "0123456789abcdef"
    s = PageSettings(problem="files", step_size=0.01, rounds=3)
    assert "Drop a file" in lines(served, s=s)[1]["known"]["words"][0]
    upload = served.routes()["/upload"].answer
    assert upload(PageRequest({"files": files, "name": "north.csv"}, good)).body == b"{}"
    assert "CSV or Parquet" in json.loads(upload(PageRequest({"files": files, "name": "x.txt"}, good)).body)["trouble"]
    first, known, *_ = lines(served, s=s, files=files)
    assert first["sites"]["names"] == ["north.csv"]
    assert first["sites"]["chosen"] == list(first["sites"]["columns"]) == ["a", "b"]
    assert first["settings"]["target"] == "y"
    assert known["plane"]["agents"][0]["name"] == "north"
    (fitted,) = [line for line in lines(served, "fit", s, files=files) if "fit" in line]
    assert fitted["fit"] == answers.fit_table(Question.of(replace(s, target="y"), served.uploads.sites(files).files))
    assert "fl.fit(" in fitted["code"]
    rows = "".join(f"{k},{'' if k == 2 else k},{k * k}\n" for k in range(30))
    upload(PageRequest({"files": 2 * files, "name": "gap.csv"}, f"a,b,y\n{rows}".encode()))
    *_, known, end = lines(served, s=s, files=2 * files)
    assert (known["known"]["error"], known["plane"], end) == (None, None, {"end": True})
    (fitted,) = [line for line in lines(served, "fit", s, files=2 * files) if "fit" in line]
    assert "gap.csv in 1 of 30" in fitted["fit"]
    assert max(map(len, fitted["fit"].split("\n"))) < 79


@pytest.mark.parametrize("name", ["error.csv", "error.svg", "agents.png"])
def test_files_can_be_taken_along(served, name):
    shown = served.take(PageRequest({**S.query(), "name": name}))
    assert shown.code == 200
    assert len(shown.body) > 500
    assert shown.headers["Content-Disposition"] == f'attachment; filename="{name}"'


@pytest.mark.parametrize("name", ["", "../error.csv", "error.html", "/etc/passwd", 'a"; x=".csv'])
def test_files_of_other_names_are_not(served, name):
    assert served.take(PageRequest({**S.query(), "name": name})).code == 404


@pytest.mark.parametrize("host", ["256.1.1.1", "a" * 300, "no such host", "198.51.100.7", "", "fe80::zz", "x\0y"])
def test_a_host_that_cannot_be_listened_on_is_one_line(host):
    with pytest.raises(ArgumentError, match=r"^host.* must be .*; got ") as caught:
        page.serve(PageSettings(), host=host, browser=False)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.fixture
def fedlsa(capsys, tmp_path, monkeypatch):
    """Run `fedlsa explore` in an empty folder: its exit code, what it printed, what it complained of."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = main(["explore", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("nonsense", "settings must be an address of the page"),
        ("agents=0", "the setting agents must be a positive integer and at most 200; got 0"),
        ("step_size=fast", "the setting step_size must be a number; got 'fast'"),
        ("colour=red", "names must be of the page's settings; got 'colour'"),
        ("--port 70000", "--port must be less than or equal to 65535; got '70000'"),
        ("--port -1", "--port must be greater than or equal to 0; got '-1'"),
        ("--port many", "'many'"),
        ("--host ''", "host must be an address or a name"),
        ("--host no.such.host.invalid", "must be free to listen on"),
        ("--file nowhere.csv", "nowhere.csv"),
        ("--file .", "must be a file; it is a folder"),
        ("--save error.jpg", "the suffix of 'error.jpg' must be one of"),
        ("--save error", "the suffix of 'error' must be one of"),
        ("--agents --save error.csv", "the suffix of 'error.csv' must be one of"),
        ("--agents --simulated --save a.png", "--simulated must stand without --agents"),
        ("--agents", "--agents must stand with --save"),
        ("--simulated", "--simulated must stand with --save"),
        ("problem=files --save a.png", "files must hold one file per site"),
        ("problem=files --file nowhere.csv --save a.png", "target must be a column"),
        ("'problem=files&target=y' --file nowhere.csv --save a.png", "nowhere.csv"),
        ("--file nowhere.csv --save a.png", "--file must stand with the setting problem=files; got problem=ring"),
        ("sampling=markov --save a.png", "observations must be independent"),
        ("--copy mine.txt", "the suffix of 'mine.txt' must be '.py'"),
        ("--copy mine.py --save a.png", "--copy must stand without --save; got both"),
        ("--save taken/below/error.png", "--save cannot write"),
        ("--copy taken/below/mine.py", "cannot write"),
        ("--colour red", "--colour"),
        ("a=1 b=2", "b=2"),
    ],
)
def test_a_wrong_option_is_one_line(fedlsa, arguments, complaint):
    Path("taken").write_text("a file where a folder would have to be")
    code, out, err = fedlsa(*shlex.split(arguments), "--no-browser")
    assert (code, out) == (2, "")
    assert complaint.lower() in err.lower()
    assert err.startswith("fedlsa: ")
    assert err.count("\n") == 1
    assert [p.name for p in Path().iterdir()] == ["taken"]


@pytest.mark.parametrize("arguments", [("--save", "error.csv"), ("--copy", "error.py")])
def test_nothing_is_overwritten_without_force(fedlsa, arguments):
    names = ("error.csv", "error.py")
    for name in names:
        Path(name).write_text("mine")
    code, out, err = fedlsa(RING, *arguments)
    assert (code, out) == (2, "")
    assert "exists; --force replaces it" in err
    assert [Path(name).read_text() for name in names] == ["mine"] * 2
    code, out, err = fedlsa(RING, *arguments, "--force")
    assert (code, err) == (0, "")
    assert Path(arguments[1]).read_text() != "mine"
    assert f"saved {arguments[1]}" in out


MARKOV = "problem=garnet&agents=2&sampling=markov&rounds=3&local_steps=4"


@pytest.mark.parametrize("settings", [RING, MARKOV, "step_size=3"])
def test_a_copy_is_a_script_that_makes_the_same_pictures(fedlsa, settings):
    code, out, err = fedlsa(settings, "--copy", "new/mine.py")
    assert (code, err) == (0, "")
    assert "saved new/mine.py; run it with: python new/mine.py" in out
    text = Path("new/mine.py").read_text(encoding="utf-8")
    exec(compile(text, "mine.py", "exec"), {})
    mine = [Path(name).read_bytes() for name in ("error.png", "agents.png")]
    assert all(picture.startswith(b"\x89PNG") for picture in mine)
    assert fedlsa(settings, "--save", "same.png")[0] == 0
    from matplotlib.image import imread

    assert (imread("same.png") == imread("error.png")).all()


def started(tmp_path, *arguments):
    """The page as a command of its own, and the address that it prints."""
    command = [sys.executable, "-c", "import sys; from fedlsa.cli import main; sys.exit(main())"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    run = subprocess.Popen(
        [*command, "explore", *arguments, "--no-browser"], stdout=subprocess.PIPE, text=True, env=environment
    )
    return run, re.search(r"http://\S+", run.stdout.readline())[0]


def test_the_page_ends_when_told_to_although_an_answer_is_coming_and_leaves_nothing_behind(tmp_path):
    run, link = started(tmp_path, "agents=2")
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?agents=2", link)
        home = link.partition("?")[0]
        files = "0123456789abcdef"
        body = urllib.request.Request(f"{home}upload?files={files}&name=x.csv", b"a,y\n1,2\n", method="POST")
        assert urllib.request.urlopen(body, timeout=60).read() == b"{}"
        assert list(tmp_path.glob("fedlsa-explore-*"))
        with urllib.request.urlopen(f"{home}curves?agents=2&page=me&n=1", timeout=60) as answer:
            while b"ends at" not in answer.readline():  # the curves and what is said of them
                pass
            run.send_signal(signal.SIGTERM)  # what Ctrl-C does, and more: it would end without tidying up
            assert run.wait(timeout=60) == 0
    finally:
        run.kill()
        run.wait()
        run.stdout.close()
    assert not list(tmp_path.glob("fedlsa-explore-*"))


def test_elsewhere_than_on_loopback_the_page_needs_the_token_of_its_link(tmp_path):
    run, link = started(tmp_path, "--host", "0.0.0.0")
    try:
        port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(\S{20,})", link).groups()

        def ask(path, **headers):
            asked = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            asked.request("GET", path, headers=headers)
            got = asked.getresponse()
            return got.status, got.getheader("Set-Cookie") or ""

        assert ask("/")[0] == ask("/curves?agents=2")[0] == ask(f"/?token={token[:-1]}")[0] == 403
        code, cookie = ask(f"/?token={token}")
        assert code == 303
        assert ask("/about.js", Cookie=cookie.split(";")[0])[0] == 200
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait()
        run.stdout.close()


def test_an_interruption_while_its_processes_load_is_no_traceback_and_leaves_none(tmp_path):
    command = [sys.executable, "-c", "import sys; from fedlsa.cli import main; sys.exit(main())"]
    run = subprocess.Popen([*command, "explore", "--no-browser"], text=True, start_new_session=True, cwd=tmp_path,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert "http" in run.stdout.readline()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    _, complaints = run.communicate(timeout=60)
    assert (run.returncode, complaints) == (0, "")
    end = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(run.pid, 0)
            time.sleep(0.1)
        pytest.fail("a process of it is left")


def test_other_commands_do_without_the_libraries_of_the_page(tmp_path):
    code = (
        "import sys; from fedlsa.cli import main; "
        "main(['--help']); main(['explore', '--help']); "
        "main(['simulate', '--agents', '2', '--rounds', '2', '--local-steps', '2', '--seeds', '1', '--quiet']); "
        "held = {m for m in sys.modules if m.startswith('fedlsa.explore.p')} - {'fedlsa.explore.page_settings'}; "
        "print('held:', held)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "held: set()"
    assert "explore" in done.stdout
