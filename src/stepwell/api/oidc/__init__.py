"""Logging in at a provider, by OpenID Connect with the authorization code flow.

A browser is sent to the provider with the state, nonce and challenge of a journey, which it keeps
in a cookie. It comes back with a code; the server redeems that for an ID token, and lets in the
user whose name is the e-mail address that the token vouches for. Nobody is made on the way.
"""

from __future__ import annotations
