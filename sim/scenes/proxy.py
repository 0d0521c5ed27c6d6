"""What `e2e.proxies.writes_proxy.WritesProxy` does between a reconciler and the API server, in a World."""

from pathlib import Path

from core.runtime.http.errors import Unreachable
from e2e.api import PATIENCE_S, wait_for
from e2e.proxies.writes_proxy import Cut, WritesProxy
from sim.apiserver.server import Request
from sim.replica import Replica

_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


class Happening:
    """As `threading.Event`, waited for in the time that is in use."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float = PATIENCE_S) -> bool:
        """Whether it happens in time."""
        try:
            return wait_for("the write that is cut", self.is_set, timeout, poll_s=0.005)
        except TimeoutError:
            return False


class SimulatedProxy(WritesProxy):
    """Of the replicas that are started by way of it."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self._cut: Cut | None = None
        self._is_due = False  # the write that is carried out now is cut after it
        self.has_cut = Happening()  # type: ignore[assignment]

    @property
    def is_quiet(self) -> bool:
        """What was sent has arrived some thousandths of a second later."""
        return True

    def write_kubeconfig(self, path: Path) -> Path:
        """A path that stands for the way through the proxy."""
        return path

    def watch(self, replica: Replica) -> None:
        """From now on the writes of a replica come by here."""
        replica.before_write, replica.after_write = self._meet, self._let_pass

    def _meet(self, request: Request) -> None:
        cut = self._count(_METHODS[request.verb], _get_path(request))
        self._is_due = cut is not None and cut.after
        if cut is not None and not cut.after:
            self._break_off(cut)

    def _let_pass(self, _: Request) -> None:
        if self._is_due and self._cut is not None:
            self._break_off(self._cut)

    def _break_off(self, cut: Cut) -> None:
        self._end(cut)
        raise Unreachable("the connection broke")


def _get_path(request: Request) -> str:
    kind = request.kind
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    namespace = f"namespaces/{request.namespace}" if request.namespace else ""
    return "/".join(part for part in (root, namespace, kind.plural, request.name, request.subresource) if part)
