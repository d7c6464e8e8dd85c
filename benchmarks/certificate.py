"""The losslessness certificate of a run: whether the output is the target model's own.

Equal text is the wrong test in 16-bit, where two forwards of different width round differently.
So there are tiers, each beside its control (vanilla against vanilla):

    exact      float32, float64 and integers on CPU: equal ids, or a fault
    rounding   16-bit, and any GPU: where ids differ, every token that was output lies within two
               spacings of the dtype from the largest logit, under teacher forcing; or within what
               the width of a forward does by itself, where that is more (deep models in 16-bit)
    law        sampling: surprise of all tokens against the target's entropy (`surprise`); with
               enough repeats also total variation between the arms (`law_test`)

A method that promises nothing is not judged: its badge says so. A certificate speaks for the
answers of one run: a fault that changes none of them is not seen, nor one that vanilla shares, for
which the ids of the library's own `generate` stand beside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.law_test import ALPHA, MIN_REPEATS, Answers, LawTest, compare_laws
from benchmarks.prompt_table import PromptTable
from benchmarks.records import Arm, Request

Tier = Literal["exact", "rounding", "law"]
Answer = tuple[int, ...]
Status = Literal["passed", "failed", "not promised", "incomplete"]

NUM_SPACINGS = 2
"""How far below the largest logit a token may be and still be called its equal."""
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
        facts: `is_greedy`, `is_lossless`, `dtype`, `device`, `num_prompts`, `repeats` of the run.
        examined: What `divergence.examine` found; None if it has not looked.
    """
    table = PromptTable.from_requests(requests)
    if facts["is_greedy"]:
        return _certify_ids(table, facts, examined or {})
    return _certify_law(table, facts, examined or {})


def tier_of(facts: Mapping[str, Any]) -> Tier:
    """How a run is judged."""
    if not facts["is_greedy"]:
        return "law"
    is_exact = facts["device"] == "cpu" and facts.get("dtype") in _EXACT_DTYPES
    return "exact" if is_exact else "rounding"


