"""Many runs on a Ray cluster: a task per run, wherever there is room; records come back and are written here.

What is done is found here and never sent. A task answers with the fingerprints of the model and data that its node
has, and its record counts only if they are those of this machine. Tasks of a worker or a node that dies are run again
by Ray; as only this process writes records, nothing is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from owttt._utils.cluster import connected, ray_for
from owttt._utils.processes import noticing_interruptions
from owttt.bench.engine import LOOK, Done, told
from owttt.bench.records import RunRecord
from owttt.bench.results import Results
from owttt.bench.running import Run
from owttt.bench.spec import RunSpec

RETRIES: Final = 5
"""How often a run is begun again because its worker or node died."""


def execute_on_ray(
    specs: Sequence[RunSpec], folder: Path, *, address: str | None = None, cpus: int = 1
) -> Iterator[Done]:
    """Run what is not done yet on a cluster, and yield every run as it is there.

    Args:
        specs: The runs.
        folder: Where records are found and written, on this machine.
        address: `host:port` of a cluster that is running; without one, Ray is started on this machine.
        cpus: Cores that a run takes on its node.

    Raises:
        ConnectionError: Nobody answers at the address.
        ImportError: Ray is not installed.
    """
    ray = ray_for(address)
    results, ready = Results(folder), {}
    for spec in specs:
        try:
            run = Run(spec)
            prints = run.fingerprints
            found = results.find(spec, *run.decided_by)
        except Exception as error:  # whatever a model or data set raises, the other runs go on
            yield Done(spec, None, error=told(error))
            continue
        if found:
            yield Done(spec, found[1], found[0].relative_to(folder).as_posix(), fresh=False)
        else:
            ready[spec.digest] = (spec, prints | {"source": run.source})
    if ready:
        with connected(ray, address) as ours:
            yield from _sent(ray, list(ready.values()), results, cpus, cancel=not ours)


def _sent(
    ray: Any, ready: list[tuple[RunSpec, dict[str, Any]]], results: Results, cpus: int, *, cancel: bool
) -> Iterator[Done]:
    """Send the runs and yield them as they come.

    A connection of our own takes its tasks along when it is closed. Only on the caller's connection do we `cancel`
    what is left, and never by force: a task that ends just when Ray kills it makes Ray end this process.
    """
    remote = ray.remote(num_cpus=cpus, max_retries=RETRIES)(_task)
    tasks = {remote.remote(spec.describe(), cpus): (spec, prints) for spec, prints in ready}
    waiting = list(tasks)
    try:
        with noticing_interruptions() as check:
            while waiting:
                done, waiting = ray.wait(waiting, num_returns=1, timeout=LOOK)
                check()
                yield from (_received(ray, task, *tasks[task], results) for task in done)
    finally:
        for task in waiting if cancel else ():
            ray.cancel(task)


def _received(ray: Any, task: Any, spec: RunSpec, prints: dict[str, Any], results: Results) -> Done:
    """Take what a task gave, and write its record."""
    try:
        theirs, record = ray.get(task)
    except ray.exceptions.RayError as error:
        return Done(spec, None, error=told(getattr(error, "cause", None) or error))
    if theirs != prints:
        differ = ", ".join(name for name in prints if prints[name] != theirs.get(name))
        return Done(spec, None, error=f"ValueError: the node that ran it has another {differ} than there is here.")
    return Done(spec, results.write(spec, record), results.path(spec).name)


def _task(description: dict[str, Any], cpus: int) -> tuple[dict[str, Any], RunRecord]:
    """Do a run on a node: fetch what it lacks, once per node, and return what decides the numbers, and the record."""
    import torch  # noqa: PLC0415

    from owttt._utils.allocator import keep_freed_memory  # noqa: PLC0415
    from owttt.data.catalog import catalog  # noqa: PLC0415
    from owttt.data.fetching.fetch import get  # noqa: PLC0415

    torch.set_num_threads(cpus)
    keep_freed_memory()
    spec = RunSpec.parse(description)
    for name in {data.plain for data in spec.stream.data_names} & catalog().keys():
        get(name)
    prepared = Run(spec)
    return prepared.fingerprints | {"source": prepared.source}, prepared.do(lambda done, _: done)
