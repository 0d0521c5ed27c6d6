"""Errors that the product logs with a traceback: none of them is expected, whatever goes wrong around it."""

import logging

_LOGGERS = ("core", "reconciler", "webhook")


class Reports(logging.Handler):
    """Gathers them between `begin` and `end`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.problems: list[str] = []
        self._before: list[tuple[logging.Logger, int, bool]] = []

    def begin(self) -> None:
        """From now on they are gathered; what is below the level of the root logger is not shown for it."""
        is_shown = logging.getLogger().level <= logging.WARNING
        for logger in map(logging.getLogger, _LOGGERS):
            self._before.append((logger, logger.level, logger.propagate))
            if not is_shown:
                logger.setLevel(logging.WARNING)
                logger.propagate = False
            logger.addHandler(self)

    def end(self) -> None:
        """Leaves the loggers as they were."""
        for logger, level, propagates in self._before:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagates
        self._before = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.problems.append(f"{record.name} reports an unexpected error ({record.getMessage()}): {type(error).__name__}: {error}")
