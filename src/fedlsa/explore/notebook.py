# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The explorer as a marimo notebook: `fedlsa explore` serves it; `fedlsa explore --copy mine.py` gives you one to edit.

Cells only arrange: what is computed stands in answers.py and runs in processes of its own (pool.py). Threads of
updates.py wait for answers and put them into states; the cells that read a state draw it.
"""

import marimo

app = marimo.App(
    width="full", app_title="fedlsa: see client drift", css_file="explore.css", html_head_file="page_head.html"
)

with app.setup:
    import marimo as mo

    from fedlsa.explore import controls, method_map, updates
    from fedlsa.explore import page_panels as panels
    from fedlsa.explore.answers import Question
    from fedlsa.explore.page_settings import METHODS, OF_PROBLEM, PageSettings
    from fedlsa.explore.uploads import sites


@app.cell
def _():
    # this page, which asks a pool that all pages share, and what it knows so far
    page = updates.OpenPage.of(mo.app_meta().request)
    start, complaints = PageSettings.from_query(mo.query_params().to_dict())
    get_start, set_start = mo.state(start)
    get_curves, set_curves = mo.state(updates.Curves())
    get_settled, set_settled = mo.state(updates.Curves())
    get_runs, set_runs = mo.state(updates.Runs())
    get_plans, set_plans = mo.state(updates.Plans())
    get_map, set_map = mo.state(method_map.MethodMap())
    get_fit, set_fit = mo.state((None, ""))
    # the newest, for what must not run again
    now = {"question": None, "plans": updates.Plans(), "values": None, "sent": 0}
    steps = controls.PageHistory(set_start, now)
    mo.vstack([controls.scripts(), controls.carrier("message", steps.message)])
    return (
        complaints, get_curves, get_fit, get_map, get_plans, get_runs, get_settled, get_start, now, page,
        set_curves, set_fit, set_map, set_plans, set_runs, set_settled, start, steps,
    )  # fmt: skip


@app.cell
def _(get_start, steps):
    sliders = controls.sliders(get_start())
    # the address at once: whoever goes back then stays on the page
    mo.vstack([steps.address(get_start()), controls.carrier("values", sliders)])
    return (sliders,)


@app.cell
def _():
    mo.md(panels.WELCOME)
    return


@app.cell
def _(get_start, steps):
    kind = controls.problem_choice(get_start(), steps)
    return (kind,)


@app.cell
def _():
    upload = mo.ui.file(filetypes=[".csv", ".parquet"], multiple=True, kind="area", label="one file per site")
    return (upload,)


@app.cell
def _(get_start, page, upload):
    given = sites(page.session, upload.value)
    target = controls.target_choice(get_start(), given)
    return given, target


@app.cell
def _(get_start, given, target):
    columns = controls.column_choice(get_start(), given, target.value)
    return (columns,)


@app.cell
def _(get_start, kind):
    worlds = controls.group(get_start(), OF_PROBLEM[kind.value])
    return (worlds,)


@app.cell
def _(columns, given, kind, target, upload, worlds):
    mo.sidebar(panels.problem_panel(kind, worlds, upload, target, columns, given), width="21rem")
    return


@app.cell
def _(kind, steps):
    # not where sliders are made: a cell is not run again by what its own button puts
    reset = controls.reset_button(kind.value, steps)
    return (reset,)


@app.cell
def _(get_start, reset):
    method = controls.group(get_start(), controls.OF_METHOD)
    panels.method_panel(method, reset)
    return (method,)


@app.cell
def _(
    columns, complaints, get_start, given, kind, method, now, page, set_curves, set_fit, set_map, set_plans,
    set_settled, sliders, start, target, view, worlds,
):  # fmt: skip
    # everything below follows from the question that the settings pose; no cell waits for this one, so that nothing
    # else runs before the answer is drawn
    def wanted() -> bool:
        return not mo.current_thread().should_exit

    _shown = [controls.newest(sliders.value, now), *(group.value for group in (worlds, method, view))]
    _before = now["question"]
    _kept = get_start() if _before is None else _before.page
    _columns = controls.columns_text(columns.value, given, target.value) if kind.value == "files" else ""
    _settings, _trouble = controls.settings(kind.value, target.value, _columns, _shown, _kept)
    _q = Question.of(_settings, given.files)
    now["question"] = _q
    if _before not in (None, _q):
        page.drop("runs")
        if updates.plan_question(_before) != updates.plan_question(_q):  # of another problem
            page.drop("plans")
            set_plans(updates.Plans())
        if method_map.map_question(_before) != method_map.map_question(_q):
            page.drop("map")
            set_map(method_map.MethodMap())
        if updates.fit_question(_before) != updates.fit_question(_q):
            set_fit((None, ""))
    _unusable = given.trouble if _settings.problem == "files" else ""
    if _unusable:  # said below; there is nothing to ask
        _none = updates.Curves(_q, failed=dict.fromkeys(METHODS, "the files cannot be used"), agents="no files")
        set_curves(_none)
        set_settled(_none)
    else:
        _asked = updates.ask_curves(page, _q)
        _first = updates.at_once(_q, _asked)
        set_curves(_first)
        _rest = (page, _first, _asked, wanted, set_curves, set_settled, _before)
        mo.Thread(target=updates.question, args=_rest).start()
        if _settings.problem == "files" and given.files:
            mo.Thread(target=updates.fit_table, args=(page, _q, wanted, set_fit)).start()
    panels.notes(*(complaints if _settings == start else ()), *_trouble, _unusable)
    return


@app.cell
def _(get_curves, get_runs):
    panels.scene_panel(get_curves(), get_runs())
    return


@app.cell
def _(get_start):
    view = controls.group(get_start(), controls.OF_VIEW)
    simulate, stop = mo.ui.run_button(label="Simulate"), mo.ui.run_button(label="Stop", kind="danger")
    panels.box("line", *controls.show(view, *controls.OF_VIEW), simulate, panels.box("stop", stop))
    return simulate, stop, view


@app.cell
def _(now, page, set_runs, simulate, stop):
    if simulate.value or stop.value:
        page.drop("runs")
    if simulate.value and not stop.value:
        mo.Thread(target=updates.runs, args=(page, now["question"], set_runs)).start()
    return


@app.cell
def _(get_runs, get_settled):
    panels.runs_line(get_runs(), get_settled())
    return


@app.cell
def _(get_fit):
    panels.fit_panel(*get_fit())
    return


@app.cell
def _():
    draw = mo.ui.run_button(label="Draw the map")
    mo.vstack([mo.md(method_map.MAP), draw, method_map.map_places()])
    return (draw,)


@app.cell
def _(draw, now, page, set_map):
    def same_map(asked=now["question"]) -> bool:
        return method_map.map_question(now["question"]) == method_map.map_question(asked)

    if draw.value:
        mo.Thread(target=method_map.draw, args=(page, now["question"], same_map, set_map)).start()
    return


@app.cell
def _(get_map, get_settled):
    method_map.map_cells(get_map(), get_settled().settings)
    return


@app.cell
def _():
    find = mo.ui.run_button(label="Find plans")
    mo.vstack([mo.md(panels.PLAN), panels.box("line", *controls.show({}, "epsilon"), find)])
    return (find,)


@app.cell
def _(find, now, page, set_plans):
    def same_problem(asked=now["question"]) -> bool:
        return updates.plan_question(now["question"]) == updates.plan_question(asked)

    if find.value:
        mo.Thread(target=updates.plans, args=(page, now["question"], same_problem, set_plans)).start()
    return


@app.cell
def _(now, steps):
    # shown once, above all that answers change: a click is lost if its button is made anew or moves while it is pressed
    use = panels.use_buttons(now, steps.begin)
    panels.use_panel(use)
    return (use,)


@app.cell
def _(get_plans, now):
    now["plans"] = get_plans()
    panels.plan_panel(get_plans())
    return


@app.cell
def _(get_settled, steps):
    # not before sliders rest: whatever else the page does then would hold up an answer
    steps.address(get_settled().settings) if get_settled().question is not None else None
    return


@app.cell
def _(get_runs, get_settled):
    panels.take_panel(get_settled(), get_runs())
    return


if __name__ == "__main__":
    app.run()
