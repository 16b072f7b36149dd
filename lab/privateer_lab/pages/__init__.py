"""Pages as self-contained HTML files: reports and privacy reviews of experiments."""
