"""The command `fedlsa`: from options to files and figures, and one line for everything that can go wrong."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from refusals import refused

import fedlsa as fl
from fedlsa import engine
from fedlsa.cli import problem_options, simulate_command
from fedlsa.errors import DivergenceWarning

SMALL = ["simulate", "--agents", "4", "--states", "12", "--rounds", "20", "--seeds", "3", "--local-steps", "5"]


def small(*more):
    """The small run with other options: each option is given once."""
    pairs = zip(SMALL[1::2], SMALL[2::2], strict=True)
    return ["simulate", *(word for flag, value in pairs if flag not in more for word in (flag, value)), *more]


def test_what_is_simulated_can_be_plotted(fedlsa, tmp_path):
    code, out, err = fedlsa(*SMALL, "--out", "run", "--plot", "curves.svg")
    assert (code, err) == (0, "")
    assert "FedLSA" in out
    assert "SCAFFLSA" in out
    assert "predicted" in out
    assert "fedlsa plot run/fedlsa.nc run/scafflsa.nc" in out
    problem = fl.problems.garnet(agents=4, states=12)
    alone = fl.simulate(problem, fl.SCAFFLSA(0.1, 5), rounds=20, seeds=3)
    xr.testing.assert_identical(fl.results.load("run/scafflsa.nc"), alone)

    code, out, err = fedlsa("plot", "run/fedlsa.nc", "run/scafflsa.nc", "--x", "samples", "--title", "A title")
    assert (code, out, err) == (0, "saved figure.png\n", "")
    with Image.open("figure.png") as image:
        assert image.width >= 1000
        assert image.text["Source"] == "fedlsa plot run/fedlsa.nc run/scafflsa.nc --x samples --title 'A title'"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.svg", "figure.png", "run"]


def test_a_saved_sweep_is_plotted_run_by_run(fedlsa):
    p = fl.problems.garnet(agents=3, states=6, features=2, seed=1)
    fl.results.save(fl.sweep(p, fl.FedLSA, step_size=[0.05, 0.1], local_steps=4, rounds=5, seeds=2), "sweep.nc")
    code, out, err = fedlsa("plot", "sweep.nc", "--out", "sweep.svg")
    assert (code, out, err) == (0, "saved sweep.svg\n", "")


def test_a_file_that_holds_no_runs_is_named(fedlsa):
    assert fedlsa("theory", "--agents", "4", "--states", "12", "--rounds", "3", "--out", "exact.nc")[0] == 0
    code, _, err = fedlsa("plot", "exact.nc")
    assert code == 2
    assert err.startswith("fedlsa: exact.nc must be a result of simulate; got a dataset without squared_error")


def test_the_table_shows_the_bias_that_theory_predicts_for_fedlsa(fedlsa):
    _, out, _ = fedlsa(*SMALL)
    bias = fl.theory.bias(fl.problems.garnet(agents=4, states=12), 0.1, 5)
    assert f"{bias @ bias:.3g}" in out
    assert "nothing saved" in out


def test_every_option_reaches_the_library(fedlsa):
    options = "--method scaffnew --step-size 0.2 --power 0.5 --probability 0.3 --participants 2 --projection 9"
    options += " --average-after 4 --sampling markov --thin 2 --engine reference --record 0,5,20 --seeds 7,"
    options += " --homogeneous --preset authors --problem-seed 5 --discount 0.8 --features 2 --quiet --out r.nc"
    assert fedlsa(*small(*options.split())) == (0, "", "")
    r = fl.results.load("r.nc")
    made = fl.results.arguments(r)
    expected = fl.Scaffnew(fl.PowerStep(0.2, 0.5), 0.3, participants=2, projection=9.0, average_after=4)
    assert made["algorithm"] == expected
    assert made["sampling"] == fl.Markov(thin=2)
    assert (made["engine"], made["record"], made["seeds"]) == ("reference", [0, 5, 20], [7])
    asked = made["problem"].recipe["arguments"]
    assert (asked["heterogeneous"], asked["preset"], asked["seed"], asked["discount"]) == (False, "authors", 5, 0.8)


def test_scaffnew_communicates_as_often_as_the_others_unless_told(fedlsa):
    fedlsa(*SMALL, "--method", "scaffnew", "--engine", "reference", "--out", "r.nc", "--quiet")
    assert fl.results.arguments(fl.results.load("r.nc"))["algorithm"] == fl.Scaffnew(0.1, 0.2)


def test_a_share_of_the_agents_is_written_with_a_point():
    assert [problem_options.share("--participation", t) for t in ("1.0", "0.3")] == [1.0, 0.3]
    with pytest.raises(fl.errors.ArgumentTypeError, match="--participants is for a count"):
        problem_options.share("--participation", "1")


def test_several_methods_and_one_file_name_give_a_file_each(fedlsa, tmp_path):
    assert fedlsa(*SMALL, "--out", "deep/run.nc", "--quiet")[0] == 0
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["run-fedlsa.nc", "run-scafflsa.nc"]


def test_files_that_exist_are_replaced_only_by_force(fedlsa, tmp_path):
    (tmp_path / "r.nc").write_text("precious")
    arguments = [*SMALL, "--method", "fedlsa", "--out", "r.nc"]
    assert fedlsa(*arguments) == (2, "", "fedlsa: r.nc exists; --force replaces it\n")
    assert (tmp_path / "r.nc").read_text() == "precious"
    assert fedlsa(*arguments, "--force")[0] == 0
    assert fl.results.load("r.nc").attrs["agents"] == 4


def test_divergence_is_one_line(fedlsa):
    code, out, err = fedlsa(*small("--method", "fedlsa", "--step-size", "1e6", "--rounds", "200"))
    assert code == 0
    assert err.startswith("fedlsa: warning: runs diverged: FedLSA(step_size=1000000.0")
    assert err.count("\n") == 1
    assert "3 of 3" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--step-size", "nan"], ["--step-size", "nan"]),
        (["--step-size", "inf"], ["--step-size", "inf"]),
        (["--step-size", "-0.1"], ["--step-size", "-0.1"]),
        (["--step-size", "inf", "--power", "0.5"], ["--step-size", "inf"]),
        (["--power", "-1"], ["--power", "-1"]),
        (["--local-steps", "0", "--method", "scaffnew"], ["--local-steps", "0"]),
        (["--local-steps", "many"], ["--local-steps", "'many'"]),
        (["--probability", "1.5", "--method", "scaffnew"], ["--probability", "1.5"]),
        (["--probability", "0.5"], ["--probability", "scaffnew"]),
        (["--participation", "0"], ["--participation", "--participants", "0"]),
        (["--participation", "1"], ["--participation", "--participants", "1"]),
        (["--participation", "0.5", "--participants", "2"], ["--participation and --participants", "2"]),
        (["--participants", "9"], ["--participants", "9"]),
        (["--participation", "nan"], ["--participation", "nan"]),
        (["--participation", "half"], ["--participation", "'half'"]),
        (["--projection", "0"], ["--projection", "0"]),
        (["--average-after", "-1"], ["--average-after", "-1"]),
        (["--method", "scaflsa"], ["--method", "'scaflsa'", "did you mean 'scafflsa'"]),
        (["--method", "fedlsa", "--method", "fedlsa"], ["--method", "2 times"]),
        (["--problem", "garnett"], ["--problem must be one of 'ring', 'garnet'", "did you mean 'garnet'"]),
        (["--preset", "author"], ["--preset", "did you mean 'authors'"]),
        (["--problem", "ring"], ["--states must go with --problem garnet; got --problem ring"]),
        (["--spread", "2"], ["--spread must go with --problem ring; got --problem garnet"]),
        (["--low", "2"], ["--low must go with --problem lakes, cartpoles; got --problem garnet"]),
        (["--agents", "0"], ["--agents", "0"]),
        (["--agents", "2.5"], ["--agents", "'2.5'"]),
        (["--branching", "13"], ["--branching", "13"]),
        (["--discount", "1"], ["--discount", "1"]),
        (["--perturbation", "nan"], ["--perturbation", "nan"]),
        (["--problem-seed", "-3"], ["--problem-seed", "-3"]),
        (["--rounds", "0"], ["--rounds", "0"]),
        (["--seeds", "0"], ["--seeds", "0"]),
        (["--seeds", "1,1"], ["--seeds", "[1, 1]"]),
        (["--seeds", "a,b"], ["--seeds", "'a,b'"]),
        (["--record", "9,3"], ["--record", "3 after 9"]),
        (["--record", "all"], ["--record", "'all'"]),
        (["--sampling", "marko"], ["--sampling", "did you mean 'markov'"]),
        (["--sampling", "replay"], ["--sampling must be one of 'iid', 'markov'; got 'replay'"]),
        (["--thin", "2"], ["--thin", "2"]),
        (["--sampling", "markov", "--thin", "0"], ["--thin", "0"]),
        (["--engine", "gpu"], ["--engine", "'gpu'"]),
        (["--dtype", "float16"], ["--dtype", "'float16'"]),
        (["--threads", "0"], ["--threads", "0"]),
        (["--out", "r.txt"], ["--out", "'r.txt'"]),
        (["--plot", "f.pgn"], ["f.pgn", "did you mean '.png'"]),
        (["--rounds"], ["--rounds"]),
        (["--rounds", "x"], ["--rounds", "integer", "'x'"]),
        (["--roundz", "3"], ["there is no option '--roundz'; did you mean '--rounds'?"]),
        (["--threads", "1", "--threads", "2"], ["--threads must be given once; got it 2 times"]),
        (["--heterogeneous", "--homogeneous"], ["--heterogeneous/--homogeneous must be given once"]),
        (["--step-size", "0.1,.1"], ["--step-size must name each value once; got 0.1 again"]),
        (["--step-size", "0.1", "--step-size", "0"], ["--step-size", "0"]),
        (["--local-steps", ","], ["--local-steps must be an integer such as 10, or several"]),
        (["extra"], ["extra"]),
    ],
    ids=" ".join,
)
def test_a_bad_option_is_one_line_that_names_it_and_exit_code_2(fedlsa, tmp_path, arguments, words):
    refused(fedlsa(*small(*arguments)), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plot"], ["Missing argument"]),
        (["plot", "none.nc", "--out", "text.png"], ["text.png exists; --force replaces it"]),
        (["plot", "none.nc"], ["there is no result file none.nc"]),
        (["plot", "text.nc"], ["text.nc is not a result file"]),
        (["plot", "."], ["cannot read the result file"]),
        (["plot", "text.nc", "--x", "rounds"], ["--x", "'rounds'"]),
        (["plot", "text.nc", "--scale", "logg"], ["--scale", "did you mean 'log'"]),
        (["plot", "text.nc", "--out", "f.jpeg"], ["f.jpeg"]),
        (
            ["plot", "text.nc", "--out", "text.nc/f.png"],
            ["--out cannot write text.nc/f.png", "text.nc is not a folder"],
        ),
        (["plt"], ["there is no command 'plt'; did you mean 'plot'?"]),
        (["network", "stat"], ["there is no command 'stat'; did you mean 'status'?"]),
        (["network", "init", "/", "--sites", "1", "--host", "h"], ["the folder must be new or empty", "'/'"]),
        (["explore", "rounds=3", "--force", "--save", "/"], ["the suffix of '/' must be one of '.png'"]),
        (["--nonsense"], ["--nonsense"]),
    ],
    ids=" ".join,
)
def test_a_bad_command_is_one_line_and_exit_code_2(fedlsa, tmp_path, arguments, words):
    for name in ("text.nc", "text.png"):
        (tmp_path / name).write_text("hello")
    refused(fedlsa(*arguments), *words)


def test_a_folder_that_cannot_be_written_to_is_found_before_the_run(fedlsa, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "simulate_grid", lambda *_, **__: pytest.fail("it ran"))
    monkeypatch.setattr(simulate_command, "simulate_to_files", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").write_text("not a folder")
    for option, path in (("--out", "file/run.nc"), ("--plot", "file/run.png")):
        code, _, err = fedlsa(*SMALL, option, path)
        assert code == 2
        assert f"{option} cannot write file/run" in err
        assert "file is not a folder" in err


def test_help_teaches_and_version_tells(fedlsa):
    code, out, _ = fedlsa("--help")
    assert code == 0
    assert "fedlsa simulate --agents 10" in out
    code, out, _ = fedlsa("simulate", "--help")
    assert code == 0
    assert all(panel in out for panel in ("Problem", "Method", "Run", "Output", "Examples"))
    assert "replay" not in out
    assert fedlsa("--version") == (0, f"fedlsa {fl.__version__}\n", "")


def test_an_interruption_leaves_no_file_and_exit_code_130(fedlsa, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate_command, "simulate_to_files", interrupted)
    assert fedlsa(*SMALL, "--out", "run", "--plot", "f.png") == (130, "", "fedlsa: interrupted\n")
    assert not list(tmp_path.iterdir())


SAYS_WHEN_IT_RUNS = """
import sys
from fedlsa.cli import main
from fedlsa.engine.cpu import CpuTask

