"""The impure ground floor: talking to an API server, keeping copies of objects, queues, leadership, logs and traces.

It knows nothing of topology: import-linter forbids every other `core` package here. Each part with logic in it is a pure state machine that
is given the time; the asyncio around it is as thin as it can be, so that tests need neither sleeps nor servers to reach the rare orders of
events.

Imported by `certs`, `cli`, `core.runtime.http`, `core.runtime.report`, `core.runtime.serving`, `core.runtime.watch`, `reconciler`,
`webhook`.
"""
