"""The process in which `matrix` runs one contestant; not for use by hand."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from typing import Any

import torch

from khot.compare.cost.failure import first_line
from khot.compare.cost.memory_child import claim_stdout, limit_data
from khot_bench.adversarial.contestant import Contestant, load_contestant
from khot_bench.adversarial.demands import NotANumber, NotPromised, Wrong
from khot_bench.adversarial.traps import Trap

__all__ = ["outcome"]


def outcome(contestant: Contestant, trap: Trap) -> dict[str, str]:
    """How it went, in a word, and why."""
    try:
        trap.check(contestant)
    except NotPromised as missing:
        return {"outcome": "n/a", "detail": str(missing)}
    except NotANumber as found:
        return {"outcome": "NaN", "detail": str(found)}
    except Wrong as found:
        return {"outcome": "wrong", "detail": str(found)}
    except Exception as error:
        return {"outcome": "error", "detail": f"{type(error).__name__}: {first_line(error)}"}
    return {"outcome": "pass", "detail": ""}


def main(request: dict[str, Any]) -> None:
    """Print one JSON line per trap, from the given one on."""
    from khot_bench.adversarial.matrix import ALL_TRAPS

    answers = claim_stdout()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    contestant = load_contestant(request["source"])
    for trap in ALL_TRAPS[request["start"] :]:
        limit_data(request["bytes"])
        # Processor time: a busy machine must not fail a trap.
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        answer = outcome(contestant, trap)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
