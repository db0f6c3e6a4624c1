"""Connections to third parties by OAuth 2.0: begun, kept fresh and ended here, so that no secret leaves this side.

``providers`` reads the settings, ``authorisation`` begins and recognises an authorisation, ``grants`` completes
it and gives access tokens, ``refreshing`` renews them one at a time, ``disconnecting`` ends them here and there.
``oauth`` says what is said to a provider, ``exchange`` how.
"""
