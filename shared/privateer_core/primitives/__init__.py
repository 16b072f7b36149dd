"""Statistical primitives: questions, contributions, releases, public coins, and clipping."""