def _certify_ids(
    table: PromptTable, facts: Mapping[str, Any], examined: Mapping[str, Any]
) -> Certificate:
    pairs = table.pairs("vanilla", "method")
    is_same = table.identical("vanilla", "method")
    found = _Found(
        num_prompts=len(is_same),
        num_different=sum(not same for same in is_same.values()),
        num_pairs=len(pairs),
        num_different_pairs=sum(vanilla != method for vanilla, method in pairs.values()),
        control=_control(table),
        divergences=[d for d in examined.get("divergences", ()) if d["arm"] == "method"],
        width_control=examined.get("width_control"),
        error=examined.get("error"),
    )
    status, badge = _judge(facts, found)
    return Certificate(
        tier=tier_of(facts),
        status=status,
        badge=badge,
        num_prompts=found.num_prompts,
        num_different=found.num_different,
        control=found.control,
        details={
            "divergences": list(examined.get("divergences", ())),
            "width_control": found.width_control,
            "limit_spacings": found.limit if tier_of(facts) == "rounding" else None,
        },
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a greedy run is judged by."""

    num_prompts: int
    num_different: int
    num_pairs: int
    num_different_pairs: int
    control: Mapping[str, int] | None
    divergences: Sequence[Mapping[str, Any]]
    width_control: Mapping[str, Any] | None
    error: str | None

    @property
    def limit(self) -> float:
        """Spacings below the argmax that rounding explains: two, or what width alone does here."""
        by_width = (self.width_control or {}).get("largest_gap_spacings") or 0.0
        return max(float(NUM_SPACINGS), by_width)

    @property
    def num_faulty(self) -> int:
        """Prompts with a token beyond the limit, or an answer that ends where it must not."""
        return len({d["prompt_id"] for d in self.divergences if self._is_faulty(d)})

    def _is_faulty(self, divergence: Mapping[str, Any]) -> bool:
        gap = divergence["largest_gap_spacings"]
        return gap is None or gap > self.limit or divergence["num_ends_wrong"] > 0


def _judge(facts: Mapping[str, Any], found: _Found) -> tuple[Status, str]:
    if not facts["is_lossless"]:
        return "not promised", "changes output"
    if not found.num_pairs:
        return "incomplete", "nothing compared"
    is_exact = tier_of(facts) == "exact"
    num, num_different = found.num_prompts, found.num_different
    dtype = facts.get("dtype") or "float64"
    if is_exact and num_different:
        return "failed", f"FAILED: {num_different}/{num} differ"
    if not is_exact and found.num_faulty:
        return "failed", f"FAILED: {found.num_faulty}/{num} beyond rounding ({dtype})"
    badge = f"exact {num}/{num}" if is_exact else f"{dtype}: {num_different}/{num} differ"
    if not is_exact and found.control is not None:
        badge += f", control {found.control['num_different']}/{found.control['num_prompts']}"
    num_expected = facts.get("num_prompts", num) * facts.get("repeats", 1)
    if found.num_pairs < num_expected:
        return "incomplete", f"{badge}; {num_expected - found.num_pairs} answers are missing"
    if not is_exact and len(found.divergences) < found.num_different_pairs:
        return "incomplete", f"{badge}, not examined"
    return "passed", badge


def _control(table: PromptTable) -> dict[str, int] | None:
    is_same = table.identical("vanilla", "control")
    if not is_same:
        return None
    num_different = sum(not same for same in is_same.values())
    return {"num_prompts": len(is_same), "num_different": num_different}


def _certify_law(
    table: PromptTable, facts: Mapping[str, Any], examined: Mapping[str, Any]
) -> Certificate:
    pairs = _answers(table, "method")
    test, control = _law_test(pairs), _law_test(_answers(table, "control"))
    surprise = examined.get("surprise") or {}
    num_missing = facts.get("num_prompts", len(pairs)) - len(pairs)
    status, badge = _judge_law(facts, len(pairs), surprise.get("method"), test)
    if status == "passed" and num_missing:
        status, badge = "incomplete", f"{badge}; {num_missing} prompts are missing"
    return Certificate(
        tier="law",
        status=status,
        badge=badge,
        num_prompts=len(pairs),
        num_different=None,
        control=None,
        details={
            "surprise": dict(surprise),
            "law_test": None if test is None else vars(test),
            "law_control": None if control is None else vars(control),
        },
    )


def _law_test(pairs: Sequence[tuple[Answers, Answers]]) -> LawTest | None:
    """None if there are too few answers."""
    if not pairs or min(len(answers) for answers, _ in pairs) < MIN_REPEATS:
        return None
    return compare_laws(pairs)


def _judge_law(
    facts: Mapping[str, Any],
    num_prompts: int,
    surprise: Mapping[str, Any] | None,
    test: LawTest | None,
) -> tuple[Status, str]:
    if not facts["is_lossless"]:
        return "not promised", "changes output"
    if not num_prompts:
        return "incomplete", "nothing compared"
    if surprise is None:
        return "incomplete", "law: not examined"
    # Where logits are rounded, a token at the edge of top-k or top-p may fall on either side.
    is_rounded = facts.get("dtype") not in _EXACT_DTYPES
    if surprise["num_outside"] > (0.01 * surprise["num_tokens"] if is_rounded else 0):
        return "failed", f"FAILED: {surprise['num_outside']} tokens outside the law"
    if surprise["z"] is None:
        return "incomplete", "law: too little to choose"
    badge = f"law: z {surprise['z']:+.1f}"
    if surprise["p_value"] < ALPHA:
        return "failed", f"FAILED: {badge}"
    if test is not None and test.p_value < ALPHA:
        return "failed", f"FAILED: law, TV p {test.p_value:.2g}"
    return "passed", badge


def _answers(table: PromptTable, arm: Arm) -> list[tuple[Answers, Answers]]:
    """Per prompt the first turns of vanilla and of an arm; later ones follow other texts."""
    answers: dict[str, tuple[list[Answer], list[Answer]]] = defaultdict(lambda: ([], []))
    for (prompt_id, _), (vanilla, other) in table.pairs("vanilla", arm).items():
        answers[prompt_id][0].append(vanilla[0])
        answers[prompt_id][1].append(other[0])
    return list(answers.values())
