"""Connections to third parties by OAuth 2.0; client secrets and refresh tokens never leave the service.

``providers`` reads the settings, ``authorisation`` begins an authorisation and checks its answer, ``grants`` completes
it and provides access tokens, ``refreshing`` renews them one at a time, ``disconnecting`` ends and revokes grants.
``oauth`` implements the protocol, ``exchange`` the transport.
"""
