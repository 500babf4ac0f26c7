"""The names that the paper prints for what its LaTeX source labels: th:2nd_moment_no_cv is Theorem 4.1.

They stand in paper_map.csv, which is also the documentation's theory map.
"""

import csv
import re
from importlib import resources

_MAP = resources.files(__package__).joinpath("paper_map.csv").read_text(encoding="utf-8")
ITEMS = {row["label"]: row["item"] for row in csv.DictReader(_MAP.splitlines()) if row["label"] != "none"}
PLACES = {  # where something stands that has no number of its own
    "sec:numerical": "Section 6",
    "sec:appendix_numerics": "Appendix G",
    "sec:analysis-fed-lsa-iid": "Section 4",
    "eq:system_matrix": "Section 3.2",
    "eq:td_virtual_iterates": "Appendix E",
    "eq:q_block_size": "Appendix B",
}
LABEL = re.compile(r"\b(?:algo|assum|coro?|eq|fig|lem|lemma|prop|sec|tab|th|thm):[\w-]+")


def cite(text: str) -> str:
    """A text with printed names instead of labels; what has no number of its own is named by its section, if at all.

    >>> from fedlsa.paper_items import cite
    >>> cite("sec:numerical, fig:show-bias; th:2nd_moment_no_cv, eq:lsa_syst_fed")
    'Section 6, Figure 1; Theorem 4.1, eq:lsa_syst_fed'
    """
    return LABEL.sub(lambda label: (ITEMS | PLACES).get(label[0], label[0]), text)
