"""How one datastore is made: answers, documents, hidden states, files."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answers import answer_call, opened_answers
from benchmarks.contamination import ContaminationCheck
from benchmarks.corpus import AnsweredPrompts, Corpus, Texts
from benchmarks.datasets import DATASETS, DatasetLoader, Prompt, hash_prompts, limit_prompts
from benchmarks.datasets.reader import Faults
from benchmarks.datasets.text import TextFiles
from benchmarks.datastore_config import (
    HiddenStatesConfig,
    TokensConfig,
    build_command,
)
from benchmarks.documents import Document
from benchmarks.progress import counting
from methods.cache import cache_root
from methods.datastores.folder import FORMAT_VERSION, DatastoreError
from methods.datastores.hidden_states import build_hidden_store
from methods.datastores.tokens import build_token_store
from methods.targets.facts import model_identity
from methods.targets.loading import LoadedModel

logger = logging.getLogger(__name__)

MAX_UNASKED_PROMPTS = 500
"""A store of more prompts is built by its own command only: it may take hours."""
LOCATION = ("path", "revision")
"""Fields of a dataset that say where it lies; what lies there is known by its content."""
TEXT_HAS_NO = ("split", "limit", "source", "max_new_tokens", "positions")
"""Settings that plain texts have no use for."""


class Recipe:
    """How one store is made."""

    def __init__(
        self,
        settings: TokensConfig | HiddenStatesConfig,
        config: Mapping[str, Any],
        model: LoadedModel,
        progress: bool,
    ) -> None:
        self.settings, self.model, self.has_progress = settings, model, progress
        self.config, self.command = config, build_command(config)
        fields = {k: v for k, v in config["dataset"].items() if k not in ("name", "split")}
        self.reading = {name: value for name, value in fields.items() if name not in LOCATION}
        self.loader: DatasetLoader = DATASETS.create(config["dataset"]["name"], **fields)
        self.corpus = self._corpus()
        self.sources = self.corpus.sources()

    @property
    def name(self) -> str:
        """Readable, and different for stores of different content."""
        settings, facts = self.settings, self.model.facts
        unused = TEXT_HAS_NO if isinstance(self.corpus, Texts) else ()
        options = {name: value for name, value in settings.content.items() if name not in unused}
        content = {
            "kind": settings.kind,
            "format": FORMAT_VERSION,
            "options": options,
            "sources": self.sources,
            "reading": self.reading,
            "test": hash_prompts(self.test_prompts),
            "tokenizer": facts["tokenizer_hash"],
            "prompt": self.model.codec.encode([("user", "x")]),  # With its system prompt.
            "vocab_size": self.model.target.vocab_size,
            "model": self.model_identity,
        }
        text = json.dumps(content, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        words = (self.loader.name, settings.split, settings.source, self.model.name)
        return "-".join([*words, settings.kind, digest]).replace("/", "--")

    @property
    def model_identity(self) -> dict[str, Any]:
        """Of the model whose answers or states are stored; empty for reference tokens."""
        is_own = self.settings.source == "generated" or self.settings.kind == "hidden_states"
        return model_identity(self.model.facts) if is_own else {}

    @cached_property
    def test_prompts(self) -> tuple[Prompt, ...]:
        """What must not be in the store; none if the dataset has no such split."""
        has_test = "test" in self.loader.splits and self.settings.split != "test"
        return self.loader.load("test").prompts if has_test else ()

    def check_size(self) -> None:
        """Refuses to begin something long that nobody asked for.

        Raises:
            DatastoreError: If the store is not small.
        """
        corpus = self.corpus
        if isinstance(corpus, AnsweredPrompts) and (
            len(corpus.dataset.prompts) <= MAX_UNASKED_PROMPTS
        ):
            return
        raise DatastoreError(
            f"the datastore {self.name} is not built yet, and is no small one: build it with\n"
            f"  {self.command}\nor take fewer prompts with datastore.limit=N"
        )

    def build(self, path: Path) -> None:
        """Answers, documents, files."""
        settings, target = self.settings, self.model.target
        with self._opened_answers() if settings.source == "generated" else nullcontext():
            tokens = self.corpus.estimated_tokens()
            size = f"about {tokens:,} tokens, {self._bytes()}"
            logger.info(f"building the datastore {path.name}: {size}")
            self._generate()
        check = self._check()
        facts: dict[str, Any] = {
            "vocab_size": target.vocab_size,
            "tokenizer_hash": self.model.facts["tokenizer_hash"],
            "model": self.model_identity,
            "sources": self.sources,
            "command": self.command,
            "options": settings.content,
            "report": {},
        }
        with counting("tokens", tokens, self.has_progress) as advance:
            documents = _watched(check, self.corpus.documents(), facts["report"], advance)
            if isinstance(settings, TokensConfig):
                build_token_store(
                    path,
                    (document.stored_ids for document in documents),
                    chunk_tokens=settings.chunk_tokens,
                    num_tokens=tokens,
                    **facts,
                )
            else:
                build_hidden_store(
                    path,
                    self._with_keys(documents, facts["report"]),
                    dim=settings.dim,
                    index=settings.index,
                    rerank=settings.rerank,
                    expected_keys=tokens,
                    **facts,
                )
        logger.info(_overlap_line(facts["report"]["overlap"]))

    def _check(self) -> ContaminationCheck | None:
        """None if there is nothing to compare with."""
        if self.test_prompts:
            return ContaminationCheck(
                prompts=self.test_prompts,
                ngram=self.settings.overlap_ngram,
                drops=self.settings.drop_overlapping,
            )
        if self.settings.drop_overlapping:
            raise DatastoreError(
                f"datastore.drop_overlapping=true needs test data, but dataset={self.loader.name} "
                f"split={self.settings.split} has none to be compared with"
            )
        return None

    def _corpus(self) -> Corpus:
        settings, model = self.settings, self.model
        if isinstance(self.loader, TextFiles):
            if settings.source == "generated":
                raise DatastoreError("dataset=text has no prompts: use datastore.source=reference")
            faults = Faults(on_error=self.loader.on_error)
            return Texts(loader=self.loader, codec=model.codec, faults=faults)
        if settings.split not in self.loader.splits:
            raise DatastoreError(
                f"a datastore is made from the {settings.split} split of a dataset, which "
                f"dataset={self.loader.name} has not: name a store with datastore.path=FOLDER"
            )
        dataset = limit_prompts(self.loader.load(settings.split), settings.limit)
        if settings.source == "reference":
            return AnsweredPrompts(dataset=dataset, codec=model.codec)
        longest = model.target.max_context
        if longest is not None and settings.max_new_tokens >= longest:
            raise DatastoreError(
                f"datastore.max_new_tokens must be below the {longest} tokens that the target "
                f"model can attend to, got {settings.max_new_tokens}"
            )
        return AnsweredPrompts(
            dataset=dataset,
            codec=model.codec,
            max_prompt_tokens=None if longest is None else longest - settings.max_new_tokens,
        )

    def _generate(self) -> None:
        """Has the target model answer what is to have its own answers."""
        if not isinstance(self.corpus, AnsweredPrompts) or self.corpus.answers is None:
            return
        total = sum(len(prompt.turns) for prompt in self.corpus.dataset.prompts)
        with counting("answers", total, self.has_progress) as advance:
            self.corpus.generate(
                answer_call(self.model.target),
                batch_size=self.settings.batch_size,
                progress=advance,
            )

    @contextmanager
    def _opened_answers(self) -> Iterator[None]:
        """Gives the corpus its answers, in the cache: they begin with the packaged ones of this
        very model.

        Raises:
            DatastoreError: If the file cannot be written, or is damaged.
        """
        identity, budget = model_identity(self.model.facts), self.settings.max_new_tokens
        text = json.dumps([identity, budget], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        name = f"{self.loader.name}-{self.model.name}-{digest}.jsonl".replace("/", "--")
        path = cache_root() / "answers" / name
        with opened_answers(
            path, model=identity, max_new_tokens=budget, first=self.loader.answers(self.model.name)
        ) as answers:
            assert isinstance(self.corpus, AnsweredPrompts)
            self.corpus.answers = answers
            yield

    def _with_keys(
        self, documents: Iterable[Document], report: dict[str, Any]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Triples (stored ids, hidden states, where the continuation of each begins in the ids)."""
        assert isinstance(self.settings, HiddenStatesConfig)
        target, is_answer = self.model.target, self.settings.positions == "answer"
        report["num_cut_tokens"] = 0
        for document in documents:
            for ids, num_known, num_prompt in windows(document, target.max_context, report):
                first = max(num_known - 1, num_prompt - 1 if is_answer else 0, 0)
                if first > len(ids) - 2:
                    continue  # No position has a continuation that is stored.
                target.reset()
                hidden = target.prefill(ids, reserve=0, prompt_hidden=True).prompt_hidden
                assert hidden is not None
                keys = hidden[first : len(ids) - 1].float().cpu().numpy()
                stored = np.array(ids[num_known:], dtype=np.int64)
                yield stored, keys, np.arange(first + 1, len(ids)) - num_known

    def _bytes(self) -> str:
        """About how large the store will be, in words."""
        settings, tokens = self.settings, self.corpus.estimated_tokens()
        id_bytes = 2 if self.model.target.vocab_size < 2**16 else 4
        per_token = id_bytes + 4
        if isinstance(settings, HiddenStatesConfig):
            per_token = id_bytes + 4 + 2 * settings.dim
        return f"{tokens * per_token / 1e6:,.1f} MB"


