"""Scopes are words, whatever separates them. Rows with a number are public reports of other projects."""

import pytest

from accounts.connections.scopes import granted


@pytest.mark.parametrize(
    ("value", "scopes"),
    [
        ("read,write", ["read", "write"]),
        ("read:user,repo", ["read:user", "repo"]),  # appstrate/appstrate#33
        ("read%20write", ["read", "write"]),  # appstrate/appstrate#33
        ("read, write", ["read", "write"]),
        ("read ,write,", ["read", "write"]),
        ("read,write offline", ["offline", "read", "write"]),
        ("read+write", ["read", "write"]),  # manfredsteyer/angular-oauth2-oidc#1065
        ("read\nwrite\r\n", ["read", "write"]),
        ("read\twrite", ["read", "write"]),
        ("read;write|admin", ["admin", "read", "write"]),
        (["openid", "user:read:email"], ["openid", "user:read:email"]),  # ramosbugs/oauth2-rs#86
        (["read,write", "read"], ["read", "write"]),
        ('["read", "write"]', ["read", "write"]),
        ("https://a.test/x,https://a.test/y", ["https://a.test/x", "https://a.test/y"]),
        ("https://a.test/x https://a.test/y,openid z", ["https://a.test/x", "https://a.test/y,openid", "z"]),
        ("openid,https://a.test/x", ["https://a.test/x", "openid"]),
        (["read", 5, None, ["write"]], ["read"]),
        ("", []),
        ([], []),
        (",", []),
        ("[read]", ["[read]"]),
        (5, []),
        ({"read": True}, []),
        (None, None),
    ],
)  # fmt: skip
def test_scopes_are_words(value: object, scopes: list[str] | None) -> None:
    assert granted(value) == scopes
