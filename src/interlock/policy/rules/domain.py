"""Which addresses `WebFetch(domain:...)` covers.

Lives here: `host_of` and `domain_regex`.
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv6Address
from urllib.parse import urlsplit

_UNSAFE = re.compile(r"[\s\\\x00-\x1f\x7f]")  # programs disagree about what an address with these means


def host_of(url: str) -> str | None:
    """The host that an http address names, in the one form in which hosts are compared; None if that is not certain.

    Numbers that stand for an address (`0x7f.1`) are written out, names of other scripts in their ASCII form, and a dot
    at the end is dropped.
    """
    if _UNSAFE.search(url):
        return None
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018  # a port that is none makes programs disagree about where the host ends
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not host:
        return None
    return host_form(host)


def host_form(host: str) -> str | None:
    """One spelling of a host; None if it is none."""
    host = host.strip("[]").rstrip(".").lower()
    if "%" in host:
        return None
    if ":" in host:
        try:
            address = IPv6Address(host)
        except ValueError:
            return None
        return str(address.ipv4_mapped or address)
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return None
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host or None


def domain_regex(pattern: str) -> re.Pattern[str]:
    """For a host as `host_of` gives it. A leading `*.` is one label or more; another `*` stays within one.

    Raises:
        ValueError: it is no host.
    """
    wanted = pattern.strip().rstrip(".").lower()
    if not wanted or _UNSAFE.search(wanted) or any(c in wanted for c in "/@?#"):
        raise ValueError(f"{pattern!r} is not a domain: write a host alone, for example domain:*.example.com")
    if wanted == "*":
        return re.compile(r".+", re.DOTALL)
    if "*" not in wanted:
        form = host_form(wanted)
        if form is None:
            raise ValueError(f"{pattern!r} is not a domain")
        return re.compile(re.escape(form))
    begin, rest = (r"(?:[^.]+\.)+", wanted[2:]) if wanted.startswith("*.") else ("", wanted)
    labels = [_label(label) for label in rest.split(".")]
    return re.compile(begin + r"\.".join(labels))


def _label(label: str) -> str:
    if "*" in label:
        return "[^.]*".join([re.escape(part) for part in label.split("*")])
    return re.escape(host_form(label) or label) if not label.isascii() else re.escape(label)
