"""Edge. Controls access to the live page: an ASGI layer around it.

1. The Host header must be an address that the server listens on. If another site points its name to
   this machine (DNS rebinding), the browser sends that name and is refused.
2. The first visit carries the token of the printed address. The guard exchanges it for a cookie and
   removes it from the address, so that no history and no `Referer` keeps it.
3. Every other request must carry that cookie. It is `HttpOnly` and `SameSite=Strict`, so no script
   and no other site can use it.
4. Every answer carries a policy that lets the browser run only our own script.
"""

import ipaddress
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(slots=True, kw_only=True)
class Guard:
    """Answers only requests with the token or the cookie."""

    app: ASGIApp
    port: int
    is_loopback: bool
    token: str
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie_name(self) -> str:
        """Cookies ignore ports: two servers on one machine need two names."""
        return f"tokentee-{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it to the page."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """The refusal of a request; None: the request is allowed."""
        headers = Headers(scope=scope)
        if not self._is_our_host(headers.getlist("host")):
            return PlainTextResponse("This is not the address of tokentee serve.", 421)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Only GET.", 405, {"allow": "GET, HEAD"})
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given:
            if not _is_equal(given[0], self.token):
                return _stranger()
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            # Only a path that cannot lead to another host, as `//host` would.
            path = "/" + scope["path"].lstrip("/\\")
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            answer.set_cookie(
                self.cookie_name, self.cookie, httponly=True, samesite="strict", path="/"
            )
            answer.headers["cache-control"] = "no-store"
            return answer
        for line in headers.getlist("cookie"):
            try:
                jar = SimpleCookie(line)
            except CookieError:
                continue
            if self.cookie_name in jar and _is_equal(jar[self.cookie_name].value, self.cookie):
                return None
        return _stranger()

    def _is_our_host(self, hosts: list[str]) -> bool:
        """One Host header, with our port, and an address or `localhost`, never another name."""
        if len(hosts) != 1:
            return False
        name, _, port = hosts[0].rpartition(":")
        if port != str(self.port):
            # Without a port, HTTP's default port applies.
            if self.port != 80:
                return False
            name = hosts[0]
        if name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return address.is_loopback or not self.is_loopback


def _is_equal(given: str, known: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "surrogateescape"), known.encode())


def _stranger() -> Response:
    return PlainTextResponse(
        "Open the address that `tokentee serve` printed: it holds the token.\n", 401
    )
