"""What the paper calls its items: the numbers it prints, by the labels of its source.

Sections and appendices number their theorems, lemmas and corollaries together; figures, tables and algorithms count
through. Only equations that the paper refers to have numbers, so an equation is found by its section.
"""

from __future__ import annotations

import re

PAPER_ITEMS = {
    "sec:analysis-fed-lsa-iid": "Section 4",
    "sec:numerical": "Section 6",
    "sec:proof_markov_sampling": "Appendix B",
    "sec:appendix_numerics": "Appendix G",
    "th:2nd_moment_no_cv": "Theorem 4.1",
    "cor:sample_complexity_lsa": "Corollary 4.3",
    "cor:sample_complexity_lsa_Markov": "Corollary 4.5",
    "cor:iteration-complexity-fed-lsa-constant": "Corollary 5.2",
    "cor:sample_compl_h_1_proof": "Corollary A.7",
    "thm:upper-bound-dist-param-scafflsa": "Theorem C.8",
    "thm:potential_psi_t_sto_com_appendix": "Theorem F.2",
    "thm:no-speed-up-proxskip": "Theorem F.4",
    "fig:show-bias": "Figure 1",
    "fig:show-speed-up": "Figure 2",
    "fig:show-bias-more-h": "Figure 3",
    "fig:show-bias-more-h-het": "Figure 4",
    "fig:show-bias-more-small-h": "Figure 5",
    "fig:show-bias-more-small-h-het": "Figure 6",
    "fig:app-show-bias": "Figure 7",
    "fig:app-show-bias-smaller-step": "Figure 8",
    "tab:summary-of-results": "Table 1",
    "tab:summary-of-results-TD": "Table 2",
    "algo:fed-lsa": "Algorithm 1",
    "algo:fed-lsa-markov": "Algorithm 3",
    "eq:system_matrix": "Section 3.2",
    "eq:td_virtual_iterates": "Appendix E",
    "eq:q_block_size": "Appendix B",
}
LABEL = re.compile(r"\b(?:algo|cor|eq|fig|lem|sec|tab|th|thm):[\w-]+")


SYMBOLS = {
    "theta_star": "θ⋆", "theta_t": "θ_t", "theta_0": "θ_0", "tau_mix": "τ_mix", "eta": "η", "||bias||^2": "‖bias‖²",
}  # fmt: skip


def in_print(text: str) -> str:
    """A text with symbols instead of their names.

    >>> in_print("theta_t minus theta_star")
    'θ_t minus θ⋆'
    """
    for name, symbol in SYMBOLS.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", symbol, text)
    return text


def cite(text: str) -> str:
    """A text with the paper's numbers instead of the labels of its source; a label without a number stays.

    >>> cite("sec:numerical, fig:show-bias; th:2nd_moment_no_cv")
    'Section 6, Figure 1; Theorem 4.1'
    """
    return LABEL.sub(lambda label: PAPER_ITEMS.get(label[0], label[0]), text)
