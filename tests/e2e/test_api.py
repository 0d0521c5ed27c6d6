"""The client of the tests repeats what a server or a webhook had no answer to in time, and nothing else."""

from __future__ import annotations

import json

import pytest

from e2e.api import Api, ApiError

LOOKUP = 'admission webhook "mjob" denied the request: the LocalQueue could not be looked up (no answer in 2 s); try again'
LATE = 'failed calling webhook "vjob": failed to call webhook: Post "https://127.0.0.1:1/v": context deadline exceeded'
REFUSED = 'failed calling webhook "vjob": failed to call webhook: Post "https://127.0.0.1:1/v": connect: connection refused'


class Served(Api):
    """A server with one answer to the first request, and success after it."""

    def __init__(self, status: int, message: str) -> None:
        self._token, self.asked = "", 0
        self._first = status, json.dumps({"message": message}).encode()

    def _send(self, *_: object) -> tuple[int, bytes, list[str]]:
        self.asked += 1
        status, text = self._first if self.asked == 1 else (200, b"{}")
        return status, text, []


@pytest.mark.parametrize(("status", "message"), [(429, "too many requests"), (503, LOOKUP), (500, LATE)])
def test_request_without_an_answer_in_time_is_repeated(status: int, message: str):
    served = Served(status, message)
    assert served.create("/jobs", {}) == {}
    assert served.asked == 2


@pytest.mark.parametrize(("status", "message"), [(500, REFUSED), (503, "the server is shutting down"), (422, "not valid; try again")])
def test_other_refusal_is_raised_at_once(status: int, message: str):
    served = Served(status, message)
    with pytest.raises(ApiError, match=f"{status}: "):
        served.create("/jobs", {})
    assert served.asked == 1
