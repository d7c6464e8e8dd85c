"""Why a model did not load, in one message that says what to do next.

The libraries raise about twenty types, most of them wrapped in an `OSError` with advice for callers
of their API. Here the chain of causes is walked from the outside in; the first one that is known
decides. Faults without a type of their own in transformers are known by a piece of their message:
if a release rewords it, the original error comes through, harder to read but never wrong.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".index.json")
DAMAGE = frozenset({"SafetensorError", "UnpicklingError", "JSONDecodeError", "UnicodeDecodeError"})
"""Type names of what parsers raise; torch, json and safetensors share no base class."""

_OWN_COPY = "Or set model.name_or_path=/local/folder to a copy you already have."
_FORMAT = (
    "It must hold config.json, tokenizer files and weights in the format of transformers "
    "(*.safetensors or pytorch_model*.bin); convert adapters, GGUF and other formats first."
)

_MESSAGES: tuple[tuple[str, str], ...] = (
    (
        "trust_remote_code",
        "it needs Python code from its repository. Read that code; if you trust it, set "
        "model.trust_remote_code=true.",
    ),
    (
        "does not recognize this architecture",
        "the installed transformers does not know its architecture. Upgrade transformers, or set "
        "model.trust_remote_code=true if the repository brings its own code.",
    ),
    (
        "Unrecognized configuration class",
        "it is no causal language model. A target model must predict the next token.",
    ),
    ("Unrecognized model in", f"its config.json names no known model_type. {_FORMAT}"),
    (
        "instantiate the backend tokenizer|sentencepiece or tiktoken",
        "its tokenizer cannot be built: tokenizer.json is missing, or the older format needs a "
        "package (`python -m pip install sentencepiece tiktoken protobuf`).",
    ),
    ("no file named|does not appear to have", f"a file that is needed is not there. {_FORMAT}"),
    (
        "ignore_mismatched_sizes|size mismatch",
        "its weights do not have the shapes that its config.json says. The two belong to different "
        "models: copy both again.",
    ),
    (
        "requires `?accelerate",
        "model.device_map and bitsandbytes need accelerate. Run `python -m pip install "
        "accelerate`, or set model.device_map=null.",
    ),
)


class ModelUnavailable(RuntimeError):
    """A model that cannot be had as asked; the message says what to do about it."""


def explain_load_error(name: str, error: BaseException) -> ModelUnavailable | None:
    """The user's version of what `from_pretrained` raised.

    Out-of-memory and unknown errors are not explained away: for them the answer is None and the
    caller re-raises the original.

        except Exception as error:
            if (explained := explain_load_error(name, error)) is None:
                raise
            raise explained from error

    Args:
        name: `model.name_or_path`: a hub name or a folder.
        error: What was raised; its causes are searched too.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return None
    for cause in _causes(error):
        for explain in (_hub_fault, _path_fault, _file_fault, _known_message):
            if advice := explain(name, cause):
                return ModelUnavailable(f"cannot load the model {name}: {advice}")
    if isinstance(error, ImportError):
        return ModelUnavailable(
            f"cannot load the model {name}: a package is missing. {_first_line(error)}"
        )
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, its cause, the cause's cause, ...: each once."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        implicit = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or implicit


def _hub_fault(name: str, cause: BaseException) -> str | None:
    """Gated, private, misspelt, unknown revision or file, unreachable: types of huggingface_hub."""
    from huggingface_hub import errors as hub

    # Subclasses first: a gated repository is also "not found", an offline miss also "no entry".
    if isinstance(cause, hub.GatedRepoError):
        return _gated()
    if isinstance(cause, hub.RevisionNotFoundError):
        return "it has no such revision. Set model.revision to a branch, tag or commit, or to null."
    if isinstance(cause, hub.RepositoryNotFoundError):
        return (
            "the Hugging Face hub has no model of that name that you may see. Check the spelling "
            "(owner/name); for a private model run `hf auth login` first. For a local model set "
            "model.name_or_path to an existing folder."
        )
    if isinstance(cause, hub.RemoteEntryNotFoundError):
        return f"a file that is needed is not in the repository. {_FORMAT}"
    if isinstance(cause, (hub.LocalEntryNotFoundError, ConnectionError, TimeoutError)):
        return _offline(name)
    if isinstance(cause, hub.LocalTokenNotFoundError):
        return "it needs a login. Run `hf auth login`."
    # The package of the HTTP client differs between hub releases, the base class's name does not.
    if any(base.__name__ == "TransportError" for base in type(cause).__mro__):
        return _offline(name)
    return _http_fault(cause)


