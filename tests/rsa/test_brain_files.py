"""Brain RDMs from files: the published layouts, and files that are damaged or hostile."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.rsa import (
    RSA,
    BrainRDMs,
    algonauts_score,
    load_brain_rdms,
    rdm,
    save_submission,
    to_rsatoolbox,
)
from dynmetrics.rsa.vectors import upper_triangle

h5py = pytest.importorskip("h5py")
io = pytest.importorskip("scipy.io")


def rdms(*shape: int, seed: int = 0) -> Any:
    """Symmetric RDMs (..., K, K) with a diagonal of zeros."""
    values = np.random.default_rng(seed).random(shape)
    values = values + np.swapaxes(values, -1, -2)
    values[..., np.arange(shape[-1]), np.arange(shape[-1])] = 0
    return values


def matlab73(path: Path, **arrays: Any) -> None:
    """As MATLAB writes: a block of its own before HDF5, and all axes in reverse order."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            dataset = file.create_dataset(name, data=np.transpose(array), compression="gzip")
            dataset.attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(128))


def written(folder: Path, form: str, array: Any) -> Path:
    path = folder / f"target.{form.removesuffix('73')}"
    if form == "mat73":
        matlab73(path, IT_RDMs=array, EVC_RDMs=array + 1 - np.eye(array.shape[-1]))
    elif form == "mat":
        io.savemat(path, {"IT_RDMs": array, "note": "text"}, do_compression=True)
    elif form == "npy":
        np.save(path, array)
    elif form == "npz":
        np.savez_compressed(path, IT_RDMs=array, conditions=np.arange(array.shape[-1]))
    elif form == "pt":
        torch.save({"IT_RDMs": torch.from_numpy(array), "note": "text"}, path)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("IT_RDMs", data=array, chunks=True, compression="gzip")
    return path


FORMS = ("mat73", "mat", "npy", "npz", "pt", "h5")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(6, 6), (4, 6, 6), (4, 3, 6, 6), (6, 6, 6), (6, 4, 6, 6)])
def test_round_trip(tmp_path: Path, form: str, shape: tuple[int, ...]) -> None:
    """Also where there are as many subjects as conditions."""
    array = rdms(*shape)
    path = written(tmp_path, form, array)
    key = None if form == "npy" else "IT_RDMs"
    brain = load_brain_rdms(path, key)
    np.testing.assert_array_equal(brain.rdms.numpy(), array)
    assert brain.name == (key or "target")
    assert brain.conditions == (tuple(range(6)) if form == "npz" else None)
    if form not in ("mat73",):
        np.testing.assert_array_equal(load_brain_rdms(path).rdms.numpy(), array)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i4", ">u2", "u1"])
def test_numbers_of_any_kind(tmp_path: Path, dtype: str) -> None:
    array = np.rint(rdms(5, 5) * 100).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(load_brain_rdms(tmp_path / "a.npy").rdms.numpy(), array)


