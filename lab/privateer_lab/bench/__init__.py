"""Benchmarks of the report path, in multiples of the cost of opening a report."""

from privateer_lab.bench.answers import bench_answers, bench_replicas
from privateer_lab.bench.growth import LOOK, bench_soak
from privateer_lab.bench.path import bench_path

__all__ = ["LOOK", "bench_answers", "bench_path", "bench_replicas", "bench_soak"]