def begin(task, members):
    CpuTask.begin = real
    print("go", flush=True)
    return real(task, members)

real, CpuTask.begin = CpuTask.begin, begin
sys.exit(main())
"""


def test_a_real_interrupt_stops_a_real_run(tmp_path):
    arguments = ["simulate", "--agents", "50", "--local-steps", "1000", "--rounds", "1000000", "--out", "run"]
    with subprocess.Popen(
        [sys.executable, "-c", SAYS_WHEN_IT_RUNS, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "fedlsa: interrupted"
    assert "Traceback" not in err
    assert all(path.suffix == ".partial" for path in tmp_path.rglob("*.*"))  # from which it would go on


def test_without_matplotlib_a_plot_is_one_line(fedlsa, monkeypatch):
    fedlsa(*SMALL, "--out", "run", "--quiet")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = fedlsa("plot", "run/fedlsa.nc")
    assert (code, err) == (2, "fedlsa: figures need matplotlib: pip install 'fedlsa[plot]'\n")


def test_a_warning_and_an_error_are_one_line_each(monkeypatch, fedlsa):
    def warned(*_, **__):
        import warnings

        warnings.warn("lost", DivergenceWarning, stacklevel=1)
        raise fl.errors.ArgumentError("rounds must be odd; got 20")

    monkeypatch.setattr(engine, "simulate_grid", warned)
    code, _, err = fedlsa(*SMALL)
    assert (code, err.splitlines()) == (2, ["fedlsa: warning: lost", "fedlsa: --rounds must be odd; got 20"])


def test_the_demo_saves_its_picture_and_results(tmp_path, capsys, pictures):
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("demo", Path(__file__).parents[2] / "examples" / "demo.py")
    demo = module_from_spec(spec)
    spec.loader.exec_module(demo)
    demo.main(tmp_path / "out", rounds=6, seeds=2)
    assert pictures == ["demo.png"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["demo-fedlsa.nc", "demo-scafflsa.nc", "demo.png"]
    r = fl.results.load(tmp_path / "out" / "demo-fedlsa.nc")
    assert r.attrs["method"] == "FedLSA(step_size=0.1, local_steps=1000)"
    assert np.array_equal(r["rounds"].values, np.arange(7))
    assert "1.24" in capsys.readouterr().out  # the predicted ||bias||^2 of the authors' instance
