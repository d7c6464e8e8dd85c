"""One model over several processes: rank 0 decodes, the others do what it does to the model.

    torchrun --nproc-per-node 2 run.py method=pld model=qwen2.5-14b model.tp_plan=auto

transformers splits the weights by the model's own plan, and its layers talk to each other. Every
rank must therefore make the same calls in the same order. Rank 0 announces each call before it
makes it; the other ranks, the followers, have no prompts, clock or results of their own.

Source: transformers' tensor parallelism (its `tp_plan`), behind this project's target protocol.
Cost: one broadcast of a few numbers per call, over CPU (gloo).
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from methods.targets.base import StepOutput, TreeOutput, UnsupportedModel
from methods.targets.huggingface import HuggingFaceTarget
from primitives.types import DraftTree

LEADER = 0
logger = logging.getLogger(__name__)


def world_size() -> int:
    """Processes that torchrun has started together; 1 without it."""
    # Cluster schedulers set variables of the same names for other purposes.
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1


def is_follower() -> bool:
    """Whether this process serves another one that decodes."""
    return world_size() > 1 and int(os.environ["RANK"]) != LEADER


def check_world() -> None:
    """Tensor parallelism needs processes to split the model over.

    Raises:
        ValueError: If there is one process only, or a model has been split already.
    """
    if world_size() < 2:
        raise ValueError(
            "model.tp_plan=auto needs processes to split the model over: "
            "torchrun --nproc-per-node 2 run.py ..."
        )
    if _Group.commands is not None:
        raise ValueError(
            "a process splits one model only (model.tp_plan): start torchrun once per model"
        )


def check_heads(config: Any) -> None:
    """Attention is split by heads, so that each process needs as many as the others.

    Args:
        config: The model's, of transformers.

    Raises:
        ValueError: If they cannot be dealt out evenly.
    """
    num_processes, text = world_size(), config.get_text_config()
    for name in ("num_attention_heads", "num_key_value_heads"):
        number = getattr(text, name, None)
        if number is not None and number % num_processes:
            raise ValueError(
                f"model.tp_plan=auto: {number} ({name}) cannot be split over {num_processes} "
                "processes: start torchrun with a number that divides it"
            )


def tensor_parallel_argument() -> dict[str, Any]:
    """How this release of transformers is told to split a model by the model's own plan."""
    from transformers.distributed import DistributedConfig

    if "tp_plan" in inspect.signature(DistributedConfig).parameters:
        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    return {"tp_plan": "auto"}


class _Group:
    """The processes that get rank 0's announcements; None before a model is split."""

    commands: Any = None


class TensorParallelTarget:
    """The target of rank 0; it announces each call to the followers.

    Args:
        target: This rank's share of the model.
    """

    def __init__(self, target: HuggingFaceTarget) -> None:
        self._target = target
        self.vocab_size, self.eos_ids = target.vocab_size, target.eos_ids
        self.max_context = target.max_context

    @property
    def num_committed(self) -> int:
        """Committed rows, in tokens."""
        return self._target.num_committed

    def reset(self) -> None:
        """See `TargetModel.reset`."""
        self._call("reset")

    def prefill(self, token_ids: Sequence[int], **options: Any) -> StepOutput:
        """See `TargetModel.prefill`."""
        out: StepOutput = self._call("prefill", [int(token) for token in token_ids], **options)
        return out

    def forward_tree(self, tree: DraftTree) -> TreeOutput:
        """See `TargetModel.forward_tree`."""
        # Proposal distributions are as wide as the vocabulary, and no forward reads them.
        nodes = tree.token_ids.tolist(), tree.parents.tolist()
        _announce(("forward_tree", nodes, {}))
        return self._target.forward_tree(tree)

    def commit(self, path: Sequence[int]) -> None:
        """See `TargetModel.commit`."""
        self._call("commit", list(path))

    def generate(self, token_ids: Sequence[int], max_new_tokens: int, **kwargs: Any) -> list[int]:
        """See `GeneratingModel.generate`."""
        ids = [int(token) for token in token_ids]
        out: list[int] = self._call("generate", ids, max_new_tokens, **kwargs)
        return out

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, **kwargs: Any
    ) -> list[list[int]]:
        """See `GeneratingModel.generate_batch`."""
        ids = [[int(token) for token in prompt] for prompt in prompts]
        out: list[list[int]] = self._call("generate_batch", ids, max_new_tokens, **kwargs)
        return out

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        _announce((name, args, kwargs))
        return getattr(self._target, name)(*args, **kwargs)


def join(target: HuggingFaceTarget) -> TensorParallelTarget:
    """Rank 0 goes on with the returned target; a follower serves it and ends with it.

    Raises:
        SystemExit: On a follower, when rank 0 has ended.
    """
    # Announcements go over CPU: objects over NCCL would stop the GPU at each.
    _Group.commands = dist.new_group(backend="gloo")
    if is_follower():
        _serve(target)
        # Threads of a group that is still there when Python ends abort the process now and then.
        dist.destroy_process_group()
        sys.exit(0)
    atexit.register(_end)
    return TensorParallelTarget(target)


def _serve(target: HuggingFaceTarget) -> None:
    """Does what rank 0 announces, until it ends."""
    while True:
        message: list[Any] = [None]
        dist.broadcast_object_list(message, src=LEADER, group=_Group.commands)
        if message[0] is None:
            return
        name, args, kwargs = message[0]
        if name == "forward_tree":
            args = (DraftTree.from_nodes(*args),)
        try:
            getattr(target, name)(*args, **kwargs)
        except (ValueError, UnsupportedModel) as error:
            # Refused before any layer ran, here as on rank 0, which reports it.
            logger.debug("rank %s refused %s: %s", os.environ.get("RANK"), name, error)


def _announce(message: Any) -> None:
    dist.broadcast_object_list([message], src=LEADER, group=_Group.commands)


def _end() -> None:
    _announce(None)
    dist.destroy_process_group()
