"""Scorers of texts, and the scores of a run: values worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.datasets.base import Dataset, Prompt, Task
from benchmarks.files import RunFolderError
from benchmarks.records import RequestError
from benchmarks.scoring import SCORERS
from benchmarks.scoring.final_number import are_equal, final_number
from benchmarks.scoring.score_rows import ScoreRow, read_scores, write_scores
from benchmarks.scoring.scores import check_tasks, score_request, score_run
from support.rows import make_row, make_turn


def prompt(scorer="gsm8k", *references, prompt_id="p", **data):
    task = None if scorer is None else Task(scorer=scorer, data=data)
    turns = ("question",) * max(1, len(references))
    return Prompt(prompt_id=prompt_id, category="c", turns=turns, references=references, task=task)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3 + 4 = <<3+4=7>>7 in all\n#### 7", "7"),
        ("#### 7\nThat was 2 steps.", "7"),
        ("#### Step 2: add\nso we get 12 apples", "12"),
        ("The answer is $1,234.50.", "1234.50"),
        ("**Answer:** 15 apples for 3 children", "15"),
        ("The final answer to the question is: 8. I checked 2 times.", "8"),
        ("The answer is 2 * 3 = 6", "6"),
        ("Answer:\n\n42\n\n7 was wrong.", "42"),
        (r"so \boxed{1{,}000} of 5", "1000"),
        (r"\boxed{-5}", "-5"),
        ("first 3, then 4", "4"),
        ("from 5-10", "10"),
        ("a loss of -$20", "-20"),
        ("a loss of −20", "-20"),
        ("it is 20%.", "20"),
        ("about .5 of it", ".5"),
        ("1,2,3", "3"),
        ("The answer is 3/4.", "3/4"),
        ("none at all", None),
        ("", None),
    ],
)
def test_final_number(text, number):
    assert final_number(text) == number


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("1.0", "1", True), ("0.10", ".1", True), ("-1", "1", False), ("3/4", "3/4", True),
        ("3/4", "0.75", False), ("1", "1.0000001", False),
    ],
)  # fmt: skip
def test_equal_numbers(first, second, is_same):
    assert are_equal(first, second) is is_same


def test_gsm8k_compares_with_the_number_of_the_reference():
    scorer, one = SCORERS.create("gsm8k"), prompt("gsm8k", "5 * 2 = 10\n#### 1,010")
    score = scorer.score(one, 0, "There are 3, so 1010.00")
    assert (score.value, score.detail) == (1.0, "1010.00")
    assert scorer.score(one, 0, "10").value == 0.0
    assert scorer.score(one, 0, "no idea").detail == "no number in the answer"
    assert scorer.score(prompt("gsm8k", "#### 1", ""), 1, "1") is None
    assert scorer.score(prompt("gsm8k"), 0, "1") is None
    with pytest.raises(ValueError, match=r"references\[0\] must hold a number.*'many'"):
        scorer.score(prompt("gsm8k", "many"), 0, "1")


@pytest.mark.parametrize(
    ("text", "reference", "contains", "exact"),
    [
        ("The capital is Paris.", "Lyon\nParis", 1, 0),
        ("Paris", "paris", 1, 1),
        ("The Paris!", "Paris", 1, 1),
        ("Paris. It lies on the Seine.", "Paris", 1, 1),
        ("Paris\nIt lies on the Seine", "Paris", 1, 1),
        ("Parisian", "Paris", 0, 0),
        ("Paris-based", "Paris", 1, 0),
        ("the U.S.", "US", 1, 1),
        ("O'Brien wrote it", "O’Brien", 1, 0),
        ("Red and dead sea", "Red Sea", 0, 0),
        ("Москва, конечно", "москва", 1, 0),
        ("Extra Anejo", "Extra Añejo", 0, 0),
        ("हिन्दी", "हिन्दी", 1, 1),
        ("हन्दी", "हिन्दी", 0, 0),
        ("答えは東京です", "東京", 1, 0),
        ("A", "a", 1, 1),
        ("", "Paris", 0, 0),
        ("anything", "...", 0, 0),
    ],
)
def test_short_answers(text, reference, contains, exact):
    one = prompt("short_answer", reference)
    assert SCORERS.create("short_answer").score(one, 0, text).value == contains
    assert SCORERS.create("short_answer_exact").score(one, 0, text).value == exact


def test_short_answer_names_the_alias_and_the_metrics_differ():
    scorer = SCORERS.create("short_answer")
    assert scorer.score(prompt("short_answer", "x\n Paris "), 0, "in Paris").detail == "Paris"
    assert scorer.score(prompt("short_answer", " "), 0, "in Paris") is None
    assert scorer.metric != SCORERS.get("short_answer_exact").metric


def test_rouge_l_against_the_reference():
    scorer, one = SCORERS.create("rouge_l"), prompt("rouge_l", "", "the cat sat")
    assert scorer.score(one, 0, "the dog sat") is None
    assert scorer.score(one, 1, "The dog sat.").value == pytest.approx(2 / 3)


def answers(prompt_id, arm, *texts, **kwargs):
    turns = [make_turn(None, wall_ns=1, ids=(1,), text=text) for text in texts]
    return make_row(prompt_id, arm, *turns, **kwargs)


def dataset(*prompts):
    return Dataset.from_prompts(prompts, name="d", split="test", source="here")


def test_a_request_has_the_mean_over_its_scored_turns():
    one = prompt("gsm8k", "#### 1", "", "#### 3")
    row = score_request(answers("p", "method", "1", "2", "4"), one, allow_code_execution=False)
    assert row == ScoreRow(
        prompt_id="p", repeat=0, arm="method", scorer="gsm8k", metric="exact_match",
        value=0.5, detail="1 | 4",
    )  # fmt: skip


def test_what_is_not_scored_has_no_row():
    error = RequestError(type="E", message="m")
    failed = make_row("p", "method", error=error)
    assert score_request(failed, prompt("gsm8k", "1"), allow_code_execution=True) is None
    for one, arm in (
        (prompt(None, "1"), "method"), (prompt("gsm8k", "1"), "generate"),
        (prompt("gsm8k"), "method"), (prompt("mbpp"), "method"),
    ):  # fmt: skip
        assert score_request(answers("p", arm, "1"), one, allow_code_execution=False) is None


def test_a_run_scores_equal_answers_once_and_says_what_it_left_out(monkeypatch):
    calls, scored = [], SCORERS.get("gsm8k").score

    def score(self, one, turn, text):
        calls.append(text)
        return scored(self, one, turn, text)

    monkeypatch.setattr(SCORERS.get("gsm8k"), "score", score)
    tests = {"setup": "", "tests": ["assert f() == 1"]}
    data = dataset(
        prompt("gsm8k", "#### 1", prompt_id="a"),
        prompt(None, prompt_id="b"),
        prompt("mbpp", prompt_id="c", **tests),
        prompt("mbpp", prompt_id="e", **tests),
    )
    rows = [
        answers("a", "vanilla", "It is 1"),
        answers("a", "method", "It is 1"),
        answers("a", "generate", "It is 1"),
        answers("a", "method", "It is 2", repeat=1),
        *[answers(name, "method", "1") for name in "bce"],
    ]
    done = []
    scores, note = score_run(rows, data, allow_code_execution=False, progress=done.append)
    assert [(row.prompt_id, row.arm, row.repeat, row.value) for row in scores] == [
        ("a", "vanilla", 0, 1.0), ("a", "method", 0, 1.0), ("a", "method", 1, 0.0),
    ]  # fmt: skip
    assert calls == ["", "It is 1", "It is 2"]  # The first is the check of the task.
    assert sum(done) == len(rows)
    assert note == (
        "not scored: 1 prompt without a task that says what is right; "
        "2 prompts whose answers are programs (allow_code_execution=true runs them)"
    )
    assert score_run(rows[:2], data, allow_code_execution=False)[1] == ""


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (prompt("gsm9k", "1"), "prompt 'p': unknown scorer 'gsm9k'"),
        (prompt("rouge_l"), "prompt 'p': scorer 'rouge_l' needs a reference, and no turn has one"),
        (prompt("gsm8k", "many"), r"prompt 'p': references\[0\] must hold a number"),
        (prompt("humaneval"), r"prompt 'p': task.data\['prompt'\] must be a text, got None"),
        (prompt("mbpp", setup=""), r"prompt 'p': task.data\['tests'\] must be a list of assert"),
        (prompt("mbpp", setup="", tests=[1]), "must hold texts only, got"),
        (prompt("mbpp", setup="", tests=["assert ("]), "must be Python code"),
        (prompt("mbpp", setup="", tests=["assert x"]), "must call a function by its name"),
    ],
)
def test_tasks_that_cannot_be_scored_are_refused_before_a_run(one, message):
    with pytest.raises(ValueError, match=message):
        check_tasks(dataset(one))


def test_rows_of_another_dataset_are_refused():
    data = dataset(prompt("gsm8k", "1"))
    with pytest.raises(ValueError, match="prompt 'q' of the run is not in the dataset d"):
        score_run([answers("q", "method", "1")], data, allow_code_execution=False)


def row(**fields):
    values = {"prompt_id": "p", "repeat": 0, "arm": "method", "scorer": "s", "metric": "m"}
    return ScoreRow(**(values | {"value": 0.5} | fields))


def test_score_rows_survive_their_file(tmp_path):
    path = tmp_path / "scores.jsonl"
    assert read_scores(path) == []
    rows = [row(detail="é\u2028\n"), row(prompt_id="q", detail="\ud800", arm="vanilla")]
    write_scores(path, rows)
    assert read_scores(path) == rows
    write_scores(path, [])
    assert read_scores(path) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ("{}", "TypeError.*prompt_id"),
        ('{"prompt_id": 1}', "TypeError"),
    ],
)
def test_damaged_scores_name_their_line(tmp_path, line, message):
    path = tmp_path / "scores.jsonl"
    write_scores(path, [row()])
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(RunFolderError, match=rf"scores\.jsonl:2: .*damaged line.*{message}"):
        read_scores(path)


def test_scores_that_are_cut_off_are_refused(tmp_path):
    path = tmp_path / "scores.jsonl"
    write_scores(path, [row(), row(prompt_id="q")])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunFolderError, match=r"scores\.jsonl:2: the last line is cut off"):
        read_scores(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"value": 1.5}, r"value must be in \[0, 1\], got 1.5"),
        ({"value": float("nan")}, r"value must be in \[0, 1\], got nan"),
        ({"arm": "generate"}, "arm must be vanilla or method, got 'generate'"),
        ({"repeat": -1}, "repeat must be a number ≥ 0, got -1"),
    ],
)
def test_score_rows_refuse_bad_values(fields, message):
    with pytest.raises(ValueError, match=message):
        row(**fields)
