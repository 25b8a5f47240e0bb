from pathlib import Path

import pytest

from vcluster import initramfs, resident, slurm_conf


def of_path(entries: list[initramfs.ArchiveEntry]) -> dict[str, initramfs.ArchiveEntry]:
    return {entry.path: entry for entry in entries}


def test_nodes_get_what_jobs_open_with_the_links_on_the_way() -> None:
    found = of_path(resident.make_entries("kept"))
    # What the dynamic linker opens for a shell, by the very paths that it opens.
    for path in ("/bin/sh", "/etc/ld.so.cache"):
        walked = Path("/")
        for part in Path(path).parts[1:]:
            walked /= part
            entry = found[f"kept{walked}"]
            if walked.is_symlink():
                assert entry.content == bytes(walked.readlink())
                walked = walked.resolve()
        assert found[f"kept{walked}"].content == walked.read_bytes()
    assert any(path.endswith("/libc.so.6") for path in found)
    # A folder comes before what is in it, as the kernel unpacks an archive.
    names = list(found)
    assert all(names.index(str(Path(name).parent)) < names.index(name) for name in names if "/" in name)


def test_folders_of_plugins_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugins/more").mkdir(parents=True)
    (tmp_path / "plugins/more/text").write_text("in it")
    (tmp_path / "plugins/link").symlink_to("more/text")
    (tmp_path / "beside").write_text("not in it")
    monkeypatch.setattr(slurm_conf, "find_plugins", lambda: tmp_path / "plugins")
    monkeypatch.setattr(slurm_conf, "find_pmix_plugins", lambda: None)
    found = of_path(resident.make_entries("kept"))
    assert found["kept.whole"].content == f"{tmp_path}/plugins\n".encode()
    assert found[f"kept{tmp_path}/plugins/more/text"].content == b"in it"
    assert found[f"kept{tmp_path}/plugins/link"].content == b"more/text"
    assert f"kept{tmp_path}/beside" not in found
