"""Reads files with each of their bytes damaged in turn: `python -m tests.rsa.damage FILE ...`.

A process of its own, for what is under test is whether a damaged byte can end it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dynmetrics.rsa import load_brain_rdms

MASKS = (0x01, 0x80, 0xFF)


def damage(path: Path) -> tuple[int, int]:
    """How many damaged files were read and how many refused; raises for anything else."""
    key = None if path.suffix == ".npy" else "IT"
    whole = path.read_bytes()
    shape = load_brain_rdms(path, key).rdms.shape
    read = refused = 0
    for at in range(len(whole)):
        for mask in MASKS:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
            try:
                found = load_brain_rdms(path, key).rdms
            except ValueError as error:
                # One line that names the argument, whatever the reader had to say.
                if ": expected " not in str(error) or "\n" in str(error):
                    raise RuntimeError(f"byte {at} with {mask}: {error}") from error
                refused += 1
                continue
            assert found.shape == shape, (at, mask, found.shape)
            read += 1
    path.write_bytes(whole)
    return read, refused


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(*damage(Path(name)))
