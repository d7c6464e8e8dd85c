"""The losslessness certificate of a run: whether the output is the target model's own.

Equal text is the wrong test in 16-bit, where two forwards of different width round differently.
So there are tiers, each beside its control (vanilla against vanilla):

    exact      float32, float64 and integers on CPU: equal ids, or a fault
    rounding   16-bit, and any GPU: where ids differ, every token that was output lies within two
               spacings of the dtype from the largest logit, under teacher forcing
    law        sampling: total variation between the arms, by permutation (`law_test`)

A method that promises nothing is not judged: its badge says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.law_test import MIN_REPEATS, LawTest, compare_laws
from benchmarks.prompt_table import PromptTable
from benchmarks.records import Request

Tier = Literal["exact", "rounding", "law"]
Status = Literal["passed", "failed", "not promised", "incomplete"]

ALPHA = 0.01
"""A law test fails below this p-value: one run in a hundred that is in order."""
_EXACT_DTYPES = ("float32", "float64", None)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is known of the losslessness of one run.

    Attributes:
        tier: How it was judged.
        status: `incomplete` if the rows do not suffice to tell.
        badge: For tables, in a few words.
        num_prompts: Prompts that were compared.
        num_different: Those whose ids differ from vanilla's in some repeat; None when sampling.
        control: `num_prompts` and `num_different` of vanilla against vanilla; None without.
        details: What the tier adds: divergences, width control, law test.
    """

    tier: Tier
    status: Status
    badge: str
    num_prompts: int
    num_different: int | None
    control: Mapping[str, int] | None
    details: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """All fields, the details among them."""
        value = dict(vars(self))
        return value | dict(value.pop("details"))


def certify(
    requests: Sequence[Request], facts: Mapping[str, Any], examined: Mapping[str, Any] | None
) -> Certificate:
    """Judges a run by its rows.

    Args:
        requests: All rows.
        facts: `is_greedy`, `is_lossless`, `dtype`, `device` of the run.
        examined: What `divergence.examine` found; None if it has not looked.
    """
    table = PromptTable.from_requests(requests)
    if facts["is_greedy"]:
        return _certify_ids(table, facts, examined or {})
    return _certify_law(table, facts)


def tier_of(facts: Mapping[str, Any]) -> Tier:
    """How a run is judged."""
    if not facts["is_greedy"]:
        return "law"
    is_exact = facts["device"] == "cpu" and facts.get("dtype") in _EXACT_DTYPES
    return "exact" if is_exact else "rounding"


def _certify_ids(
    table: PromptTable, facts: Mapping[str, Any], examined: Mapping[str, Any]
) -> Certificate:
    is_same = table.identical("vanilla", "method")
    num, num_different = len(is_same), sum(not same for same in is_same.values())
    control = _control(table)
    divergences = [d for d in examined.get("divergences", ()) if d["arm"] == "method"]
    status, badge = _judge(facts, num, num_different, control, divergences)
    return Certificate(
        tier=tier_of(facts),
        status=status,
        badge=badge,
        num_prompts=num,
        num_different=num_different,
        control=control,
        details={
            "divergences": list(examined.get("divergences", ())),
            "width_control": examined.get("width_control"),
        },
    )


def _judge(
    facts: Mapping[str, Any],
    num: int,
    num_different: int,
    control: Mapping[str, int] | None,
    divergences: Sequence[Mapping[str, Any]],
) -> tuple[Status, str]:
    if not facts["is_lossless"]:
        return "not promised", "changes output"
    if not num:
        return "incomplete", "nothing compared"
    if tier_of(facts) == "exact":
        if num_different:
            return "failed", f"FAILED: {num_different}/{num} differ"
        return "passed", f"exact {num}/{num}"
    found = f"{num_different}/{num} differ"
    if control is not None:
        found += f", control {control['num_different']}/{control['num_prompts']}"
    dtype = facts.get("dtype") or "?"
    if len({d["prompt_id"] for d in divergences}) < num_different:
        return "incomplete", f"{dtype}: {found}, not examined"
    if any(d["num_outside"] for d in divergences):
        num_bad = len({d["prompt_id"] for d in divergences if d["num_outside"]})
        return "failed", f"FAILED: {num_bad}/{num} beyond rounding ({dtype})"
    return "passed", f"{dtype}: {found}"


def _control(table: PromptTable) -> dict[str, int] | None:
    is_same = table.identical("vanilla", "control")
    if not is_same:
        return None
    num_different = sum(not same for same in is_same.values())
    return {"num_prompts": len(is_same), "num_different": num_different}


def _certify_law(table: PromptTable, facts: Mapping[str, Any]) -> Certificate:
    pairs = _answers(table)
    test: LawTest | None = None
    if pairs and min(len(answers) for answers, _ in pairs) >= MIN_REPEATS:
        test = compare_laws(pairs)
    status, badge = _judge_law(facts, test)
    return Certificate(
        tier="law",
        status=status,
        badge=badge,
        num_prompts=len(pairs),
        num_different=None,
        control=None,
        details={"law_test": None if test is None else vars(test)},
    )


def _judge_law(facts: Mapping[str, Any], test: LawTest | None) -> tuple[Status, str]:
    if not facts["is_lossless"]:
        return "not promised", "changes output"
    if test is None:
        return "incomplete", f"law: needs repeats={MIN_REPEATS}"
    found = f"TV {test.distance:.3f} (noise {test.expected:.3f}), p {test.p_value:.2g}"
    if test.p_value < ALPHA:
        return "failed", f"FAILED: law, {found}"
    return "passed", f"law: {found}"


def _answers(table: PromptTable) -> list[tuple[list[tuple[int, ...]], list[tuple[int, ...]]]]:
    """Per prompt the first turns of both arms; later turns follow other texts in each repeat."""
    answers: dict[str, tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = defaultdict(
        lambda: ([], [])
    )
    for (prompt_id, _), (vanilla, method) in table.pairs("vanilla", "method").items():
        answers[prompt_id][0].append(vanilla[0])
        answers[prompt_id][1].append(method[0])
    return list(answers.values())
