"""The front doors that are compared, each before the same backend, each with one worker thread.

One thread each, because the door has one: what is compared is CPU time per unit of work.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MODEL = "mock"


@dataclass(frozen=True, slots=True)
class Target:
    """A running front door: where it listens and the root of its process tree."""

    name: str
    port: int
    pid: int


class MissingError(Exception):
    """A peer that is not installed; the message says how to get it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_listening(port: int, process: subprocess.Popen[bytes], limit_s: float = 60.0) -> None:
    """Waits until a port accepts and answers anything but a server error."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with status {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(
                    b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
                )
                answer = connection.recv(64)
            if answer.startswith(b"HTTP/1.1 ") and answer[9:10] in b"234":
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"nothing answers on port {port} after {limit_s:g} s")


def _start(name: str, command: list[str], port: int, folder: Path) -> Target:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_listening(port, process)
    except RuntimeError as error:
        process.kill()
        process.wait()
        tail = (folder / f"{name}.log").read_text(errors="replace")[-500:]
        raise RuntimeError(f"{name}: {error}\n{tail}") from None
    return Target(name, port, process.pid)


def start_door(program: str, backend: int, folder: Path, slots: int = 10_000) -> Target:
    """Preroll's door with model routing, the stage queue, deadlines and metrics on."""
    port = free_port()
    replica = {
        "id": "chat-1",
        "address": f"tcp:127.0.0.1:{backend}",
        "slots": slots,
        "state": "ready",
        "keepalive_ms": 60_000,
        "host": "127.0.0.1",
        "model": None,
        "authorization": None,
    }
    stage = {
        "models": [MODEL],
        "max_queue": 10_000,
        "max_wait_ms": 30_000,
        "max_sessions": 256,
        "default_service_ms": 1000,
        "start": None,
        "start_hold_ms": 60_000,
        "stream_idle_timeout_ms": 300_000,
        "slo": {"ttft_ms": 800, "itl_ms": 40},
        "kv_tokens": None,
        "replicas": [replica],
    }
    routes = [
        {
            "path": "/v1/audio/*",
            "stage": "chat",
            "timeout_ms": None,
            "strip_prefix": False,
            "priority": 0,
        }
    ]
    limits = {
        "head_bytes": 65_536,
        "head_timeout_ms": 15_000,
        "body_bytes": 67_108_864,
        "body_budget_bytes": 268_435_456,
        "body_timeout_ms": 60_000,
        "connections": 20_000,
        "drain_accept_ms": 100,
    }
    tables = {"version": 1, "stages": {"chat": stage}, "routes": routes, "keys": []}
    file = folder / "tables.json"
    file.write_text(json.dumps(tables | {"limits": limits}))
    command = [program, "--tables", str(file), "--listen", f"tcp:127.0.0.1:{port}"]
    command += ["--admin", f"unix:{folder}/admin.sock"]
    return _start("door", command, port, folder)


# Without http-no-delay HAProxy corks small chunks for up to 200 ms: ten of them arrive in one read,
# which is cheap and no stream any more (seen with 2.6: 10.0 events a read instead of 1.0).
HAPROXY = """
global
  maxconn 9000
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  option http-keep-alive
  option http-no-delay
  http-reuse always
frontend public
  bind 127.0.0.1:{port}
  default_backend workers
backend workers
  balance leastconn
  server one 127.0.0.1:{backend} maxconn 9000 pool-max-conn 2000
"""


def start_haproxy(program: str, backend: int, folder: Path) -> Target:
    found = shutil.which(program) or shutil.which("/usr/sbin/haproxy")
    if found is None:
        raise MissingError("haproxy is not installed: Debian: apt install haproxy")
    port = free_port()
    file = folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, backend=backend))
    return _start("haproxy", [found, "-db", "-f", str(file)], port, folder)


NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 19000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  keepalive_requests 1000000;
  upstream workers {{ server 127.0.0.1:{backend}; keepalive 1024; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://workers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 300s;
    }}
  }}
}}
"""


def start_nginx(program: str, backend: int, folder: Path) -> Target:
    found = shutil.which(program) or shutil.which("/usr/sbin/nginx")
    if found is None:
        raise MissingError("nginx is not installed: Debian: apt install nginx-light")
    port = free_port()
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(port=port, backend=backend, folder=folder))
    return _start("nginx", [found, "-c", str(file), "-p", str(folder)], port, folder)


def start_sglang(python: str, backend: int, folder: Path) -> Target:
    if not os.access(python, os.X_OK):
        raise MissingError("sglang-router is not installed: make .cache/sglang/.installed")
    port = free_port()
    command = [python, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--worker-urls", f"http://127.0.0.1:{backend}"]
    command += ["--log-level", "warn", "--prometheus-port", str(free_port())]
    return _start("sglang", command, port, folder)


STARTERS: dict[str, Callable[[str, int, Path], Target]] = {
    "door": start_door,
    "haproxy": start_haproxy,
    "nginx": start_nginx,
    "sglang": start_sglang,
}
