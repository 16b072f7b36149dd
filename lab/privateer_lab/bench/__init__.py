"""Measures what a report costs on its way, in multiples of opening one, and how fast accountant and devices are."""

from privateer_lab.bench.answers import bench_answers
from privateer_lab.bench.decisions import bench_decisions
from privateer_lab.bench.growth import LOOK, bench_soak
from privateer_lab.bench.path import bench_path
from privateer_lab.bench.processor_time import bench_accountant
from privateer_lab.bench.replicas import bench_replicas

__all__ = ["LOOK", "bench_accountant", "bench_answers", "bench_decisions", "bench_path", "bench_replicas", "bench_soak"]
