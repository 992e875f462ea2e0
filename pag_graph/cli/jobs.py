"""What all jobs of ``spark_jobs/`` share: one line of JSON, an answer or an error, and the exit codes of `pag`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from pag_graph.analyses import find_analysis
from pag_graph.cli.analyses import ALARM
from pag_graph.cli.app import exit_code
from pag_graph.cli.follow import NOT_COMPLETE
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

    An error is a line of JSON too, with `error` (its condition), `message` and `hint`. The process ends with the exit
    code that `pag` has for it or for the answer. What nobody foresaw ends with 1 and its traceback.

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
        said = _of_spark(error)
        if said is None:
            raise
        message = f"Spark failed: {said}"
        _fail(EngineError(message, "The logs of driver and executors have the details."))
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    if code := _code(answer):
        sys.exit(code)


def _of_spark(error: Exception) -> str | None:
    """Return what an error of Spark says in one line; None for any other error."""
    spark, java = sys.modules.get("pyspark.errors"), sys.modules.get("py4j.protocol")
    if java is not None and isinstance(error, java.Py4JJavaError):
        # What PySpark does not know it passes on as it is; its first line says only which call it was.
        return str(error.java_exception.toString()).splitlines()[0]
    return str(error).splitlines()[0] if spark is not None and isinstance(error, spark.PySparkException) else None


def _code(answer: Mapping[str, Any]) -> int:
    """Return the exit code of an answer."""
    if answer.get("ending", "complete") != "complete":
        return NOT_COMPLETE
    is_alarm = "analysis" in answer and find_analysis(answer["analysis"]).alarm and answer["rows"]
    return ALARM if is_alarm else 0


def _fail(error: PagGraphError) -> NoReturn:
    sys.stdout.write(json.dumps({"error": error.condition, "message": error.message, "hint": error.hint}) + "\n")
    sys.stdout.flush()
    sys.exit(exit_code(error))
