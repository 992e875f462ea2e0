"""What all jobs of ``spark_jobs/`` share: one line of JSON, an answer or an error, and the exit codes of `pag`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from pag_graph.cli.app import exit_code
from pag_graph.errors import EngineError, InvalidParameterError, PagGraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["JobParser", "run_job"]


class JobParser(argparse.ArgumentParser):
    """A parser whose complaints are errors of this package, so that a scheduler reads them like all others.

    Parameters
    ----------
    doc
        What the job does.
    needed
        Names of the arguments without which it does nothing, in their order.
    """

    def __init__(self, doc: str | None, *needed: str) -> None:
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name in needed:
            self.add_argument(name)

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the arguments.

        Raises
        ------
        InvalidParameterError
            Always.
        """
        raise InvalidParameterError(message, self.format_usage().strip())


def run_job(parser: JobParser, work: Callable[[argparse.Namespace], Mapping[str, Any]]) -> None:
    """Read the command line, do the work, and print its answer as one line of JSON.

    An error is a line of JSON too, with `error` (its condition), `message` and `hint`; the process ends with the exit
    code that `pag` has for it. What nobody foresaw ends with 1 and its traceback.

    Parameters
    ----------
    parser
        Knows the arguments.
    work
        Gets them; returns the answer.
    """
    try:
        answer = work(parser.parse_args())
    except PagGraphError as error:
        _fail(error)
    except Exception as error:
        spark = sys.modules.get("pyspark.errors")
        if spark is None or not isinstance(error, spark.PySparkException):
            raise
        message = f"Spark failed: {str(error).splitlines()[0]}"
        _fail(EngineError(message, "The logs of driver and executors have the details."))
    sys.stdout.write(json.dumps(answer) + "\n")


def _fail(error: PagGraphError) -> NoReturn:
    sys.stdout.write(json.dumps({"error": error.condition, "message": error.message, "hint": error.hint}) + "\n")
    sys.stdout.flush()
    sys.exit(exit_code(error))
