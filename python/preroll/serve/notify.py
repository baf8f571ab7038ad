"""sd_notify: tells systemd that the service is ready, where it runs under systemd."""

from __future__ import annotations

import os
import socket


def notify(message: str) -> None:
    """Sends `READY=1` or the like to NOTIFY_SOCKET; does nothing without one."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(message.encode(), address)
    except OSError:
        return  # systemd will say that it heard nothing
