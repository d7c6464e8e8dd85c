"""From prompts and texts to documents: answers, what is stored once, resumption, contamination."""

from __future__ import annotations

import json

import pytest

from benchmarks.answers import AnswerFile
from benchmarks.contamination import ContaminationCheck
from benchmarks.corpus import AnsweredPrompts, Texts
from benchmarks.datasets import Dataset, DatasetError, Prompt
from benchmarks.datasets.reader import Faults
from benchmarks.datasets.text import TextFiles
from benchmarks.documents import Document, documents_of, reference_answers
from benchmarks.progress import counting
from benchmarks.quality import words_of
from methods.datastores.folder import DatastoreError
from methods.targets.toy import ToyCodec

CODEC = ToyCodec(vocab_size=1000)
MODEL = {"source": "toy"}


def prompt(*turns: str, references: tuple[str, ...] = (), name: str = "p") -> Prompt:
    return Prompt(prompt_id=name, category="x", turns=turns, references=references)


def dataset(*prompts: Prompt) -> Dataset:
    return Dataset.from_prompts(prompts, name="d", split="train", source="here")


def words(text: str) -> tuple[int, ...]:
    return tuple(CODEC.encode_text(text))


def test_a_document_is_prompt_answer_and_eos():
    one = prompt("how are you", references=("very well",))
    (document,) = documents_of(one, reference_answers(one, CODEC), CODEC)
    assert document.token_ids == (*words("how are you very well"), 0)
    assert (document.num_known, document.num_prompt) == (0, 3)
    assert document.stored_ids == document.token_ids
    assert document.texts[0] == "how are you"


def test_a_later_turn_stores_only_what_is_new():
    class Words(ToyCodec):
        """Decodes to the words that it encodes to the same ids again."""

        def decode(self, token_ids):
            return " ".join(names[token_id] for token_id in token_ids if token_id)

    codec = Words(vocab_size=1000)
    names = {codec.encode_text(word)[0]: word for word in ("a", "b", "c", "d")}
    two = prompt("a b", "c", references=("d", "a"))
    first, second = documents_of(two, reference_answers(two, codec), codec)
    assert first.token_ids == (*words("a b d"), 0)
    # The second prompt repeats "a b d", without the EOS behind the first answer.
    assert second.token_ids == (*words("a b d c a"), 0)
    assert second.num_known == 3
    assert second.num_prompt == 4
    assert second.stored_ids == (*words("c a"), 0)


def test_turns_behind_a_missing_answer_have_no_documents():
    two = prompt("a", "b", references=("", "c"))
    assert list(documents_of(two, reference_answers(two, CODEC), CODEC)) == []


def answer_with_length(prompts, max_new_tokens):
    return [[len(ids), 0] for ids in prompts]


def test_answers_are_generated_once_and_survive(tmp_path):
    path = tmp_path / "answers.jsonl"
    prompts = [[1], [1, 2], [1, 2, 3]]
    file = AnswerFile(path, model=MODEL, max_new_tokens=4)
    assert list(file.complete(prompts, answer_with_length, batch_size=2)) == [2, 1]
    again = AnswerFile(path, model=MODEL, max_new_tokens=4)
    assert [again.get(ids) for ids in prompts] == [(1, 0), (2, 0), (3, 0)]

    def refuse(prompts, max_new_tokens):
        raise AssertionError("an answer was asked for twice")

    assert list(again.complete(prompts, refuse, batch_size=2)) == [3]


def test_how_long_it_takes_is_foretold_from_the_first_answer_on(monkeypatch, caplog):
    monkeypatch.setattr("benchmarks.progress.SECONDS_BEFORE_ESTIMATE", -1.0)
    caplog.set_level("INFO")
    with counting("answers", 4, False) as advance:
        advance(0)
        assert caplog.messages == []
        advance(2)
    assert caplog.messages[0].startswith("answers: 2 of about 4, about ")


