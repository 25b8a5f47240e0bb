"""The site directory: what belongs to a centre lies outside the checkout."""

import pytest

from virtqual import paths
from virtqual.errors import UsageError


def test_a_site_directory_that_is_named_must_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_ROOT", str(tmp_path))
    monkeypatch.delenv("VIRTQUAL_SITE", raising=False)
    assert paths.site() == tmp_path / "site"
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"VIRTQUAL_SITE: .*/gone does not exist; .*virtqual site init"):
        paths.site()
    (tmp_path / "gone").touch()
    with pytest.raises(UsageError, match=r"VIRTQUAL_SITE: .*/gone is no directory"):
        paths.site()
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))
    assert paths.site() == tmp_path
