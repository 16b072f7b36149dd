"""What operators watch: metrics, gauges, traces."""
