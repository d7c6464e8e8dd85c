"""Which row of a paper's table a run belongs into, from what it was configured with.

Each function takes a run and all runs of its group, and gives the row, or None for a run that does
not belong into the table.
"""

from __future__ import annotations

from benchmarks.paper_columns import Group, is_sense, stores_of
from benchmarks.published import ID, OOD
from benchmarks.results import StoredRun


def by_method(run: StoredRun, _: Group) -> str:
    """The method's label, SENSE by what its store was made from."""
    method = str(run.facts["method"])
    sources = {store["options"].get("source") for store in stores_of(run)}
    if method in ("sense", "sense_ood") and sources in ({"generated"}, {"reference"}):
        return ID if sources == {"generated"} else OOD
    return method


def by_ablation(run: StoredRun, _: Group) -> str | None:
    """Which halves of SENSE it has, all with the same tree builder."""
    names = (_chosen(run, "retriever"), _chosen(run, "tree_builder"), _chosen(run, "verifier"))
    return {
        ("semantic", "loose_trie", "soft_gated"): "SENSE",
        ("suffix_array", "loose_trie", "soft_gated"): "without SEN",
        ("semantic", "loose_trie", "greedy"): "without SE",
        ("suffix_array", "loose_trie", "greedy"): "without both",
    }.get(names)


def by_verifier(run: StoredRun, _: Group) -> str | None:
    """The verifier on semantic retrieval."""
    if _chosen(run, "retriever") != "semantic":
        return None
    name = _chosen(run, "verifier")
    known = {"soft_gated": "SENSE", "arc": "SEN+ARC", "fly": "SEN+FLy", "greedy": "SEN+exact match"}
    return known.get(name, f"SEN+{name}")


def by_gate(run: StoredRun, _: Group) -> str | None:
    """The options of a soft gate on semantic retrieval."""
    if not is_sense(run):
        return None
    gate = run.config["verifier"]
    return f"gamma {gate['gamma']:g}, k {gate['k']}"


def by_size(run: StoredRun, group: Group) -> str | None:
    """Size of the store, in documents, as a share of the largest in the group."""
    own, largest = _num_documents(run), max(map(_num_documents, group))
    is_semantic = _chosen(run, "retriever") == "semantic"
    return f"{100 * own / largest:.0f} % of the store" if own and is_semantic else None


def by_store(run: StoredRun, _: Group) -> str | None:
    """What the store was made from."""
    stores = stores_of(run)
    if not stores or _chosen(run, "retriever") != "semantic":
        return None
    sources = [source for store in stores for source in store["sources"]]
    names = dict.fromkeys(str(source.get("dataset", "many files")) for source in sources)
    kind = {"generated": "ID", "reference": "OOD"}.get(stores[0]["options"].get("source"), "")
    return f"store of {'+'.join(names)}" + (f" ({kind})" if kind else "")


def _chosen(run: StoredRun, group: str) -> str:
    return str((run.config.get(group) or {}).get("name"))


def _num_documents(run: StoredRun) -> int:
    return sum(int(store["num_documents"]) for store in stores_of(run))
