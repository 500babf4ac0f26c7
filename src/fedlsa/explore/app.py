"""The explorer as a marimo notebook: `fedlsa explore` serves it; `fedlsa explore --copy mine.py` gives you one to edit.

Cells only arrange: what is computed stands in answers.py and runs in processes of its own (desk.py).
"""

import marimo

app = marimo.App(width="full", app_title="fedlsa: see client drift", css_file="explore.css")

with app.setup:
    import marimo as mo

    from fedlsa.explore import follow, panels, plan_panel, take_panel
    from fedlsa.explore.answers import Question
    from fedlsa.explore.controls import controls, problem_choice, settings
    from fedlsa.explore.settings import Settings
    from fedlsa.explore.sites import sites


@app.cell
def _():
    # one desk of processes for all pages; this page's name at it, and what it knows so far
    desk, owner, width = panels.desk(), panels.newcomer(), panels.width(mo.app_meta().request)
    start, complaints = Settings.from_query(mo.query_params().to_dict())
    get_start, set_start = mo.state(start)
    get_curves, set_curves = mo.state(follow.Curves())
    get_scene, set_scene = mo.state(follow.Scene())
    get_runs, set_runs = mo.state(follow.Runs())
    get_plans, set_plans = mo.state(follow.Plans())
    return (
        complaints, desk, get_curves, get_plans, get_runs, get_scene, get_start, owner, set_curves, set_plans,
        set_runs, set_scene, set_start, width,
    )  # fmt: skip


@app.cell
def _():
    mo.md(panels.WELCOME)
    return


@app.cell
def _(get_start, set_start):
    kind, c = problem_choice(get_start(), set_start), controls(get_start())
    return c, kind


@app.cell
def _():
    upload = mo.ui.file(filetypes=[".csv", ".parquet"], multiple=True, kind="area", label="one file per site")
    simulate, stop = mo.ui.run_button(label="Simulate"), mo.ui.run_button(label="Stop", kind="danger")
    find = mo.ui.run_button(label="Find plans")
    return find, simulate, stop, upload


@app.cell
def _(get_start, owner, upload):
    given = sites(owner, upload.value)
    target = panels.target_choice(given, get_start().target)
    return given, target


@app.cell
def _(c, complaints, get_start, given, kind, target):
    # everything below follows from these two: the settings, and the question that they pose
    s, _trouble = panels.checked(lambda: settings(kind.value, c.value, target and target.value), get_start())
    q = Question.of(s, given.files)
    panels.write_address(mo.query_params(), s)
    panels.notes(*complaints, _trouble, given.trouble)
    return q, s


@app.cell
def _(c, given, kind, s, target, upload):
    mo.sidebar(panels.problem_panel(kind, c, s, upload, target, given), width="21rem")
    return


@app.cell
def _(c, s):
    panels.method_panel(c, s)
    return


@app.cell
def _(get_curves):
    panels.limits_line(get_curves())
    return


@app.cell
def _(desk, owner, q, s, set_curves):
    mo.Thread(target=follow.curves, args=(desk, owner, q, s, set_curves)).start()
    return


@app.cell
def _(desk, owner, q, s, set_scene, width):
    mo.Thread(target=follow.agents, args=(desk, owner, q, width, s.round, set_scene)).start()
    return


@app.cell
def _(desk, owner, q, set_runs, simulate, stop):
    desk.drop(owner, "runs")  # pressed again, stopped, or about something else now
    if simulate.value and not stop.value:
        mo.Thread(target=follow.runs, args=(desk, owner, q, set_runs)).start()
    return


@app.cell
def _(get_curves, get_runs):
    panels.error_panel(get_curves(), get_runs())
    return


@app.cell
def _(c, get_runs, simulate, stop):
    panels.view_panel(c, simulate, stop, get_runs())
    return


@app.cell
def _(get_scene):
    panels.agents_panel(get_scene())
    return


@app.cell
def _(desk, find, owner, q, s, set_plans):
    if find.value:
        mo.Thread(target=follow.plans, args=(desk, owner, q, s.epsilon, set_plans)).start()
    return


@app.cell
def _(get_plans, s, set_start):
    use = {name: plan_panel.use_button(name, plan, s, set_start) for name, plan in get_plans().found.items()}
    return (use,)


@app.cell
def _(c, find, get_plans, use):
    plan_panel.plan_panel(c, find, get_plans(), use)
    return


@app.cell
def _(c, get_curves, get_runs, given, s):
    take_panel.take_panel(c, s, given.files, get_curves(), get_runs())
    return


if __name__ == "__main__":
    app.run()
