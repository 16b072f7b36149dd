"""Measures what the report path costs, in multiples of opening one report, and how fast the accountant composes."""

from privateer_lab.bench.answers import bench_answers
from privateer_lab.bench.path import bench_memory, bench_path
from privateer_lab.bench.processor_time import bench_accountant
from privateer_lab.bench.replicas import bench_replicas

__all__ = ["bench_accountant", "bench_answers", "bench_memory", "bench_path", "bench_replicas"]
