"""The process that runs one participant of a session, for one generation, through all its cases.

It holds the candidate, a private copy of the weights and the shared blocks; it never sees a tolerance, an expected
value or the secret seeds. It does what the judge's messages ask and reports facts; its own clock decides nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback

from gfast_pipeline.bench import isolation
from gfast_pipeline.bench.channel import Channel, ChannelError


def main() -> None:
    """Entry: `runner.py FD RUNG UID`. Climb down the ladder first, then import torch, then serve."""
    descriptor, rung, uid = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        isolation.apply(rung, uid)
    except isolation.IsolationError as error:
        channel.send({"ok": False, "error": str(error)})
        return
    from gfast_pipeline.bench import served

    runner = served.Runner(os.getcwd(), channel)
    channel.send({"ok": True, "pid": os.getpid()})
    while True:
        try:
            message = channel.receive(7 * 24 * 3600.0)
        except ChannelError:
            return  # the judge is gone
        if message["do"] == "exit":
            channel.send({"ok": True})
            os._exit(0)  # there is nothing to tidy up, and taking torch apart costs a third of a second
        started = time.perf_counter()
        do = message.pop("do")
        try:
            answer = getattr(runner, "do_" + do)(**message)
        except Exception as error:  # whatever a candidate raises is an answer, not an end
            answer = {
                "ok": False,
                "skip": do == "build" and type(error).__name__ == "Unavailable",  # what is built cannot decline a call
                "kind": type(error).__name__,
                "error": _brief(error),
                "trace": traceback.format_exc(limit=-4)[-2000:],
            }
        answer["seconds"] = time.perf_counter() - started
        with contextlib.suppress(ChannelError):
            channel.send(answer)


def _brief(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)[:400]


if __name__ == "__main__":
    main()
