"""Measures what the report path costs, in multiples of opening one report, how fast the accountant composes and how fast a device decides."""

from privateer_lab.bench.answers import bench_answers
from privateer_lab.bench.decisions import bench_decisions
from privateer_lab.bench.path import bench_memory, bench_path
from privateer_lab.bench.processor_time import bench_accountant
from privateer_lab.bench.replicas import bench_replicas

__all__ = ["bench_accountant", "bench_answers", "bench_decisions", "bench_memory", "bench_path", "bench_replicas"]
