"""The gate: decides by the head of a request whether it is passed on, what is checked, and how it is refused. Sans-IO.

The verdict depends on this head alone. So it may be kept with the head, and holds for the next request that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from streamcodec.client.connections.reaching import TRUST_ARGUMENT
from streamcodec.engine.errors import MessageError
from streamcodec.formats.v2.fields import header_form_of
from streamcodec.guard.rules.allowing import BodyCheck, MethodError, Routes
from streamcodec.guard.rules.fields import check_names
from streamcodec.guard.rules.routing import target_of
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service.policies import HostPolicy
from streamcodec.service.replies import Reply, error_reply, failure_reply, unavailable_reply
from streamcodec.service.routes import Resource

_HEALTH: Final = {Resource.SERVER_LIVE, Resource.SERVER_READY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The verdict on a request that is not refused."""

    target: str
    """What is written to the server behind."""
    check: BodyCheck
    """What of the body is checked."""
    resource: Resource | None = None
    """What it asks for, if that is of the V2 protocol."""
    null_is_nan: bool = False
    """Whether `null` may stand for NaN in it; see `request_decoder`."""
    page: str = ""
    """Path of the page of the guard's own that it asks for; empty if it is for the server behind."""

    @property
    def is_health_check(self) -> bool:
        """Whether it asks whether the server is live or ready."""
        return self.resource in _HEALTH


class Gate:
    """Decides for all connections of a guard."""

    def __init__(
        self,
        prefix: str = "",
        *,
        pages: Iterable[str] = (),
        allowed: Iterable[str] = (),
        hosts: Iterable[str] = (),
        null_is_nan: bool = False,
    ) -> None:
        """Prepare.

        Args:
            prefix: path in the URL of the server behind, which stands before every path that is passed on.
            pages: paths of pages of the guard's own.
            allowed: what is passed on besides the V2 protocol; see `ALLOWANCES`.
            hosts: that requests may be for; see `HostPolicy`. Empty for any.
            null_is_nan: whether `null` may stand for NaN in the JSON data of inferences.

        Raises:
            LocalProtocolError: one of `allowed` is no name of these, or one of `hosts` is no host.
        """
        self._prefix = prefix
        self._pages = frozenset(pages)
        self._routes = Routes(allowed)
        self._hosts = HostPolicy.of(hosts)
        self._null_is_nan = null_is_nan

    def judge(self, head: RequestHead) -> Permit:
        """Decide on a request.

        Raises:
            RemoteProtocolError: it is refused: `invalid-http`, `misdirected`, `not-offered`, `not-found` or
                `method-not-allowed`.
        """
        target = target_of(head)
        self._hosts.check(head)
        check_names(head.fields)
        _ = header_form_of(head.fields)  # whatever is asked for, it can be read
        passed = self._prefix + target.path + target.query
        if head.method == "GET" and target.path in self._pages:
            return Permit(target=passed, check=BodyCheck.NOTHING, page=target.path)
        passage = self._routes.find(head.method, target.path, has_body=head.content_length != 0)
        return Permit(target=passed, check=passage.check, resource=passage.resource, null_is_nan=self._null_is_nan)


def is_health_check(head: RequestHead, permit: Permit) -> bool:
    """Whether a request is a health check, which needs no seat. One with a body could hold its place for long."""
    return head.content_length == 0 and permit.is_health_check


def refusal(error: MessageError) -> Reply:
    """Answer a request that breaks a rule, and forget where the rule was checked: those frames keep the request."""
    methods = error.methods if isinstance(error, MethodError) else ()
    return error_reply(error.with_traceback(None), headers=[("Allow", ", ".join(methods))] if methods else ())


def no_place(*, is_stopping: bool) -> Reply:
    """Answer a request that may come again: there is no seat for it, or the guard is stopping."""
    text = "the guard is stopping" if is_stopping else "the guard has the maximum number of connections"
    return unavailable_reply(text, retry_after=1)


def no_answer(error: Exception) -> Reply:
    """Answer a request for which there is no answer of the server behind."""
    if isinstance(error, TimeoutError):
        return failure_reply("the server behind this guard does not answer in time", status=504)
    return failure_reply("the server behind this guard cannot be reached, or has broken off", status=502)


def told(error: Exception) -> str:
    """Return the text of an error for the log, with the option of the guard in place of the argument of clients."""
    return str(error).replace(TRUST_ARGUMENT, "--upstream-ca FILE")