@pytest.mark.parametrize("shape", [(10,), (4, 10), (4, 3, 10)])
def test_vectors_of_the_upper_triangle(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """As rsatoolbox and Net2Brain keep them."""
    vectors = np.random.default_rng(0).random(shape)
    np.savez(tmp_path / "v.npz", dissimilarities=vectors)
    brain = load_brain_rdms(tmp_path / "v.npz", "dissimilarities")
    assert brain.rdms.shape == (*shape[:-1], 5, 5)
    np.testing.assert_array_equal(upper_triangle(brain.rdms).numpy(), vectors)


def test_sessions_are_averaged(tmp_path: Path) -> None:
    """(subject, session, time, K, K) of decoding accuracies, of which one half is filled."""
    array = rdms(2, 3, 4, 6, 6) * 50
    lower = np.tril(array, -1)
    lower[..., np.arange(6), np.arange(6)] = np.nan
    half = np.where(np.tri(6, k=-1, dtype=bool), array, np.nan)
    for values in (array, lower, half, np.swapaxes(half, -1, -2)):
        matlab73(tmp_path / "MEG_decoding_RDMs.mat", MEG_decoding_RDMs=values)
        brain = load_brain_rdms(tmp_path / "MEG_decoding_RDMs.mat")
        np.testing.assert_allclose(brain.rdms.numpy(), array.mean(1))
        assert brain.name == "MEG_decoding_RDMs"


def test_axes_in_reverse_order_in_a_plain_file(tmp_path: Path) -> None:
    array = rdms(4, 6, 6)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["rdms"] = np.transpose(array)
    np.testing.assert_array_equal(load_brain_rdms(tmp_path / "a.h5").rdms.numpy(), array)
    even = rdms(3, 3, 3)
    even = (even + even.transpose(1, 0, 2) + even.transpose(2, 1, 0)) / 3
    both = even + even.transpose(0, 2, 1) + even.transpose(1, 0, 2) + even.transpose(2, 0, 1)
    both = both + even.transpose(1, 2, 0) + even.transpose(2, 1, 0)
    np.save(tmp_path / "b.npy", both)
    with pytest.raises(ValueError, match=r"transpose=True or False where the axes .* ambiguous"):
        load_brain_rdms(tmp_path / "b.npy")
    for transpose in (True, False):
        assert load_brain_rdms(tmp_path / "b.npy", transpose=transpose).rdms.shape == (3, 3, 3)


def test_ids_and_times_of_the_file_come_along(tmp_path: Path) -> None:
    names = ["cat", "dog", "car", "cup"]
    array = rdms(3, 2, 4, 4)
    np.savez(tmp_path / "a.npz", meg=array, conditions=names, times=[0.1, 0.2])
    torch.save({"meg": torch.from_numpy(array), "conditions": names}, tmp_path / "a.pt")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["meg"] = array
        file["conditions"] = names
    for form in ("npz", "pt", "h5"):
        brain = load_brain_rdms(tmp_path / f"a.{form}", "meg")
        assert brain.conditions == tuple(names)
        assert RSA(brain, conditions=["cup", "cat"], recipe="none").conditions.ids == ("cup", "cat")
    timed = load_brain_rdms(tmp_path / "a.npz", "meg")
    assert timed.times is not None
    assert timed.times.tolist() == [0.1, 0.2]
    np.savez(tmp_path / "b.npz", meg=array, conditions=names[:3])
    with pytest.raises(ValueError, match="conditions: expected 4 ids for meg, got 3"):
        load_brain_rdms(tmp_path / "b.npz", "meg")


def test_several_candidates_need_a_key(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", EVC=rdms(4, 4), IT=rdms(4, 4), images=np.zeros((4, 9, 9, 3)))
    with pytest.raises(ValueError, match=r"key: expected the name of an entry .*'EVC', 'IT'"):
        load_brain_rdms(tmp_path / "a.npz")
    with pytest.raises(
        ValueError, match="key: expected one of 'EVC', 'IT', 'images', got str 'V4'"
    ):
        load_brain_rdms(tmp_path / "a.npz", "V4")
    with pytest.raises(ValueError, match="images: expected RDMs"):
        load_brain_rdms(tmp_path / "a.npz", "images")


def test_no_rdms(tmp_path: Path) -> None:
    crooked = np.random.default_rng(0).random((5, 5))
    endless = rdms(5, 5)
    endless[1, 2] = endless[2, 1] = np.inf
    for array, message in (
        (crooked, "symmetric"),
        (endless, "infinite"),
        (np.zeros((5, 7)), "RDMs"),
        (np.zeros(()), "RDMs|shape"),
        (np.zeros((2, 2, 2, 2, 3, 3)), "5 axes"),
        (rdms(3, 3) * 1j, "real numbers"),
        (np.array([["a", "b"], ["c", "d"]]), "real numbers|numbers|tensor|RDM"),
    ):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(ValueError, match=message):
            load_brain_rdms(tmp_path / "a.npy", "")


# ---------------------------------------------------------------------------- hostile files


class Bomb:
    """Executed when unpickled: writes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    bomb = np.array([Bomb(mark)], dtype=object)
    np.save(tmp_path / "a.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "a.npz", IT_RDMs=bomb)
    np.savez(tmp_path / "b.npz", IT_RDMs=rdms(3, 3), extra=bomb)
    torch.save({"IT_RDMs": Bomb(mark)}, tmp_path / "a.pt")
    torch.save({"IT_RDMs": Bomb(mark)}, tmp_path / "b.pt", _use_new_zipfile_serialization=False)
    for name in ("a.pkl", "c.pt", "a.mat", "a.h5", "d.npz"):
        (tmp_path / name).write_bytes(pickle.dumps({"IT_RDMs": Bomb(mark)}))
    io.savemat(tmp_path / "cell.mat", {"IT_RDMs": np.array([[1], ["a"]], dtype=object)})
    names = (
        "a.npy",
        "a.npz",
        "a.pt",
        "b.pt",
        "a.pkl",
        "c.pt",
        "a.mat",
        "a.h5",
        "d.npz",
        "cell.mat",
    )
    for name in names:
        with pytest.raises(ValueError, match=r"^[\w.]+: expected .+, got .+"):
            load_brain_rdms(tmp_path / name, None if name == "a.npy" else "IT_RDMs")
    assert load_brain_rdms(tmp_path / "b.npz", "IT_RDMs").rdms.shape == (3, 3)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()


def npy_header(shape: str, descr: str = "<f8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_huge_shapes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    shape = "(100000, 100000, 100000)"
    paths = {name: tmp_path / name for name in ("a.npy", "a.npz", "a.h5", "a.pt", "a.mat", "b.npy")}
    paths["a.npy"].write_bytes(npy_header(shape) + bytes(64))
    paths["b.npy"].write_bytes(npy_header("(-1, 3, 3)") + bytes(64))
    with zipfile.ZipFile(paths["a.npz"], "w") as archive:
        archive.writestr("IT_RDMs.npy", npy_header(shape) + bytes(64))
    with h5py.File(paths["a.h5"], "w") as file:
        file.create_dataset("IT_RDMs", (10**6, 10**6), "f8", chunks=(10, 10))
    torch.save({"IT_RDMs": torch.zeros(1).expand(10**6, 10**6)}, paths["a.pt"])
    io.savemat(paths["a.mat"], {"IT_RDMs": np.zeros((3, 3))})
    raw = paths["a.mat"].read_bytes()
    small, large = (np.array([n, n], "<i4").tobytes() for n in (3, 2**30))
    assert raw.count(small) == 1
    paths["a.mat"].write_bytes(raw.replace(small, large))
    for name, path in paths.items():
        with pytest.raises(ValueError, match=r"bytes|undamaged"):
            load_brain_rdms(path, "" if name.endswith("npy") else "IT_RDMs")
    np.save(tmp_path / "big.npy", rdms(40, 40))
    with pytest.raises(ValueError, match=r"at most 1000 bytes"):
        load_brain_rdms(tmp_path / "big.npy", max_bytes=1000)


def test_hdf5_that_points_at_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.zeros(9).tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["IT_RDMs"] = rdms(3, 3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("raw", (3, 3), "f8", external=[(str(secret), 0, 72)])
        file["link"] = h5py.ExternalLink("other.h5", "/IT_RDMs")
        layout = h5py.VirtualLayout((3, 3), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "IT_RDMs", (3, 3))
        file.create_virtual_dataset("view", layout)
        file.create_dataset("objects", (2,), h5py.ref_dtype)
    for key in ("raw", "view", "link", "objects"):
        with pytest.raises(ValueError, match=r"^\w+: expected .+, got .+"):
            load_brain_rdms(tmp_path / "a.h5", key)


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files(tmp_path: Path, form: str) -> None:
    """Cut short or with bytes changed, a file is read or refused, and never anything else."""
    whole = written(tmp_path, form, rdms(4, 6, 6)).read_bytes()
    suffix = form.removesuffix("73")
    rng = np.random.default_rng(0)
    key = None if form == "npy" else "IT_RDMs"
    messages = []
    for i in range(60):
        data = bytearray(whole[: int(len(whole) * i / 60)] if i % 2 else whole)
        if not i % 2:
            for at in rng.integers(0, min(len(data), 400 if i % 4 else len(data)), 6):
                data[at] = rng.integers(256)
        path = tmp_path / f"damaged.{suffix}"
        path.write_bytes(bytes(data))
        try:
            load_brain_rdms(path, key)
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 25
    assert all(": expected " in message for message in messages)
    for junk in (b"", b"\x00" * 100, b"text", bytes(rng.integers(0, 256, 4000, dtype=np.uint8))):
        (tmp_path / f"junk.{suffix}").write_bytes(junk)
        with pytest.raises(ValueError, match=": expected "):
            load_brain_rdms(tmp_path / f"junk.{suffix}", key)


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.mat"):
        with pytest.raises(ValueError, match="path: expected a file"):
            load_brain_rdms(path)


def test_misuse_of_loading(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", rdms(3, 3))
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (None, {}, "path: expected a path"),
        (3, {}, "path: expected a path"),
        (os.fsencode(tmp_path / "a.npy"), {}, "path: expected a path"),
        (tmp_path / "a.npy", {"transpose": "yes"}, "transpose: expected True, False or None"),
        (tmp_path / "a.npy", {"max_bytes": 0}, "max_bytes: expected an integer of at least 1"),
        (tmp_path / "a.npy", {"max_bytes": 1e9}, "max_bytes: expected an integer of at least 1"),
        (tmp_path / "a.npy", {"key": 3}, "key: expected one of ''"),
    ]
    for path, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            load_brain_rdms(path, **options)
    with pytest.raises(ValueError, match="path: expected a path"):
        save_submission(None, IT_RDMs=torch.from_numpy(rdms(3, 3)))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- submissions


def algonauts_scorer(submission: Path, target: Path) -> dict[str, float]:
    """Percent of each region, the way the challenge's script reads and scores."""
    from scipy import stats
    from scipy.spatial.distance import squareform

    def load(path: Path) -> Any:
        if path.suffix == ".npy":
            return np.load(path)
        try:
            file = h5py.File(path)
        except OSError:
            return io.loadmat(path)
        return {name: np.transpose(file.get(name)) for name in file}

    model, brain = load(submission), load(target)
    percents = {}
    for name in ("EVC_RDMs", "IT_RDMs"):
        subjects = [squareform(s, checks=False) for s in brain[name]]
        ours = squareform(model[name], force="tovector", checks=False)
        mean = np.mean(subjects, axis=0)
        explained = np.mean([stats.spearmanr(ours, s).statistic ** 2 for s in subjects])
        ceiling = np.mean([stats.spearmanr(mean, s).statistic ** 2 for s in subjects])
        percents[name] = float(100 * explained / ceiling)
    return percents


@pytest.mark.parametrize("suffix", [".mat", ".npy"])
def test_the_challenge_reads_a_submission(tmp_path: Path, suffix: str) -> None:
    signal = rdms(9, 9, seed=1)
    brain = signal + rdms(5, 9, 9, seed=2)
    matlab73(tmp_path / "target_fmri.mat", EVC_RDMs=brain, IT_RDMs=brain[:, ::-1, ::-1])
    model = torch.from_numpy(rdms(9, 9, seed=3) + signal)
    path = tmp_path / f"submit_fmri{suffix}"
    save_submission(path, EVC_RDMs=model, IT_RDMs=model.float())
    found = algonauts_scorer(path, tmp_path / "target_fmri.mat")
    for name, score in found.items():
        target = load_brain_rdms(tmp_path / "target_fmri.mat", name)
        ours = algonauts_score(model, target, "algonauts2019")
        assert float(ours) == pytest.approx(score, rel=1e-6)
        back = load_brain_rdms(path, name)
        torch.testing.assert_close(back.rdms, model, rtol=1e-6, atol=1e-6)


def test_bad_submissions(tmp_path: Path) -> None:
    good = torch.from_numpy(rdms(4, 4))
    holes = good.clone()
    holes[0, 1] = holes[1, 0] = torch.nan
    bad: list[tuple[str, dict[str, Tensor]]] = [
        ("a.mat", {}),
        ("a.txt", {"IT_RDMs": good}),
        ("a.mat", {"IT_RDMs": holes}),
        ("a.mat", {"IT_RDMs": good[:3]}),
        ("a.mat", {"IT_RDMs": torch.rand(4, 4)}),
        ("a.mat", {"IT_RDMs": good.unsqueeze(0)}),
        ("a.mat", {"IT_RDMs": good, "EVC_RDMs": good[:3, :3]}),
    ]
    for name, arrays in bad:
        with pytest.raises(ValueError, match=r"\w+: expected .+, got .+"):
            save_submission(tmp_path / name, **arrays)
    for path in (tmp_path / "absent" / "a.mat", tmp_path / "absent" / "a.npy"):
        with pytest.raises(ValueError, match=r"path: expected a file in a folder that exists, got"):
            save_submission(path, IT_RDMs=good)
    for name in ("_IT", "1IT", "IT RDMs", "x" * 64, ""):
        with pytest.raises(ValueError, match="rdms: expected names such as IT_RDMs"):
            save_submission(tmp_path / "a.mat", **{name: good})
    with pytest.raises(ValueError, match="IT_RDMs: expected a tensor"):
        save_submission(tmp_path / "a.mat", IT_RDMs=good.numpy())  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    (tmp_path / "folder.mat").mkdir()
    with pytest.raises(ValueError, match="path: expected a file in a folder that exists"):
        save_submission(tmp_path / "folder.mat", IT_RDMs=good)


def test_names_and_tensors_of_every_kind_in_a_submission(tmp_path: Path) -> None:
    good = torch.from_numpy(rdms(4, 4))
    names = ["a", "MEG_RDMs_early", "x" * 63]
    for suffix in ("mat", "npy"):
        path = tmp_path / f"a.{suffix}"
        save_submission(path, **dict.fromkeys(names, good.clone().requires_grad_()))
        for name in names:
            torch.testing.assert_close(load_brain_rdms(path, name).rdms, good)


# ---------------------------------------------------------------------------- other packages


def test_export_to_rsatoolbox() -> None:
    package = pytest.importorskip("rsatoolbox")
    brain = BrainRDMs(torch.from_numpy(rdms(3, 2, 5, 5)), tuple("abcde"), "IT")
    exported = to_rsatoolbox(brain)
    assert isinstance(exported, package.rdm.RDMs)
    assert exported.n_rdm == 6
    assert list(exported.pattern_descriptors["conditions"]) == list("abcde")
    np.testing.assert_array_equal(exported.get_matrices()[3], brain.rdms[1, 1].numpy())
    single = to_rsatoolbox(rdm(torch.randn(4, 6)), "model")
    assert single.n_rdm == 1


def test_files_of_rsatoolbox(tmp_path: Path) -> None:
    pytest.importorskip("rsatoolbox")
    brain = BrainRDMs(torch.from_numpy(rdms(3, 5, 5)), tuple("abcde"))
    to_rsatoolbox(brain).save(str(tmp_path / "a.h5"), file_type="hdf5")
    back = load_brain_rdms(tmp_path / "a.h5", "dissimilarities")
    torch.testing.assert_close(back.rdms, brain.rdms)


def test_import_loads_no_reader() -> None:
    code = (
        "import sys, torch, torchmetrics; base = set(sys.modules);"
        "import dynmetrics.rsa; new = set(sys.modules) - base;"
        "assert not [m for m in new if m.split('.')[0] in ('h5py', 'scipy', 'rsatoolbox')], new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------------- damaged bytes


SMALL = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])


def test_no_damaged_byte_ends_the_process(tmp_path: Path) -> None:
    """Each byte of a small file in turn, in a process of its own, for SciPy's reader crashes."""
    cells = np.array(["cat", "dog", "car"], dtype=object)
    texts = np.array(["cat", "dog", "horse"])
    contents: dict[str, Any] = {
        "cells": {"IT": SMALL, "conditions": cells},
        "packed": {"IT": SMALL, "conditions": cells},
        "texts": {"IT": SMALL.astype(np.uint8), "conditions": texts},
        "struct": {"IT": SMALL, "notes": {"x": 1.0, "y": "text"}},
        "v4": {"IT": SMALL, "conditions": texts},
    }
    paths = [tmp_path / f"{name}.mat" for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        version, packed = "4" if path.stem == "v4" else "5", path.stem == "packed"
        io.savemat(path, content, format=version, do_compression=packed)
    paths.append(tmp_path / "a.npy")
    np.save(paths[-1], SMALL)
    command = [sys.executable, "-m", "tests.rsa.damage", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        read, refused = map(int, line.split())
        assert read + refused == 3 * path.stat().st_size
        assert refused > path.stat().st_size // 2


def test_compressed_data_ends_where_it_says(tmp_path: Path) -> None:
    """Without its checksum, with data behind it, and with more inside than declared."""
    io.savemat(tmp_path / "a.mat", {"IT": SMALL}, do_compression=True)
    whole = (tmp_path / "a.mat").read_bytes()
    packed = whole[136:]
    inside = zlib.decompress(packed)
    for spoilt in (packed[:-4], packed[:-1], packed + b"\x00", zlib.compress(inside + bytes(8)),
                   zlib.compress(inside[:-8]), zlib.compress(inside[:12]), b""):  # fmt: skip
        tag = np.array([15, len(spoilt)], "<u4").tobytes()
        (tmp_path / "a.mat").write_bytes(whole[:128] + tag + spoilt)
        if spoilt == packed + b"\x00":
            # What stands behind the end of the data is nobody's.
            assert load_brain_rdms(tmp_path / "a.mat", "IT").rdms.shape == (3, 3)
            continue
        with pytest.raises(ValueError, match="path: expected an undamaged file"):
            load_brain_rdms(tmp_path / "a.mat", "IT")
    tag = np.array([15, len(packed)], "<u4").tobytes()
    (tmp_path / "a.mat").write_bytes(whole[:128] + tag + packed)
    assert load_brain_rdms(tmp_path / "a.mat", "IT").rdms.shape == (3, 3)


def test_checksums_of_torch_files_are_read(tmp_path: Path) -> None:
    torch.save({"IT": torch.from_numpy(SMALL)}, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    number = np.float64(3.0).tobytes()
    assert whole.count(number) == 2
    (tmp_path / "a.pt").write_bytes(whole.replace(number, np.float64(4.0).tobytes()))
    with pytest.raises(ValueError, match="does not agree with its checksum"):
        load_brain_rdms(tmp_path / "a.pt")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "bool"]
)
def test_matlab_numbers_of_every_class(tmp_path: Path, order: str, dtype: str) -> None:
    """As SciPy reads them, which is the independent reference here."""
    sort = np.dtype(dtype)
    values = (SMALL > 1).astype(sort) if dtype == "bool" else SMALL.astype(sort)
    io.savemat(tmp_path / "a.mat", {"IT": values, "other": np.zeros((2, 0))})
    raw = (tmp_path / "a.mat").read_bytes()
    assert raw[126:128] == b"IM"
    if order == ">":
        (tmp_path / "a.mat").write_bytes(big_endian("IT", values))
    np.testing.assert_array_equal(io.loadmat(tmp_path / "a.mat")["IT"], values)
    found = load_brain_rdms(tmp_path / "a.mat", "IT").rdms.numpy()
    np.testing.assert_array_equal(found, values)


def big_endian(name: str, values: Any) -> bytes:
    """A MATLAB file of version 5 as another kind of machine writes it."""
    types = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9, "i8": 12,
             "u8": 13, "b1": 2}  # fmt: skip
    classes = {"f8": 6, "f4": 7, "i1": 8, "u1": 9, "i2": 10, "u2": 11, "i4": 12, "u4": 13,
               "i8": 14, "u8": 15, "b1": 0x0209}  # fmt: skip

    def element(kind: int, data: bytes) -> bytes:
        return np.array([kind, len(data)], ">u4").tobytes() + data + bytes(-len(data) % 8)

    sort = values.dtype.str[1:]
    body = element(6, np.array([classes[sort], 0], ">u4").tobytes())
    body += element(5, np.array(values.shape, ">i4").tobytes()) + element(1, name.encode())
    body += element(types[sort], values.astype(values.dtype.newbyteorder(">")).tobytes("F"))
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI" + element(14, body)


# ---------------------------------------------------------------------------- ids and times


def with_conditions(folder: Path, form: str, conditions: Any) -> Path:
    """A file of the RDMs `SMALL` and of conditions."""
    path = folder / f"named.{form.removesuffix('4').removesuffix('73')}"
    if form == "npz":
        np.savez(path, IT=SMALL, conditions=conditions)
    elif form == "h5":
        with h5py.File(path, "w") as file:
            file["IT"] = SMALL
            file["conditions"] = conditions
    elif form == "pt":
        torch.save({"IT": torch.from_numpy(SMALL), "conditions": conditions}, path)
    else:
        content = {"IT": SMALL, "conditions": conditions}
        io.savemat(path, content, format="4" if form == "mat4" else "5")
    return path


NUMBERS = np.array([7, 3, 250])


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", "u4", "u8", "i8", "f4", "f8"])
@pytest.mark.parametrize("form", ["npz", "h5", "mat", "pt"])
def test_ids_are_whole_numbers_of_any_dtype(tmp_path: Path, form: str, dtype: str) -> None:
    ids: Any = NUMBERS.astype(dtype)
    if form == "pt":
        ids = torch.from_numpy(ids.astype(ids.dtype.newbyteorder("=")))
    brain = load_brain_rdms(with_conditions(tmp_path, form, ids), "IT")
    assert brain.conditions == (7, 3, 250)
    assert all(type(name) is int for name in brain.conditions)


@pytest.mark.parametrize("form", ["npz", "h5", "mat", "mat4"])
@pytest.mark.parametrize("shape", [(1, 3), (3, 1)])
def test_ids_as_a_matlab_row_or_column(tmp_path: Path, form: str, shape: tuple[int, int]) -> None:
    path = with_conditions(tmp_path, form, NUMBERS.astype(float).reshape(shape))
    assert load_brain_rdms(path, "IT").conditions == (7, 3, 250)


def test_ids_beyond_the_digits_of_a_double(tmp_path: Path) -> None:
    large = [2**53 + 1, 2**53 + 2, 2**63 - 1]
    for form in ("npz", "h5", "mat"):
        path = with_conditions(tmp_path, form, np.array(large, dtype=np.uint64))
        assert load_brain_rdms(path, "IT").conditions == tuple(large)


def test_ids_as_text(tmp_path: Path) -> None:
    names = ["cat", "dog", "tree frog"]
    texts = np.array(names)
    forms: list[tuple[str, Any]] = [
        ("npz", texts),
        ("npz", np.char.encode(texts)),
        ("npz", texts.reshape(1, 3)),
        ("h5", np.char.encode(texts)),
        ("h5", names),
        ("pt", names),
        ("pt", tuple(name.encode() for name in names)),
        ("mat", texts),
        ("mat4", texts),
        ("mat", np.array(names, dtype=object)),
        ("mat", np.array(names, dtype=object).reshape(3, 1)),
    ]
    for form, conditions in forms:
        path = with_conditions(tmp_path, form, conditions)
        assert load_brain_rdms(path, "IT").conditions == tuple(names)


def test_text_beyond_ascii(tmp_path: Path) -> None:
    names = np.array(["Bär", "Öl", "猫"], dtype=object)
    path = with_conditions(tmp_path, "mat", names)
    assert load_brain_rdms(path, "IT").conditions == ("Bär", "Öl", "猫")
    texts = np.array(["Bär", "Öl", "猫"])
    path = with_conditions(tmp_path, "npz", texts)
    assert load_brain_rdms(path, "IT").conditions == ("Bär", "Öl", "猫")
    for conditions in (texts.tolist(), np.char.encode(texts), np.char.encode(texts).reshape(1, 3)):
        path = with_conditions(tmp_path, "h5", conditions)
        assert load_brain_rdms(path, "IT").conditions == ("Bär", "Öl", "猫")
    row = texts.astype(object).reshape(1, 3)
    with h5py.File(tmp_path / "row.h5", "w") as file:
        file["IT"] = SMALL
        file.create_dataset("conditions", data=row, dtype=h5py.string_dtype())
    assert load_brain_rdms(tmp_path / "row.h5", "IT").conditions == ("Bär", "Öl", "猫")


def test_text_of_matlab73(tmp_path: Path) -> None:
    """Cells are references to numbers of two bytes, characters stand column by column."""
    names = ["cat", "horse", "猫"]

    def characters(file: Any, where: str, rows: list[str]) -> Any:
        width = max(map(len, rows))
        codes = [[ord(c) for c in row.ljust(width)] for row in rows]
        item = file.create_dataset(where, data=np.array(codes, dtype=np.uint16).T)
        item.attrs["MATLAB_class"] = np.bytes_("char")
        return item

    for form in ("cell", "matrix"):
        with h5py.File(tmp_path / f"{form}.mat", "w", userblock_size=512) as file:
            file["IT"] = SMALL
            file["IT"].attrs["MATLAB_class"] = np.bytes_("double")
            if form == "matrix":
                characters(file, "conditions", names)
            else:
                parts = [characters(file, f"#refs#/{i}", [name]) for i, name in enumerate(names)]
                refs = np.array([part.ref for part in parts], dtype=h5py.ref_dtype)
                cells = file.create_dataset("conditions", data=refs.reshape(1, 3))
                cells.attrs["MATLAB_class"] = np.bytes_("cell")
        assert load_brain_rdms(tmp_path / f"{form}.mat", "IT").conditions == tuple(names)
        assert load_brain_rdms(tmp_path / f"{form}.mat").conditions == tuple(names)


def test_what_is_no_id_is_named(tmp_path: Path) -> None:
    bad: list[tuple[str, Any, str]] = [
        ("npz", np.array([1.0, 2.5, np.nan]), r"whole numbers .* got 2.5, nan"),
        ("h5", np.array([1.0, np.inf, 2.0]), r"whole numbers .* got inf"),
        ("npz", np.array([True, False, True]), "integers or strings"),
        ("npz", np.array([1, 2, 2**63], dtype=np.uint64), "9223372036854775808"),
        ("npz", np.zeros((2, 3)), r"one axis .* the shape \(2, 3\)"),
        ("npz", np.array([b"a", b"\xff", b"c"]), "UTF-8"),
        ("npz", np.array([1j, 2, 3]), "real numbers"),
        ("h5", np.array([b"a", b"\xff", b"c"]), "UTF-8"),
        ("h5", "cat", "3 ids for IT, got 1"),
        ("npz", np.array(["a", 1, 2], dtype=object), "numbers or text"),
        ("npz", np.array([-45, 0, 45]), "from 0 .* got -45"),
        ("npz", np.array([1, 2]), "3 ids for IT, got 2"),
        ("npz", np.array([1, 2, 1]), "1 more than once"),
        ("pt", ["a", 1, 2], "integers or strings, not both"),
        ("pt", [2**70, 1, 2], "1180591620717411303424"),
        ("mat", np.array(["a", 1.0, "c"], dtype=object), "text in every cell"),
        ("mat", {"x": 1.0}, "real numbers or text"),
    ]
    for form, conditions, message in bad:
        with pytest.raises(ValueError, match=f"^conditions: expected .*{message}"):
            load_brain_rdms(with_conditions(tmp_path, form, conditions), "IT")


def test_times_that_are_none(tmp_path: Path) -> None:
    array = rdms(2, 3, 4, 4)
    bad: list[tuple[Any, str]] = [
        (["0 ms", "10 ms", "20 ms"], "times: expected finite numbers in a.npz, got '0 ms'"),
        ([0.0, np.nan, 1.0], "times: expected finite numbers in a.npz, got 0.0, nan"),
        ([0.0, 1.0], "times: expected 3 times for meg, got 2"),
        (np.zeros((3, 2)), "times: expected times along one axis in a.npz"),
        ([True, False, True], "times: expected finite numbers"),
    ]
    for times, message in bad:
        np.savez(tmp_path / "a.npz", meg=array, times=times)
        with pytest.raises(ValueError, match=message):
            load_brain_rdms(tmp_path / "a.npz", "meg")
    io.savemat(tmp_path / "a.mat", {"meg": array, "time": "late"})
    with pytest.raises(ValueError, match="time: expected finite numbers in a.mat, got 'late'"):
        load_brain_rdms(tmp_path / "a.mat", "meg")
    for good in (np.array([[0, 10, 20]], dtype=np.uint16), np.array([[0.0], [10.0], [20.0]])):
        io.savemat(tmp_path / "a.mat", {"meg": array, "times": good})
        times = load_brain_rdms(tmp_path / "a.mat", "meg").times
        assert times is not None
        assert times.tolist() == [0, 10, 20]


def test_an_entry_in_a_group_is_named_in_its_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["brain/IT"] = np.random.default_rng(0).random((4, 4))
    with pytest.raises(ValueError, match="brain/IT: expected symmetric RDMs"):
        load_brain_rdms(tmp_path / "a.h5", "brain/IT")
