"""A contract for another card, made from one there is by editing its text: comments and structure stay.

Knows which keys speak of the card; everything else is the model contract's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gfast_pipeline.contract.cards import DATASHEETS, PRECISIONS, Card, Rates, datasheet
from gfast_pipeline.contract.errors import GfastError
from gfast_pipeline.contract.load import Loaded, load_text
from gfast_pipeline.contract.places import places


def new_contract(name: str, like: Loaded, card: Card, given: Rates | None = None, purpose: str | None = None) -> Path:
    """Writes contracts/<name>.toml beside `like` for `card` and returns its path.

    Limits are the known card's datasheet, overridden by what is `given`. Raises GfastError for an unknown card with
    limits missing, for a taken name, and ContractError for a text that is no contract.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise GfastError(f"{name!r} is no name for a contract. Use small letters, digits and underscores: a100_fp32")
    path = like.path.with_name(f"{name}.toml")
    if path.exists():
        raise GfastError(f"{path}: there is such a contract already. Choose another name, or edit that file.")
    rates = _rates(card, given or Rates())
    text = edited(like.path.read_text(encoding="utf-8"), name, card, rates, purpose or _purpose(like, card))
    load_text(text, path)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    return path


def edited(text: str, name: str, card: Card, rates: Rates, purpose: str) -> str:
    """The text of a contract, made to speak of `card` under a new name."""
    compute = ", ".join(f"{key} = {_number(getattr(rates, key))}" for key in PRECISIONS)
    wanted = {
        ("name",): json.dumps(name),
        ("purpose",): json.dumps(purpose, ensure_ascii=False),
        ("target", "accelerator"): json.dumps(card.name, ensure_ascii=False),
        ("target", "device"): '"cuda"',
        ("limits", "compute_tflops"): f"{{ {compute} }}",
        ("limits", "memory_tb_s"): _number(rates.memory_tb_s),
        ("limits", "l2_mb"): _number(rates.l2_mb),
        ("limits", "exponentials_t_s"): _number(rates.exponentials_t_s),
    }
    for path, value in wanted.items():
        text = _set(text, path, value)
    return text


def _set(text: str, path: tuple[str, ...], value: str) -> str:
    """Replaces one value in a TOML text, or adds the key right under its table's header."""
    found = places(text)
    if path in found and not text[found[path].start :].startswith("[" + path[0]):
        return text[: found[path].start] + value + text[found[path].end :]
    if path[:-1] not in found:
        return f"{text.rstrip()}\n\n[{'.'.join(path[:-1])}]\n{path[-1]} = {value}\n"
    header = text.find("\n", found[path[:-1]].end)
    header = len(text) if header < 0 else header
    return f"{text[:header]}\n{path[-1]} = {value}{text[header:]}"


def _rates(card: Card, given: Rates) -> Rates:
    known = datasheet(card.name) or Rates()
    rates = Rates(**{key: value if value is not None else getattr(known, key) for key, value in vars(given).items()})
    missing = rates.missing()
    if missing:
        options = " ".join(f"--{key.replace('_', '-')} X" for key in missing)
        raise GfastError(
            f"No datasheet of {card.name!r} is known here, and limits are never guessed. "
            f"Give its dense rates: {options} (TFLOP/s; TB/s; MB; 10^12 exponentials a second). "
            f"Known cards: {', '.join(DATASHEETS)}."
        )
    return rates


def _purpose(like: Loaded, card: Card) -> str:
    details = [f"{card.sm_count} multiprocessors"] if card.sm_count else []
    details += [f"{card.memory_bytes / 2**30:.0f} GiB"] if card.memory_bytes else []
    return f"The cases of {like.name} on one {card.name}" + (f" ({', '.join(details)})." if details else ".")


def _number(value: float | None) -> str:
    return str(value) if value is not None else "nan"