def _http_fault(cause: BaseException) -> str | None:
    """Answers of the hub that have no type of their own."""
    status = getattr(getattr(cause, "response", None), "status_code", None)
    if status == 401:
        return "the hub refuses the login. Run `hf auth login` with a valid token."
    if status == 403:
        return _gated()
    if status == 429 or (isinstance(status, int) and status >= 500):
        return f"the hub is busy or broken (HTTP {status}). Try again later. {_OWN_COPY}"
    return None


def _gated() -> str:
    return (
        "it is gated. Accept its licence on its page on the Hugging Face hub (approval may take a "
        "while), then run `hf auth login` (older: `huggingface-cli login`) with a token of that "
        f"account that may read gated repositories. {_OWN_COPY}"
    )


def _offline(name: str) -> str:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        why = "HF_HUB_OFFLINE is set, and it is not in the local cache. Unset that, or"
    else:
        why = (
            "the Hugging Face hub cannot be reached, and it is not in the local cache. Check the "
            "connection (HTTPS_PROXY, HF_ENDPOINT), or"
        )
    return (
        f"{why} run `hf download {name}` where there is a connection and bring the cache folder "
        "(~/.cache/huggingface or $HF_HOME) here; or set model.name_or_path=/local/folder; or use "
        "model=smollm2-135m or model=toy."
    )


def _path_fault(name: str, cause: BaseException) -> str | None:
    """A folder that is not there, or a name that the hub could not have."""
    path = Path(name).expanduser()
    if not isinstance(cause, (OSError, ValueError)) or path.is_dir():
        return None
    if path.is_file():
        return "it is a file. Set model.name_or_path to the folder around it."
    if path.is_absolute() or name.startswith((".", "~")):
        return f"there is no folder {path.absolute()}. Check model.name_or_path."
    if type(cause).__name__ == "HFValidationError":
        return (
            "it is neither an existing folder nor a possible name on the Hugging Face hub "
            "(owner/name). Check model.name_or_path."
        )
    return None


def _file_fault(name: str, cause: BaseException) -> str | None:
    """Files that are missing or damaged, in a folder or in the hub's cache."""
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
        return "the disk is full. Free space, or point HF_HOME to a larger disk."
    folder = Path(name).expanduser()
    if folder.is_dir() and isinstance(cause, (OSError, ValueError)):
        if not (folder / "config.json").is_file():
            return f"the folder {folder} has no config.json. {_FORMAT}"
        if not any(file.name.endswith(WEIGHT_SUFFIXES) for file in folder.iterdir()):
            return f"the folder {folder} has no weights. {_FORMAT}"
    again = "Copy it again" if folder.is_dir() else f"Run `hf download --force-download {name}`"
    if type(cause).__name__ in DAMAGE:
        return f"one of its files is damaged or cut short ({_first_line(cause)}). {again}."
    if isinstance(cause, FileNotFoundError):
        return f"one of its files is missing ({_first_line(cause)}). {again}."
    return None


def _known_message(_: str, cause: BaseException) -> str | None:
    if not isinstance(cause, (OSError, ValueError, RuntimeError, ImportError)):
        return None
    found = (advice for pattern, advice in _MESSAGES if re.search(pattern, str(cause)))
    advice = next(found, None)
    return None if advice is None else f"{advice} ({_first_line(cause)})"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
