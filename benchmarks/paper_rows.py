"""Which row of a paper's table a run belongs into, from what it was configured with.

Each function takes a run and all runs of its group, and gives the row, or None for a run that does
not belong into the table.
"""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.paper_columns import Group, is_sense, stores_of
from benchmarks.published import ID, OOD
from benchmarks.results import StoredRun
from primitives.verifiers.soft_gated import SoftGated

QUARTERS, TOLERANCE = (25, 50, 75, 100), 1.0
"""Sizes of stores in the paper, in percent of the largest, and how exactly ours must be those."""


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
    """The options of a soft gate on semantic retrieval: gamma, k, and what is not the default."""
    if not is_sense(run):
        return None
    gate = {name: value for name, value in run.config["verifier"].items() if name != "name"}
    words = [f"gamma {gate.pop('gamma'):g}", f"k {gate.pop('k')}"]
    default = asdict(SoftGated())
    words += [f"{n}={v}".lower() for n, v in gate.items() if v != default.get(n)]
    return ", ".join(words)


def by_size(run: StoredRun, group: Group) -> str | None:
    """Size of the store, in documents; as a share of the largest if the group has the paper's.

    A run that stands alone, such as one with a failed prompt, is no share of itself.
    """
    sizes = {_num_documents(other) for other in group if _has_semantic_store(other)}
    if not _has_semantic_store(run):
        return None
    own = _num_documents(run)
    shares = {size: _quarter(100 * size / max(sizes)) for size in sizes}
    if len(sizes) < 2 or None in shares.values():
        return f"{own:,} documents"
    return f"{shares[own]} % of the store"


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


def _has_semantic_store(run: StoredRun) -> bool:
    return _chosen(run, "retriever") == "semantic" and _num_documents(run) > 0


def _quarter(percent: float) -> int | None:
    """The size of the paper that this one is; None if it is another one."""
    return next((share for share in QUARTERS if abs(percent - share) <= TOLERANCE), None)


def _num_documents(run: StoredRun) -> int:
    return sum(int(store["num_documents"]) for store in stores_of(run))
