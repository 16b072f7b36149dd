"""Pages and figures: one HTML file each, which fetches nothing."""