def test_a_killed_generation_is_continued(tmp_path):
    path = tmp_path / "answers.jsonl"
    prompts = [[1], [1, 2], [1, 2, 3]]

    def fails_at_the_second_batch(batch, max_new_tokens):
        if len(batch[0]) > 1:
            raise KeyboardInterrupt
        return answer_with_length(batch, max_new_tokens)

    file = AnswerFile(path, model=MODEL, max_new_tokens=4)
    with pytest.raises(KeyboardInterrupt):
        list(file.complete(prompts, fails_at_the_second_batch, batch_size=1))
    with path.open("ab") as stream:
        stream.write(b'{"prompt_sha": "torn')
    again = AnswerFile(path, model=MODEL, max_new_tokens=4)
    assert list(again.complete(prompts, answer_with_length, batch_size=8)) == [1, 2]
    assert path.read_bytes().count(b"\n") == 4


@pytest.mark.parametrize(
    ("model", "budget"), [({"source": "other"}, 4), (MODEL, 5)], ids=["model", "budget"]
)
def test_answers_of_another_model_or_budget_are_refused(tmp_path, model, budget):
    path = tmp_path / "answers.jsonl"
    AnswerFile(path, model=MODEL, max_new_tokens=4)
    with pytest.raises(DatastoreError, match="move it away"):
        AnswerFile(path, model=model, max_new_tokens=budget)


def test_a_damaged_line_is_no_torn_end(tmp_path):
    path = tmp_path / "answers.jsonl"
    head = {"format": 1, "model": MODEL, "max_new_tokens": 4}
    path.write_text(json.dumps(head) + "\n{oops}\n{}\n")
    with pytest.raises(DatastoreError, match=r"answers\.jsonl is damaged"):
        AnswerFile(path, model=MODEL, max_new_tokens=4)


def test_packaged_answers_are_copied_only_for_their_own_model(tmp_path):
    first = tmp_path / "first.jsonl"
    list(
        AnswerFile(first, model=MODEL, max_new_tokens=4).complete(
            [[1]], answer_with_length, batch_size=1
        )
    )
    before = first.read_bytes()
    same = AnswerFile(tmp_path / "a.jsonl", model=MODEL, max_new_tokens=4, first=first)
    other = AnswerFile(tmp_path / "b.jsonl", model=MODEL, max_new_tokens=5, first=first)
    assert same.get([1]) == (1, 0)
    assert other.get([1]) is None
    list(same.complete([[2]], answer_with_length, batch_size=1))
    assert first.read_bytes() == before


def test_generated_conversations_follow_the_models_own_answers(tmp_path):
    """The second turn's prompt holds the generated first answer as text (`t7` for id 7)."""
    asked = []

    def answer(prompts, max_new_tokens):
        asked.extend(map(tuple, prompts))
        return [[7, 0] for _ in prompts]

    answers = AnswerFile(tmp_path / "a.jsonl", model=MODEL, max_new_tokens=4)
    corpus = AnsweredPrompts(dataset=dataset(prompt("a", "b")), codec=CODEC, answers=answers)
    settled = []
    corpus.generate(answer, batch_size=4, progress=settled.append)
    assert asked == [words("a"), words("a t7 t0 b")]
    assert settled == [1, 1]
    assert [document.num_prompt for document in corpus.documents()] == [1, 4]


def test_a_prompt_beyond_the_context_is_refused_before_anything_is_generated(tmp_path):
    answers = AnswerFile(tmp_path / "a.jsonl", model=MODEL, max_new_tokens=4)
    corpus = AnsweredPrompts(
        dataset=dataset(prompt("a b c")), codec=CODEC, answers=answers, max_prompt_tokens=2
    )
    with pytest.raises(DatastoreError, match="has 3 tokens, the target model can answer up to 2"):
        corpus.generate(answer_with_length, batch_size=4, progress=lambda count: None)


TEST_TEXT = "one two three four five six"


