"""An identity provider for tests: its keys, and tokens that they sign."""

import time
from typing import Any

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER = "https://id.example.com"


class Provider:
    """An identity provider with its keys, which counts the requests for them."""

    def __init__(self) -> None:
        self.keys = {"k-1": ec.generate_private_key(ec.SECP256R1())}
        self.asked = 0
        self.away = False

    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self.answer)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request for its document, or for its keys."""
        if self.away:
            raise httpx2.ConnectError("away")
        if request.url.path.endswith("openid-configuration"):
            return httpx2.Response(200, json={"jwks_uri": f"{ISSUER}/keys"})
        self.asked += 1
        found = [ECAlgorithm.to_jwk(key.public_key(), as_dict=True) for key in self.keys.values()]
        named = [{**key, "kid": kid, "alg": "ES256"} for key, kid in zip(found, self.keys, strict=True)]
        return httpx2.Response(200, json={"keys": [*named, {"kty": "oct", "k": "c2VjcmV0", "kid": "odd"}, 1]})

    def token(self, kid: str = "k-1", **claims: Any) -> str:
        """Make a token for ada."""
        now = int(time.time())
        whole = {"iss": ISSUER, "aud": "callboard", "sub": "ada", "exp": now + 60, "tenants": ["acme"], **claims}
        said = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(said, self.keys[kid], "ES256", {"kid": kid})
