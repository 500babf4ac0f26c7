# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The explorer as a marimo notebook: `fedlsa explore` serves it; `fedlsa explore --copy mine.py` gives you one to edit.

Cells only arrange: what is computed stands in answers.py and runs in processes of its own (pool.py). Threads of
updates.py wait for answers and put them into states; the cells that read a state draw it. A slider runs one cell alone.
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
    from fedlsa.explore.open_page import Curves, OpenPage, Plans, Runs
    from fedlsa.explore.page_settings import OF_PROBLEM, PageSettings
    from fedlsa.explore.uploads import sites


@app.cell
def _():
    # this page, which asks a pool that all pages share, and what it knows so far
    page = OpenPage.of(mo.app_meta().request)
    start, complaints = PageSettings.from_query(mo.query_params().to_dict())
    get_start, set_start = mo.state(start)
    get_curves, set_curves = mo.state(Curves(), allow_self_loops=True)
    get_settled, set_settled = mo.state(Curves())
    get_runs, set_runs = mo.state(Runs())
    get_plans, set_plans = mo.state(Plans())
    get_map, set_map = mo.state(method_map.MethodMap())
    get_fit, set_fit = mo.state((None, ""))
    steps = controls.PageHistory(set_start, page)
    mo.vstack([controls.scripts(), controls.carrier("message", steps.message)])
    return (
        complaints, get_curves, get_fit, get_map, get_plans, get_runs, get_settled, get_start, page, set_curves,
        set_fit, set_map, set_plans, set_runs, set_settled, start, steps,
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
    columns, complaints, get_curves, get_runs, get_start, given, kind, method, page, set_curves, set_fit, set_map,
    set_plans, set_settled, sliders, start, target, view, worlds,
):  # fmt: skip
    # the question that the settings pose, and its picture; no cell waits for this one, so that nothing else runs
    # before the answer is drawn
    _before = page.question
    _shown = [controls.newest(sliders.value, page), *(group.value for group in (worlds, method, view))]
    _columns = controls.columns_text(columns.value, given, target.value)
    _otherwise = get_start() if _before is None else _before.page
    _settings, _trouble = controls.settings(kind.value, target.value, _columns, _shown, _otherwise)
    _unusable = given.trouble if _settings.problem == "files" else ""
    _q = Question.of(_settings, given.files)
    if _before is None or (_q, _q.page) != (_before, _before.page):
        for _topic, _on, _put, _nothing in (
            ("runs", lambda q: q, lambda _: None, None),
            ("plans", updates.plan_question, set_plans, Plans()),
            ("map", method_map.map_question, set_map, method_map.MethodMap()),
            ("fit", updates.fit_question, set_fit, (None, "")),
        ):  # what no longer holds
            if _before is not None and _on(_q) != _on(_before):
                page.drop(_topic)
                _put(_nothing)
        _asked = updates.begin(page, _q, _unusable)
        _rest = (page, page.first, _asked, set_curves, set_settled, _before)
        mo.Thread(target=updates.follow, args=_rest).start()
        if _settings.problem == "files" and given.files and not _unusable:
            mo.Thread(target=updates.fit_table, args=(page, _q, set_fit)).start()
    _link = complaints if _settings == start else []
    panels.scene_panel(page.newest(get_curves()), get_runs(), *_link, *_trouble, _unusable)
    return


@app.cell
def _(get_start):
    view = controls.group(get_start(), controls.OF_VIEW)
    simulate, stop = mo.ui.run_button(label="Simulate"), mo.ui.run_button(label="Stop", kind="danger")
    panels.box("line", *controls.show(view, *controls.OF_VIEW), simulate, panels.box("stop", stop))
    return simulate, stop, view


@app.cell
def _(page, set_runs, simulate, stop):
    if simulate.value or stop.value:
        page.drop("runs")
    if simulate.value and not stop.value:
        mo.Thread(target=updates.runs, args=(page, page.question, set_runs)).start()
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
def _(draw, page, set_map):
    if draw.value:
        mo.Thread(target=method_map.draw, args=(page, page.question, set_map)).start()
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
def _(find, page, set_plans):
    if find.value:
        mo.Thread(target=updates.plans, args=(page, page.question, set_plans)).start()
    return


@app.cell
def _(page, steps):
    # shown once, above all that answers change: a click is lost if its button is made anew or moves while it is pressed
    use = panels.use_buttons(page, steps.begin)
    panels.use_panel(use)
    return (use,)


@app.cell
def _(get_plans, page):
    page.plans = get_plans()
    panels.plan_panel(page.plans)
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