def _watched(
    check: ContaminationCheck | None,
    documents: Iterable[Document],
    report: dict[str, Any],
    advance: Callable[[int], None],
) -> Iterator[Document]:
    """The documents that are kept; what was found is in `report` when the last one is taken."""
    for document in documents if check is None else check.filter(documents):
        yield document
        advance(len(document.stored_ids))
    report["overlap"] = None if check is None else check.report()


def windows(
    document: Document, max_len: int | None, report: dict[str, Any]
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Pieces (ids, known, prompt) that the target model can read.

    A text is cut into windows, and nothing is lost; a conversation beyond the context loses its
    end, which is counted in the report.
    """
    ids = document.token_ids
    if max_len is None or len(ids) <= max_len:
        yield ids, document.num_known, document.num_prompt
    elif document.num_prompt == 0:
        for start in range(0, len(ids), max_len):
            yield ids[start : start + max_len], 0, 0
    else:
        report["num_cut_tokens"] += len(ids) - max_len
        yield ids[:max_len], document.num_known, document.num_prompt


def _overlap_line(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return "the documents were not compared with any test data: this dataset has none"
    line = (
        f"{report['num_overlapping']} of {report['num_documents']} documents share "
        f"{report['ngram_words']} words in a row, or a short question, with the test split"
    )
    return f"{line}; they were left out" if report["num_dropped"] else line
