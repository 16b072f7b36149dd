"""The statistical primitives: what is asked, what people contribute, public coins, and clipping."""
