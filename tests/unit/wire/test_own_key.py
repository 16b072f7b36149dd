import pytest

from privateer_core.errors import SpecError
from privateer_core.wire.keys import load_or_create_key, public_hex, publish_key


def load_key(folder):
    """The key of a shuffler."""
    return load_or_create_key(folder / "shuffler.key", "PRIVATEER_DATA")


def test_a_key_is_made_once(tmp_path):
    assert public_hex(load_key(tmp_path)) == public_hex(load_key(tmp_path))


def test_generated_keys_differ(tmp_path):
    (tmp_path / "other").mkdir()
    assert public_hex(load_key(tmp_path)) != public_hex(load_key(tmp_path / "other"))


def test_only_the_owner_may_read_the_key(tmp_path):
    load_key(tmp_path)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"shuffler.key": 0o600}


@pytest.mark.parametrize("content", ["", "no key", "ab" * 31, "ab" * 33])
def test_a_file_without_a_key_is_an_error(tmp_path, content):
    (tmp_path / "shuffler.key").write_text(content)
    with pytest.raises(SpecError, match="holds no key") as caught:
        load_key(tmp_path)
    assert caught.value.field == "PRIVATEER_DATA"
    assert (tmp_path / "shuffler.key").read_text() == content


def test_a_key_that_cannot_be_read_is_not_called_damaged(tmp_path):
    (tmp_path / "shuffler.key").mkdir()
    with pytest.raises(SpecError, match=r"shuffler\.key cannot be read: Is a directory") as caught:
        load_key(tmp_path)
    assert "delete" not in str(caught.value.remedy)


def test_the_public_key_is_written_where_the_server_looks(tmp_path):
    key, path = load_key(tmp_path), tmp_path / "trusted" / "one.pub"
    publish_key(key, path)
    assert bytes.fromhex(path.read_text()) == key.public_key().public_bytes_raw()
    assert path.stat().st_mode & 0o777 == 0o644


def test_an_old_public_key_is_replaced_and_the_right_one_left_alone(tmp_path):
    key, path = load_key(tmp_path), tmp_path / "one.pub"
    path.write_text("of another shuffler")
    publish_key(key, path)
    st_ino = path.stat().st_ino
    publish_key(key, path)
    assert path.read_text() == public_hex(key) + "\n"
    assert path.stat().st_ino == st_ino


def test_a_key_half_written_is_made_again(tmp_path):
    (tmp_path / ".shuffler.key.new").write_text("abc")
    load_key(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["shuffler.key"]
