"""Keys of users of NATS, and credentials files: a server admits who has them."""

import base64
import binascii
import json
import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.errors import Error as NatsError

from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.nkeys import JWT_BEGIN, SEED_BEGIN, new_user, public_key, read_seed
from tests.bus.nats.test_connection import nats_server

SEED = "SUABLPJQKC7MMWE6DWDH6RVLFIHJ5RLRJW5OFKNJGFHIYXFKTZOIMAZCKI"
PUBLIC = "UBJD3JO4BMZ6P6NRHGXGSEFVHOW2N4ULAS6RUTUJVOJ6HFHRQESFU6RE"


def test_a_seed_yields_its_public_key_and_a_changed_character_is_detected() -> None:
    assert public_key(read_seed(f" {SEED}\n")) == PUBLIC
    seed, public = new_user()
    assert public_key(read_seed(seed)) == public
    place = random.Random(7).randrange(2, len(SEED))
    for wrong in (SEED[:place] + ("B" if SEED[place] == "A" else "A") + SEED[place + 1 :], PUBLIC, SEED[:-1], "", "é"):
        with pytest.raises(ValueError):
            read_seed(wrong)


def signed(kind: str, key: Ed25519PrivateKey, issuer: str, subject: str, **claims: Any) -> str:
    """A JWT as NATS has it, of an operator, an account or a user."""
    nats = {"type": kind, "version": 2, **claims}
    body = {"jti": kind, "iat": 1, "iss": issuer, "sub": subject, "name": kind, "nats": nats}
    text = ".".join(_encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
    return f"{text}.{_encoded(key.sign(text.encode()))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def public(prefix: int, key: Ed25519PrivateKey) -> str:
    raw = bytes([prefix]) + key.public_key().public_bytes_raw()
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode()


async def test_a_credentials_file_admits_its_user_and_no_other(tmp_path: Path) -> None:
    operator, account = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    named, owner = public(14 << 3, operator), public(0, account)
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    config = (
        f"operator: {signed('operator', operator, named, named)}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {owner}: {signed('account', operator, named, owner, limits=limits)} }}"
    )
    (seed, key), (other, _key) = new_user(), new_user()
    jwt = signed("user", account, owner, key, **dict.fromkeys(("subs", "data", "payload"), -1))
    file = tmp_path / "user.creds"
    async with nats_server(tmp_path, config, jetstream=False) as url:
        for given in (seed, other):
            blocks = {JWT_BEGIN: jwt, SEED_BEGIN: given}
            file.write_text(
                "".join(f"-----{words}-----\n{part}\n------END------\n\n" for words, part in blocks.items())
            )
            client = ReconnectingClient()
            with pytest.raises(NatsError, match="Authorization") if given is other else nullcontext():
                await client.connect(url, user_credentials=str(file), allow_reconnect=False)
                assert client.is_connected
            await client.close()
