"""The only reader of the environment."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from stepwell.errors import InvalidInput
from stepwell.kernel.codec import MAX_RESULT_BYTES
from stepwell.kernel.durations import seconds
from stepwell.kernel.names import STATE_FOLDER, show
from stepwell.kernel.plans import NO_PLAN, Plan, read_plan, read_plans
from stepwell.kernel.urls import is_confidential

# Variables that commands of nodes need to work at all, besides LC_…. Whatever else this process
# was given, keys and passwords among it, is none of their business.
_PASSED_ON = frozenset({
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "TERM", "TMPDIR", "TZ", "USER",
})  # fmt: skip
# What it takes to log in at a provider: all of it, or none.
_OIDC = ("STEPWELL_OIDC_ISSUER", "STEPWELL_OIDC_CLIENT_ID", "STEPWELL_OIDC_CLIENT_SECRET")
LogFormat = Literal["text", "json"]
DEFAULT_STORE = f"sqlite:///{STATE_FOLDER}/stepwell.db"


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can set."""

    # STEPWELL_STORE: the store's URL.
    store: str = DEFAULT_STORE
    # Whether it was named at all.
    store_named: bool = False
    # STEPWELL_URL: the server that clients and commands talk to.
    url: str | None = None
    # STEPWELL_TOKEN: who they are there.
    token: str | None = None
    # STEPWELL_MAX_RETENTION: no run that this process starts is kept longer after its end.
    max_retention_seconds: float = 365 * 86_400
    # STEPWELL_MAX_RESULT_BYTES: the largest input, payload or output, as JSON.
    max_result_bytes: int = MAX_RESULT_BYTES
    # STEPWELL_FOLDER: where commands of shell nodes are executed, and what scripts can read.
    folder: str = "."
    # STEPWELL_HTTP_ALLOW_PRIVATE: set to 1, nodes may send requests to private addresses.
    http_allow_private: bool = False
    # STEPWELL_SECRET_KEY: the key that seals secrets, in base64; older ones after it, by commas.
    secret_key: str | None = None
    # STEPWELL_SECRET_KEY_FILE: a file with such keys instead; on SQLite there is one by the store.
    secret_key_file: str | None = None
    # STEPWELL_PLAN: how much each workspace may have: free, pro, enterprise, or JSON.
    plan: Plan = NO_PLAN
    # STEPWELL_PLANS: the plans of workspaces that have another one, as a JSON object by their ids.
    plans: Mapping[str, Plan] = field(default_factory=dict)
    # STEPWELL_HOSTS: names that the server goes by besides localhost, by commas.
    hosts: tuple[str, ...] = ()
    # STEPWELL_TRUSTED_PROXIES: addresses or networks whose X-Forwarded-* is believed, by commas.
    trusted_proxies: tuple[str, ...] = ()
    # STEPWELL_MAX_RUNS: how many runs of the workspace are active at once; more are queued.
    max_runs: int | None = None
    # STEPWELL_MAX_RUNS_PER_USER: the same for each user who starts some.
    max_runs_per_user: int | None = None
    # STEPWELL_MAX_RUNS_IN_ALL: the same for all workspaces together.
    max_runs_in_all: int | None = None
    # STEPWELL_OTLP_ENDPOINT: where spans are sent, over HTTP; else OTEL_EXPORTER_OTLP_ENDPOINT.
    otlp_endpoint: str | None = None
    # STEPWELL_LOG_FORMAT: how servers and workers log: as text, or as json, an object a line.
    log_format: LogFormat = "text"
    # STEPWELL_OIDC_ISSUER: the provider that people can log in at, by its issuer's URL.
    oidc_issuer: str | None = None
    # STEPWELL_OIDC_CLIENT_ID: what the provider calls this server.
    oidc_client_id: str | None = None
    # STEPWELL_OIDC_CLIENT_SECRET: what the server shows to the provider, to be believed.
    oidc_client_secret: str | None = None
    # What commands of nodes see of the environment: these variables, and no other.
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environ is None else environ
        found: dict[str, object] = {}
        if store := source.get("STEPWELL_STORE"):
            found |= {"store": store, "store_named": True}
        if retention := source.get("STEPWELL_MAX_RETENTION"):
            found["max_retention_seconds"] = seconds(retention, "STEPWELL_MAX_RETENTION")
        for name in ("max_result_bytes", "max_runs", "max_runs_per_user", "max_runs_in_all"):
            variable = f"STEPWELL_{name.upper()}"
            if number := source.get(variable):
                if not number.isdecimal() or int(number) < 1:
                    raise InvalidInput(f"{variable} must be a number from 1, not {number!r}.")
                found[name] = int(number)
        if plan := source.get("STEPWELL_PLAN"):
            found["plan"] = read_plan(plan, "STEPWELL_PLAN")
        if plans := source.get("STEPWELL_PLANS"):
            found["plans"] = read_plans(plans, "STEPWELL_PLANS")
        if hosts := source.get("STEPWELL_HOSTS"):
            found["hosts"] = tuple(each.lower() for each in _listed(hosts))
        if proxies := source.get("STEPWELL_TRUSTED_PROXIES"):
            found["trusted_proxies"] = tuple(_network(each) for each in _listed(proxies))
        for name in ("url", "token", "folder", "secret_key", "secret_key_file"):
            if value := source.get(f"STEPWELL_{name.upper()}"):
                found[name] = value
        for variable in ("STEPWELL_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
            if endpoint := source.get(variable):
                found["otlp_endpoint"] = _http_url(endpoint, variable)
                break
        if form := source.get("STEPWELL_LOG_FORMAT"):
            if form not in get_args(LogFormat):
                raise InvalidInput(f"STEPWELL_LOG_FORMAT must be text or json, not {form!r}.")
            found["log_format"] = form
        found |= _oidc(source)
        found["http_allow_private"] = _flag(source, "STEPWELL_HTTP_ALLOW_PRIVATE")
        found["environment"] = {
            name: value
            for name, value in source.items()
            if name in _PASSED_ON or name.startswith("LC_")
        }
        return cls(**found)  # type: ignore[arg-type]

    def plan_of(self, workspace_id: str) -> Plan:
        """How much a workspace may have."""
        return self.plans.get(workspace_id, self.plan)


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise InvalidInput(
            f"STEPWELL_TRUSTED_PROXIES must be addresses or networks, not {show(text)}."
        ) from None


def _flag(source: Mapping[str, str], name: str) -> bool:
    value = source.get(name, "")
    if value not in ("", "0", "1"):
        raise InvalidInput(f"{name} must be 1 or 0, not {value!r}.")
    return value == "1"


def _http_url(url: str, name: str) -> str:
    if not url.startswith(("http://", "https://")) or not url.isprintable():
        raise InvalidInput(f"{name} must be a URL with http:// or https://, not {show(url)}.")
    return url


def _oidc(source: Mapping[str, str]) -> dict[str, str]:
    given = {name: value for name in _OIDC if (value := source.get(name))}
    if not given:
        return {}
    if missing := [name for name in _OIDC if name not in given]:
        raise InvalidInput(
            f"{' and '.join(given)} cannot be used without {' and '.join(missing)}: set all three, "
            "or none."
        )
    issuer = given[_OIDC[0]]
    if not is_confidential(issuer) or "?" in issuer:
        raise InvalidInput(
            f"{_OIDC[0]} must be a URL with https:// and without a query, or with http:// on this "
            f"machine, not {show(issuer)}."
        )
    return {name.removeprefix("STEPWELL_").lower(): value for name, value in given.items()}
