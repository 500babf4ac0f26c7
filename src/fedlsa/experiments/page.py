"""The frame of the report: its HTML and its style, for a phone as for a wide screen, by day and by night."""

from __future__ import annotations

from string import Template

STYLE = """\
:root { --ink: #222; --soft: #666; --line: #ddd; --paper: #fff; --good: #00664a; --note: #8a5a00; --bad: #b00020; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #a0a0a0; --line: #444; --paper: #181818;
          --good: #4fc99f; --note: #e6b450; --bad: #ff7a8a; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--paper); color: var(--ink);
       font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: 1.3rem; line-height: 1.25; }
h3 { margin-top: 2rem; font-size: 1.05rem; }
a { color: inherit; text-underline-offset: 0.15em; }
figure { margin: 1rem 0; }
img { display: block; max-width: 100%; height: auto; background: #fff; }
figcaption, caption { padding: 0.4rem 0; text-align: left; color: var(--soft); font-size: 0.9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem 0.3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
tbody th { font-weight: normal; }
pre { overflow-x: auto; padding: 0.6rem; border: 1px solid var(--line); }
code, pre { font-size: 0.9em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; font-size: 0.9rem; }
dt { color: var(--soft); } dd { margin: 0; }
.claims li { margin-bottom: 0.8rem; } .claims p { margin: 0.2rem 0; } .claims ul { list-style: none; padding: 0; }
.claims ul li { margin: 0.1rem 0; }
.soft { color: var(--soft); font-size: 0.9rem; }
.good, .note, .bad { font-weight: 600; white-space: nowrap; margin-right: 0.5rem; }
.good { color: var(--good); } .note { color: var(--note); } .bad { color: var(--bad); }
.warn { padding: 0.6rem; border: 1px solid var(--note); }
"""

PAGE = Template(
    """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fedlsa: the paper, reproduced</title>
<style>
$style</style>
</head>
<body>
<header>
<h1>The paper, reproduced</h1>
<p>SCAFFLSA: taming heterogeneity in federated linear stochastic approximation and TD learning. Every figure and
table of its experiments, and for each of its claims the number that decides it.</p>
$lead
</header>
<main>
$summary
$sections
</main>
</body>
</html>
"""
)
