"""A column's way from hostile files and tables to the design: as pandas reads it, or refused in one line.

Measured beside pandas 3.1: polars 2.1 reads the first sixteen files alike but for returns (one line of names) and empty
lines (rows of nothing); DuckDB 2.0 but for decimal commas, which it takes for text unless told, and Latin-1 (an error).
"""

import gzip
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, SiteDataError
from fedlsa.fitting import table_files

Regression = fl.Regression
rng = np.random.default_rng(0)
N = 60
TABLE = pd.DataFrame({"x": rng.normal(size=N).round(3), "z": rng.integers(0, 9, N), "g": rng.choice(list("abc"), N)})
TABLE["y"] = (1 + 2 * TABLE["x"] - 0.3 * TABLE["z"] + rng.normal(size=N)).round(4)
CSV = TABLE.to_csv(index=False)
IDS = rng.integers(0, 15, N)


def fitted(sites, task, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.errors.FedLSAWarning)
        return fl.fit(sites, Regression(task) if isinstance(task, str) else task, plan=False, **options)


def refusal(sites, task, **options):
    with pytest.raises(FedLSAError) as caught:
        fitted(sites, task, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pooled(table, *features):
    """Least squares with the intercept last, by NumPy."""
    X = np.column_stack([*(table[c].to_numpy(float) for c in features), np.ones(len(table))])
    return np.linalg.lstsq(X, table["y"].to_numpy(float))[0]


def with_cell(row, column, text):
    """The file with another text in one of its cells."""
    lines = CSV.splitlines()
    cells = lines[row].split(",")
    cells[column] = text
    return "\n".join([*lines[:row], ",".join(cells), *lines[row + 1 :]]) + "\n"


EXPECTED = pooled(TABLE, "x", "z")
READ = {  # as files are written, where pandas reads the same table
    "returns": ("f.csv", CSV.replace("\n", "\r")),
    "windows": ("f.csv", "\ufeff" + CSV.replace("\n", "\r\n")),
    "empty lines": ("f.csv", CSV.replace("\n", "\n\n")),
    "tabs in gzip": ("f.tsv.gz", CSV.replace(",", "\t")),
    "bars": ("f.csv", CSV.replace(",", "|")),
    "all in quotes": ("f.csv", TABLE.to_csv(index=False, quoting=1)),
    "decimal commas": ("f.csv", TABLE.to_csv(index=False, sep=";", decimal=",")),
    "commas in quotes": ("f.csv", TABLE.to_csv(index=False, decimal=",")),
    "blanks around numbers": ("f.csv", "x,z,y\n" + "".join(f" {a} , {b},{c} \n" for a, b, _, c in TABLE.to_numpy())),
    "line breaks in a column that is not used": ("f.csv", TABLE.assign(g='a,"b"\nc;d').to_csv(index=False)),
    "a broken column that is not used": ("f.csv", TABLE.assign(g="caf\xe9").to_csv(index=False).encode("latin-1")),
    "an empty column that is not used": ("f.csv", TABLE.assign(g=None).to_csv(index=False)),
    "separators in a name": ("f.csv", TABLE.rename(columns={"g": "a;b;c;d;e"}).to_csv(index=False, quoting=1)),
    "commas in a name": ("f.csv", TABLE.rename(columns={"g": "a, b, c, d, e"}).to_csv(index=False, sep=";")),
    "a name like a call": ("f.csv", TABLE.rename(columns={"g": "log(x)"}).to_csv(index=False)),
    "a separator at the end of each row": ("f.csv", CSV.replace("\n", ",\n")),
}


@pytest.mark.parametrize("case", READ)
def test_files_are_read_as_pandas_reads_them(tmp_path, case):
    name, text = READ[case]
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = fitted([tmp_path / name], Regression("y", columns=["x", "z"]))
    np.testing.assert_allclose(found.theta, EXPECTED, rtol=1e-10)
    assert found.nobs == N


REFUSED = {  # what files and tables hold, and what is said
    "-": (with_cell(5, 0, "-"), "column 'x' holds numbers but for '-' in row 5 of the data"),
    ".": (with_cell(5, 0, "."), "column 'x' holds numbers but for '.' in row 5"),
    "two blanks": (with_cell(5, 0, "  "), "column 'x' holds numbers but for '  ' in row 5"),
    "a blank and NA": (with_cell(5, 0, " NA"), "column 'x' holds numbers but for ' NA' in row 5"),
    "hexadecimal": (with_cell(5, 0, "0x10"), "column 'x' holds numbers but for '0x10' in row 5"),
    "underscores": (with_cell(5, 0, "1_000"), "column 'x' holds numbers but for '1_000' in row 5"),
    "digits of another script": (with_cell(5, 0, "\u0661\u0662"), "holds numbers but for '\u0661\u0662' in row 5"),
    "a date": (with_cell(5, 0, "2020-01-01"), "column 'x' holds numbers but for '2020-01-01' in row 5"),
    "infinity": (with_cell(5, 0, "-Infinity"), "column 'x' must hold finite numbers; got -inf in row 5"),
    "too large": (with_cell(5, 0, "1e400"), "column 'x' must hold finite numbers; got inf in row 5"),
    "thousands": (with_cell(5, 0, '"1,234.5"'), "got '1,234.5' (decimal='.' or ',' says which"),
    "a short row": (CSV + "1,2\n", "must have 4 fields in every row, as in its header; row 61 of the data has 2"),
    "a blank row": (CSV + "  \n", "row 61 of the data has 1"),  # which pandas leaves out
    "fields too many": (CSV.replace("\n", ",\n").replace("y,\n", "y\n", 1), "row 1 of the data has 5"),
    "two columns of a name": (CSV.replace("z", "x", 1), "must have each column once; 'x' appears 2 times"),
    "no header": ("\n\n" + CSV, "must begin with a line that names its columns"),
    "a header alone": ("x,z,g,y\n", "must have at least one row; it has a header alone"),
    "a quote that does not end": (CSV + '1,2,"a,4\n', "f.csv "),
    "sep=": ("sep=;\n" + CSV.replace(",", ";"), "f.csv "),
    "all missing": (TABLE.assign(z=None).to_csv(index=False), "values are missing at f.csv in 60 of 60 rows ('z' 60"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_read_in_one_way_is_refused_in_a_line_that_names_it(tmp_path, case):
    text, said = REFUSED[case]
    (tmp_path / "f.csv").write_text(text)
    assert said in refusal([tmp_path / "f.csv"], "y ~ x + z")


@pytest.mark.parametrize("mark", ["NA", "N/A", "None", "NULL", "<NA>", "", " ", "nan"])
def test_missing_marks_leave_a_row_out_in_numbers_labels_clusters_weights_and_offsets(tmp_path, mark):
    table = TABLE.assign(id=IDS, w=1 + TABLE["z"] / 9, o=TABLE["z"] / 7).astype(object)
    for row, column in enumerate(("x", "g", "id", "w", "o", "y")):
        table.loc[3 * row, column] = mark
    (tmp_path / "f.csv").write_text(table.to_csv(index=False))
    left = table.drop(index=range(0, 18, 3))
    task = Regression("y ~ x + g", row_weights="w", offset="o", missing="drop")
    found = fitted([tmp_path / "f.csv"], task, cluster="id")
    root = np.sqrt(left["w"].to_numpy(float))
    X = np.column_stack([left["x"], left["g"] == "b", left["g"] == "c", np.ones(len(left))]).astype(float)
    y = (left["y"] - left["o"]).to_numpy(float)
    np.testing.assert_allclose(found.theta, np.linalg.lstsq(X * root[:, None], y * root)[0], rtol=1e-10)
    assert found.nobs == len(left)
    assert f"{left['id'].nunique()} clusters" in found.covariance_kind


@pytest.mark.parametrize(
    ("late", "marks"), [("1.234", "none"), ("4.268", "both"), ("1,5", "none"), ("1,234", "points")]
)
def test_a_number_that_can_be_read_in_two_ways_is_refused_after_the_first_block_as_in_it(
    tmp_path, monkeypatch, late, marks
):
    monkeypatch.setattr(table_files, "BLOCK", 256)
    cells = {"none": ("2", "3"), "points": ("2.5", "3.5"), "both": ("2.5", "3,5")}[marks]
    rows = "".join(f"{k % 7};{cells[0]};{cells[1]};{k * 37 % 101}\n" for k in range(60))
    (tmp_path / "f.csv").write_text(f"x;a;b;y\n{rows}{late};1;1;5\n")
    said = refusal([tmp_path / "f.csv"], Regression("y", columns=["x"]))
    assert said.startswith("f.csv: column 'x' must hold numbers; got")
    assert f"{late!r} (decimal='.' or ',' says which mark is the decimal one) in row 61 of the data" in said
    if marks == "none":
        mark = "," if late == "1,5" else "."
        assert fitted([tmp_path / "f.csv"], Regression("y", columns=["x"]), decimal=mark).nobs == 61


DAYS = pd.to_datetime("2020-01-01") + pd.to_timedelta(IDS, unit="D")
LABELS = {  # in the first half of the rows, as CSV has them, and in the second
    "integers": (IDS, IDS),
    "floats": (IDS, IDS.astype(float)),
    "single precision": (IDS, IDS.astype("float32")),
    "texts": (IDS, IDS.astype(str)),
    "categories": (IDS, pd.Categorical(IDS)),
    "decimals": (IDS, [Decimal(int(k)).quantize(Decimal("1.00")) for k in IDS]),
    "beyond floating point": (2**60 + IDS, 2**60 + IDS),
    "beyond 63 bits": (np.uint64(2**63) + IDS.astype("uint64"), np.uint64(2**63) + IDS.astype("uint64")),
    "blanks before numbers": ([f" {k}" for k in IDS], IDS),
    "blanks after numbers": ([f"{k} " for k in IDS], IDS),
    "zeros before numbers": ([f"{k:03d}" for k in IDS], [f"{k:03d}" for k in IDS]),
    "days": (DAYS, DAYS),
    "days in nanoseconds": (DAYS, DAYS.astype("datetime64[ns]")),
    "times": (DAYS + pd.Timedelta("10h"), (DAYS + pd.Timedelta("10h")).astype("datetime64[ns]")),
}


@pytest.mark.parametrize("case", LABELS)
def test_equal_labels_of_csv_parquet_and_tables_are_one_cluster_and_one_site(tmp_path, case):
    first, second = (TABLE.assign(id=labels) for labels in LABELS[case])
    first, second = first[:30], second[30:]
    first.to_csv(tmp_path / "f.csv", index=False)
    second.to_parquet(tmp_path / "f.parquet", index=False)
    count = len({*IDS})
    for other in (tmp_path / "f.parquet", second):
        found = fitted({"one": tmp_path / "f.csv", "two": other}, "y ~ x", cluster="id")
        assert found.covariance_kind == f"CR3, {count} clusters, joined across sites"
    found = fitted([tmp_path / "f.csv", tmp_path / "f.parquet"], "y ~ x + z", site="id", weight="samples")
    assert len(found.per_site) == count
    np.testing.assert_allclose(found.theta, EXPECTED, rtol=1e-10)
    if case.startswith(("days", "times")):
        assert all(site.name.startswith("2020-01-") for site in found.per_site)


def test_clusters_of_text_and_of_numbers_are_refused_where_the_text_is_no_number():
    """pandas would keep "7" and 7 apart, and nobody knows whether "07" is 7."""
    for text in ("x7", "07"):
        names = TABLE.assign(id=[text, *map(str, IDS[1:])])[:30]
        said = refusal([names, TABLE.assign(id=IDS)[30:]], "y ~ x", cluster="id")
        assert said.startswith(f"clusters must have labels of one kind; got the text {text!r} and the number ")


def test_labels_that_are_lists_or_structures_are_refused(tmp_path):
    table = TABLE.assign(id=[[int(k)] for k in IDS])
    table.to_parquet(tmp_path / "f.parquet")
    for sites in ([table], [tmp_path / "f.parquet"]):
        for task, options in (("y ~ x + id", {}), ("y ~ x + C(id)", {}), ("y ~ x", {"cluster": "id"})):
            assert "column 'id' must hold one value in each row, as a label; got [" in refusal(sites, task, **options)
        assert "column 'id' must hold numbers; got [" in refusal(sites, Regression("y", columns=["x", "id"]))
    assert "column 'id' must hold one value in each row" in refusal(tmp_path / "f.parquet", "y ~ x", site="id")
    assert fitted([table], "y ~ x").nobs == N


def test_files_of_many_sites_must_agree_on_columns_and_orders_whatever_their_order(tmp_path):
    table = TABLE.drop(columns="g").assign(s=IDS % 3)
    table[:30].to_csv(tmp_path / "a.csv", index=False)
    table[30:].assign(more=np.arange(30.0)).to_csv(tmp_path / "b.csv", index=False)
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    assert refusal([a, b], Regression("y"), site="s") == "b.csv has a column 'more' that a.csv lacks; name the columns"
    assert refusal([b, a], Regression("y"), site="s") == "a.csv lacks the column 'more' that b.csv has"
    for paths in ([a, b], [b, a]):
        np.testing.assert_allclose(fitted(paths, "y ~ x + z", site="s").theta, EXPECTED, rtol=1e-10)
    for name, rows, order in (("c", slice(30), "cab"), ("d", slice(30, N), "bac"), ("e", slice(30, N), None)):
        levels = TABLE["g"] if order is None else pd.Categorical(TABLE["g"], [*order], ordered=True)
        TABLE.assign(g=levels, s=IDS % 3)[rows].to_parquet(tmp_path / f"{name}.parquet")
    c, d, e = (tmp_path / f"{name}.parquet" for name in "cde")
    for paths in ([c, d], [d, c]):
        said = refusal(paths, "y ~ x + g", site="s")
        assert said.startswith("column 'g' must have its levels in one order at all sites; got ")
        assert {"c.parquet", "d.parquet"} <= {*re.findall(r"\w\.parquet", said)}
    for paths in ([c, e], [e, c]):  # text has no order of its own
        assert fitted(paths, "y ~ x + g", site="s").names == ("x", "g[T.a]", "g[T.b]", "intercept")


def test_folders_called_key_value_keep_zeros_before_numbers_and_decode_names(tmp_path):
    for k, name in enumerate(("01", "1", "a%20b")):
        (tmp_path / f"firm={name}").mkdir()
        TABLE[20 * k : 20 * k + 20].to_parquet(tmp_path / f"firm={name}" / "part.parquet", index=False)
    found = fitted(tmp_path, "y ~ x + z", site="firm")
    assert [site.name for site in found.per_site] == ["01", "1", "a b"]
    np.testing.assert_allclose(found.theta, EXPECTED, rtol=1e-10)
    (tmp_path / "firm=1").rename(tmp_path / "firm=__HIVE_DEFAULT_PARTITION__")
    assert "column 'firm' must say of every row what site it is of; 20 of 20" in refusal(tmp_path, "y ~ x", site="firm")


KINDS = {  # of a column of numbers in memory; None where it is refused
    "single precision": (lambda z: z.astype("float32"), True),
    "half precision": (lambda z: z.astype("float16"), True),
    "bytes": (lambda z: z.astype("uint8"), True),
    "nullable": (lambda z: z.astype("Int64"), True),
    "Arrow": (lambda z: z.astype("int64[pyarrow]"), True),
    "sparse": (lambda z: z.astype("Sparse[float64]"), True),
    "objects": (lambda z: z.astype(object), True),
    "decimals": (lambda z: [Decimal(int(v)) for v in z], True),
    "masked": (lambda z: np.ma.array(z.to_numpy(), mask=False), True),
    "complex": (lambda z: z.astype(complex), "must hold numbers; got (5+0j) in row 1"),
    "durations": (lambda z: z.astype("timedelta64[s]"), "must hold numbers; got 0:00:05 in row 1"),
    "dates": (lambda z: z.astype("datetime64[s]"), "must hold numbers; got 1970-01-01 00:00:05 in row 1"),
    "months": (lambda z: z.to_numpy().astype("timedelta64[M]"), "must hold numbers; got 5 months in row 1"),
    "far future": (
        lambda z: z.to_numpy().astype("datetime64[s]") + 10**12,
        "must hold numbers; got 33658-09-27T01:46:45 in row 1",
    ),
    "text later": (lambda z: [*z[:-1], "7"], "must hold numbers; got '7' in row 60"),
    "number later": (lambda z: ["7", *z[1:]], "must have levels of one kind"),
    "nothing": (lambda z: [None] * len(z), "must have a value in some row; all are missing"),
    "arrays": (lambda z: [np.array([v]) for v in z], "must hold one value in each row"),
}


@pytest.mark.parametrize("case", KINDS)
def test_numbers_of_any_type_are_numbers_and_what_is_none_is_refused(case):
    change, said = KINDS[case]
    table = {c: TABLE[c] for c in ("x", "y")} | {"z": change(TABLE["z"])}
    table["z"] = pd.Series(table["z"]) if isinstance(table["z"], list) else table["z"]
    if said is True:
        np.testing.assert_allclose(fitted([table], "y ~ x + z").theta, EXPECTED, rtol=1e-10)
    else:
        assert f"column 'z' {said}" in refusal([table], "y ~ x + z")


@pytest.mark.parametrize("task", [fl.Regression("y ~ z"), fl.Regression("y", columns=["z"])])
def test_times_of_day_with_nanoseconds_are_refused(tmp_path, task):
    times = pa.array([None, *range(1, 60)], pa.time64("ns"))
    pq.write_table(pa.table({"z": times, "y": np.arange(60.0)}), tmp_path / "a.parquet")
    with pytest.raises(SiteDataError, match="'z' must hold values that Python has; Value 1 has non-zero nanoseconds"):
        fl.fit([tmp_path / "a.parquet"], task)


def test_integers_of_128_bits_are_numbers():
    """As DuckDB gives sums of integers to polars."""
    pl = pytest.importorskip("polars")
    table = pl.from_pandas(TABLE[["x", "z", "y"]]).with_columns(pl.col("z").cast(pl.Int128))
    np.testing.assert_allclose(fitted([table], "y ~ x + z").theta, EXPECTED, rtol=1e-10)


def test_a_formula_never_takes_one_column_for_another():
    table = TABLE.assign(**{"exp(x)": TABLE["z"], "\ufb01": TABLE["z"], "fi": TABLE["x"] ** 2, "\xb5g": TABLE["z"]})
    for formula in ("y ~ `exp(x)` + exp(x)", "y ~ exp( x ) + `exp(x)`"):
        with pytest.raises(ArgumentError, match=r"must not call a column as an expression; got 'exp\(x\)' for both"):
            fitted([table], formula)
    for formula in ("y ~ x + I(\ufb01 * 2)", "y ~ C(\ufb01)"):  # Python reads the ligature as fi, which is there too
        with pytest.raises(ArgumentError, match="would be read as one of a column 'fi'; rename the column"):
            fitted([table], formula)
    for name in ("`exp(x)`", "\ufb01", "\xb5g"):
        np.testing.assert_allclose(fitted([table], f"y ~ x + {name}").theta, EXPECTED, rtol=1e-10)


def test_predictions_from_hostile_tables_are_those_of_the_model_or_refused(tmp_path):
    model = fitted([TABLE], "y ~ x + C(z)")
    new, expected = TABLE[:4], model.fittedvalues[:4]
    for k, z in enumerate((new["z"].astype(float), new["z"].astype(str), [f" {v}" for v in new["z"]])):
        new.assign(z=z).to_csv(tmp_path / f"{k}.csv", index=False)
        for given in (new.assign(z=z), tmp_path / f"{k}.csv"):
            np.testing.assert_allclose(model.predict(given), expected, rtol=1e-10)
    for z, got in (([f"0{v}" for v in new["z"]], "'05'"), (new["z"] + 100, "105"), (new["z"] > 3, "True")):
        with pytest.raises(
            SiteDataError, match=f"column 'z' must have a level that the model knows; got {got} in row 1"
        ):
            model.predict(new.assign(z=z))
    plain = fitted([TABLE], Regression("y", columns=["x", "z"]))
    masked = np.ma.array(new[["x", "z"]].to_numpy(), mask=[[1, 0], [0, 0], [0, 0], [0, 0]])
    with pytest.raises(ArgumentError, match=r"new must be an array of finite numbers .*; got masked entries"):
        plain.predict(masked)


def test_value_functions_take_no_log_without_a_column_that_others_have(tmp_path):
    s = rng.normal(size=(81, 2))
    log = pd.DataFrame({"s": s[:-1, 0], "next_s": s[1:, 0], "reward": s[:-1, 1], "site": np.arange(80) % 2})
    log["terminated"], log["truncated"] = np.arange(80) % 9 == 8, np.arange(80) % 7 == 6
    task = fl.Value(discount=0.9, state="s", next_state="next_s")
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    log[:40].drop(columns="truncated").to_csv(a, index=False)
    log[40:].to_csv(b, index=False)
    assert refusal([a, b], task, site="site") == "b.csv has a column 'truncated' that a.csv lacks"
    assert refusal([b, a], task, site="site") == "a.csv lacks the column 'truncated' that b.csv has"
