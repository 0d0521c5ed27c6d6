"""Errors that end a command: one clear line for each mistake, and an exit code for its kind."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from core.names import GROUP
from core.resource import Resource
from core.runtime.http.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable
from core.runtime.http.kubeconfig import UnusableKubeconfig

ADMITTED, ERROR, BAD_INPUT, WAITS = 0, 1, 2, 3

OBSERVER = "topogate-observer"  # may list all that `plan`, `explain` and `topology` read
VIEWER = "topogate-viewer"  # a part of the roles view, edit and admin: may list Workloads and LocalQueues
PERMITTED_BY_OBSERVER = f"the ClusterRole {OBSERVER} of the chart permits it: an administrator binds it to you with a ClusterRoleBinding"


class Failure(Exception):
    """Ends the command with these lines on stderr and this exit code."""

    def __init__(self, lines: str | Iterable[str], code: int = ERROR) -> None:
        self.lines = (lines,) if isinstance(lines, str) else tuple(lines)
        self.code = code
        super().__init__("\n".join(self.lines))


class BadInput(Failure):
    """What was given on the command line or in files is wrong."""

    def __init__(self, lines: str | Iterable[str]) -> None:
        super().__init__(lines, BAD_INPUT)


@contextmanager
def report_in_a_line(what: str, resource: Resource | None = None) -> Iterator[None]:
    """Raises Failure for a KubeError, and BadInput for an UnusableKubeconfig, inside the context; other errors pass. The message says that
    `what` was to be done. For a missing `resource` of Kueue's API group it says that CustomResourceDefinitions are to be installed. For a
    missing right, and a `what` that begins with `list `, it names the ClusterRole that has it."""
    try:
        yield
    except UnusableKubeconfig as error:
        raise BadInput(str(error)) from error
    except Unreachable as error:
        raise Failure(f"cannot {what}: the API server cannot be reached: {error.message}") from error
    except Unauthorized as error:
        raise Failure(
            f"cannot {what}: the API server does not accept the credentials of the kubeconfig: {_describe_error(error)}"
        ) from error
    except Forbidden as error:
        remedy = f"; {PERMITTED_BY_OBSERVER}" if what.startswith("list ") else ""
        raise Failure(f"cannot {what}: no permission: {_describe_error(error)}{remedy}") from error
    except NotFound as error:
        raise Failure(_describe_missing(what, resource, error)) from error
    except KubeError as error:
        raise Failure(f"cannot {what}: {_describe_error(error)}") from error


def describe_missing_right(resource: Resource, namespace: str | None = None) -> str:
    """Returns a sentence that a resource may not be listed, with the ClusterRole that permits it: in `namespace`, or everywhere (None)."""
    if namespace is None:
        return f"you may not list {resource}; {PERMITTED_BY_OBSERVER}"
    roles = f"{VIEWER} of the chart, which Kubernetes' roles view, edit and admin include," if resource.group == GROUP else "view"
    binding = f"an administrator binds it to you with a RoleBinding in namespace {namespace}"
    return f"you may not list {resource} in namespace {namespace}; the ClusterRole {roles} permits it: {binding}"


def _describe_missing(what: str, resource: Resource | None, error: NotFound) -> str:
    if resource is not None and resource.group == GROUP:
        wanted = f"{resource} in version {resource.version}"
        return f"cannot {what}: the API server has no {wanted}; install topogate's CustomResourceDefinitions (charts/topogate) first"
    return f"cannot {what}: {_describe_error(error)}"


def _describe_error(error: KubeError) -> str:
    return " ".join((error.message or str(error)).split())
