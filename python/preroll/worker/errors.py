"""What a stage's code may raise, and the status that the client sees."""

from __future__ import annotations

from preroll.errors import InputError, PrerollError, UnavailableError


class RequestError(PrerollError):
    """This request fails with `status` (400 to 599); the message is shown to the client.

    `kind` is the `type` of the error body, `param` names the input that is wrong.
    """

    status = 500
    kind = "error"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        kind: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        if status is not None:
            if not 400 <= status <= 599:
                raise ValueError(f"status {status} is no error; allowed: 400 to 599")
            self.status = status
        if kind is not None:
            self.kind = kind
        self.param = param


class NotFoundError(RequestError):
    """404: the request names something that does not exist."""

    status = 404
    kind = "not_found"


class OverloadedError(RequestError):
    """429: the stage cannot take this request now; the door adds when to come back."""

    status = 429
    kind = "overloaded"


class DeadlineError(RequestError):
    """504: the request's deadline passed before it was answered."""

    status = 504
    kind = "deadline"


class StageFatal(PrerollError):  # noqa: N818 -- the word that users write
    """The replica can serve nothing any more (device fault, out of memory).

    The process ends with the message as its last words and is started anew. Requests in flight
    get 503: what they were computing went through the same fault.
    """


def status_of(error: BaseException) -> tuple[int, str, str | None]:
    """Status, error type and named input for an exception out of a stage's code."""
    if isinstance(error, RequestError):
        return error.status, error.kind, error.param
    if isinstance(error, InputError):
        return 400, "invalid_request", None
    if isinstance(error, (UnavailableError, StageFatal)):
        return 503, "unavailable", None
    return 500, "internal", None
