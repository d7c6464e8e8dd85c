"""Base classes of the three kinds of primitive, with the tags by which they declare what they are.

A component is a keyword-only dataclass whose fields are its configuration. Tags are class
variables: the builder of methods refuses combinations by them, the contract tests choose their
checks by them, and the decode loop computes nothing that no tag asks for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from primitives.random_source import RandomSource, target_law
from primitives.types import Candidate, Context, DraftTree, ProposalKind, StepOutcome, Verdict

Need = Literal[
    "last_logits",
    "hidden",
    "prompt_hidden",
    "prompt_top_ids",
    "layer_hidden",
    "node_top_ids",
    "reference",
]
VerifierNeed = Literal["hidden", "embeddings", "head"]
DatastoreKind = Literal["tokens", "hidden_states", "bigrams", "ngram_trees"]


class Component(ABC):  # noqa: B024 - the three kinds below add the abstract methods
    """Anything that a registry holds.

    Attributes:
        name: The name it is registered under; set by the registry.
        requires: Optional distributions that it imports, e.g. `("faiss",)`.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()


class Retriever(Component):
    """Proposes continuations of the text so far.

    Attributes:
        needs: What the loop must compute for it, beyond token ids.
        datastore: The kind of datastore that it searches, if any.
        proposal: How its draft tokens are chosen.
        is_exact: Every candidate really follows an earlier occurrence of the context's end.
        is_cross_request: It remembers earlier prompts until `reset`.
        proposes_alternatives: Its candidates may start with another token than pending; the
            verifier decides which of those are admitted.
        needs_draft_model: It drafts with a model of its own, see `attach_draft_model`.

    These are set by the class, or by an instance whose fields decide about them.
    """

    needs: frozenset[Need] = frozenset()
    datastore: DatastoreKind | None = None
    proposal: ProposalKind = "point_mass"
    is_exact: bool = False
    is_cross_request: bool = False
    proposes_alternatives: bool = False
    needs_draft_model: bool = False

    @property
    def wanted_datastore(self) -> DatastoreKind | None:
        """The kind of datastore that it searches as it is configured."""
        return self.datastore

    @property
    def hidden_layer(self) -> float | None:
        """Which layer `layer_hidden` means: a share in (0, 1] of the target's layers."""
        return None

    @property
    def num_top_ids(self) -> int:
        """How many tokens per node `node_top_ids` has."""
        return 0

    def attach(self, store: Any) -> None:
        """Hands over the opened datastore, before the first prompt.

        Raises:
            TypeError: If it searches none.
        """
        raise TypeError(f"retriever {self.name!r} searches no datastore")

    def attach_draft_model(self, model: Any) -> None:
        """Hands over the loaded draft model, before the first prompt.

        Raises:
            TypeError: If it drafts without one.
        """
        raise TypeError(f"retriever {self.name!r} drafts without a model")

    def begin(self, context: Context) -> None:
        """Starts a prompt, after its prefill; forgets the previous one."""

    @abstractmethod
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Candidates for the next step, best first; changes no state.

        Args:
            context: The text so far.
            limit: At most this many candidates are used, at least 1.

        Returns:
            At most `limit` candidates with non-increasing scores; an empty list is legal.
        """

    def observe(self, outcome: StepOutcome) -> None:
        """Learns what a step committed; the only change of state between `begin` calls."""

    def reset(self) -> None:
        """Forgets everything learnt from earlier prompts."""


class TreeBuilder(Component):
    """Packs candidates into one draft tree.

    Attributes:
        is_monotone: The tree of a budget is a subset of the tree of the next larger budget.
        synthesises: Its paths need not be prefixes of candidates.
    """

    is_monotone: ClassVar[bool] = False
    synthesises: ClassVar[bool] = False

    @abstractmethod
    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """The draft tree of a step.

        Args:
            pending_id: Becomes node 0.
            candidates: Screened by the loop: each starts with `pending_id` or with an alternative
                that the verifier admitted, and holds only ids of the vocabulary.
            budget: At most this many nodes besides node 0.

        Returns:
            A tree with at most `budget` draft nodes.

        Raises:
            ValueError: If candidates with and without `draft_probs` are to share a tree.
        """


class Verifier(Component):
    """Decides which path of a draft tree is kept: the acceptance rule.

    Logits reach a verifier after the sampling law (temperature, top-k, top-p) was applied.

    Attributes:
        is_lossless_greedy: Token ids equal those of greedy decoding.
        is_lossless_sampling: The law of the output equals the target's.
        samples: It draws tokens at random (needs temperature > 0); otherwise it takes the argmax.
            An instance whose fields decide about it sets it itself.
        valid_proposals: Proposal kinds that its guarantees hold for.
        needs: What it must be given beyond logits: `hidden` states of the nodes, the target's
            input `embeddings`, or a trained `head`; the latter two by `attach`.
    """

    needs: ClassVar[frozenset[VerifierNeed]] = frozenset()
    is_lossless_greedy: ClassVar[bool] = False
    is_lossless_sampling: ClassVar[bool] = False
    samples: ClassVar[bool] = False
    valid_proposals: ClassVar[frozenset[ProposalKind]] = frozenset({"point_mass"})

    def attach(self, **resources: Any) -> None:
        """Hands over the `embeddings` or the `head` that it needs, before the first prompt.

        Raises:
            TypeError: If it needs none.
        """
        raise TypeError(f"verifier {self.name!r} needs no {' or '.join(resources)}")

    def choose(self, logits: Float[Tensor, "v"], random: RandomSource) -> int:
        """The next pending token, from the logits at the last committed position.

        The argmax, the first index of equal ones; of a verifier that `samples`, a draw.
        """
        if self.samples:
            return random.categorical(target_law(logits))
        return int(logits.argmax())

    def admit(
        self,
        last_logits: Float[Tensor, "v"],
        token_ids: Int[Tensor, "k"],
        eos_ids: frozenset[int] = frozenset(),
    ) -> Bool[Tensor, "k"]:
        """Which first tokens may stand beside pending at depth 0; exact verifiers admit none.

        Args:
            last_logits: Logits that pending was chosen from.
            token_ids: Distinct ids, pending not among them.
            eos_ids: Ids that end a generation.
        """
        return torch.zeros(token_ids.shape, dtype=torch.bool, device=token_ids.device)

    @abstractmethod
    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The kept path and the next pending token.

        Args:
            tree: The draft tree.
            last_logits: Logits that node 0 and its alternatives were judged by.
            logits: Row i predicts what follows node i.
            random: The only source of randomness.
            eos_ids: Ids that end a generation.
            hidden: Row i is the LM head's input at node i, if it needs `hidden`.

        Raises:
            ValueError: If a node carries a token that its `draft_probs` exclude.
        """
