"""One bench process a measurement, as a Pipes session: its progress in the run's log, its sealed session as a message.

The bench speaks JSON lines and knows nothing of Dagster; here they become Pipes messages. A bench that ends without a
session is a failure: no materialization is implied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster import PipesMessageReader, open_pipes_session
from dagster._core.pipes.context import PipesMessageHandler

from gfast_pipeline.bench.messages import Job, Session
from gfast_pipeline.execution import local
from gfast_pipeline.measuring import Run


class BenchReader(PipesMessageReader):
    """Gives `say`, which turns a line of the bench's progress into a Pipes message."""

    def __init__(self) -> None:
        self._handler: PipesMessageHandler | None = None

    @contextmanager
    def read_messages(self, handler: PipesMessageHandler) -> Iterator[dict[str, Any]]:
        """Opened by the session; the bench is given no parameters, for it does not know of Pipes."""
        self._handler = handler
        handler.handle_message(_message("opened", {"extras": {}}))
        yield {}
        handler.handle_message(_message("closed", {}))

    def say(self, seconds: float, line: str) -> None:
        """One line of progress."""
        self._tell("log", {"message": f"{seconds:.1f} s  {line}", "level": "INFO"})

    def done(self, session: Session) -> None:
        """The measurement as a message: what came back, in figures. The session itself goes into the log."""
        found = {"kind": session.kind, "status": session.status, "reason": session.reason}
        self._tell("report_custom_message", {"payload": {**found, "visits": len(session.visits)}})

    def no_messages_debug_text(self) -> str:
        """What to say when the session was never opened."""
        return "The bench did not start."

    def _tell(self, method: str, parameters: dict[str, Any]) -> None:
        if self._handler is not None:
            self._handler.handle_message(_message(method, parameters))


def through_pipes(context: dg.AssetExecutionContext, unsafe: bool = False) -> Run:
    """Has a job run on this machine, its progress and outcome going through a Pipes session of the step."""

    def run(job: Job) -> Session:
        job.unsafe = unsafe
        reader = BenchReader()
        with open_pipes_session(context, dg.PipesEnvContextInjector(), reader) as pipes:
            session = local.run(job, reader.say)  # raises where the bench ends without a session
            reader.done(session)
        assert not pipes.get_reported_results(), "a measurement materializes nothing: its stage does"
        return session

    return run


def _message(method: str, parameters: dict[str, Any]) -> Any:
    return {"__dagster_pipes_version": "0.1", "method": method, "params": parameters}
