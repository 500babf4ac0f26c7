"""The names that the paper prints for what its LaTeX source labels: th:2nd_moment_no_cv is Theorem 4.1."""

import re

ITEMS = {
    "sec:numerical": "Section 6",
    "sec:appendix_numerics": "Appendix G",
    "tab:summary-of-results": "Table 1",
    "algo:fed-lsa": "Algorithm 1",
    "assum:noise-level-flsa": "Assumption A1",
    "assum:P_pi_ergodicity": "Assumption A2",
    "assum:exp_stability": "Assumption A3",
    "assum:generative_model": "Assumption TD1",
    "assum:generative_model_markov": "Assumption TD2",
    "assum:feature_design": "Assumption TD3",
    "prop:condition_check": "Claim 3.1",
    "th:2nd_moment_no_cv": "Theorem 4.1",
    "th:cor_fed_td_no_cv": "Corollary 4.2",
    "cor:sample_complexity_lsa": "Corollary 4.3",
    "th:cor_fed_td_nb_rounds": "Corollary 4.4",
    "cor:sample_complexity_lsa_Markov": "Corollary 4.5",
    "algo:fed-lsa-controlvar-h2": "Algorithm 2",
    "th:scafflsa_MSE_bound": "Theorem 5.1",
    "cor:iteration-complexity-fed-lsa-constant": "Corollary 5.2",
    "cor:iteration-complexity-fed-td": "Corollary 5.3",
    "fig:show-bias": "Figure 1",
    "fig:show-speed-up": "Figure 2",
    "lem:fluctuation_term_bound": "Lemma A.1",
    "lem:bounding_flbi": "Lemma A.2",
    "lem:bound-bias": "Lemma A.3",
    "lem:transient_term_bound": "Lemma A.4",
    "lem:bias_bias_bound": "Lemma A.5",
    "th:2nd_moment_no_cv_constants": "Theorem A.6",
    "cor:sample_compl_h_1_proof": "Corollary A.7",
    "cor:sample_complexity_lsa_proof": "Corollary A.8",
    "th:cor_fed_td_no_cv_with_const": "Corollary A.9",
    "algo:fed-lsa-markov": "Algorithm 3",
    "lem:last_iterate_bound": "Lemma B.1",
    "lem:matr_product_upd": "Lemma B.2",
    "assum:uge": "Assumption UGE1",
    "lem:Dedecker_lemma": "Theorem B.3",
    "lem:Dedecker_upd": "Lemma B.4",
    "lemma:bound-i-c_sto": "Lemma C.1",
    "lemma:bound-c-tilde-sto": "Lemma C.2",
    "lemma:bound-dcprod": "Lemma C.3",
    "thm:transient-without-noise": "Theorem C.4",
    "lem:ineq-bounds-fluctuations": "Lemma C.6",
    "coro:analysis-noise-param": "Corollary C.7",
    "thm:upper-bound-dist-param-scafflsa": "Theorem C.8",
    "lem:product_coupling_lemma": "Lemma D.1",
    "lem:stability_deterministic_product": "Lemma D.2",
    "lem:pythagoras": "Lemma D.3",
    "lemma:bound-i-minus-sym": "Lemma D.4",
    "algo:fed-lsa-td": "Algorithm 4",
    "algo:scafflsa-td": "Algorithm 5",
    "tab:summary-of-results-TD": "Table 2",
    "algo:fed-lsa-controlvar-h1": "Algorithm 6",
    "assum:L-a-constant": "Assumption A4",
    "lem:one_step_progress": "Lemma F.1",
    "thm:potential_psi_t_sto_com_appendix": "Theorem F.2",
    "cor:scaffnew-complexity": "Corollary F.3",
    "thm:no-speed-up-proxskip": "Theorem F.4",
    "fig:show-bias-more-h": "Figure 3",
    "fig:show-bias-more-h-het": "Figure 4",
    "fig:show-bias-more-small-h": "Figure 5",
    "fig:show-bias-more-small-h-het": "Figure 6",
    "fig:app-show-bias": "Figure 7",
    "fig:app-show-bias-smaller-step": "Figure 8",
}
PLACES = {  # where something stands that has no number of its own
    "sec:analysis-fed-lsa-iid": "Section 4",
    "eq:system_matrix": "Section 3.2",
    "eq:td_virtual_iterates": "Appendix E",
    "eq:q_block_size": "Appendix B",
}
LABEL = re.compile(r"\b(?:algo|assum|coro?|eq|fig|lem|lemma|prop|sec|tab|th|thm):[\w-]+")


def item(label: str) -> str:
    """The printed name of a label; a label of something without a number of its own stays as it is.

    >>> from fedlsa.paper_items import item
    >>> item("th:2nd_moment_no_cv"), item("eq:lsa_syst_fed")
    ('Theorem 4.1', 'eq:lsa_syst_fed')
    """
    return ITEMS.get(label, label)


def cite(text: str) -> str:
    """A text with printed names instead of labels; what has no number of its own is named by its section.

    >>> from fedlsa.paper_items import cite
    >>> cite("sec:numerical, fig:show-bias; th:2nd_moment_no_cv")
    'Section 6, Figure 1; Theorem 4.1'
    """
    return LABEL.sub(lambda label: PLACES.get(label[0], item(label[0])), text)
