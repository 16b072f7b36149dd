from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.settings import _RENAMED, TokenSettings
from privateer_shuffler.settings import ShufflerSettings, read_settings


def test_all_settings_have_defaults():
    assert read_settings({}) == ShufflerSettings(
        server_url="http://127.0.0.1:8002",
        data=Path("data/shuffler"),
        public_key_file=Path("data/shuffler/shuffler.pub"),
        min_batch=100,
        host="127.0.0.1",
        port=8001,
        body_limit=8 << 20,
        body_budget=64 << 20,
        admin_host="127.0.0.1",
        admin_port=8003,
        sender_keys=(),
        server_ca=None,
        tokens=TokenSettings(origins=("127.0.0.1:8001",)),
    )


DATABASE = {
    "PRIVATEER_DATABASE": "postgresql://shuffler@there/pool",
    "PRIVATEER_STORE_KEY_FILE": "/keys/store",
    "PRIVATEER_SIGNING_KEY": "/keys/signing",
}


def test_replicas_share_a_database_and_write_nothing_beside_it():
    read = read_settings(DATABASE)
    assert (read.database, read.public_key_file) == (DATABASE["PRIVATEER_DATABASE"], None)
    assert (read.store_key_file, read.signing_key) == (Path("/keys/store"), Path("/keys/signing"))
    named = read_settings(DATABASE | {"PRIVATEER_PUBLIC_KEY_FILE": "/trusted/one.pub"})
    assert named.public_key_file == Path("/trusted/one.pub")
    assert "there" not in repr(read)


@pytest.mark.parametrize("name", sorted(DATABASE))
def test_a_database_needs_an_address_and_two_keys(name):
    wrong = "sqlite:///pool" if name == "PRIVATEER_DATABASE" else ""
    with pytest.raises(SpecError) as caught:
        read_settings(DATABASE | {name: wrong})
    assert caught.value.field == name
    assert caught.value.remedy


def test_all_settings_can_be_set():
    environment = {
        "PRIVATEER_SERVER_URL": "https://learn.example/api/",
        "PRIVATEER_DATA": "/data",
        "PRIVATEER_PUBLIC_KEY_FILE": "/trusted/one.pub",
        "PRIVATEER_MIN_BATCH": "500",
        "PRIVATEER_HOST": "0.0.0.0",
        "PRIVATEER_PORT": "9000",
        "PRIVATEER_BODY_LIMIT": "65536",
        "PRIVATEER_BODY_BUDGET": "131072",
        "PRIVATEER_ADMIN_HOST": "10.0.0.1",
        "PRIVATEER_ADMIN_PORT": "9003",
        "PRIVATEER_SENDER_KEYS": "keys:more/one.pub",
        "PRIVATEER_SERVER_CA": "/ca.pem",
        "PRIVATEER_UPLOAD_TOKENS": "required",
        "PRIVATEER_TOKEN_KEYS": "/trusted",
        "PRIVATEER_TOKEN_ORIGIN": "shuffle.example, other.example:8443",
        "PRIVATEER_CORS_ORIGINS": "https://shop.example",
    }
    expected = ShufflerSettings(
        server_url="https://learn.example/api",
        data=Path("/data"),
        public_key_file=Path("/trusted/one.pub"),
        min_batch=500,
        host="0.0.0.0",
        port=9000,
        body_limit=65536,
        body_budget=131072,
        admin_host="10.0.0.1",
        admin_port=9003,
        sender_keys=(Path("keys"), Path("more/one.pub")),
        server_ca=Path("/ca.pem"),
        cors_origins=("https://shop.example",),
        tokens=TokenSettings(required=True, keys="/trusted", origins=("shuffle.example", "other.example:8443")),
    )
    assert read_settings(environment) == expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PRIVATEER_SERVER_URL", "learn.example"),
        ("PRIVATEER_SERVER_URL", "ftp://learn.example"),
        ("PRIVATEER_SERVER_URL", "http://"),
        ("PRIVATEER_SERVER_URL", "http://host:port"),
        ("PRIVATEER_SERVER_URL", "http://host:99999"),
        ("PRIVATEER_SERVER_URL", "http://[::1"),
        ("PRIVATEER_SERVER_URL", "http://host/?q=1"),
        ("PRIVATEER_MIN_BATCH", "0"),
        ("PRIVATEER_MIN_BATCH", "-100"),
        ("PRIVATEER_MIN_BATCH", "many"),
        ("PRIVATEER_MIN_BATCH", "1.5"),
        ("PRIVATEER_PORT", "0"),
        ("PRIVATEER_PORT", "65536"),
        ("PRIVATEER_BODY_LIMIT", "10"),
        ("PRIVATEER_BODY_BUDGET", "1000"),
        ("PRIVATEER_ADMIN_PORT", "0"),
        ("PRIVATEER_SERVER_CA", "/ca.pem"),
    ],
)
def test_a_bad_value_names_its_variable_and_what_to_do(variable, value):
    with pytest.raises(SpecError) as caught:
        read_settings({variable: value})
    assert caught.value.field == variable
    assert caught.value.remedy


@pytest.mark.parametrize(("old", "new"), _RENAMED.items())
def test_an_old_variable_is_refused_with_the_new_one(old, new):
    """A service that ignored the old name of its key would make another key, in silence."""
    with pytest.raises(SpecError) as refused:
        read_settings({old: "/keys/secret"})
    assert (refused.value.field, refused.value.remedy) == (old, f"call it {new}")
    assert "secret" not in str(refused.value)
