"""The producer's process: `python -m benchmarks.child PEER` does what is asked, a line of JSON each way."""

from __future__ import annotations

import json
import sys
import time

from . import peers


def main(name: str) -> None:
    with peers.find(name).producer() as producer:
        for line in sys.stdin:
            action, arguments = json.loads(line)
            began = time.perf_counter()
            jobs = getattr(producer, action)(**arguments)
            print(json.dumps({"jobs": jobs, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
