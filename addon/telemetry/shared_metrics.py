"""Edge (prometheus-client). Metrics of several worker processes, counted in files in one folder.

This is prometheus-client's multiprocess mode
(https://prometheus.github.io/client_python/multiprocess/). Each worker counts in memory-mapped
files of its own, and a scrape adds up all files of the folder. A killed worker's counts stay in its
files.

The library names the files by process id. Here they are named by the worker's index: a number that
one living process has at a time, and that the next one takes over together with the files. So the
folder does not grow with every restart. In this mode the library cannot read gauges at a scrape;
the health of the workers provides them.
"""

import os
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, values
from prometheus_client.exposition import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from addon.telemetry.health import Health, MetricFiles
from addon.telemetry.metrics import HealthCollector, Metrics

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def metrics_of_worker(
    files: MetricFiles, health: Callable[[], Health], *, dropped_observations: Callable[[], int]
) -> Metrics:
    """The metrics of this process, which continue from the values in the files."""
    os.environ[FOLDER_VARIABLE] = str(files.folder)
    values.ValueClass = values.MultiProcessValue(  # type: ignore[no-untyped-call]  # no annotations
        process_identifier=lambda: files.index
    )
    return Metrics(health, dropped_observations=dropped_observations, known=_labels_of(files))


def metrics_of_workers(
    folder: Path, health: Callable[[], Health], *, dropped_observations: Callable[[], int]
) -> Callable[[], bytes]:
    """What returns the metrics of all workers, as the text for a scrape."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    registry.register(HealthCollector(health, dropped_observations))
    return lambda: generate_latest(registry)


def _labels_of(files: MetricFiles) -> dict[str, set[str]]:
    """The label values in the files: they count towards the maximum of the new process."""
    paths = [str(path) for path in files.folder.glob(f"*_{files.index}.db")]
    found: dict[str, set[str]] = {}
    for metric in MultiProcessCollector.merge(paths):  # type: ignore[no-untyped-call]
        for sample in metric.samples:
            for name, value in sample.labels.items():
                found.setdefault(name, set()).add(value)
    return found
