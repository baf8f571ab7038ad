"""The door's tables, computed from the app file and the replicas. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from preroll.config import App, Stage
from preroll.config.secrets import key_sha256
from preroll.engines.base import get_engine


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A replica as the door calls it; the fields are those of the tables."""

    id: str
    address: str
    slots: int
    keepalive_ms: int
    host: str
    model: str | None
    authorization: str | None
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """What a request at zero waits for: p90 of measured starts, and when the running one began."""

    expected_ms: int
    started_ns: int | None


def tables(
    app: App,
    endpoints: Mapping[str, Sequence[Endpoint]],
    starts: Mapping[str, StartEstimate | None],
    version: int,
    causes: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """The whole document of `PUT /tables`; `causes` say why a stage's replicas do not start.

    Raises InputError for a secret that is not there.
    """
    causes = causes or {}
    stages = {
        name: _stage(stage, endpoints.get(name, ()), starts.get(name), causes.get(name))
        for name, stage in app.stages.items()
    }
    routes = [
        {
            "path": route.path,
            "stage": route.stage,
            "timeout_ms": _ms(route.timeout_s),
            "strip_prefix": route.strip_prefix,
            "frame_us": _us(route.frame_s),
            "priority": route.priority,
        }
        for route in app.routes
    ]
    limits = app.serve.limits
    return {
        "version": version,
        "stages": stages,
        "routes": routes,
        "keys": [{"id": k.id, "sha256": key_sha256(k, app.directory)} for k in app.serve.keys],
        "limits": {
            "head_bytes": limits.head_bytes,
            "head_timeout_ms": _ms(limits.head_timeout_s),
            "body_bytes": limits.body_bytes,
            "body_budget_bytes": limits.body_budget_bytes,
            "body_timeout_ms": _ms(limits.body_timeout_s),
            "connections": limits.connections,
            "drain_accept_ms": _ms(limits.drain_accept_s),
        },
    }


def _stage(
    stage: Stage, endpoints: Sequence[Endpoint], start: StartEstimate | None, cause: str | None
) -> dict[str, Any]:
    return {
        "models": list(get_engine(stage.engine).models(stage)),
        "max_queue": stage.queue.max_depth,
        "max_wait_ms": _ms(stage.queue.max_wait_s),
        "max_sessions": stage.max_sessions,
        "default_service_ms": 1000,
        "start": start and {"expected_ms": start.expected_ms, "started_ns": start.started_ns},
        "start_hold_ms": _ms(stage.queue.start_hold_s),
        "stream_idle_timeout_ms": _ms(stage.stream_idle_timeout_s),
        "slo": {
            "ttft_ms": _ms(stage.slo.ttft_p95_s),
            "itl_ms": _ms(stage.slo.itl_p95_s),
            "pace_us": _us(stage.slo.pace_s),
        },
        "frame_us": _us(stage.frame_s),
        "kv_tokens": stage.kv_tokens,
        "replicas": [_replica(endpoint) for endpoint in endpoints],
        "cause": cause,
    }


def _replica(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "address": endpoint.address,
        "slots": endpoint.slots,
        "state": "draining" if endpoint.is_draining else "ready",
        "keepalive_ms": endpoint.keepalive_ms,
        "host": endpoint.host,
        "model": endpoint.model,
        "authorization": endpoint.authorization,
    }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
