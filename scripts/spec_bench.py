"""Answer files of Spec-Bench: checks them, imports them as results, writes them from runs.

python scripts/spec_bench.py lint FILE ... [--questions question.jsonl]
python scripts/spec_bench.py import ANSWERS --baseline VANILLA_ANSWERS
python scripts/spec_bench.py export RUN --output answers.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.console import plain_console
from benchmarks.datasets.reader import DatasetError
from benchmarks.files import RunFolderError, write_atomically
from benchmarks.options import (
    at_least_0,
    at_least_1,
    model_name,
    number_at_least_0,
    output_file,
    plain_name,
)
from benchmarks.results import StoredRun, read_runs
from benchmarks.spec_bench.export import export_run
from benchmarks.spec_bench.findings import count_by_severity, plural, shown
from benchmarks.spec_bench.imports import ImportOptions, import_answers
from benchmarks.spec_bench.lint import lint
from benchmarks.spec_bench.names import NameFault
from benchmarks.spec_bench.tables import render_import

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int4")


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 if `lint` found errors; 2 if a file or an option cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (DatasetError, NameFault, RunFolderError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _lint(options: argparse.Namespace) -> int:
    findings = [one for path in options.files for one in lint(path, options.questions)]
    for line in shown(findings):
        print(line)
    counts = count_by_severity(findings)
    numbers = ", ".join(plural(number, severity) for severity, number in counts.items())
    print(f"{plural(len(options.files), 'file')}: {numbers}")
    return 1 if counts["error"] else 0


def _import(options: argparse.Namespace) -> int:
    run = import_answers(
        options.answers,
        options.baseline,
        ImportOptions(
            results_dir=options.results_dir,
            device=options.device,
            model=options.model,
            method=options.method,
            dtype=options.dtype,
            temperature=options.temperature,
            max_new_tokens=options.max_new_tokens,
            is_lossless=not options.relaxed,
            questions=options.questions,
            dataset=options.dataset,
        ),
    )
    sys.stderr.writelines(f"{line}\n" for line in shown(run.findings))
    plain_console().print(render_import(run))
    print(run.path)
    return 0


def _export(options: argparse.Namespace) -> int:
    try:
        export = export_run(_run_of(options.run), options.arm, repeat=options.repeat)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in export.rows)
    if options.output is None:
        sys.stdout.write(text)
    else:
        write_atomically(options.output, text.encode())
    if export.failed:
        failed = ", ".join(export.failed)
        sys.stderr.write(f"left out {len(export.failed)} failed questions: {failed}\n")
    return 0


def _run_of(folder: Path) -> StoredRun:
    """The run in a folder, which must not lie further below.

    Raises:
        RunFolderError: If there is none, or it cannot be used.
    """
    runs, unusable = read_runs([folder])
    below = [*(run.path for run in runs), *(one.path for one in unusable)]
    if folder not in below:
        are = "is" if len(below) == 1 else "are"
        raise RunFolderError(
            f"{folder} holds no run of its own: give one run folder ({len(below)} {are} below it)"
        )
    if unusable:
        raise RunFolderError(str(unusable[0]))
    return runs[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    lint_parser = commands.add_parser("lint", help="check answer files")
    lint_parser.add_argument("files", nargs="+", type=Path)
    lint_parser.set_defaults(command=_lint)
    import_parser = commands.add_parser("import", help="write a run folder from answer files")
    _add_import_options(import_parser)
    for command in (lint_parser, import_parser):
        command.add_argument("--questions", type=Path, help="the question file, to find gaps")
    export_parser = commands.add_parser("export", help="write an answer file from a run folder")
    export_parser.add_argument("run", type=Path, help="the folder of a finished run")
    export_parser.add_argument("--arm", choices=("method", "vanilla"), default="method")
    export_parser.add_argument("--repeat", type=at_least_0, default=0, help="which repeat, from 0")
    export_parser.add_argument("--output", type=output_file, help="default: stdout")
    export_parser.set_defaults(command=_export)
    return parser


def _add_import_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("answers", type=Path, help="answers of the method")
    parser.add_argument("--baseline", type=Path, required=True, help="answers of vanilla decoding")
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    parser.add_argument("--dataset", default="spec_bench", help="default: spec_bench")
    parser.add_argument("--device", help="what it was measured on, e.g. 'RTX 3090'")
    for name, of_name in (("model", model_name), ("method", plain_name)):
        parser.add_argument(f"--{name}", type=of_name, help="default: from model_id")
    parser.add_argument("--dtype", choices=DTYPES, help="default: from model_id")
    parser.add_argument("--temperature", type=number_at_least_0, help="default: from model_id")
    parser.add_argument(
        "--max-new-tokens", type=at_least_1, help="default: vanilla's longest answer"
    )
    parser.add_argument(
        "--relaxed", action="store_true", help="the method may change the target's output"
    )
    parser.set_defaults(command=_import)


if __name__ == "__main__":
    sys.exit(main())