def overlap(text: str, **options) -> tuple[list[str], dict]:
    check = ContaminationCheck(prompts=(prompt(TEST_TEXT, references=("r",)),), ngram=3, **options)
    documents = [Document(name="d", token_ids=(1,), texts=(text,))]
    return [document.name for document in check.filter(documents)], check.report()


def test_overlap_is_counted_in_words_whatever_their_case_and_punctuation():
    kept, report = overlap("zero. Two, THREE four -- nine")
    assert kept == ["d"]
    assert report["num_overlapping"] == 1
    assert report["num_dropped"] == 0
    assert report["share_of_test_ngrams"] == pytest.approx(1 / 4)
    assert report["overlapping"] == ["d"]


def test_a_short_question_overlaps_if_it_is_the_same():
    check = ContaminationCheck(prompts=(prompt("Why, oh why?"),), ngram=13)
    documents = [
        Document(name=str(number), token_ids=(1,), texts=texts)
        for number, texts in enumerate([("why oh WHY", "because"), ("why oh why not",), ("why",)])
    ]
    assert [document.name for document in check.filter(documents)] == ["0", "1", "2"]
    assert check.report()["overlapping"] == ["0"]


def test_characters_of_languages_without_spaces_are_words():
    assert words_of("Das ist 東京都 です。") == ["das", "ist", "東", "京", "都", "で", "す"]


def test_later_turns_are_compared_with_all_that_they_repeat():
    two = prompt(TEST_TEXT, "and then", references=("a b", "c d"))
    check = ContaminationCheck(prompts=(prompt(TEST_TEXT),), ngram=3, drops=True)
    documents = documents_of(two, reference_answers(two, CODEC), CODEC)
    assert list(check.filter(documents)) == []


def test_two_shared_words_are_no_overlap_of_three():
    assert overlap("one two four five nine")[1]["num_overlapping"] == 0


def test_overlapping_documents_can_be_dropped():
    kept, report = overlap("one two three", drops=True)
    assert kept == []
    assert report["num_dropped"] == 1


def test_texts_are_cut_at_line_ends_and_lose_nothing(tmp_path):
    text = "".join(f"line {number} häßlich\n" for number in range(50)) + "x" * 70
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "b.txt").write_text("  \n", encoding="utf-8")
    loader = TextFiles(path=str(tmp_path), max_chars=40)
    pieces = [piece for _, piece in loader.pieces(Faults())]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 40
    assert all(piece.endswith("\n") for piece in pieces[:-2])


def test_each_piece_is_a_document(tmp_path):
    (tmp_path / "a.txt").write_text("a b\nc d\n")
    loader = TextFiles(path=str(tmp_path), max_chars=4)
    corpus = Texts(loader=loader, codec=CODEC, faults=Faults())
    assert [document.token_ids for document in corpus.documents()] == [words("a b"), words("c d")]
    assert [source["file"] for source in corpus.sources()] == ["a.txt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine \xff\xfe", "expected utf-8, found byte 0xff at byte 5"),
        ("cut ä".encode()[:-1], "expected utf-8, found byte 0xc3 at byte 4"),
        (b"binary \0 data", "found a NUL byte"),
    ],
    ids=["no-utf-8", "cut-off", "binary"],
)
def test_what_is_no_text_is_named(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.txt").write_text("good")
    loader = TextFiles(path=str(tmp_path))
    with pytest.raises(DatasetError, match=message):
        list(loader.pieces(Faults()))
    skipping = Faults(on_error="skip")
    assert [piece for _, piece in loader.pieces(skipping)][-1] == "good"
    assert len(skipping.found) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": None}, "needs dataset.path"),
        ({"path": "nowhere"}, "no such file or folder"),
        ({"path": ".", "pattern": "*.nothing-of-the-kind"}, "no file in this folder"),
    ],
)
def test_texts_that_are_not_there(fields, message):
    with pytest.raises(DatasetError, match=message):
        list(TextFiles(**fields).pieces(Faults()))


def test_a_text_holds_no_prompts():
    with pytest.raises(DatasetError, match="holds no prompts"):
        TextFiles(path=".").load("train")
